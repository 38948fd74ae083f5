"""Who may use how much of one GPU now: between each slice's guarantee and its limit, by what all of them want. Pure.

Each beat sees what every slice used since the last one, and what its container was charged. Two things come out of it:

- `rate`: what a slice may use. A slice that wants its guarantee always has it. What others leave idle is divided among
  those that want more, by their guarantees, up to their limits. A slice that wants again has its guarantee back
  with the next beat, and meanwhile the GPU's own time slicing serves it.
- `weight`: how much of the GPU a moment of work in flight really took, so that charges follow use: what processes get
  of a GPU that serves them in turns (`turns`). What was used no driver tells as often as this.

What must hold: rates never go below guarantees nor above limits, and what rises above guarantees is at most what others
leave of one GPU, whatever is seen. A tenant's own figures (which it can falsify, as it can go round all this) move what
is left over, and whom others are taken to have shared the GPU with.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot_agent.isolation.turns import Lately, Told, met, told_of, windows_between

# A slice wants to go on if it asked for a launch so shortly ago.
WANTS_FOR_NS = 200_000_000
# Below this much more than it used, a slice that is not held back gets no part of what is left over.
HEADROOM = 1.25
LEAST_HEADROOM = 0.05
# The limits file counts in millionths.
_UNIT = 1e-6


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a slice was granted, in parts of the GPU."""

    guarantee: float
    limit: float


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One slice's counters at a beat, in nanoseconds of all its life.

    `in_flight` is for how long its processes had work in flight, taken together; `busy`, for how long any had;
    `moments`, when that was (`turns`).
    """

    in_flight: int
    busy: int = 0
    moments: tuple[int, ...] = ()
    charged: int
    held: int
    wanted: int


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """What is in force for a slice, and what the next beat is compared with."""

    rate: float
    weight: float = 1.0
    seen: Seen | None = None
    lately: Lately = Lately()


def next_beat(
    shares: Mapping[str, Share], paces: Mapping[str, Pace], seen: Mapping[str, Seen], *, now: int, since: int
) -> dict[str, Pace]:
    """Pace every slice of one GPU for the time to the next beat; `now` and `since` in nanoseconds."""
    span = max(now - since, 1)
    before = {name: paces.get(name, Pace(rate=share.guarantee)) for name, share in shares.items()}
    wants = {name: _wants(before[name], seen.get(name), now=now, span=span) for name in shares}
    rates = divide(shares, wants)
    # The best guess before anything was seen: all that want it are in flight.
    guess = 1.0 / max(1, sum(want > 0 for want in wants.values()))
    windows = windows_between(since, now)
    told = {name: _told(before[name], seen.get(name), windows) for name in shares}
    lately, turns = met({name: before[name].lately for name in shares}, told, windows)
    return {
        name: Pace(
            rate=rates[name],
            weight=_weight(before[name], seen.get(name), guess=guess, turns=turns[name]),
            seen=seen.get(name),
            lately=lately[name],
        )
        for name in shares
    }


def begun_anew(shares: Mapping[str, Share], paces: Mapping[str, Pace]) -> dict[str, Pace]:
    """Where a beat failed: guarantees alone, weights as they were, and nothing of what may have led there."""
    return {
        name: Pace(rate=share.guarantee, weight=paces[name].weight if name in paces else 1.0)
        for name, share in shares.items()
    }


def _told(pace: Pace, seen: Seen | None, windows: range) -> Told:
    if seen is None or pace.seen is None or seen.in_flight == pace.seen.in_flight:
        return ()
    return told_of(seen.moments, windows, in_flight=seen.in_flight - pace.seen.in_flight)


def divide(shares: Mapping[str, Share], wants: Mapping[str, float]) -> dict[str, float]:
    """Rates between guarantee and limit: what is not wanted goes to who wants more, by guarantees."""
    rates = {name: share.guarantee for name, share in shares.items()}
    left = 1.0 - sum(min(wants[name], share.guarantee) for name, share in shares.items())
    eager = {name for name, share in shares.items() if min(wants[name], share.limit) > share.guarantee}
    while eager and left > _UNIT:
        unit = left / sum(_claim(shares[name]) for name in eager)
        rises = {
            name: min(unit * _claim(shares[name]), min(shares[name].limit, wants[name]) - rates[name]) for name in eager
        }
        for name, rise in rises.items():
            rates[name] += rise
        left -= sum(rises.values())
        full = {name for name in eager if rates[name] >= min(shares[name].limit, wants[name]) - _UNIT}
        if not full:
            break
        eager -= full
    return rates


def _claim(share: Share) -> float:
    """Best effort has no guarantee, and still shares in what is left."""
    return max(share.guarantee, 0.01)


def _wants(pace: Pace, seen: Seen | None, *, now: int, span: int) -> float:
    """How much a slice would use if it were let."""
    if seen is None or now - seen.wanted > WANTS_FOR_NS:
        return 0.0
    if pace.seen is None or seen.held > pace.seen.held:
        return 1.0
    # Who has work in flight all the time may have had little of the GPU because others were there, and would have more.
    used, busy = (seen.charged - pace.seen.charged) / span, (seen.busy - pace.seen.busy) / span
    # A tenant's counters may run backwards: what it claims to have given back is nobody's to have.
    return min(1.0, max(0.0, used * HEADROOM + LEAST_HEADROOM, busy))


def _weight(pace: Pace, seen: Seen | None, *, guess: float, turns: float) -> float:
    if seen is None or pace.seen is None:
        return guess
    # Who begins is not in what the others saw lately.
    return turns if pace.seen.in_flight else min(turns, guess)
