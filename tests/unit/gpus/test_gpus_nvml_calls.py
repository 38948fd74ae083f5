"""Calls that may hang, with threads but without NVML."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from aliquot_agent.gpus.driver import DriverClosedError
from aliquot_agent.gpus.event_book import EventBook
from aliquot_agent.gpus.model import EventKind
from aliquot_agent.gpus.nvml_binding import Binding
from aliquot_agent.gpus.nvml_calls import CallDesk, OverdueError
from support.clocks import VirtualClock


class _Gate:
    """A call that hangs until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def pass_through(self) -> str:
        self.entered.set()
        self.open.wait(10)
        return "through"


@pytest.fixture
def gate() -> Iterator[_Gate]:
    """A gate that is opened when the test ends, so that no thread stays."""
    gate = _Gate()
    yield gate
    gate.open.set()


async def test_an_overdue_call_is_left_behind(gate: _Gate) -> None:
    """The next call about something else is answered; one about the same is refused until the first is back."""
    clock = VirtualClock()
    desk = CallDesk(clock=clock, name="test")
    hanging = asyncio.ensure_future(desk.call(gate.pass_through, about="a", within_s=5))
    await asyncio.to_thread(gate.entered.wait, 10)
    await clock.advance(6)
    with pytest.raises(OverdueError):
        await hanging
    assert desk.anything_hangs
    assert await desk.call(lambda: "answer", about="b", within_s=5) == "answer"
    with pytest.raises(OverdueError):
        await desk.call(lambda: "never", about="a", within_s=5)
    gate.open.set()
    assert await desk.finish(lambda: None, within_s=5)
    assert not desk.anything_hangs


async def test_a_cancelled_call_that_has_not_begun_is_never_made(gate: _Gate) -> None:
    """Nobody waits for it, and in the library it would run beside others."""
    desk = CallDesk(clock=VirtualClock(), name="test")
    made: list[str] = []
    first = asyncio.ensure_future(desk.call(gate.pass_through, about="a", within_s=5))
    second = asyncio.ensure_future(desk.call(lambda: made.append("second"), about="b", within_s=5))
    await asyncio.to_thread(gate.entered.wait, 10)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.open.set()
    assert await first == "through"
    await desk.call(lambda: made.append("third"), about="c", within_s=5)
    assert made == ["third"]
    assert await desk.finish(lambda: None, within_s=5)


async def test_the_last_call_waits_for_those_inside(gate: _Gate) -> None:
    """Finish makes its call only when every other is out, refuses new ones meanwhile, and gives up at its deadline."""
    clock = VirtualClock()
    desk = CallDesk(clock=clock, name="test")
    made: list[str] = []
    inside = asyncio.ensure_future(desk.call(gate.pass_through, about="a", within_s=100))
    await asyncio.to_thread(gate.entered.wait, 10)
    finishing = asyncio.ensure_future(desk.finish(lambda: made.append("last"), within_s=5))
    await clock.advance(1)
    with pytest.raises(DriverClosedError):
        await desk.call(lambda: None, about="b", within_s=5)
    await clock.advance(5)
    assert await finishing is False
    assert made == []
    gate.open.set()
    assert await inside == "through"


async def test_an_error_is_raised_where_it_is_awaited() -> None:
    """What a call raises reaches its caller, and the thread goes on."""
    desk = CallDesk(clock=VirtualClock(), name="test")
    with pytest.raises(ZeroDivisionError):
        await desk.call(lambda: 1 // 0, about="a", within_s=5)
    assert await desk.call(lambda: 2, about="a", within_s=5) == 2
    assert await desk.finish(lambda: None, within_s=5)


async def test_the_error_of_a_call_left_behind_troubles_nobody(gate: _Gate) -> None:
    """An overdue call that fails in the end is not complained of as an error that nobody looked at."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    clock = VirtualClock()
    desk = CallDesk(clock=clock, name="test")
    hanging = asyncio.ensure_future(desk.call(lambda: 1 // len(gate.pass_through()[:0]), about="a", within_s=5))
    await asyncio.to_thread(gate.entered.wait, 10)
    await clock.advance(6)
    with pytest.raises(OverdueError):
        await hanging
    gate.open.set()
    assert await desk.finish(lambda: None, within_s=5)
    # asyncio complains when such a future is collected, and the desk keeps it.
    del hanging, desk
    gc.collect()
    assert complaints == []


def test_a_list_that_grew_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's "too small" between counting and reading is not an error of the GPU, unless it never ends."""
    answers = iter([pynvml.NVML_ERROR_INSUFFICIENT_SIZE] * 2)

    def grows() -> str:
        if (code := next(answers, None)) is not None:
            raise pynvml.NVMLError(code)
        return "read"

    monkeypatch.setattr(pynvml, "nvmlDeviceGetSerial", grows)
    assert Binding().must("nvmlDeviceGetSerial", where="GPU 0") == "read"


def test_events_that_nobody_asks_for_do_not_pile_up() -> None:
    """The newest thousand are kept, in order."""
    book = EventBook(clock=VirtualClock())
    for number in range(1500):
        book.add(kind=EventKind.XID, uuid=None, number=number)
    assert [event.number for event in book.take()] == list(range(500, 1500))
    assert book.empty
