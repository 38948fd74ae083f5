"""One pod or queue that can't be told costs the others nothing: it is logged once, and tried ever more seldom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import pytest

from aliquot_core.objects import ObjectMeta, Queue
from aliquot_kube.errors import ConflictError, InvalidError
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.centre import gatekeeper, put_off, queue_writer
from aliquot_scheduler.centre.gatekeeper import Gatekeeper
from aliquot_scheduler.centre.pod_patches import let_through
from aliquot_scheduler.centre.put_off import PutOff
from aliquot_scheduler.queues.telling import report
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.users import Users, Whose
from support.telling_desk import TWO, Desk

TEN_MINUTES = 600
# With waits that double from 4 s to five minutes, where a look is every few seconds.
FEW = range(5, 13)


@asynccontextmanager
async def living(desk: Desk, writer: Any) -> AsyncIterator[Callable[[int], Any]]:
    """A writer lives for as many seconds as it is told, and has not ended by then."""
    running = asyncio.ensure_future(writer.run())

    async def seconds(count: int) -> None:
        for _ in range(count):
            await desk.clock.advance(1.0)

    yield seconds
    has_ended = running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not has_ended


def two_wait(desk: Desk) -> None:
    """`p` and `q`, for the one card there is."""
    desk.stage.submit("x", 100, queue="b")
    desk.stage.run()
    for uid in ("p", "q"):
        desk.stage.submit(uid, 100, queue="a")
    desk.stage.run()


def told(desk: Desk) -> list[str]:
    """Who was told why it waits (UIDs)."""
    return sorted(one["metadata"]["uid"] for one in desk.sink.bodies("/status"))


def failing_for(name: str, *, method: str, tries: list[float], desk: Desk, patch: pytest.MonkeyPatch) -> None:
    """Something that is asked of each waiter fails for one."""
    real = getattr(Queues, method)

    def fails(self: Queues, waiter: Any, *more: Any, **named: Any) -> Any:
        if waiter.uid == name:
            tries.append(desk.clock.monotonic())
            raise KeyError(method)
        return real(self, waiter, *more, **named)

    patch.setattr(Queues, method, fails)


def refuse(desk: Desk, part: str, error: Exception) -> list[str]:
    """Writes to paths that hold this end so; which they were."""
    answer, tried = desk.sink.request, list[str]()

    async def request(question: Question) -> Response:
        if part in question.path:
            tried.append(question.path)
            raise error
        return await answer(question)

    desk.sink.request = request  # type: ignore[method-assign]
    return tried


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was put in the log that somebody has to read: of whom, and what it was."""
    found = [one for one in caplog.records if one.levelno >= logging.WARNING]
    return [(getattr(one, "of", ""), type(one.exc_info[1]).__name__ if one.exc_info else "") for one in found]


@pytest.mark.parametrize("method", ["word", "gist", "notice"])
async def test_a_pod_whose_words_can_not_be_made_is_passed(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its word, what of it is told, or its sentence: others are told, and it is too once that is mended."""
    desk, tries = Desk(nodes=(1,)), list[float]()
    two_wait(desk)
    async with living(desk, desk.notices) as seconds:
        with monkeypatch.context() as broken:
            failing_for("p", method=method, tries=tries, desk=desk, patch=broken)
            await seconds(TEN_MINUTES)
        assert told(desk) == ["q"]
        assert len(tries) in FEW
        assert lines(caplog) == [("team/pod-p", "KeyError")]
        assert desk.notices.untold == len(tries)
        await seconds(TEN_MINUTES)
    assert told(desk) == ["p", "q"]
    assert desk.notices.untold == len(tries)


@pytest.mark.parametrize("error", [InvalidError("no such reason", status=422), TypeError("a defect")])
async def test_a_pod_whose_condition_is_not_taken_is_logged_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the API server refuses it or the write itself breaks; and it is counted by its word all the while."""
    desk = Desk(nodes=(1,))
    two_wait(desk)
    tried = refuse(desk, "pod-p/", error)
    async with living(desk, desk.notices) as seconds:
        await seconds(TEN_MINUTES)
    assert told(desk) == ["q"]
    assert len(tried) in FEW
    assert lines(caplog) == [("team/pod-p", "TypeError" if isinstance(error, TypeError) else "")]
    assert desk.notices.reasons == {("a", "NoRoom"): 2}


async def test_a_pod_that_is_gone_when_it_is_told_is_nobodys_trouble(caplog: pytest.LogCaptureFixture) -> None:
    """The watch is behind: no line that wakes anybody, and nothing is counted."""
    desk = Desk(nodes=(1,))
    two_wait(desk)
    tried = refuse(desk, "pod-p/", ConflictError("another has its name", status=409))
    async with living(desk, desk.notices) as seconds:
        await seconds(30)
    assert tried
    assert (lines(caplog), desk.notices.untold) == ([], 0)


async def test_a_defect_of_all_words_does_not_fill_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each line takes the one thread's time: a few of them, and how many more there were."""
    desk = Desk(nodes=(1,))
    two_wait(desk)
    for number in range(50):
        desk.stage.submit(f"p{number}", 100, queue="a")
    desk.stage.run()
    with monkeypatch.context() as broken:
        broken.setattr(Queues, "word", lambda *_: 1 / 0)
        async with living(desk, desk.notices) as seconds:
            await seconds(60)
    assert len(lines(caplog)) == put_off._MOST_LINES + 1
    assert [one.more for one in caplog.records if hasattr(one, "more")] == [52 - put_off._MOST_LINES]


async def test_a_queue_whose_status_can_not_be_made_is_passed(caplog: pytest.LogCaptureFixture) -> None:
    """What was used of it is no number: the other's is written, and changes with what it says."""
    desk = Desk()
    desk.stage.queues.books.usage.restore("a", (inf, inf), now=0.0)
    async with living(desk, desk.queues) as seconds:
        await seconds(20)
        desk.stage.submit("p", 100, queue="b")
        desk.stage.run()
        await seconds(TEN_MINUTES)
    written = desk.sink.bodies("/b/status")
    assert [one[0]["value"]["used"]["compute"] for one in written[:2]] == [0, 100]
    assert desk.sink.bodies("/a/status") == []
    assert set(desk.queues.latest) >= {"b"}
    assert lines(caplog) == [("queue a", "OverflowError")]
    assert desk.queues.untold in FEW


@pytest.mark.parametrize("error", [InvalidError("no such field", status=422), TypeError("a defect")])
async def test_a_queue_whose_status_is_not_taken_is_tried_ever_more_seldom(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The other's is written all the while, and whoever scrapes is told of both."""
    desk = Desk()
    tried = refuse(desk, "/a/status", error)
    async with living(desk, desk.queues) as seconds:
        await seconds(TEN_MINUTES)
    assert len(desk.sink.bodies("/b/status")) >= 1
    assert len(tried) in FEW
    assert [of for of, _ in lines(caplog)] == ["queue a"]
    assert set(desk.queues.latest) >= {"a", "b"}


async def test_a_tree_that_can_not_be_judged_costs_no_status(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is wrong with queues is found of all together: until it can be, nothing is said of that."""
    desk = Desk()
    desk.there["b"] = Queue(metadata=ObjectMeta(name="b"), spec={"parent": "gone"})
    with monkeypatch.context() as broken:
        broken.setattr(queue_writer, "problems_by_queue", lambda _: 1 / 0)
        async with living(desk, desk.queues) as seconds:
            await seconds(30)
    assert {one.path.split("/")[-2] for one in desk.sink.asked} == set(TWO)
    assert lines(caplog) == [("all queues", "ZeroDivisionError")]
    async with living(desk, desk.queues) as seconds:
        await seconds(30)
    assert "there is no queue 'gone'" in desk.sink.bodies("/b/status")[-1][0]["value"]["problems"][0]


async def test_cards_that_can_not_be_judged_cost_no_status(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The same of what is wrong by the cards that are there."""
    desk = Desk()
    monkeypatch.setattr("aliquot_scheduler.queues.telling.report.kept_beyond_all", lambda *_, **__: 1 / 0)
    async with living(desk, desk.queues) as seconds:
        await seconds(30)
    assert {one.path.split("/")[-2] for one in desk.sink.asked} == set(TWO)
    assert lines(caplog) == [("all queues", "ZeroDivisionError")]


async def test_shares_that_can_not_be_worked_out_cost_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each status says so, and of usage what the next leader has to know; once it is mended they are told."""
    desk = Desk()
    desk.stage.submit("p", 100, queue="a")
    desk.stage.run()
    async with living(desk, desk.queues) as seconds:
        with monkeypatch.context() as broken:
            broken.setattr("aliquot_scheduler.queues.telling.report.due_of", lambda *_, **__: 1 / 0)
            await seconds(TEN_MINUTES)
        (first, *_), failed = desk.sink.bodies("/a/status"), desk.queues.untold
        await seconds(TEN_MINUTES)
    told, last = first[0]["value"], desk.sink.bodies("/a/status")[-1][0]["value"]
    assert (told["used"]["compute"], told["fairShare"]["compute"]) == (100, 0)
    assert [one[:30] for one in told["problems"]] == ["fairShare says nothing for now"]
    assert (last["fairShare"]["compute"], last["problems"]) == (100, [])
    assert set(last["users"]) == {"team"}
    assert lines(caplog) == [("fair shares of all queues", "ZeroDivisionError")]
    assert failed in FEW


async def test_a_user_whose_usage_can_not_be_told_costs_no_other_queues_status(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of its own queue no status is written meanwhile."""
    desk, of = Desk(), Users.of

    def fails(self: Users, who: Whose, *, now: float) -> tuple[float, ...]:
        return of(self, who, now=now) if who[0] != "a" else (1 / 0,)

    monkeypatch.setattr(Users, "of", fails)
    for name in TWO:
        desk.stage.submit(name, 100, queue=name)
    desk.stage.run()
    async with living(desk, desk.queues) as seconds:
        await seconds(30)
    assert desk.sink.bodies("/a/status") == []
    assert set(desk.sink.bodies("/b/status")[0][0]["value"]["users"]) == {"team"}
    assert lines(caplog) == [("queue a", "ZeroDivisionError")]


async def test_statuses_that_fail_as_a_whole_end_nobodys_reign(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect of ours: it is logged, and once it is over statuses are written as before."""
    desk = Desk()
    async with living(desk, desk.queues) as seconds:
        with monkeypatch.context() as broken:
            broken.setattr(Queues, "statuses", lambda *_, **__: 1 / 0)
            await seconds(20)
        assert {error for _, error in lines(caplog)} == {"ZeroDivisionError"}
        assert desk.sink.asked == []
        await seconds(20)
    assert {one.path.split("/")[-2] for one in desk.sink.asked} == set(TWO)


async def test_a_pod_whose_turn_can_not_be_written_down_ends_nobodys_reign(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It rests, and its room is another's; the others' gates are lifted."""
    desk = Desk(nodes=(1,))

    def fails(turn: Any, **more: Any) -> Any:
        return let_through(turn, **more) if turn.pod.metadata.uid != "p" else 1 / 0

    monkeypatch.setattr(gatekeeper, "let_through", fails)
    for uid in ("p", "q"):
        desk.stage.submit(uid, 100, queue="a")
    desk.stage.beat()
    async with living(desk, Gatekeeper(desk=desk.stage.desk, turns=desk.stage.queues, means=desk.means)) as seconds:
        await seconds(3)
    assert [one.path.rpartition("/")[2] for one in desk.sink.asked if one.method == "PATCH"] == ["pod-q"]
    assert {one.exc_info is not None for one in caplog.records if getattr(one, "pod", "") == "team/pod-p"} == {True}
    assert desk.stage.queues.is_in_line("q") is False


async def test_who_is_gone_is_forgotten_and_who_fails_again_later_is_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Pods come and go for as long as one leads."""
    desk = Desk()
    putting_off = PutOff(what="it failed", means=desk.means)
    putting_off.failed("u1", KeyError("one"), of="team/one")
    assert "u1" in putting_off
    await desk.clock.advance(put_off._GONE + 5.0)
    putting_off.look_begins()
    assert "u1" not in putting_off
    putting_off.failed("u1", KeyError("again"), of="team/one")
    assert len(lines(caplog)) == 2


@pytest.mark.parametrize("where", ["read_status", "_decayed"])
async def test_a_queue_whose_usage_can_not_be_read_costs_the_others_nothing(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever begins to lead takes up that of the others, and knows nothing of this one's."""
    desk, module = Desk(), queue_writer if where == "read_status" else report
    real = getattr(module, where)

    def fails(told: Any, *more: Any) -> Any:
        if "666" in str(told):
            raise KeyError("word")
        return real(told, *more)

    monkeypatch.setattr(module, where, fails)
    for name, used in (("a", 666), ("b", 5)):
        status = {"at": "", "lately": {"compute": used, "memory": used}}
        desk.there[name] = Queue(metadata=ObjectMeta(name=name), status=status)
    desk.queues.recall()
    usage = {name: desk.stage.queues.books.usage.of(name, now=desk.clock.monotonic()) for name in desk.there}
    assert usage == {"a": (0.0, 0.0), "b": (5.0, 5.0)}
    assert (lines(caplog), desk.queues.untold) == ([("queue a", "KeyError")], 1)
