"""Why candidates were passed over: of this sweep; and of the one before, as far as this one has not come to them."""

from __future__ import annotations

from typing import Any

from aliquot_scheduler.queues.judging.rules import Refusal

# Which of a user's candidates.
Mark = tuple[str, Any]


class Sayings:
    """What is said of each, until it is asked again."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, Mark], Refusal] = {}
        self._before: dict[tuple[str, Mark], Refusal] = {}

    def begin(self) -> None:
        """A sweep begins with nobody said."""
        self._said, self._before = {}, self._said

    def complete(self) -> None:
        """Who was not asked need not be refused any more for what was said before."""
        self._before.clear()

    def clear(self) -> None:
        """Everything has changed."""
        self._said.clear()
        self._before.clear()

    def say(self, queue: str, mark: Mark, refusal: Refusal) -> None:
        """Why a candidate was passed over."""
        self._said[queue, mark] = refusal

    def why(self, queue: str, mark: Mark) -> Refusal | None:
        """Why such a candidate was passed over in the last sweep, if it was."""
        return self._said.get((queue, mark))

    def why_before(self, queue: str, mark: Mark) -> Refusal | None:
        """The same of the sweep before, if the last one has not come to it."""
        return self._before.get((queue, mark))
