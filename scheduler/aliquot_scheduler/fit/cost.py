"""What it costs to put a slice on a GPU: the part of the card that is harder to use afterwards, from 0 to 1.

Best fit on both axes at once: what is left counts by the larger of the two shares, compute or memory. So a card that is
filled on both costs nothing, and one whose compute is gone while its memory stands idle costs as much as an empty one:
nobody can use that memory.

An instance of MIG is given whole: it costs what it is of a card, whoever asks for how little of it. So of those that
would do the smallest is taken.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from aliquot_core.quantities import WHOLE
from aliquot_core.request_notes import Placement

Reals = npt.NDArray[np.float64]

# A degraded GPU is better than waiting, and worse than any other.
DEGRADED = 1.0
WORST = 1.0 + DEGRADED
# Of instances that are as large in compute the one with less memory is the smaller: all of a card's weighs less than
# one percent of compute.
_A_MIB = 1e-8


def leftover(compute_left: npt.ArrayLike, memory_left: npt.ArrayLike, usable: npt.ArrayLike) -> Reals:
    """The cost of a card that has so much left; works on one card and on all of them."""
    of_memory = np.asarray(memory_left, dtype=np.float64) / np.maximum(1, usable)
    return np.maximum(np.asarray(compute_left, dtype=np.float64) / WHOLE.value, of_memory)


def instance_cost(compute: npt.ArrayLike, memory: npt.ArrayLike) -> Reals:
    """What an instance of so many percent and MiB costs."""
    return np.asarray(compute, dtype=np.float64) / WHOLE.value + np.asarray(memory, dtype=np.float64) * _A_MIB


def wanted(cost: Reals, placement: Placement) -> Reals:
    """The cost to somebody who wants to lie apart is the other way round."""
    return 1.0 - cost if placement is Placement.SPREAD else cost


def grade(cost: Reals, *, best: int) -> npt.NDArray[np.int64]:
    """Whole numbers from 0 to `best`, the cheaper the higher; `cost` is from 0 to WORST."""
    return np.rint((WORST - cost) / WORST * best).astype(np.int64)
