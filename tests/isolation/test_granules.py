"""Which granules blocks of each GPU lie in, against plain sets of units."""

from __future__ import annotations

import ctypes
import functools
from random import Random

import pytest

from support.pure_c import ROOT, compiled

GRANULE = 2 << 20
UNIT = 256
LARGEST_PACKED = 1 << 20
GPUS = 2
# Sizes at which a word of the bitmap, or a granule, ends.
SIZES = (1, UNIT, 63 * UNIT, 64 * UNIT, 65 * UNIT, 1 << 20, GRANULE - UNIT, GRANULE, GRANULE + UNIT, 3 * GRANULE)


@functools.cache
def _granules() -> ctypes.CDLL:
    loaded = compiled(ROOT / "isolation" / "granules.c", ROOT / "isolation" / "map.c")
    number = ctypes.c_uint64
    for name, result, arguments in (
        ("enter", number, (number, number, ctypes.c_int)),
        ("leave", number, (number, number, ctypes.c_int)),
        ("have_gap", ctypes.c_bool, (number, ctypes.c_int)),
    ):
        function = getattr(loaded, f"granules_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


class Blocks:
    """What lies where, unit by unit."""

    def __init__(self) -> None:
        self.at: dict[int, int] = {}

    def granules(self) -> set[int]:
        """Those that any block lies in."""
        return {unit * UNIT // GRANULE for at, size in self.at.items() for unit in _units(at, size)}

    def used(self) -> set[int]:
        """Units that any block lies in."""
        return {unit for at, size in self.at.items() for unit in _units(at, size)}

    def longest_gap(self) -> int:
        """Of the granules that only small blocks lie in, the longest run of free bytes into which one is packed."""
        large = {number for at, size in self.at.items() if size > LARGEST_PACKED for number in _partly(at, size)}
        partly = {number for at, size in self.at.items() for number in _partly(at, size)} - large
        used, each, longest = self.used(), GRANULE // UNIT, 0
        for number in partly:
            run = 0
            for unit in range(number * each, (number + 1) * each):
                run = 0 if unit in used else run + 1
                longest = max(longest, run)
        return min(longest * UNIT, LARGEST_PACKED)


def _units(at: int, size: int) -> range:
    return range(at // UNIT, (at + size + UNIT - 1) // UNIT)


def _partly(at: int, size: int) -> set[int]:
    return {
        number
        for number in range(at // GRANULE, (at + size - 1) // GRANULE + 1)
        if at > number * GRANULE or at + size < (number + 1) * GRANULE
    }


@pytest.mark.parametrize("seed", range(12))
def test_blocks_are_charged_by_the_granules_they_lie_in(seed: int) -> None:
    """Each GPU for its own, and a gap is known to the unit: one unit less free, and nothing of that size finds room."""
    granules, random, gpus = _granules(), Random(seed), [Blocks() for _ in range(GPUS)]
    try:
        for _ in range(24):
            gpu = random.randrange(GPUS)
            blocks = gpus[gpu]
            before = blocks.granules()
            if blocks.at and random.random() < 0.4:
                at = random.choice(sorted(blocks.at))
                size = blocks.at.pop(at)
                gone = before - blocks.granules()
                assert granules.granules_leave(at, size, gpu) == len(gone) * GRANULE
            else:
                at, size = random.randrange(5 * GRANULE // UNIT) * UNIT, random.choice(SIZES)
                if any(other.used().intersection(_units(at, size)) for other in gpus):
                    continue
                blocks.at[at] = size
                fresh = blocks.granules() - before
                assert granules.granules_enter(at, size, gpu) == len(fresh) * GRANULE
            gap = blocks.longest_gap()
            assert not granules.granules_have_gap(gap + UNIT, gpu)
            assert not gap or granules.granules_have_gap(gap, gpu)
    finally:
        for gpu, blocks in enumerate(gpus):
            for at, size in blocks.at.items():
                granules.granules_leave(at, size, gpu)
