"""What a test that ran out of time was waiting for: all asyncio tasks that are not done, with their chains of awaits.

A time-out breaks into the event loop, so its own traceback shows the loop and nothing of the tasks. They are still
there when the report is made: of the test's own loop and of those in other threads.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from types import FrameType
from typing import Any

# The names under which coroutines, generators and asynchronous generators keep their frame and what they wait for.
_FRAMES = ("cr_frame", "gi_frame", "ag_frame")
_AWAITS = ("cr_await", "gi_yieldfrom", "ag_await")


def tasks_at_work() -> str:
    """All tasks that are not done, one paragraph each; empty if there are none."""
    # `asyncio.all_tasks` knows one loop, and only while that loop runs.
    tasks = [found for found in gc.get_objects() if isinstance(found, asyncio.Task) and not found.done()]
    return "\n".join(_told(task) for task in sorted(tasks, key=lambda task: task.get_name()))


def _told(task: asyncio.Task[Any]) -> str:
    return "\n  ".join([task.get_name(), *_chain(task.get_coro())])


def _chain(awaited: object) -> Iterator[str]:
    """From the task's own coroutine down to the future that nobody sets."""
    while awaited is not None:
        frame = _first(awaited, _FRAMES)
        if not isinstance(frame, FrameType):
            # The iterator of a future, which names nothing but holds the future, or the task that is waited for.
            yield ", ".join(repr(held) for held in gc.get_referents(awaited))
            return
        yield f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        awaited = _first(awaited, _AWAITS)


def _first(found: object, names: tuple[str, ...]) -> object:
    return next((value for name in names if (value := getattr(found, name, None)) is not None), None)
