"""Statuses on their way to the API server: the latest only, none lost, tried again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aliquot_core.errors import ClusterError
from aliquot_core.objects import Pod
from aliquot_standalone.kubelet.reporter import Reporter
from support.clocks import VirtualClock
from support.pod_board import PodBoard, pod

ONE, TWO = pod("one"), pod("two")


class AwkwardBoard(PodBoard):
    """A board that is away until it is told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.away = 0
        self.tries = 0
        self.meanwhile: list[tuple[Pod, dict[str, Any]]] = []
        self.reporter: Reporter | None = None

    async def write_pod_status(self, pod: Pod, status: dict[str, Any]) -> None:
        """Write, unless away."""
        self.tries += 1
        if self.meanwhile and self.reporter:
            self.reporter.report(*self.meanwhile.pop())
        if self.away:
            self.away -= 1
            raise ClusterError("away")
        await super().write_pod_status(pod, status)


@pytest.fixture
async def desk() -> AsyncIterator[tuple[Reporter, AwkwardBoard, VirtualClock]]:
    """A reporter at work, its board and its clock."""
    board, clock = AwkwardBoard(), VirtualClock()
    reporter = board.reporter = Reporter(sink=board, clock=clock)
    work = asyncio.create_task(reporter.run())
    yield reporter, board, clock
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


Desk = tuple[Reporter, AwkwardBoard, VirtualClock]


async def test_only_the_latest_status_is_written(desk: Desk) -> None:
    """Statuses that were overtaken before they were written are not written at all; nor is the same one twice."""
    reporter, board, clock = desk
    for number in range(3):
        reporter.report(ONE, {"phase": str(number)})
    reporter.report(TWO, {"phase": "x"})
    await clock.advance(0)
    reporter.report(TWO, {"phase": "x"})
    await clock.advance(0)
    assert board.history == [("uid-one", {"phase": "2"}), ("uid-two", {"phase": "x"})]


async def test_a_status_that_goes_back_while_another_is_written_is_written_too(desk: Desk) -> None:
    """It is what was written last, and yet news: what is being written would stay otherwise."""
    reporter, board, clock = desk
    reporter.report(ONE, {"phase": "a"})
    await clock.advance(0)
    board.meanwhile.append((ONE, {"phase": "a"}))
    reporter.report(ONE, {"phase": "b"})
    await clock.advance(0)
    assert [status["phase"] for _, status in board.history] == ["a", "b", "a"]


async def test_last_status_is_written_before_the_removal(desk: Desk) -> None:
    """A removal asked for while the last status still waits neither loses that status nor is lost with a later one."""
    reporter, board, clock = desk
    reporter.report(ONE, {"phase": "Failed"}, remove=True)
    reporter.report(ONE, None, remove=True)
    reporter.report(TWO, None, remove=True)
    reporter.report(TWO, {"phase": "Succeeded"})
    await clock.advance(0)
    assert board.statuses == {"uid-one": {"phase": "Failed"}, "uid-two": {"phase": "Succeeded"}}
    assert board.removed == ["uid-one", "uid-two"]


async def test_tried_again_with_the_latest_while_the_server_is_away(desk: Desk) -> None:
    """A failed write waits a second; what came meanwhile is written instead."""
    reporter, board, clock = desk
    board.away = 2
    reporter.report(ONE, {"phase": "old"})
    await clock.advance(0.5)
    reporter.report(ONE, {"phase": "new"})
    await clock.advance(0.4)
    assert board.tries == 1
    await clock.advance(1.2)
    assert board.history == [("uid-one", {"phase": "new"})]
    assert board.tries == 3


async def test_failed_write_does_not_overtake_a_newer_status(desk: Desk) -> None:
    """What was reported while a write was failing is what is written next."""
    reporter, board, clock = desk
    board.away = 1
    board.meanwhile.append((ONE, {"phase": "new"}))
    reporter.report(ONE, {"phase": "old"})
    await clock.advance(2)
    assert board.history == [("uid-one", {"phase": "new"})]


async def test_forgotten_pods_are_not_written(desk: Desk) -> None:
    """What waited for a pod that is gone is dropped; a pod that comes back is written anew."""
    reporter, board, clock = desk
    reporter.report(ONE, {"phase": "x"})
    reporter.forget("uid-one")
    await clock.advance(0)
    assert board.history == []
    for _ in range(2):
        reporter.report(ONE, {"phase": "x"})
        await clock.advance(0)
        reporter.forget("uid-one")
    assert len(board.history) == 2
