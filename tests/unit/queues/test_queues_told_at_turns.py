"""What is written when a pod's turn comes, and the Events beside conditions: few writes, and in their order."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from aliquot_core.objects import PodCondition
from aliquot_kube.patches import STRATEGIC_MERGE_PATCH
from aliquot_scheduler.centre.gatekeeper import Gatekeeper
from aliquot_scheduler.centre.pod_patches import FEW_NODES, status_of
from support.centre import NAMES
from support.queue_stage import Stage, queue
from support.telling_desk import TWO, Desk

replace = msgspec.structs.replace


async def test_an_event_is_told_with_each_new_reason() -> None:
    """Beside the condition, in the same words, and only once it is written."""
    desk = Desk({"a": queue(limit=100), "b": queue()}, nodes=(1,))
    desk.stage.submit("x", 100, queue="b")
    desk.stage.run()
    desk.stage.submit("p", 100, queue="a")
    desk.stage.run()
    await asyncio.gather(desk.lives(desk.notices, seconds=10), desk.lives(desk.events, seconds=10))
    (event,) = desk.sink.bodies("/events")
    said = desk.sink.bodies("/status")[0]["status"]["conditions"][0]
    assert (event["reason"], event["note"], event["type"]) == ("NoRoom", said["message"], "Normal")
    assert (event["regarding"]["name"], event["regarding"]["uid"]) == ("pod-p", "p")
    assert (event["reportingController"], event["reportingInstance"]) == (NAMES.of("scheduler"), "replica")


async def test_conditions_and_events_together_keep_to_their_pace() -> None:
    """What thousands wait for changes at once: at most 20 writes in any second, and most of them conditions."""
    desk = Desk(nodes=(1,))
    desk.stage.submit("x", 100, queue="b")
    for number in range(500):
        desk.stage.submit(f"p{number:03}", 100, queue="a")
    desk.stage.run()
    running = [asyncio.ensure_future(one.run()) for one in (desk.notices, desk.events)]
    at: list[float] = []
    while desk.clock.monotonic() < 20.0:
        before = len(desk.sink.asked)
        await desk.clock.advance(0.01)
        at += [desk.clock.monotonic()] * (len(desk.sink.asked) - before)
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert max(sum(then <= one < then + 0.995 for one in at) for then in at) <= 20
    assert 50 <= len(desk.sink.bodies("/events")) <= 80
    assert len(desk.sink.bodies("/status")) >= 150


SAID = PodCondition(type=NAMES.admitted, status="False", reason="NoRoom")
MANY = FEW_NODES + 1
# Whether it was told to wait, its group, how many nodes there are; what is written in its status: node and condition.
NOMINATIONS: dict[str, tuple[bool, str, int, tuple[str, list[str]] | None]] = {
    "few nodes": (False, "", FEW_NODES, None),
    "many nodes": (False, "", MANY, ("n0", [])),
    "one of a group": (False, "g", 1, ("n0", [])),
    "it says that it waits": (True, "", 1, ("n0", ["True"])),
    "both": (True, "", MANY, ("n0", ["True"])),
}


@pytest.mark.parametrize("row", NOMINATIONS)
def test_a_nomination_is_written_where_it_is_worth_it(row: str) -> None:
    """With what else is to be said in a pod's status; else where it spares more than it costs, or a whole group."""
    told, group, nodes, expected = NOMINATIONS[row]
    stage = Stage(TWO)
    pod = stage.submit("p", 100, queue="a", group=group, notes={"group-size": "1"} if group else None)
    if told:
        stage.see(replace(pod, status=replace(pod.status, conditions=[SAID])))
    stage.round()
    patch = status_of(stage.turns["p"], names=NAMES, at="2026-11-21T10:00:00Z", nodes=nodes)
    said = json.loads(patch.body)["status"] if patch else None
    conditions = [one["status"] for one in said.get("conditions", [])] if said else []
    assert (said and (said["nominatedNodeName"], conditions)) == expected


def test_a_later_turn_is_nominated_wherever_it_is() -> None:
    """It has no gate any more, and lost a turn already."""
    stage = Stage(TWO)
    stage.submit("p", 100, queue="a")
    stage.round()
    turn = stage.turns["p"]
    lifted = replace(turn, pod=replace(turn.pod, spec=replace(turn.pod.spec, scheduling_gates=[])), number=2)
    patch = status_of(lifted, names=NAMES, at="2026-11-21T10:00:00Z", nodes=1)
    assert patch is not None
    assert json.loads(patch.body)["status"] == {"nominatedNodeName": "n0"}


@pytest.mark.parametrize("told", [False, True])
async def test_an_event_tells_that_a_pod_waits_no_more(*, told: bool) -> None:
    """If it was told to wait; who never waited has Events enough, and no write is spent on it."""
    desk = Desk()
    pod = desk.stage.submit("p", 100, queue="a")
    if told:
        desk.stage.see(replace(pod, status=replace(pod.status, conditions=[SAID])))
    desk.stage.beat()
    gatekeeper = Gatekeeper(desk=desk.stage.desk, turns=desk.stage.queues, means=desk.means)
    await asyncio.gather(desk.lives(gatekeeper, seconds=3), desk.lives(desk.events, seconds=3))
    assert [body["reason"] for body in desk.sink.bodies("/events")] == (["LetIn"] if told else [])
    # Any other kind costs the API server more.
    kinds = [one.content_type for one in desk.sink.asked if one.method == "PATCH" and "/pods/" in one.path]
    assert kinds == [STRATEGIC_MERGE_PATCH] * (2 if told else 1)


@pytest.mark.parametrize("heard", [True, False], ids=["as soon as it tells", "late if it is silent"])
async def test_a_gate_is_lifted_once_the_watch_has_told_of_the_status(*, heard: bool) -> None:
    """The API server would work out the second write twice, by what was before the first and then anew."""
    desk = Desk()
    pod = desk.stage.submit("p", 100, queue="a")
    desk.stage.see(replace(pod, status=replace(pod.status, conditions=[SAID])))
    desk.stage.beat()
    gatekeeper = Gatekeeper(desk=desk.stage.desk, turns=desk.stage.queues, means=desk.means)
    running = asyncio.ensure_future(gatekeeper.run())

    def written() -> list[str]:
        return [one.path.rpartition("/")[2] for one in desk.sink.asked if one.method == "PATCH"]

    await desk.clock.advance(0.2)
    assert written() == ["status"]
    if heard:
        gatekeeper.told(pod)
    await desk.clock.advance(0.01 if heard else 0.1)
    assert written() == ["status", "pod-p"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
