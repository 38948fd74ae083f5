"""How a container is kept inside its slice: the modes, from the one that only watches to the one the hardware holds."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from aliquot_core.inventory import OBSERVE
from aliquot_core.request import Quality

INTERPOSER, MPS, MIG = "interposer", "mps", "mig"
# From the weakest to the strongest.
MODES = (OBSERVE, INTERPOSER, MPS, MIG)


class Keeping(StrEnum):
    """What becomes of a promise: it is held, it is tried as well as can be, or it is refused."""

    HELD = "held"
    TRIED = "best tried"
    REFUSED = "refused"


# Instances of MIG are of fixed size, so nothing can burst. MPS bounds how wide a client may run, not for how long, and
# each process of a pod by itself. docs/isolation.md has this as a page.
_OF_COMPUTE = {
    OBSERVE: dict.fromkeys(Quality, Keeping.TRIED),
    INTERPOSER: dict.fromkeys(Quality, Keeping.HELD),
    MPS: dict.fromkeys(Quality, Keeping.TRIED),
    MIG: {
        Quality.GUARANTEED: Keeping.HELD,
        Quality.BURSTABLE: Keeping.REFUSED,
        Quality.BEST_EFFORT: Keeping.REFUSED,
    },
}


def keeping(mode: str, quality: Quality) -> Keeping:
    """What a mode makes of a class's compute; a mode that this version does not know is only trusted to try."""
    return _OF_COMPUTE.get(mode, _OF_COMPUTE[OBSERVE])[quality]


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
