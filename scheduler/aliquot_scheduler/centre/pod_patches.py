"""What the leader writes on a pod that waits, or waits no more: its condition, its nomination, its gate, its turn.

The nomination spares kube-scheduler the round over all nodes: it tries that node first, alone. It would also pass over
what the pod prefers, so a pod that prefers or avoids anything is not nominated, nor one that a soft taint keeps off as
far as it can. Where nothing else is to be said in its status, it is a write by itself, and dearer than the round over
1,000 nodes: of few nodes only those are nominated that are of a group or had a turn before.

All are strategic merges: for the other kinds kube-apiserver writes the whole pod as JSON and reads it back, which
is 0.3 to 0.5 ms more of its CPU for each patch (run: 1.36.3).

What must always hold: each patch meets the very pod that was judged, and nothing on it that others wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.patches import Patch, strategic_patch
from aliquot_scheduler.deciding.turns import Turn
from aliquot_scheduler.queues.telling.notices import Notice
from aliquot_scheduler.queues.waiting.showings import written
from aliquot_scheduler.queues.waiting.states import was_told_to_wait

# Of all processes' CPU the write takes 5.5 ms, kube-scheduler's round 4.2 ms for each 1,000 nodes (run: 1.36.3).
# Nodes without GPUs count too: its round ends early only once enough nodes take the pod, so where few have GPUs it asks
# its own filters of every node. Run was a round in which all had them: of the others one costs less, and where they are
# many, what is lost by counting them is one write at the most.
FEW_NODES = 1_000

LET_IN = Notice(reason="LetIn", message="its turn has come")


def saying(pod: Pod, notice: Notice, *, admitted: bool, names: Names, at: str, node: str = "") -> Patch:
    """Let this very pod say so, whatever else it says; and that it is nominated for the node, if there is one."""
    said = {
        "type": names.admitted,
        "status": str(admitted),
        "reason": notice.reason,
        "message": notice.message,
        "lastTransitionTime": at,
    }
    status: dict[str, Any] = {"conditions": [said]} | ({"nominatedNodeName": node} if node else {})
    return strategic_patch({"metadata": {"uid": pod.metadata.uid}, "status": status})


def let_through(turn: Turn, *, queue: str, names: Names, wall: float) -> Patch:
    """Take our gate away; or where it is gone, change what makes kube-scheduler look at the pod again.

    The queue that lets it in goes with it, if queues count: the next leader charges that one, whatever the namespace
    is labelled by then. No gate can be added to a pod that is there, so what was the last one is so still. And so does
    where room is kept for it, which the next leader knows from nowhere else; or since when it is shown. Of a
    group the run goes with it too, or what was said of one before is taken away.
    """
    notes: dict[str, str | None] = {names.charged: queue} if queue else {}
    if turn.promise:
        notes[names.promised] = " ".join((turn.promise.node, *turn.promise.plan.claims))
        gone = names.shown
    else:
        notes[names.shown] = written(wall=wall, times=turn.shown, queue=turn.queue)
        gone = names.promised
    if turn.run or names.group_run in turn.pod.metadata.annotations:
        notes[names.group_run] = turn.run or None
    if gone in turn.pod.metadata.annotations:
        notes[gone] = None
    if turn.pod.spec.scheduling_gates:
        return _patched(turn.pod, notes, spec={"schedulingGates": None})
    return _patched(turn.pod, notes | {names.turn: str(turn.number)})


def with_room(pod: Pod, words: str, *, names: Names) -> Patch:
    """Say where room is being made for it; or, without words, that none is any more."""
    return _patched(pod, {names.room: words or None})


def with_over_use(pod: Pod, word: str, *, names: Names) -> Patch:
    """Say how far its queue lets it climb; or, without a word, that its node says so."""
    return _patched(pod, {names.over_use: word or None})


def _patched(pod: Pod, notes: Mapping[str, str | None], **more: Any) -> Patch:
    return strategic_patch({"metadata": {"uid": pod.metadata.uid, "annotations": notes}, **more})


def nominated(pod: Pod, node: str) -> Patch:
    """Say where there is room for it."""
    return strategic_patch({"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": node}})


def status_of(turn: Turn, *, names: Names, at: str, nodes: int) -> Patch | None:
    """Where there is room for it; and that it waits no more, if it was told that it does. None if there is nothing.

    `nodes` is how many kube-scheduler would look at. Who has no room is only shown to an autoscaler, and waits.
    """
    pod = turn.pod
    if turn.promise is None:
        return None
    node = turn.promise.node if turn.promise.alone else ""
    if was_told_to_wait(pod, names=names):
        return saying(pod, LET_IN, admitted=True, names=names, at=at, node=node)
    return nominated(pod, node) if node and _is_worth_a_write(pod, names=names, nodes=nodes) else None


def _is_worth_a_write(pod: Pod, *, names: Names, nodes: int) -> bool:
    """Whether a nomination is, that nothing else is to be said with.

    kube-scheduler keeps the CPU of its node for a nominated pod. Alone, at its first turn, a pod may go elsewhere as
    well; one of a group that can't would hold up all of it, and one that had a turn before has waited long enough.
    """
    return nodes > FEW_NODES or names.group in pod.metadata.labels or not pod.spec.scheduling_gates


def not_nominated(pod: Pod) -> Patch:
    """Say no more where there is room for it."""
    return strategic_patch({"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": None}})
