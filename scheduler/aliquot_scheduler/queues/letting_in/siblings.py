"""Those between whom shares are divided: what each is due, and what that leaves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import msgspec

# A queue, or a user of one.
Side = str | tuple[str, str]
# What each queue is due, of compute and of memory.
Dues = Sequence[Mapping[str, Fraction]]


class Sibling(msgspec.Struct, frozen=True, kw_only=True):
    """One queue among those of its parent, or one user among those of a queue."""

    # Of compute and memory, when shares were worked out: what is used, of a queue without what those just below it use
    # beyond what they are due.
    used_of_due: tuple[Fraction | int, ...]
    due: tuple[Fraction, ...]
    # The larger part of both, beyond its guarantee: of what it is due, and of what it used lately.
    due_part: float
    lately: float
    priority: int = 0


class Left(NamedTuple):
    """What a sibling has left of its share: in whole numbers, whether that is anything, and whether it is its turn."""

    whole: Sequence[int]
    # The same if those below it used no more than they are due.
    lent: Sequence[int]
    some: Sequence[bool]
    # It has used no larger part lately of what all did than it is due of what they are.
    in_turn: bool
