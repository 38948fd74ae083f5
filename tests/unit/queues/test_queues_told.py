"""What the leader writes into the statuses of queues, and what the next leader takes up from there."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from unittest.mock import PropertyMock

import msgspec
import pytest

from aliquot_core.objects import ObjectMeta, Queue
from aliquot_scheduler.centre.queue_writer import QueueWriter
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.telling.status import read_status
from aliquot_scheduler.queues.turns import Queues
from support.queue_stage import Stage
from support.telling_desk import TWO, Desk

replace = msgspec.structs.replace


async def test_a_status_is_written_whole_and_only_when_it_changes() -> None:
    """Every queue's once, then that of the one that changed, and usage alone once a minute."""
    desk = Desk()
    desk.stage.submit("p", 150, queue="a")
    desk.stage.run()
    await desk.lives(desk.queues, seconds=30)
    (first, second) = desk.sink.bodies("/status")
    assert [one["path"] for one in first] == ["/status"]
    told = first[0]["value"]
    assert (told["used"]["compute"], told["borrowed"]["compute"], told["fairShare"]["compute"]) == (150, 50, 150)
    assert second[0]["value"]["used"] == {"compute": 0, "memory": 0}
    desk.stage.end("p")
    await desk.lives(desk.queues, seconds=20)
    assert len(desk.sink.bodies("/status")) == 3
    assert {one.path.split("/")[-2] for one in desk.sink.asked} == {"a", "b"}
    await desk.lives(desk.queues, seconds=120)
    assert len(desk.sink.bodies("/status")) <= 3 + 4


async def test_a_look_that_fails_as_a_whole_ends_nobodys_reign(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect of ours: it is logged, and once it is over pods are told as before."""
    desk = Desk()
    desk.stage.submit("p", 900, queue="a")
    desk.stage.round()
    running = asyncio.ensure_future(desk.notices.run())
    with monkeypatch.context() as broken:
        broken.setattr(Queues, "register", PropertyMock(side_effect=KeyError))
        for _ in range(10):
            await desk.clock.advance(1.0)
    assert {type(one.exc_info[1]) for one in caplog.records if one.exc_info} == {KeyError}
    assert not desk.sink.asked
    for _ in range(10):
        await desk.clock.advance(1.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(desk.sink.bodies("/status")) == 1


async def test_a_queue_that_is_made_anew_is_told_of_anew() -> None:
    """Within one look, and as all was before: nobody sees it without a status until its usage is due."""
    desk = Desk()
    await desk.lives(desk.queues, seconds=20)
    assert len(desk.sink.bodies("/a/status")) == 1
    desk.there = {**desk.there, "a": Queue(metadata=ObjectMeta(name="a", uid="another"))}
    await desk.lives(desk.queues, seconds=20)
    assert (len(desk.sink.bodies("/a/status")), len(desk.sink.bodies("/b/status"))) == (2, 1)


async def test_a_leader_whose_clock_is_set_back_lets_no_usage_be_forgotten() -> None:
    """The next one lets it age since the time of the status: which is no earlier than what the API server told last."""
    desk, told = Desk(), "2031-05-06T07:08:09Z"
    for newest, expected in (("", "1970-01-12T13:46:45Z"), (told, told)):
        writer = QueueWriter(
            turns=desk.stage.queues, means=desk.means, there=lambda: desk.there, not_before=partial(str, newest)
        )
        desk.sink.asked.clear()
        await desk.lives(writer, seconds=6)
        assert {one[0]["value"]["at"] for one in desk.sink.bodies("/status")} == {expected}


async def test_what_is_wrong_with_a_queue_stands_in_its_status_until_it_is_mended() -> None:
    """Also of one that hangs on nothing and is counted nowhere; a queue with which nothing is wrong says nothing."""
    desk = Desk()
    there = {name: Queue(metadata=ObjectMeta(name=name), spec={"namespaces": ["*"]}) for name in ("a", "b", "c")}
    there["b"] = replace(there["b"], spec={"compute": {"guarantee": 9, "limit": 8}})
    there["c"] = replace(there["c"], spec={"parent": "gone"})
    desk.there = there
    await desk.lives(desk.queues, seconds=10)
    said = {one.path.split("/")[-2]: json.loads(one.body or b"")[0]["value"]["problems"] for one in desk.sink.asked}
    assert [problem.partition(";")[0] for problem in said["b"]] == [
        "queue b, spec.compute: guarantee 9 is more than its own limit of 8"
    ]
    assert "there is no queue 'gone'" in said["c"][0]
    assert said["a"] == []
    desk.there = {**there, "b": replace(there["b"], spec={})}
    await desk.lives(desk.queues, seconds=10)
    assert desk.sink.bodies("/b/status")[-1][0]["value"]["problems"] == []


async def test_nothing_is_written_while_nothing_may_be_decided() -> None:
    """What is known may be old, or another one leads."""
    desk = Desk()
    desk.silent = "another leads"
    desk.stage.submit("p", 150, queue="a")
    await desk.lives(desk.queues, seconds=20)
    await desk.lives(desk.notices, seconds=20)
    assert desk.sink.asked == []


@pytest.mark.parametrize("away", [0.0, 86_400.0, -3_600.0])
async def test_usage_survives_a_change_of_leaders(away: float) -> None:
    """What was used counts on, decayed by the time between; a clock that was wrong makes nothing of it grow."""
    settings = QueueSettings(half_life=86_400.0)
    old = Desk(settings=settings)
    old.stage.submit("p", 300, queue="b", user="u")
    old.stage.run()
    old.stage.now = 86_400.0
    statuses = old.stage.queues.statuses(now=old.stage.now, at="2026-11-21T10:00:00Z")
    raw = json.loads(msgspec.json.encode(statuses["b"]))
    assert raw["lately"]["compute"] == pytest.approx(150, abs=2)
    new = Stage(TWO, settings=settings)
    status = read_status(raw)
    assert status is not None
    new.queues.recall({"b": status, "gone": status}, wall=1_795_255_200.0 + away, now=0.0)
    kept = 0.5 ** (max(0.0, away) / 86_400.0)
    assert new.queues.books.usage.of("b", now=0.0)[0] == pytest.approx(150 * kept, abs=2)
    assert new.queues.books.users.of(("b", "u"), now=0.0)[0] == pytest.approx(150 * kept, abs=2)
