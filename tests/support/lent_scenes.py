"""Scenes in which what was lent is asked back: who runs, who comes, who goes for that, and who is in at last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot_scheduler.queues.said.spec import QueueSpec
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

# Compute and memory.
Asked = tuple[int | None, int | None]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Pods by UID, each in the queue that it is named by."""

    queues: Mapping[str, QueueSpec]
    runs: Mapping[str, Asked]
    comes: Mapping[str, Asked]
    gone: Sequence[str]
    let_in: Sequence[str]
    # How many cards each node has.
    nodes: Sequence[int] = (1, 1, 1, 1)


def stage_of(scene: Scene) -> ReclaimStage:
    """Those run who do, let in one after the other before anybody was guaranteed anything."""
    stage = ReclaimStage({name: queue() for name in scene.queues}, nodes=scene.nodes)
    for uid, asked in scene.runs.items():
        _submit(stage, uid, asked)
        assert stage.run(after=1.0) == [uid]
    stage.queues.queues_seen(scene.queues)
    return stage


def expect(scene: Scene) -> ReclaimStage:
    """Those come who do; those go for it who have to, as few as need be, and once they are gone it is over."""
    stage = stage_of(scene)
    for uid, asked in scene.comes.items():
        _submit(stage, uid, asked)
    let_in, gone = stage.run(after=1.0), stage.reclaimed()
    let_in += stage.run(after=1.0)
    assert (gone, sorted(let_in)) == (sorted(scene.gone), sorted(scene.let_in))
    assert stage.victims(after=11.0) == []
    return stage


def _submit(stage: ReclaimStage, uid: str, asked: Asked) -> None:
    stage.submit(uid, *asked, queue=uid.rstrip("0123456789"))
