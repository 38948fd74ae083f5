"""Everything that is wrong with what somebody wrote, at once: who mends one mistake shall not meet the next.

Reading goes on after a problem with something that stands in for what could not be read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aliquot_core.errors import UserError

T = TypeVar("T")


class Problems:
    """What was found wrong so far, in the order of reading."""

    def __init__(self) -> None:
        self.found: list[UserError] = []

    def reading(self, part: Callable[[], T], *, otherwise: T) -> T:
        """Read a part; a problem with it is kept, and `otherwise` stands in."""
        try:
            return part()
        except UserError as problem:
            self.found.append(problem)
            return otherwise
