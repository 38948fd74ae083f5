"""A defect where room is made for somebody, or told of, ends neither the leader nor what is done for others."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot_core.objects import Pod
from aliquot_scheduler.centre import room_writer
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.waiting.waiter import Candidate
from support.evicting import Scene, says
from support.queue_stage import queue

# Two owners, who both lack what blue has.
OWNERS = {"red": queue(guarantee=200), "green": queue(guarantee=100), "blue": queue()}


def trips(*_: object, **__: object) -> Any:
    """What no test foresees."""
    raise KeyError("planted")


async def test_for_whom_a_search_trips_nobody_else_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other owner gets its card, and it gets its own once the search trips no more."""
    scene, planned = Scene(OWNERS), Scene(OWNERS).stage.reclaim.__class__._planned

    def tripping(self: Any, candidate: Candidate, *args: Any, **more: Any) -> Clearing | None:
        return trips() if candidate.first.queue == "red" else planned(self, candidate, *args, **more)

    monkeypatch.setattr(type(scene.stage.reclaim), "_planned", tripping)
    scene.stage.submit("r0", 100, queue="red")
    scene.stage.submit("g0", 100, queue="green")
    await scene.look(3)
    scene.go()
    await scene.look(3)
    assert (scene.api.tried, scene.stage.pods["g0"].spec.node_name) == (["b3"], "n0")
    assert scene.evictor.untold == 1
    monkeypatch.setattr(type(scene.stage.reclaim), "_planned", planned)
    await scene.look(20)
    assert scene.api.tried == ["b3", "b2"]


@pytest.mark.parametrize(
    ("of", "step"),
    [("reclaim", "anybody"), ("consolidation", "decide"), ("torn", "write"), ("moved", "write"), ("rooms", "write")],
)
async def test_a_step_that_trips_is_tried_again(of: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ever more seldom; and when it trips no more, who waits has its card."""
    scene = Scene(OWNERS)
    whose = getattr(scene.stage if of in {"reclaim", "consolidation"} else scene, of)
    scene.stage.submit("r0", 100, queue="red")
    with monkeypatch.context() as broken:
        broken.setattr(whose, step, trips)
        if of == "consolidation":
            broken.setattr(whose, "anybody", lambda **_: True)
        await scene.look(3)
        assert scene.evictor.untold == 1
    await scene.look(10)
    assert scene.api.tried == ["b3"]


async def test_one_that_can_t_be_told_of_its_room_has_it_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are told of theirs; and it is counted, whichever part of it trips."""
    for name in ("words_for", "with_room"):
        scene, whole = Scene(OWNERS), getattr(room_writer, name)

        def tripping(first: Any, *args: Any, whole: Any = whole, **more: Any) -> Any:
            pod = first if isinstance(first, Pod) else first.candidate.first.pod
            return trips() if pod.metadata.uid == "r0" else whole(first, *args, **more)

        scene.stage.submit("r0", 100, queue="red")
        scene.stage.submit("g0", 100, queue="green")
        with monkeypatch.context() as broken:
            broken.setattr(room_writer, name, tripping)
            await scene.look(4)
        assert (scene.api.tried, says(scene, "r0"), bool(says(scene, "g0"))) == (["b3", "b2"], "", True)
        assert (scene.rooms.untold > 0, scene.evictor.untold) == (True, 0)


async def test_groups_that_can_t_be_looked_for_end_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are sent back as soon as they can be looked for."""
    scene = Scene(OWNERS, group={"group-size": "4", "group-min": "4"})
    scene.stage.gone("b0")
    with monkeypatch.context() as broken:
        broken.setattr(scene.stage.queues, "stale_gangs", trips)
        await scene.look(70)
        assert (scene.api.tried, scene.gangs.untold > 1) == ([], True)
    await scene.look(90)
    assert sorted(scene.api.tried) == ["b1", "b2", "b3"]
