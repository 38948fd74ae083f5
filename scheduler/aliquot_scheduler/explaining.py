"""Why a pod is where it is, or why it waits: worked out from what the API server has, by the code that decides.

Nothing is asked of the leader. Whoever may read nodes, pods, queues and heart-beats gets the same picture and the same
answers, for where room is kept is written on the pods that were let in. What the leader has promised a moment ago, and
not written yet, is left out, and said to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from aliquot_core.counting import agreed, counted
from aliquot_core.disruptions import PodDisruptionBudget
from aliquot_core.errors import AliquotError
from aliquot_core.names import Names
from aliquot_core.objects import Lease, Node, Pod
from aliquot_core.request import PodRequest, parse_request
from aliquot_scheduler.picture.picture import Picture, picture_of
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.telling.reasons import of_queues, quota_of_path, why_it_waits
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.status import QueueStatus
from aliquot_scheduler.queues.telling.why import NEVER_FITS, NO_QUEUE_FOR_IT, NOBODY_GOES, as_shown
from aliquot_scheduler.queues.waiting.states import said_of
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.queues.waiting.waits import UsualWait
from aliquot_scheduler.reclaim.inquiry import Inquiry
from aliquot_scheduler.resident import BEING_DELETED, HeldSlice, agents_word, kubelets_word, residence
from aliquot_scheduler.rules.judging import NO_RULES, Rules
from aliquot_scheduler.unplaced import NodeAnswer, have_room, scheduler_s_word, what_nodes_say

# So many of those who come just before a pod are named.
_NAMED = 5
# The scheduler that the webhook writes into pods, unless `[admission] scheduler_name` says otherwise.
OUR_SCHEDULER = "aliquot"
# What the leader says of such a pod begins so too.
_LOST = "its turn led to no binding"


class QueuePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod stands in its queue: `place` counts all queues' pods in the order of their turns, 0 is in no line.

    `never`: it could not be let in whatever others do, as queues and nodes are.
    """

    queue: str
    user: str
    place: int
    waiting: int
    before: Sequence[str]
    # What of queues keeps it from being let in; empty if that is room alone.
    why: str
    quota: Sequence[str]
    never: bool = False
    usual_wait: UsualWait | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer; `summary` is one sentence."""

    pod: str
    state: str
    summary: str
    asked: Sequence[str] = ()
    node: str = ""
    slices: Sequence[HeldSlice] = ()
    nodes: Sequence[NodeAnswer] = ()
    queue: QueuePlace | None = None
    # Why it waits in a word, as its condition says it.
    reason: str = ""
    # How its slices are held, what of it is hard and what cooperative.
    held: Sequence[str] = ()
    # What it uses of what it asked, as far as somebody tells.
    advice: Sequence[str] = ()


def explain(
    pod: Pod,
    *,
    nodes: Iterable[Node],
    leases: Iterable[Lease],
    pods: Iterable[Pod],
    names: Names,
    wall: float,
    plan: Plan | None = None,
    statuses: Mapping[str, QueueStatus] | None = None,
    settings: QueueSettings = QueueSettings(),
    rules: Rules = NO_RULES,
    scheduler: str = OUR_SCHEDULER,
    budgets: Sequence[PodDisruptionBudget] = (),
) -> Explanation:
    """Explain one pod, given all that is on the cluster; without a plan nothing is said of queues."""
    pods = list(pods)
    try:
        request = parse_request(pod, names=names)
    except AliquotError as error:
        return Explanation(pod=pod.key, state="refused", summary=f"what it asks can't be met: {error}")
    if not request.containers:
        return Explanation(pod=pod.key, state="other", summary="it asks nothing of Aliquot")
    picture = picture_of(nodes=nodes, leases=leases, pods=pods, names=names, wall=wall)
    asked = _asked(request)
    if (settled := _settled(pod, picture=picture, asked=asked, names=names)) is not None:
        return settled
    # Where others hold it no turn is kept for it, and one that is let in with room has had its own.
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    standing = None
    if plan is not None and gates in ([], [names.gate]):
        standing = Standing(
            picture=picture,
            plan=plan,
            pods=pods,
            names=names,
            wall=wall,
            told=statuses,
            settings=settings,
            rules=rules,
            but=pod.metadata.uid,
        )
    # With what is promised to others in the picture by then.
    said = what_nodes_say(pod, request, picture=picture, names=names, rules=rules)
    told = Explanation(pod=pod.key, state="waiting", summary=said.summary, asked=asked, nodes=said.nodes)
    if standing is not None:
        told = _of_its_turn(told, pod, standing=standing, inquiry=Inquiry(standing, wall=wall, budgets=budgets))
    return msgspec.structs.replace(told, summary="; ".join([told.summary, *_asks_us(pod, scheduler)]))


def _settled(pod: Pod, *, picture: Picture, asked: Sequence[str], names: Names) -> Explanation | None:
    """Of one that has ended, has its place or is deleted; None of one that waits for a place."""
    if pod.ended:
        why = f"it has ended ({pod.status.phase}), and its slices are free"
        return Explanation(pod=pod.key, state="ended", summary=why, asked=asked, node=pod.spec.node_name)
    if node := pod.spec.node_name:
        there = residence(pod, picture=picture, names=names)
        return Explanation(
            pod=pod.key, state=there.state, summary=there.why, asked=asked, node=node, slices=there.slices
        )
    if pod.metadata.deletion_timestamp:
        why = f"{BEING_DELETED}, and gets no turn any more"
        return Explanation(pod=pod.key, state="ending", summary=why, asked=asked)
    return None


def _of_its_turn(told: Explanation, pod: Pod, *, standing: Standing, inquiry: Inquiry) -> Explanation:
    """The same with what its queue says, if its turn has not come or has led to nothing."""
    waiter = standing.waiter(pod)
    if waiter is None or not (pod.spec.scheduling_gates or standing.waits_without_gate(waiter)):
        return told
    lost, shown = standing.has_lost_its_turn(waiter), waiter.uid in standing.shown
    told = _in_its_queue(told, waiter, standing=standing, inquiry=inquiry)
    if others := standing.shown.instead_of(waiter):
        told = msgspec.structs.replace(told, summary=f"{told.summary}; {others}")
    if shown:
        return msgspec.structs.replace(told, summary=as_shown(told.summary))
    if not lost or told.summary.startswith(_LOST):
        return told
    return msgspec.structs.replace(told, summary=f"{_LOST}: {told.summary}")


def _said_first(why: str, told: Explanation, *, last: bool) -> str:
    """What the queue says; and where no node has room either, that with its numbers.

    Of what the leader wrote `last` the numbers are older, and said of nodes as well.
    """
    if any(answer.fits for answer in told.nodes):
        return why
    return f"{told.summary}; as the leader wrote last: {why}" if last else f"{why}; {told.summary}"


def _behind(told: Explanation, before: Sequence[Waiter], *, named: bool) -> str:
    """Where others come first, room alone is not enough."""
    able = sum(answer.fits for answer in told.nodes)
    room = have_room(able, len(told.nodes)) if able else told.summary
    turn = agreed(len(before), "has its turn", "have their turn")
    last = ", the last of them" if len(before) > _NAMED else ""
    whose = f"{last}: {', '.join(_just_before(before))}" if named else ""
    return f"{room}; {counted(len(before), 'pod')} {turn} before it{whose}"


def _just_before(before: Sequence[Waiter]) -> list[str]:
    return [one.pod.key for one in before[-_NAMED:]]


def by_its_condition(pod: Pod, *, names: Names) -> Explanation:
    """What is written on the pod itself, for who may read the pod and not the cluster."""
    ending = [BEING_DELETED] if pod.metadata.deletion_timestamp else []
    if node := pod.spec.node_name:
        why = "; ".join([f"it is bound to node {node}", *ending, *agents_word(pod, names=names), *kubelets_word(pod)])
        return Explanation(pod=pod.key, state="placed", summary=why, node=node)
    if ending:
        return Explanation(pod=pod.key, state="ending", summary=f"{BEING_DELETED}, and gets no turn any more")
    said = said_of(pod, names=names)
    if said is None or said.status == "True":
        return Explanation(
            pod=pod.key, state="waiting", summary=f"its queue has not held it up: {scheduler_s_word(pod)}"
        )
    summary = f"{said.message or said.reason}, as the leader wrote last"
    return Explanation(pod=pod.key, state="waiting", summary=summary, reason=said.reason)


def _in_its_queue(told: Explanation, waiter: Waiter, *, standing: Standing, inquiry: Inquiry) -> Explanation:
    """The same, with the pod's place; what a queue says against it comes before what nodes say."""
    # In this order: whoever comes before it is charged as if let in.
    found, quota = why_it_waits(waiter, standing), quota_of_path(waiter, standing)
    why = of_queues(found, waiter, standing)
    quota += [said] if (said := inquiry.why(waiter)) else []
    usual, waiting = standing.usual_wait(waiter.queue), len(standing.waiting(waiter.queue))
    never = bool(standing.why_never(waiter))
    before = standing.before(waiter)
    # Room would be of no use to who can't come in for good; and what nodes say for good they say of now as well.
    once = why and found.word in {NO_QUEUE_FOR_IT, NEVER_FITS}
    queueless = not standing.plan.specs
    behind = _behind(told, before, named=queueless) if before else told.summary
    summary = why if once else _said_first(why, told, last=found.word == NOBODY_GOES) if why else behind
    if queueless:
        # Others come first and groups wait all the same, but there is no queue to tell of, nor its place in one.
        return msgspec.structs.replace(told, summary=summary, reason=found.word)
    place = QueuePlace(
        queue=waiter.queue,
        user=waiter.user,
        place=0 if before is None else len(before) + 1,
        waiting=waiting,
        before=_just_before(before or []),
        why=why,
        quota=quota,
        never=never,
        usual_wait=usual,
    )
    return msgspec.structs.replace(told, summary=summary, queue=place, reason=found.word)


def _asked(request: PodRequest) -> list[str]:
    lines = []
    for one in request.containers:
        compute = f"{one.compute} compute" if one.compute else "idle compute (best effort)"
        burst = f", up to {one.limit}" if one.compute and one.limit > one.compute else ""
        memory = f"{one.memory} memory" if one.memory else "compute's share of the card's memory"
        gpus = f" on {len(one.shares)} GPUs" if len(one.shares) > 1 else ""
        lines.append(f"{one.kind} container {one.name}: {compute}{burst}, {memory}{gpus}")
    return lines


def _asks_us(pod: Pod, ours: str) -> Iterator[str]:
    """Of a pod behind gates: lifting them is not all if its scheduler is not ours, as the webhook warned."""
    name = pod.spec.scheduler_name
    if pod.spec.scheduling_gates and name not in {"", ours}:
        yield f"its spec.schedulerName is {name}, which must ask Aliquot's extender, or it never starts"
