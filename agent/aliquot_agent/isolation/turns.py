"""How much of the GPU a moment of work in flight took, where the GPU serves processes in turns and tells no use. Pure.

Of N processes that have work in flight at a moment each has one part in N of the GPU: that is how a GPU serves several
contexts. Nobody sees all processes at once. But each container tells of the last windows of time, a turn of the GPU
long, for how long its processes had work in flight in each (isolation/moments.c). Side by side, window by window, they
say who met whom.

To take who meets whom for chance is not enough, though it needs less to be told. Containers that are held back to their
shares make room for each other: one that has work in flight all the time meets fewer than chance has it, was charged
too little, and one of 40 % had up to 44.

What must hold: a weight lies above 0 and at most at 1, whatever containers claim and for however long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

# isolation/moments.c has the same.
WINDOW_NS = 2_000_000
PLACES = 64
# A process pays for a moment a millisecond or two after it; windows are read when all have.
_SETTLED_NS = 4_000_000
# Of what was before the last beat, so much still counts: who is held back comes and goes within some beats.
_KEPT = 0.6
# So much is always taken to be as it would be for who comes now: that is all there is of who was idle for long.
_GUESSED_NS = 1_000_000
_MOST_PROCESSES = 1024
_LOWER = (1 << 32) - 1
# The limits file counts in millionths, and no moment is free.
_LEAST_WEIGHT = 1e-6

# For how long, in nanoseconds, processes of a slice had work in flight in each window; empty: in none.
Told: TypeAlias = Sequence[float]


class Lately(msgspec.Struct, frozen=True, kw_only=True):
    """One slice in the last beats, in nanoseconds, the older ones counted less."""

    # For how long its processes had work in flight, and how much of the GPU they had of that.
    in_flight: float = 0.0
    took: float = 0.0

    def then(self, told: Told, parts: Sequence[float]) -> Lately:
        """One beat later; `parts` is what a process had of each window."""
        took = sum(one * part for one, part in zip(told, parts, strict=True)) if told else 0.0
        return Lately(in_flight=self.in_flight * _KEPT + sum(told), took=self.took * _KEPT + took)


def windows_between(since: int, now: int) -> range:
    """The numbers of those that became settled meanwhile, and are still there to be read."""
    last = (now - _SETTLED_NS) // WINDOW_NS
    first = max((since - _SETTLED_NS) // WINDOW_NS, now // WINDOW_NS - PLACES + 1)
    return range(min(first, last - 1), last)


def told_of(moments: Sequence[int], windows: range, *, in_flight: int) -> Told:
    """What a container says of these windows; one that says nothing, of an older library, the same of each."""
    if not any(moments):
        return [min(max(in_flight / len(windows), 0.0), WINDOW_NS * _MOST_PROCESSES)] * len(windows)
    found = (moments[number % PLACES] for number in windows)
    return [word & _LOWER if word >> 32 == number & _LOWER else 0 for word, number in zip(found, windows, strict=True)]


def met(
    before: Mapping[str, Lately], told: Mapping[str, Told], windows: range
) -> tuple[dict[str, Lately], dict[str, float]]:
    """Each slice one beat later, and what a moment of one of its processes took."""
    there = [one for one in told.values() if one]
    together = [sum(column) for column in zip(*there, strict=True)] or [0.0] * len(windows)
    parts = [min(1.0, WINDOW_NS / most) if most else 1.0 for most in together]
    lately = {name: before[name].then(one, parts) for name, one in told.items()}
    # Who was not there would meet all of them.
    one_more = sum(WINDOW_NS / (WINDOW_NS + most) for most in together) / len(windows)
    return lately, {name: _weight(one, guess=one_more) for name, one in lately.items()}


def _weight(one: Lately, *, guess: float) -> float:
    weight = (one.took + guess * _GUESSED_NS) / (one.in_flight + _GUESSED_NS)
    return min(1.0, max(_LEAST_WEIGHT, weight))
