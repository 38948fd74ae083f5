"""The rules that are installed beside Aliquot, each broken off when it takes too long."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from types import FrameType

from aliquot_scheduler.rules.judging import RuleError, Rules

log = logging.getLogger(__name__)

GROUP = "aliquot.rules"
# For what one rule says of all nodes: 5,000 take that of examples/own-rule 8 ms.
LIMIT = 0.1


def installed_rules() -> Rules:
    """Load them; one that can't be loaded stops whoever starts, rather than be missed."""
    found = {}
    for point in entry_points(group=GROUP):
        try:
            found[point.name] = point.load()
        except Exception as error:
            what = f"it can't be loaded: {error!r:.200}"
            raise RuleError(what, where=f"rule {point.name} ({point.value})", remedy="mend or uninstall it") from error
    if found:
        log.info("rules are asked", extra={"rules": sorted(found)})
    return Rules(found, limit=alarm)


@contextmanager
def alarm() -> Iterator[None]:
    """Break off what takes longer than the limit, be it an endless loop; in the main thread, where signals arrive."""
    armed = True

    def ring(number: int, _: FrameType | None) -> None:
        if armed:
            raise RuleError(f"it took longer than {LIMIT} s (signal {number})", where="rule", remedy="do less in it")

    before = signal.signal(signal.SIGALRM, ring)
    # Again and again: a rule may swallow the first.
    timer = signal.setitimer(signal.ITIMER_REAL, LIMIT, LIMIT)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        # Somebody else's goes on, later by no more than the limit.
        signal.setitimer(signal.ITIMER_REAL, *timer)
