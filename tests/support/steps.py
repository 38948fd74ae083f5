"""Work that is counted in steps: a busy machine says nothing of time, and the same code takes as many steps on any."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType


def steps_of(event: Callable[[], object]) -> int:
    """How many functions are called; what numpy does with a whole array is one."""
    steps = 0

    def count(_: FrameType, what: str, __: object) -> None:
        nonlocal steps
        steps += what in {"call", "c_call"}

    before = sys.getprofile()
    # Others may have asked to be called when garbage is collected, which is nothing of the event's.
    gc.disable()
    sys.setprofile(count)
    try:
        event()
    finally:
        sys.setprofile(before)
        gc.enable()
    return steps


def most_held_by(event: Callable[[], object]) -> int:
    """How many bytes it holds at one time beyond those before it: so a whole array that numpy goes over shows."""
    gc.disable()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        event()
        _, most = tracemalloc.get_traced_memory()
        return most - before
    finally:
        tracemalloc.stop()
        gc.enable()
