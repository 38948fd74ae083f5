"""Pods say where room is made for them before anybody is asked to go, so that whoever leads next goes on with it."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from aliquot_core.objects import Pod
from aliquot_kube.errors import (
    ApiError,
    DisruptionBlockedError,
    ForbiddenError,
    InvalidError,
    ServerTroubleError,
    UnreachableError,
)
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.queues.said.spec import Preemption
from support.centre import NAMES
from support.evicting import Scene, says
from support.queue_stage import queue


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("after", range(8))
async def test_a_leader_that_dies_asks_nobody_twice(after: int, *, gone: bool) -> None:
    """After each of its writes; the next one goes on, and no more go than would have."""
    scene = Scene()
    for number in range(2):
        scene.stage.submit(f"r{number}", 100, queue="red")
    running = asyncio.ensure_future(scene.evictor.run())
    answer, done = scene.api.request, 0

    async def dying(question: Question) -> Response:
        nonlocal done
        if done >= after:
            running.cancel()
            await asyncio.Event().wait()
        done += 1
        return await answer(question)

    scene.api.request = dying  # type: ignore[method-assign]
    await scene.clock.advance(2.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    scene.api.request = answer  # type: ignore[method-assign]
    if gone:
        scene.go()
    scene.other_leader()
    await scene.look(5)
    scene.go()
    await scene.look(5)
    assert sorted(scene.api.tried) == ["b2", "b3"]
    assert all(scene.stage.pods[uid].spec.node_name for uid in ("r0", "r1"))


# --- room outlives the leader who made it ---------------------------------------------------------------------------

INSIDE = {"blue": queue(preemption=Preemption(within_queue="SameUser")), "red": queue()}


async def test_the_next_leader_keeps_what_was_freed_for_whom_it_was_freed() -> None:
    """Its victim is gone while nobody leads; who has less of the cluster waits too, and would come first."""
    scene = Scene(INSIDE)
    scene.stage.submit("urgent", 100, queue="blue", priority=9)
    await scene.look(2)
    assert scene.api.tried == ["b3"]
    assert says(scene, "urgent")
    scene.stage.submit("other", 100, queue="red", user="other")
    scene.go()
    scene.other_leader()
    await scene.look(5)
    assert scene.stage.pods["urgent"].spec.node_name
    assert not scene.stage.pods["other"].spec.node_name
    assert scene.api.tried == ["b3"]


async def test_the_next_leader_keeps_it_while_victims_are_on_their_way() -> None:
    """And it decides nothing anew, though its victim would be another one by now."""
    scene = Scene(INSIDE)
    scene.stage.submit("urgent", 100, queue="blue", priority=9)
    await scene.look(2)
    scene.other_leader()
    scene.stage.run(after=1.0)
    (clearing,) = scene.stage.queues.register.clearings
    assert (clearing.uid, clearing.victims) == ("urgent", ())
    await scene.look(5)
    scene.go()
    await scene.look(2)
    assert scene.stage.pods["urgent"].spec.node_name
    assert scene.api.tried == ["b3"]


async def test_what_was_cut_off_is_decided_anew_and_nothing_is_lost_meanwhile() -> None:
    """One of two victims was asked, and is gone: its card is kept until another goes for the same group."""
    scene = Scene(INSIDE)
    scene.api.refusing["b2"] = [UnreachableError("no")] * 9
    for uid in ("u0", "u1"):
        scene.stage.submit(uid, 100, queue="blue", priority=9, group="u", notes={"group-size": "2"})
    await scene.look(2)
    assert scene.api.evicted == ["b3"]
    scene.stage.submit("other", 100, queue="red", user="other")
    scene.go()
    scene.other_leader()
    scene.api.refusing.clear()
    scene.stage.run(after=1.0)
    await scene.look(2)
    assert scene.api.evicted == ["b3", "b2"]
    scene.go()
    await scene.look(2)
    bound = {uid for uid, pod in scene.stage.pods.items() if pod.spec.node_name}
    assert {"u0", "u1"} <= bound
    assert "other" not in bound


async def test_of_pods_that_have_nothing_to_do_with_room_none_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked every second, and there are thousands of them: that took 18 ms of 5,300."""
    scene, looked = Scene(), list[str]()
    scene.stage.submit("r0", 100, queue="red")
    for number in range(20):
        scene.stage.submit(f"waits{number}", 100, queue="blue")
    await scene.look(2)
    assert says(scene, "r0")
    said = scene.rooms._said

    def noted(pod: Pod) -> str:
        looked.append(pod.metadata.uid)
        return said(pod)

    monkeypatch.setattr(scene.rooms, "_said", noted)
    await scene.rooms.write()
    assert set(looked) == {"r0"}


@pytest.mark.parametrize("told", [True, False], ids=["the watch has told", "it has not yet"])
async def test_whoever_is_not_to_have_the_room_any_more_says_so_no_more(*, told: bool) -> None:
    """A budget keeps its victim, and no other may go: a leader after us keeps nothing for it."""
    scene = Scene(INSIDE)
    if not told:
        scene.stage.hears = lambda _: None
    for number in range(4):
        scene.api.refusing[f"b{number}"] = [DisruptionBlockedError("no", status=429)] * 9
    scene.stage.submit("urgent", 100, queue="blue", priority=9)
    await scene.look(1)
    assert says(scene, "urgent")
    await scene.look(6)
    assert says(scene, "urgent") == ""
    scene.other_leader()
    scene.stage.run(after=1.0)
    assert len(scene.stage.queues.register.clearings) == 0


@pytest.mark.parametrize("error", [InvalidError("too long", status=422), ForbiddenError("no", status=403)])
async def test_one_that_can_t_be_told_keeps_nobody_from_what_is_theirs(error: ApiError) -> None:
    """Its owner has filled its annotations: room is made for it, and for those behind it."""
    scene = Scene()
    scene.api.untold["r0"] = error
    for number in range(2):
        scene.stage.submit(f"r{number}", 100, queue="red")
    await scene.look(3)
    assert sorted(scene.api.evicted) == ["b2", "b3"]


async def test_trouble_with_one_that_is_to_be_told_holds_up_nobody_else() -> None:
    """Its namespace's webhook is down: room is made for others at once, and for it after a few tries."""
    scene = Scene()
    scene.api.untold["r0"] = ServerTroubleError("no", status=500)
    for number in range(2):
        scene.stage.submit(f"r{number}", 100, queue="red")
    await scene.look(1)
    assert len(scene.api.evicted) == 1
    assert says(scene, "r1")
    await scene.look(1)
    assert len(scene.api.evicted) == 1
    await scene.look(3)
    assert len(scene.api.evicted) == 2


async def test_trouble_that_passes_keeps_no_word_back() -> None:
    """Nobody is asked before it is told, which it is once it can be."""
    scene = Scene()
    scene.api.untold["r0"] = ServerTroubleError("no", status=500)
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(1)
    assert scene.api.tried == []
    scene.api.untold.clear()
    await scene.look(1)
    assert says(scene, "r0")
    assert scene.api.evicted == ["b3"]


async def test_nobody_is_asked_before_it_is_told_for_whom() -> None:
    """The word comes first: without it, whoever leads next would not know."""
    scene = Scene()
    scene.api.untold["r0"] = UnreachableError("no")
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(3)
    assert scene.api.tried == []
    scene.api.untold.clear()
    await scene.look(2)
    assert scene.api.evicted == ["b3"]


async def test_whoever_is_bound_says_of_no_room_that_is_kept_no_more() -> None:
    """Written once, when it is over: by this leader, or by the next."""
    scene = Scene()
    pod = scene.stage.pods["b1"]
    moved = {"uid": "m", "namespace": "team", "owner": "", "user": "", "queue": "blue", "asks": "", "host": [0, 0]}
    refuges = [{"moved": moved, "node": "n0", "claims": {}}]
    # As the last word of a leader that died.
    words = {"whose": "b1", "count": 1, "queue": "blue", "node": "n0", "claims": {}, "refuges": refuges}
    notes = {**pod.metadata.annotations, NAMES.room: json.dumps(words)}
    scene.stage.see(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=notes)))
    await scene.look(2)
    assert says(scene, "b1") == ""
