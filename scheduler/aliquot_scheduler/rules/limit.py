"""What breaks a rule off that takes too long."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from aliquot_core.errors import ClusterError

# Of processor time, for what one rule says of all nodes: 5,000 take that of examples/own-rule 2 to 8 ms.
LIMIT = 0.1
# By the clock so many times as long: a rule that sleeps uses none, and on a busy machine none can help being late.
_PATIENCE = 10


class RuleError(ClusterError):
    """A rule that can't be used."""


class RuleTooSlowError(RuleError):
    """A rule that holds everybody up."""


@contextmanager
def alarm(seconds: float = LIMIT) -> Iterator[None]:
    """Break off what takes longer than that, be it an endless loop; in the main thread, where signals arrive."""
    armed, used, began = True, time.thread_time(), time.monotonic()

    def ring(number: int, _: FrameType | None) -> None:
        late = time.thread_time() - used >= seconds or time.monotonic() - began >= _PATIENCE * seconds
        if armed and late:
            told = f"it took longer than {seconds:g} s (signal {number})"
            raise RuleTooSlowError(told, where="rule", remedy="do less in it")

    before = signal.signal(signal.SIGALRM, ring)
    # Again and again: the first may come too soon, and a rule may swallow it.
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, seconds / 10)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        # Somebody else's goes on, later by no more than the rule took.
        signal.setitimer(signal.ITIMER_REAL, *timer)
