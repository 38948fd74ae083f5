"""Who uses more than its slice climbs a ladder: noted, warned, throttled, given up to eviction. Pure.

It is judged by the driver's word, which also sees what goes round the interposer. Memory that one has too much
another lacks. Compute is too much only beside others: what nobody else is granted is nobody's loss, and compute can be
taken back at any moment, so it leads to no eviction.

What must hold: nobody climbs by one sample, or by one that is not known; who keeps inside for three samples is off the
ladder; nobody is higher than the top rung, which is the queue's word at that time, or else the node's.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

# Samples in a row that bring one onto the ladder, or off it.
LOOKS = 3
# A process's part is rounded up, and the driver's own part of a context is not the same everywhere.
_SPARE_MIB, _SPARE_PART = 64, 0.05
# The driver tells of whole percents, over periods of its own.
_SPARE_PERCENT = 10


class Rung(IntEnum):
    """How high one stands; each includes those below."""

    INSIDE = 0
    NOTE = 1
    WARN = 2
    THROTTLE = 3
    EVICT = 4


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What one slice was granted and uses; None is what is not known. `shared`: others hold slices of the GPU."""

    memory_mib: int
    limit: int
    used_mib: int | None
    used_percent: int | None
    shared: bool


class Rungs(msgspec.Struct, frozen=True, kw_only=True):
    """The highest rung, and after how many seconds on the ladder each is reached."""

    top: Rung = Rung.WARN
    warn: float = 30.0
    throttle: float = 60.0
    evict: float = 120.0

    def reached(self, seconds: float, *, memory: bool) -> Rung:
        """How high one stands who began so long ago, by too much memory or by too much compute alone."""
        after = {Rung.NOTE: 0.0, Rung.WARN: self.warn, Rung.THROTTLE: self.throttle, Rung.EVICT: self.evict}
        top = self.top if memory else min(self.top, Rung.THROTTLE)
        return max((rung for rung, least in after.items() if seconds >= least and rung <= top), default=Rung.INSIDE)


class Excess(msgspec.Struct, frozen=True, kw_only=True):
    """What is too much, in words; and whether that is memory."""

    what: str
    memory: bool


class Climber(msgspec.Struct, frozen=True, kw_only=True):
    """One slice: since when it is on the ladder, and how many samples in a row speak against that."""

    rung: Rung = Rung.INSIDE
    since: float | None = None
    looks: int = 0
    what: str = ""


def excess(use: Use) -> Excess | None:
    """What a sample has too much, if anything."""
    if use.used_mib is not None and use.used_mib > use.memory_mib + max(_SPARE_MIB, use.memory_mib * _SPARE_PART):
        return Excess(what=f"uses {use.used_mib} of {use.memory_mib} MiB", memory=True)
    if use.shared and use.used_percent is not None and use.used_percent > use.limit + _SPARE_PERCENT:
        return Excess(what=f"uses {use.used_percent} % of its GPU's time, its limit is {use.limit} %", memory=False)
    return None


def climbed(before: Climber, use: Use, *, now: float, rungs: Rungs) -> Climber:
    """One sample later."""
    if before.rung > rungs.top:
        before = msgspec.structs.replace(before, rung=rungs.top)
    found = excess(use)
    if found is None and (use.used_mib is None or (use.shared and use.used_percent is None)):
        return before
    if before.since is None:
        return _outside(before, found, now=now, rungs=rungs)
    if found is None:
        looks = before.looks + 1
        return Climber() if looks == LOOKS else msgspec.structs.replace(before, looks=looks)
    rung = rungs.reached(now - before.since, memory=found.memory)
    return Climber(rung=rung, since=before.since, what=found.what)


def already_up(*, now: float, rungs: Rungs) -> Climber:
    """One that an agent before us has given up: it stays there until it keeps inside."""
    return Climber(rung=Rung.EVICT, since=now - rungs.evict)


def _outside(before: Climber, found: Excess | None, *, now: float, rungs: Rungs) -> Climber:
    looks = before.looks + 1 if found else 0
    if found is None or looks < LOOKS:
        return Climber(looks=looks)
    return Climber(rung=rungs.reached(0.0, memory=found.memory), since=now, what=found.what)
