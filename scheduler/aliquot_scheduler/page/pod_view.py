"""One pod: what it asks, where it is or why it waits, and all that was written on it, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.page.amounts import NONE, gib, percent
from aliquot_scheduler.page.html import Html, join, link, tag
from aliquot_scheduler.page.lists import since
from aliquot_scheduler.page.model import PodShown, Stage, State, WaitingShown
from aliquot_scheduler.page.views import Region, View, keyed, row, table
from aliquot_scheduler.queues.waiting.waits import usual_wait

# An annotation may be of 256 KiB, and a reader has only so much patience.
LONGEST = 2000
_CONDITION, _NOTE = ("Condition", "Status", "Reason", "Message", "Since"), ("Name", "Value")


def pod_view(namespace: str, name: str, state: State, *, pods: Mapping[str, Pod], names: Names) -> View:
    """Draw it; `pods` are all objects by namespace and name, in a mapping that may change meanwhile."""
    title, pod = f"Pod {namespace}/{name}", pods.get(f"{namespace}/{name}")
    shown = next((one for one in state.pods if (one.namespace, one.name) == (namespace, name)), None)
    if shown is None or pod is None:
        why = tag("p", "There is no such pod, or it asks for no slices.")
        return View(title=title, section="applications", pieces=(why,), found=False)
    conditions = {
        one.type: row(
            one.type,
            one.type,
            one.status,
            one.reason,
            cut(one.message),
            since(one.last_transition_time or ""),
            heads=_CONDITION,
        )
        for one in pod.status.conditions
    }
    notes = {
        key: row(key, key, cut(value), heads=_NOTE)
        for key, value in sorted(pod.metadata.annotations.items())
        if key.startswith(f"{names.domain}/")
    }
    pieces = (
        Region(name="pod", children=_facts(shown, state, pods=pods)),
        *_slices(shown, state),
        *table(
            "Conditions",
            _CONDITION,
            Region(name="conditions", element="tbody", children=conditions),
        ),
        *table("Annotations of Aliquot", _NOTE, Region(name="notes", element="tbody", children=notes)),
    )
    return View(title=title, section="applications", pieces=pieces)


def _facts(pod: PodShown, state: State, *, pods: Mapping[str, Pod]) -> dict[str, Html]:
    owner = pod.owner
    waits = next((one for one in state.waiting if one.pod == pod.key), None)
    told: list[tuple[str, object]] = [
        ("Stage", pod.stage if pod.stage is not Stage.ENDED else f"ended ({pod.phase})"),
        ("Queue", pod.queue or NONE),
        ("Node", link(pod.node, "nodes", pod.node) if pod.node else NONE),
        ("Application", link(f"{owner.kind} {owner.name}", "applications", owner.namespace, owner.kind, owner.name)),
        # A whole GPU counts with all its memory, whatever of it was asked.
        ("Asks" if waits else "Counts in its queue", f"{pod.compute} % compute, {gib(pod.memory)}"),
        ("Created", since(pod.created)),
        *(("Uses more than granted", f"its node has come to: {rung}") for rung in _rungs(pod, state)),
    ]
    if waits:
        told += [("User", waits.user), ("Why it waits", f"{waits.reason}: {waits.why}")]
        told += [("Place", where) for where in _place(pod, waits, state)]
        told += [("Usual wait", usual) for usual in _usual(waits.queue, state, pods=pods)]
    facts = [join(tag("dt", name), tag("dd", value)) for name, value in told]
    return {"facts": keyed("dl", "facts", *facts, class_="facts")}


def _rungs(pod: PodShown, state: State) -> list[str]:
    slices = (one for node in state.nodes if node.name == pod.node for gpu in node.gpus for one in gpu.slices)
    return sorted({one.over_use for one in slices if one.pod == pod.key and one.over_use})


def _place(pod: PodShown, waits: WaitingShown, state: State) -> Iterator[str]:
    """Among those of its user, whose order is sure; users take turns by what they have, which each turn changes."""
    if pod.stage is not Stage.WAITING:
        return
    stages = {one.key: one.stage for one in state.pods}
    line = [one for one in state.waiting if one.queue == waits.queue and stages.get(one.pod) is Stage.WAITING]
    own = [one.pod for one in line if one.user == waits.user]
    yield (
        f"{own.index(pod.key) + 1} of {len(own)} of user {waits.user}; {len(line)} wait in queue {waits.queue}; "
        f"among all: aliquot explain -n {pod.namespace} {pod.name}"
    )


def _usual(queue: str, state: State, *, pods: Mapping[str, Pod]) -> Iterator[str]:
    """When its turn may come: nobody knows, but how long others waited is known."""
    members = (pods.get(one.key) for one in state.pods if one.queue == queue)
    if usual := usual_wait(pod for pod in members if pod is not None):
        yield str(usual)


def _slices(pod: PodShown, state: State) -> list[Html | Region]:
    heads = ("GPU", "Model", "Compute granted", "Compute used", "Memory granted", "Memory used", "Other pods")
    numbers = frozenset({2, 3, 4, 5, 6})
    rows = {
        gpu.uuid: row(
            gpu.uuid,
            link(f"GPU {gpu.index} of {gpu.node}", "gpus", gpu.node, gpu.uuid),
            gpu.model,
            f"{one.compute} %",
            percent(one.used_compute),
            gib(one.memory),
            gib(one.used_memory),
            len(gpu.slices) - 1,
            heads=heads,
            numbers=numbers,
        )
        for node in state.nodes
        for gpu in node.gpus
        for one in gpu.slices
        if one.pod == pod.key
    }
    return table("Its slices", heads, Region(name="slices", element="tbody", children=rows), numbers=numbers)


def cut(value: str) -> str:
    """As much of it as anybody reads."""
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}… ({len(value)} characters)"
