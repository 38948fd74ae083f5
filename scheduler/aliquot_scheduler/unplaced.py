"""What nodes say to a pod that waits for a place: a half of `explaining`, as `resident` is of bound ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from aliquot_core.counting import none_of, some_of
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import PodRequest
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.fit.ground import host_ask
from aliquot_scheduler.fit.obstacles import Obstacles
from aliquot_scheduler.fit.refusals import told_often
from aliquot_scheduler.fit.survey import Survey
from aliquot_scheduler.lacking import lacks
from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.queues.waiting.states import promised_to
from aliquot_scheduler.rules.judging import Rules

# The reason that the API server writes for pods behind gates.
_GATED = "SchedulingGated"


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one node says to the pod."""

    node: str
    fits: bool
    why: str


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """All that nodes say, and in one sentence why it waits, as far as they know."""

    summary: str
    nodes: Sequence[NodeAnswer]


def what_nodes_say(pod: Pod, request: PodRequest, *, picture: Picture, names: Names, rules: Rules) -> Unplaced:
    """Of a pod that waits for a place: by its GPUs, by all else, and why it lies nowhere yet."""
    finder, demand = Finder(picture=picture, names=names, rules=rules, named=True), demand_of(request)
    found = finder.survey(pod, demand)
    obstacles, ask = Obstacles(picture=picture), host_ask(pod, names=names)
    unsuited = {name: why for name, known in picture.nodes.items() if (why := obstacles.of_node(ask, known))}
    rows = {name: known.row for name, known in picture.nodes.items()}
    unfit = {name: row for name, row in rows.items() if not found.fits[row]}
    refusals = finder.refusals(demand, unfit, judgements=found.judgements, short=found.short)
    answers = [
        NodeAnswer(node=name, fits=False, why=_refusal(refusals[name].why, picture.nodes[name], request))
        if name in refusals
        else NodeAnswer(node=name, fits=False, why=unsuited[name])
        if name in unsuited
        else NodeAnswer(node=name, fits=True, why=_room(found, name))
        for name in sorted(rows)
    ]
    no_node = obstacles.why_none(ask, roomy=found.fits, refused=lambda nodes: {name: refusals[name] for name in nodes})
    lacks_room = all(name in refusals and not refusals[name].final for name in unfit)
    summary = _why_it_waits(pod, answers, no_node=no_node, lacks_room=lacks_room, names=names)
    return Unplaced(summary=summary, nodes=answers)


def _refusal(why: str, node: KnownNode, request: PodRequest) -> str:
    """With what keeps its GPUs from an isolation that they were to offer."""
    return "; ".join([why, *lacks(node.inventory, request)])


def _room(found: Survey, node: str) -> str:
    """That there is, and what rules say all the same."""
    said = found.judgements.get(node)
    return "; ".join(["has room", *(said.remarks if said else ())])


def _why_it_waits(pod: Pod, answers: Sequence[NodeAnswer], *, no_node: str, lacks_room: bool, names: Names) -> str:
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    foreign = [gate for gate in gates if gate != names.gate]
    if foreign:
        return f"it waits behind gates that are not Aliquot's: {', '.join(foreign)}"
    able = sum(answer.fits for answer in answers)
    takes = none_of(len(answers), "node", one="does not take it", none="takes it")
    if no_node:
        return f"{takes}: {no_node}"
    if not answers:
        return "the cluster has no nodes"
    if not able:
        reasons = Counter(answer.why for answer in answers)
        none = none_of(len(answers), "node", one="has no room", none="has room") if lacks_room else takes
        return f"{none}: {told_often(reasons)}"
    room = have_room(able, len(answers))
    return f"{room}{_when(pod, names=names)}" if gates else _why_not_bound(pod, answers, room=room, names=names)


def _why_not_bound(pod: Pod, answers: Sequence[NodeAnswer], *, room: str, names: Names) -> str:
    """Of one that waits behind no gate, and has room."""
    kept, word = promised_to(pod, names=names), scheduler_s_word(pod)
    if kept and any(answer.fits and answer.node == kept.node for answer in answers):
        where = f"on node {kept.node}, unless its scheduler has asked for another since"
        return f"it was let in with room kept for it {where}; its binding is missing: {word}"
    return f"{room}, but something else keeps it from them: {word}"


def _when(pod: Pod, *, names: Names) -> str:
    """Room for one of a group says nothing of room for all."""
    if pod.metadata.labels.get(names.group):
        return " for this pod alone; those of its group come in together, once all have room"
    return "; its turn comes next, unless that room was promised to others a moment ago"


def have_room(able: int, nodes: int) -> str:
    """That so many of them have."""
    return f"{some_of(able, nodes, 'node')} room"


def scheduler_s_word(pod: Pod) -> str:
    """What kube-scheduler wrote last; of a gate it wrote before that was lifted, and has not looked since."""
    said = [one.message for one in pod.status.conditions if one.type == "PodScheduled" and one.reason != _GATED]
    of = pod.spec.scheduler_name
    none = f"{of} (its spec.schedulerName) has not looked at it yet" if of else "kube-scheduler has not said what"
    return said[-1] if said and said[-1] else none
