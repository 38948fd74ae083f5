"""Searches for moves that came to nothing: where each goes on, and whose turn it is where tries are too few for all.

All owners of a look share its tries (`rearranging.py`), and one owner's dead ends may take all of them, look after
look. So whoever had no whole share of them stands in line; while anybody does, nobody else searches, but the first of
those alone. With so many owners each has all tries of a look in as many looks.
"""

from __future__ import annotations

from aliquot_scheduler.reclaim.in_the_way import Asked
from aliquot_scheduler.reclaim.patience import FIRST, Start


class Searches:
    """Of all owners, by what they ask."""

    def __init__(self) -> None:
        # Where each begins the next time, and until when that counts.
        self._starts: dict[Asked, tuple[Start, float]] = {}
        # Who had too few tries, the longest first, and until when they are waited for.
        self._line: dict[Asked, float] = {}

    def look_around(self, now: float) -> None:
        """It is so late."""
        self._starts = {asked: at for asked, at in self._starts.items() if at[1] > now}
        self._line = {asked: until for asked, until in self._line.items() if until > now}

    def clear(self) -> None:
        """Nothing is known of anybody."""
        self._starts.clear()
        self._line.clear()

    def start(self, asked: Asked) -> Start:
        """Where it begins."""
        return self._starts.get(asked, (FIRST, 0.0))[0]

    def may(self, asked: Asked) -> bool:
        """Whether it searches in this look."""
        return next(iter(self._line), asked) == asked

    def had(self, asked: Asked, *, reached: int, until: float) -> None:
        """It had all the tries there are, and the next time it may begin so many nodes later."""
        self._line.pop(asked, None)
        self._starts[asked] = self.start(asked).later(nodes=reached), until

    def had_too_few(self, asked: Asked, *, until: float) -> None:
        """It stands in line, or goes on standing there."""
        self._line[asked] = until
        if asked in self._starts:
            self._starts[asked] = self._starts[asked][0], until
