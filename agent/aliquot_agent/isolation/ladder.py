"""Who uses more than its slice climbs a ladder: noted, warned, throttled, given up to eviction. Pure.

It is judged by the driver's word, which also sees what goes round the interposer. Memory that one has too much
another lacks. Who takes room on the node's disk, by making his account larger, counts as one who has too much memory:
it is taken back, and the next attempt would take it again. Compute is too much only beside others: what nobody else is
granted is nobody's loss, and compute can be taken back at any moment, so it leads to no eviction.

What must hold: nobody climbs by one sample, or by one that is not known; who keeps inside for three samples is off the
ladder, of memory and of compute by what is known of it alone, for some drivers never tell the other; nobody is higher
than the top rung, which is the queue's word at that time, or else the node's.
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
    """What one slice was granted and uses; None is what is not known. `shared`: others hold slices of the GPU.

    `fills`: its container took room on the node's disk, by the account that it may write.
    """

    memory_mib: int
    limit: int
    used_mib: int | None
    used_percent: int | None
    shared: bool
    fills: bool = False


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


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Of memory or of compute: whether too much is used and what, and how many samples in a row say otherwise."""

    over: bool = False
    looks: int = 0
    what: str = ""

    def then(self, found: str | None) -> Standing:
        """One sample later."""
        if found is None:
            return self
        if bool(found) is self.over:
            return Standing(over=self.over, what=found)
        if self.looks + 1 < LOOKS:
            return msgspec.structs.replace(self, looks=self.looks + 1)
        return Standing(over=not self.over, what=found)


class Climber(msgspec.Struct, frozen=True, kw_only=True):
    """One slice: how high it stands, since when it is on the ladder, and for what."""

    rung: Rung = Rung.INSIDE
    since: float | None = None
    memory: Standing = Standing()
    compute: Standing = Standing()

    @property
    def what(self) -> str:
        """What is too much, in words."""
        return self.memory.what or self.compute.what


def memory_excess(use: Use) -> str | None:
    """What a sample has too much of it, in words, if anything; None if that is not known."""
    if use.fills:
        return "makes its account larger, which takes room on the node's disk"
    if use.used_mib is None:
        return None
    most = use.memory_mib + max(_SPARE_MIB, use.memory_mib * _SPARE_PART)
    return f"uses {use.used_mib} of {use.memory_mib} MiB" if use.used_mib > most else ""


def compute_excess(use: Use) -> str | None:
    """The same of compute, of which nobody has too much who is alone."""
    if not use.shared:
        return ""
    if use.used_percent is None:
        return None
    over = use.used_percent > use.limit + _SPARE_PERCENT
    return f"uses {use.used_percent} % of its GPU's time, its limit is {use.limit} %" if over else ""


def climbed(before: Climber, use: Use, *, now: float, rungs: Rungs) -> Climber:
    """One sample later."""
    too_much, too_busy = memory_excess(use), compute_excess(use)
    memory, compute = before.memory.then(too_much), before.compute.then(too_busy)
    if not (memory.over or compute.over):
        return Climber(memory=memory, compute=compute)
    since = now if before.since is None else before.since
    rung = min(before.rung, rungs.top if memory.over else min(rungs.top, Rung.THROTTLE))
    if memory.over and too_much:
        rung = max(rung, rungs.reached(now - since, memory=True))
    if compute.over and too_busy:
        rung = max(rung, rungs.reached(now - since, memory=False))
    return Climber(rung=rung, since=since, memory=memory, compute=compute)


def already_up(*, now: float, rungs: Rungs) -> Climber:
    """One that an agent before us has given up, for memory: it stays there until it keeps inside."""
    return Climber(rung=Rung.EVICT, since=now - rungs.evict, memory=Standing(over=True))
