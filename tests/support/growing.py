"""Queues that grow before a small cluster: who has room is bound, and the gates of those who are shown are lifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aliquot_core.instants import second_time
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from support.centre import WALL
from support.queue_stage import Stage, queue

MINUTE = 60.0


def shown(stage: Stage) -> list[str]:
    """Who is shown now, by quota."""
    return sorted(stage.queues.register.showings.shown)


def lifted(stage: Stage) -> list[str]:
    """Whose gates are lifted, and who is not bound."""
    return [uid for uid, pod in stage.pods.items() if not pod.spec.scheduling_gates and not pod.spec.node_name]


def go(stage: Stage, *, after: float = 0.0) -> list[str]:
    """A round: who has room is bound, the gates of the others are lifted; whose turns were told."""
    found = stage.round(after=after)
    room = stage.promised(found)
    stage.bind(*room)
    stage.lift(*[uid for uid in found if uid not in room])
    return found


def full(specs: Mapping[str, QueueSpec], *, settings: QueueSettings | None = None, taken: int = 100) -> Stage:
    """One GPU, and so much of it taken by another queue."""
    stage = Stage({**specs, "other": queue()}, nodes=(1,), settings=settings)
    stage.submit("x", taken, queue="other")
    assert go(stage) == ["x"]
    return stage


def led_anew(
    stage: Stage,
    specs: Mapping[str, QueueSpec],
    *,
    nodes: Sequence[int] = (1,),
    settings: QueueSettings | None = None,
) -> Stage:
    """The same a moment later under another leader: the queues' last status, and pods in another order."""
    other, wall = Stage({}, nodes=nodes, settings=settings), WALL + stage.now
    other.now = stage.now
    other.queues.queues_seen({**specs, "other": queue()})
    other.queues.recall(stage.queues.statuses(now=stage.now, at=second_time(wall)), wall=wall, now=stage.now)
    for uid in sorted(stage.pods, reverse=True):
        other.see(stage.pods[uid])
    return other
