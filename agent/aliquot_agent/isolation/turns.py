"""How much of the GPU a moment of work in flight took, where the GPU serves processes in turns and tells no use. Pure.

A process whose work is in flight beside that of X others has one part of X + 1 of the GPU: that is how a GPU serves
several contexts. X changes from moment to moment, and nobody sees all processes at once. But each container tells for
which part of the time how many of its own had work in flight (isolation/crowd.c). Containers don't wait for each other,
so their moments meet by chance: what one process can expect is the mean of 1 / (m + X), where m are its own container's
processes at its moments and X the sum of the others', each there with its chances. That mean is the integral over t
from 0 to 1 of t^(m-1) times, for each other, the mean of t^(its processes).

How many there are on the average is not enough: beside eight that come and go together, the mean of 1 / (1 + X) is a
third more than 1 / (1 + the mean of X), and a slice of 30 % beside them had 34.

What must hold: a weight lies above 0 and at most at 1, whatever containers claim and for however long.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from operator import mul

import msgspec

# The numbers of processes that a container tells apart: isolation/crowd.c has the same.
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 128, 1024)
# Of what was before the last beat, so much still counts: who is held back comes and goes within some beats.
_KEPT = 0.6
_MOST_PROCESSES = SIZES[-1]
_LEAST = 1e-300
# Counters are whole nanoseconds: what is left of older ones below that is no moment, and would fade until its sum is 0.
_LEAST_NS = 1.0
# The limits file counts in millionths, and no moment is free.
_LEAST_WEIGHT = 1e-6


class Lately(msgspec.Struct, frozen=True, kw_only=True):
    """One slice in the last beats, in nanoseconds, the older ones counted less."""

    span: float = 0.0
    # For how long how many of its processes had work in flight, as `SIZES` counts them.
    crowd: tuple[float, ...] = ()

    def then(self, *, span: int, busy: int, in_flight: int, crowd: Sequence[int] = ()) -> Lately:
        """One beat later: how long any were in flight, all together, and how many; made to fit where it can't be."""
        in_flight = min(max(in_flight, 0), _MOST_PROCESSES * span)
        # A container that started with an older library does not tell: it is taken for one process.
        busy = busy if busy > 0 else in_flight
        # At the least what the most processes need for it, all at once.
        busy = min(max(busy, -(-in_flight // _MOST_PROCESSES)), in_flight, span)
        now = _told(crowd, busy=busy) or _even(busy=busy, in_flight=in_flight)
        before = self.crowd or (0.0,) * len(SIZES)
        return Lately(
            span=self.span * _KEPT + span,
            crowd=tuple(_moments(old * _KEPT + new) for old, new in zip(before, now, strict=True)),
        )

    @property
    def busy(self) -> float:
        """For how long any of it was in flight."""
        return sum(self.crowd)


def weights(slices: Mapping[str, Lately]) -> dict[str, float]:
    """Of each slice, what a moment of one of its processes took."""
    crowds = {name: _chances(one) for name, one in slices.items()}
    there = {name: _there(crowd) for name, crowd in crowds.items() if crowd}
    together = [sum(map(math.log, at_a_point)) for at_a_point in zip(*there.values(), strict=True)]
    together = together or [0.0] * len(_POINTS)
    # Who was not there meets all of them: one answer for all of these, and most are idle most of the time.
    idle = _expected({0: 1.0}, [1.0] * len(_POINTS), together)
    return {name: _expected(crowds[name], there[name], together) if name in there else idle for name in slices}


def _moments(ns: float) -> float:
    return ns if ns >= _LEAST_NS else 0.0


def _told(crowd: Sequence[int], *, busy: int) -> tuple[float, ...] | None:
    """What the container says of how many there were, made as long as they were busy; None if it says nothing."""
    if len(crowd) != len(SIZES) or min(crowd) < 0 or not (told := sum(crowd)):
        return None
    return tuple(busy * (part / told) for part in crowd)


def _even(*, busy: int, in_flight: int) -> tuple[float, ...]:
    """The same if there were as many at each moment, between two sizes a part of both."""
    found = [0.0] * len(SIZES)
    processes = in_flight / busy if busy else 1.0
    above = min(max(bisect.bisect_left(SIZES, processes), 1), len(SIZES) - 1)
    part = (processes - SIZES[above - 1]) / (SIZES[above] - SIZES[above - 1])
    found[above], found[above - 1] = busy * part, busy * (1.0 - part)
    return tuple(found)


def _chances(one: Lately) -> dict[int, float]:
    """By size, how likely it is at some moment; sizes that there were not are left out, and most have one."""
    return {at: ns / one.span for at, ns in enumerate(one.crowd) if ns > 0} if one.span else {}


def _expected(crowd: Mapping[int, float], own: Sequence[float], together: Sequence[float]) -> float:
    """The mean over its processes' moments: of a moment of eight there are eight."""
    moments = [chance * SIZES[at] for at, chance in crowd.items()]
    powers = zip(*(_BUT_ONE[at] for at in crowd), strict=True)
    expected = sum(
        size * sum(map(mul, moments, at_a_point)) * math.exp(all_of_them - math.log(mine))
        for (_, size), at_a_point, all_of_them, mine in zip(_POINTS, powers, together, own, strict=True)
    )
    return min(1.0, max(_LEAST_WEIGHT, float(expected) / sum(moments)))


def _there(crowd: Mapping[int, float]) -> list[float]:
    """At each point, the mean of t^processes."""
    none, chances = 1.0 - sum(crowd.values()), list(crowd.values())
    powers = zip(*(_POWERS[at] for at in crowd), strict=True)
    return [max(none + sum(map(mul, chances, at_a_point)), _LEAST) for at_a_point in powers]


def _points(step: float, count: int) -> list[tuple[float, float]]:
    """Where and how much to count for an integral from 0 to 1: close together at its ends, where high powers live."""
    found = []
    for number in range(-count, count + 1):
        at = 1.0 / (1.0 + math.exp(-math.pi * math.sinh(number * step)))
        found.append((at, step * math.pi * math.cosh(number * step) * at * (1.0 - at)))
    return found


# Within 1.5 % up to 256 processes on the GPU at once, within 7 % up to 1024.
_POINTS = _points(step=0.3, count=9)
_POWERS = [[math.pow(at, size) for at, _ in _POINTS] for size in SIZES]
_BUT_ONE = [[math.pow(at, size - 1) for at, _ in _POINTS] for size in SIZES]
