"""What is left of a gang that can't run is evicted, and nobody whose gang is whole again."""

from __future__ import annotations

import asyncio

import msgspec

from aliquot_kube.transport import Question, Response
from aliquot_scheduler.queues.said.settings import QueueSettings
from support.telling_desk import Desk

replace = msgspec.structs.replace


def broken_gang(desk: Desk, name: str, *, left: int = 1) -> None:
    """All of a gang run, and one of them fails."""
    uids = [f"{name}{number}" for number in range(left + 1)]
    for uid in uids:
        desk.stage.submit(uid, 100, queue="a", group=name, notes={"group-size": str(left + 1)})
    assert len(desk.stage.run()) == left + 1
    pod = desk.stage.pods[uids[-1]]
    desk.stage.see(replace(pod, status=replace(pod.status, phase="Failed")))


async def test_what_is_left_of_a_gang_that_can_not_run_is_evicted_once() -> None:
    """By its UID, and it is told why; again only after a while, if it is still there."""
    desk = Desk(settings=QueueSettings(stale_gang=5.0))
    broken_gang(desk, "g")
    await asyncio.gather(desk.lives(desk.gangs, seconds=15), desk.lives(desk.events, seconds=15))
    (eviction,) = desk.sink.bodies("/eviction")
    assert eviction["deleteOptions"]["preconditions"] == {"uid": "g0"}
    assert [(event["reason"], event["action"]) for event in desk.sink.bodies("/events")] == [("GangBroken", "Evicting")]
    await desk.lives(desk.gangs, seconds=25)
    assert len(desk.sink.bodies("/eviction")) == desk.gangs.evicted == 2


async def test_nobody_is_sent_back_while_nothing_may_be_decided() -> None:
    """Another leads, or what is known is old; once that is over it goes."""
    desk = Desk(settings=QueueSettings(stale_gang=5.0))
    broken_gang(desk, "g")
    desk.silent = "another replica leads"
    await desk.lives(desk.gangs, seconds=15)
    assert desk.sink.bodies("/eviction") == []
    desk.silent = ""
    await desk.lives(desk.gangs, seconds=15)
    assert len(desk.sink.bodies("/eviction")) == 1


async def test_nobody_is_sent_back_whose_gang_is_whole_again() -> None:
    """What was missing is there again while another one is asked: the others stay."""
    desk = Desk(settings=QueueSettings(stale_gang=5.0))
    broken_gang(desk, "g", left=2)
    answer = desk.sink.request

    async def meanwhile(question: Question) -> Response:
        if question.path.endswith("/eviction"):
            desk.stage.submit("g9", 100, queue="a", group="g", notes={"group-size": "3"})
            desk.stage.run()
        return await answer(question)

    desk.sink.request = meanwhile  # type: ignore[method-assign]
    await desk.lives(desk.gangs, seconds=20)
    assert len(desk.sink.bodies("/eviction")) == 1
