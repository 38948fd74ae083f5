"""How a container is kept inside its slice: the modes, from the one that only watches to the one the hardware holds."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_core.inventory import OBSERVE

# From the weakest to the strongest.
MODES = (OBSERVE, "interposer", "mps", "mig")


def enough(offered: Sequence[str], *, least: str) -> bool:
    """Whether a GPU that offers these modes can hold a pod that asks for this one at the least."""
    if least in MODES:
        return any(mode in MODES and MODES.index(mode) >= MODES.index(least) for mode in offered)
    return not least or least in offered


def chosen(offered: Sequence[str], *, least: str) -> str:
    """The mode in which a slice is held there: the strongest on offer, or the one asked for, where it has no rank."""
    if least and least not in MODES:
        return least
    return max(offered, key=lambda mode: MODES.index(mode) if mode in MODES else -1, default="")
