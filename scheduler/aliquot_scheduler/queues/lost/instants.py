"""At which instants it is decided who comes again: of those who rest for different times nobody slips in between."""

from __future__ import annotations

from math import ceil

from aliquot_scheduler.deciding.promises import PROMISE

# Of four parts of the time others have three.
PART = 4
AGAIN = 5.0
# From when some begin to when the next do, while others wait.
TRIES = PART * PROMISE


def at_the_next(at: float) -> float:
    """The next such instant."""
    return ceil(at / AGAIN) * AGAIN
