"""How much of the GPU a moment of work in flight took, where the GPU serves processes in turns and tells no use. Pure.

A process whose work is in flight beside that of X others has one part of X + 1 of the GPU: that is how a GPU serves
several contexts. X changes from moment to moment, and nobody sees all processes at once. But each container tells for
which part of the time any of its processes had work in flight, and for how long all of them together: hence how many
they were. Containers don't wait for each other, so their moments meet by chance: what one process can expect is the
mean of 1 / (m + X), where m are its own container's processes and X the sum of the others', each there with its chance.
That mean is the integral over t from 0 to 1 of t^(m-1) times, for each other, 1 - chance + chance * t^(its processes).

Simulated, shares of 10/20/30/40 come out as 10.1/20.4/30.3/38.7, and 30 beside 70 with eight processes as 28.3/71.3;
by equal turns of all slices that want the GPU, as before, it was 11.5/24.9/31.8/31.8 and 45.3/16.9.

What must hold: a weight lies above 0 and at most at 1, whatever containers claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

# Of what was before the last beat, so much still counts: who is held back comes and goes within some beats.
_KEPT = 0.6
_MOST_PROCESSES = 1024
_LEAST = 1e-300


class Lately(msgspec.Struct, frozen=True, kw_only=True):
    """One slice in the last beats, in nanoseconds, the older ones counted less."""

    span: float = 0.0
    # Any of its processes had work in flight; and all of them together.
    busy: float = 0.0
    in_flight: float = 0.0

    def then(self, *, span: int, busy: int, in_flight: int) -> Lately:
        """One beat later; figures that can't be are made to fit."""
        in_flight = min(max(in_flight, 0), _MOST_PROCESSES * span)
        # A container that started with an older library does not tell: it is taken for one process.
        busy = busy if busy > 0 else in_flight
        # At the least what the most processes need for it, all at once.
        busy = min(max(busy, -(-in_flight // _MOST_PROCESSES)), in_flight, span)
        return Lately(
            span=self.span * _KEPT + span,
            busy=self.busy * _KEPT + busy,
            in_flight=self.in_flight * _KEPT + in_flight,
        )

    @property
    def chance(self) -> float:
        """That any of it is in flight at some moment."""
        return self.busy / self.span if self.span else 0.0

    @property
    def processes(self) -> float:
        """How many are then in flight."""
        return max(1.0, self.in_flight / self.busy) if self.busy else 1.0


def weights(slices: Mapping[str, Lately]) -> dict[str, float]:
    """Of each slice, what a moment of one of its processes took."""
    crowd = [(one.chance, one.processes) for one in slices.values() if one.busy]
    together = [sum(math.log(_there(one, at)) for one in crowd) for at, _ in _POINTS]
    # Who was not there meets all of them: one answer for all of these, and most are idle most of the time.
    idle = _expected(Lately(), together)
    return {name: _expected(one, together) if one.busy else idle for name, one in slices.items()}


def _expected(one: Lately, together: list[float]) -> float:
    own, most = (one.chance, one.processes), one.processes - 1.0
    expected = sum(
        size * math.pow(at, most) * math.exp(all_of_them - math.log(_there(own, at)))
        for (at, size), all_of_them in zip(_POINTS, together, strict=True)
    )
    return min(1.0, expected)


def _there(one: tuple[float, float], at: float) -> float:
    chance, processes = one
    return max(1.0 - chance + chance * math.pow(at, processes), _LEAST)


def _points(step: float, count: int) -> list[tuple[float, float]]:
    """Where and how much to count for an integral from 0 to 1: close together at its ends, where high powers live."""
    found = []
    for number in range(-count, count + 1):
        at = 1.0 / (1.0 + math.exp(-math.pi * math.sinh(number * step)))
        found.append((at, step * math.pi * math.cosh(number * step) * at * (1.0 - at)))
    return found


# Within 1.5 % up to 256 processes on the GPU at once, within 7 % up to 1024.
_POINTS = _points(step=0.3, count=9)
