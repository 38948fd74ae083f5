"""What slices used since they were first seen here, for advice on what to ask. Pure.

Of memory the most counts: who has less of it fails. Of compute it is what nineteen looks of twenty kept within, in
steps of five percent: a moment at full speed is no need. It lives in memory and begins anew with the leader, so it says
since when. Whoever has a Prometheus asks that instead (`max_over_time`, `quantile_over_time`).
"""

from __future__ import annotations

import msgspec

from aliquot_scheduler.page.usage import SliceKey, Usage, Use

# A page that fails, or a pod that starts again under its name, is no new beginning for so many seconds.
FORGOTTEN = 3600.0
_STEP = 5
_STEPS = 100 // _STEP + 1
_MOST_LOOKS = 0.95


class _Past(msgspec.Struct, kw_only=True):
    since: float
    seen: float
    memory: int | None = None
    # How many looks found so many steps of compute, or the part of one.
    looks: list[int] = msgspec.field(default_factory=lambda: [0] * _STEPS)


class Pasts:
    """Those of all slices."""

    def __init__(self) -> None:
        self._known: dict[SliceKey, _Past] = {}

    def with_past(self, usage: Usage) -> Usage:
        """Take in what is used now, and say beside it what was used before."""
        at = usage.at or 0.0
        slices: dict[SliceKey, Use] = {}
        for key, use in usage.slices.items():
            past = self._known.setdefault(key, _Past(since=at, seen=at))
            _add(past, use, at=at)
            slices[key] = msgspec.structs.replace(
                use, since=past.since, most_memory=past.memory, high_compute=_high(past.looks)
            )
        self._known = {key: past for key, past in self._known.items() if at - past.seen < FORGOTTEN}
        return msgspec.structs.replace(usage, slices=slices)


def _add(past: _Past, use: Use, *, at: float) -> None:
    past.seen = at
    if use.memory is not None:
        past.memory = max(use.memory, past.memory or 0)
    if use.compute is not None:
        past.looks[min(-(-use.compute // _STEP), _STEPS - 1)] += 1


def _high(looks: list[int]) -> int | None:
    """The step that most looks kept within; None before the first."""
    wanted, so_far = sum(looks) * _MOST_LOOKS, 0
    for step, count in enumerate(looks):
        so_far += count
        if count and so_far >= wanted:
            return step * _STEP
    return None
