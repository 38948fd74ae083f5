"""What holds the leader's loop up is told: while one thing is taken in or decided, nothing else is.

Whoever reads that pods wait finds here for whose sake: the log names the object, a metric counts by what was done.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aliquot_core.clock import Clock
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.resources import T

log = logging.getLogger(__name__)

# kube-scheduler gives a call up after 5 s; the usual one takes 0.001.
LONG = 0.5
# What may take long, as the metric has it.
SORTS = ("event", "filter", "prioritize", "bind", "turn")


class LongTurns:
    """Of one term of leading."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        # How many there were, by sort.
        self.counts = Counter[str]()

    @contextmanager
    def watched(self, sort: str, what: Callable[[], str]) -> Iterator[None]:
        """Tell of this, named by `what`, if it takes long."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            if (spent := self._clock.monotonic() - began) > LONG:
                self.counts[sort] += 1
                log.warning("held the leader up", extra={"by": sort, "of": what(), "seconds": round(spent, 2)})

    def taking_in(self, kind: str, take: Callable[[Change[T]], object]) -> Callable[[Change[T]], None]:
        """The same subscriber to what a watch tells of such objects, watched."""

        def taken(change: Change[T]) -> None:
            with self.watched("event", lambda: f"{kind} {_named(change)}"):
                take(change)

        return taken


def _named(change: Change[Any]) -> str:
    """The object that it is about."""
    match change:
        case Added(new=one) | Modified(new=one) | Deleted(old=one):
            meta = one.metadata
            return f"{meta.namespace}/{meta.name}" if meta.namespace else str(meta.name)
        case _:
            return "all of them"
