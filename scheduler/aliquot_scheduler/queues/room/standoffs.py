"""For whom nobody goes though they are inside their guarantees: what `reclaim` found when it looked last.

It is told to those who wait, and nothing is decided by it.
"""

from __future__ import annotations

from typing import Any

from aliquot_scheduler.queues.waiting.waiter import Waiter

# The queue, the user, and which of the user's candidates.
_Key = tuple[str, str, Any]


class Standoffs:
    """A sentence for each."""

    def __init__(self) -> None:
        self._said: dict[_Key, tuple[str, float]] = {}

    def note(self, waiter: Waiter, said: str, *, until: float) -> None:
        """It holds for all who are let in or refused with this one, until then; if empty nothing does."""
        if said:
            self._said[_key(waiter)] = said, until
        else:
            self._said.pop(_key(waiter), None)

    def of(self, waiter: Waiter) -> str:
        """What holds of it; empty if nothing does."""
        return self._said.get(_key(waiter), ("", 0.0))[0]

    def tell_time(self, now: float) -> None:
        """It is so late."""
        self._said = {key: (said, until) for key, (said, until) in self._said.items() if until > now}

    def forget(self) -> None:
        """Other queues, other guarantees."""
        self._said.clear()


def _key(waiter: Waiter) -> _Key:
    return (waiter.queue, *waiter.mark)
