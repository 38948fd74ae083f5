"""Work that is counted in steps: a busy machine says nothing of time, and the same code takes as many steps on any."""

from __future__ import annotations

import gc
import sys
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
