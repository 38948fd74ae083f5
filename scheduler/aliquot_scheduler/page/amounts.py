"""Amounts as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aliquot_core.counting import agreed, listed
from aliquot_core.grant import NOT_READ, UPGRADE
from aliquot_scheduler.page.model import StrayShown

UNKNOWN = "unknown"
NONE = "-"


def percent(value: int | None) -> str:
    """Percent of a GPU."""
    return UNKNOWN if value is None else f"{value} %"


def gib(mib: int | None) -> str:
    """Memory as people compare it."""
    return UNKNOWN if mib is None else f"{mib / 1024:.1f} GiB"


def cards(compute: int | None) -> str:
    """Compute of many GPUs, in GPUs."""
    return UNKNOWN if compute is None else f"{compute / 100:.1f}"


def part_of(amount: int | None, whole: int) -> str:
    """How much of all there is."""
    return UNKNOWN if amount is None else f"{100 * amount / whole:.0f} %" if whole else NONE


def by_cause(counts: Mapping[str, int]) -> str:
    """How many were evicted for what: `3 for others, 1 for over-use`."""
    return ", ".join(f"{count} {cause}" for cause, count in counts.items())


def held_beside(strays: Sequence[StrayShown]) -> str:
    """What pods hold of a node beside all grants that can be read, in sentences; empty if there are none."""
    told = (_held_beside([one for one in strays if one.later is later]) for later in (False, True))
    return "; ".join(filter(None, told))


def _held_beside(strays: Sequence[StrayShown]) -> str:
    if not strays:
        return ""
    compute, memory, places = (
        sum(getattr(one, what) for one in strays) for what in ("compute", "memory", "best_effort")
    )
    amounts = [f"{compute} % of compute"] if compute else []
    amounts += [gib(memory)] if memory else []
    amounts += [f"{places} places for best effort"] if places else []
    who, several = listed([one.pod for one in strays]), len(strays)
    how, remedy = "without a grant", f"delete {agreed(several, 'it', 'them')}"
    if strays[0].later:
        how, remedy = f"by grants that {NOT_READ}", UPGRADE
    return (
        f"{who} {agreed(several, 'holds', 'hold')} {', '.join(amounts)} of this node {how}: so much of what looks free "
        f"here is not; {remedy}"
    )
