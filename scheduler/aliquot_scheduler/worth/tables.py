"""All that placement knows of a mix, worked out once and looked up for every pod."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from aliquot_core.quantities import WHOLE
from aliquot_scheduler.worth.mix import Mix, Shape
from aliquot_scheduler.worth.room import STEPS, Bools, Ints, Reals
from aliquot_scheduler.worth.slots import sizes_of, slot_values
from aliquot_scheduler.worth.stranding import Stranding, stranding

# The names that one kind of GPU goes by.
Kind = tuple[str, ...]
_LEAST = 1e-9
# Cores are sums of thousandths.
SLACK = 1e-9
# In GPUs: less than any other part of the loss differs by.
_TIGHT_GPU = 0.0001
# What a GPU is worth less that has all of one axis free and nothing of the other. Without it, memory that can't be used
# for want of compute came to 8.2 % of all cards where best fit left 8.0; 0.05 to 0.4 do alike, and where memory is
# asked for as compute is nothing changes.
_UNEVEN = 0.1


class Large(msgspec.Struct, frozen=True, kw_only=True):
    """A shape that needs several GPUs of one node; from core level `level` on its cores are there."""

    gpus: int
    cores: float
    level: int
    kinds: Bools
    # How much of all shapes with as many GPUs it is, and how much of all requests those are.
    share: float
    frequency: float


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """What the parts of the loss are looked up in."""

    # By percent of compute and of memory free: what one GPU is worth, less where it is free on one axis beyond the
    # other; and as it is left, of equals the fuller more.
    slots: Reals
    slots_after: Reals
    stranding: Stranding
    # What pods with GPUs ask of cores, in rising order: between two of them a core more changes nothing.
    core_levels: Reals
    # By kind, core level and percent free: the part of a GPU that pods can't use.
    rests: Reals
    # A row for each shape with GPUs: which kinds it may have, and how much of the demand for GPUs it is. Then one for
    # each kind: what may want just that and was not seen so far.
    allowed: Bools
    demand: Reals
    larges: tuple[Large, ...]
    # GPUs that a request asks for on average.
    mean_gpus: float

    def level(self, cores: Reals) -> Ints:
        """How many core levels are reached."""
        return np.searchsorted(self.core_levels, cores + SLACK, side="right")


def tables(mix: Mix, *, kinds: Sequence[Kind], gpus: int, cores: float) -> Tables:
    """Work them out for a cluster with these kinds, whose nodes have at most so much."""
    asking = mix.with_gpus
    admitted = [_admitted(one, kinds) for one, _ in asking]
    demand = np.array([share * one.gpus * one.size / WHOLE.value for one, share in asking])
    levels = np.unique([one.cores for one, _ in asking])
    mean = float(demand.sum())
    slots = slot_values(sizes_of(mix)) - _UNEVEN / WHOLE.value * np.abs(np.subtract(*np.indices((STEPS, STEPS))))
    sharing = sum(share for one, share in zip(mix.shapes, mix.shares, strict=True) if one.gpus)
    return Tables(
        slots=slots,
        slots_after=slots - _TIGHT_GPU / WHOLE.value * np.minimum(*np.indices(slots.shape)),
        stranding=stranding(mix, gpus=gpus, cores=cores),
        core_levels=levels,
        rests=_rests(mix, kinds=kinds, levels=levels),
        allowed=np.vstack([*admitted, np.eye(len(kinds), dtype=np.bool_)]),
        demand=np.append(demand / max(mean, _LEAST), np.full(len(kinds), _unseen(mix, gpus=gpus, mean=mean * sharing))),
        larges=_larges(mix, kinds=kinds, levels=levels),
        mean_gpus=mean * sharing,
    )


def _unseen(mix: Mix, *, gpus: int, mean: float) -> float:
    """Of each kind, as if one pod that wants a whole node of it had been among those that were seen.

    Without it, who may go anywhere fills a scarce kind before the first comes who needs it: openb `gpuspec33`, seed 42,
    put 235 GPUs' worth on the 312 of one kind that are asked for by pods of eight, and fell from 95.5 to 93.2.
    """
    return gpus / (mix.requests * max(mean, _LEAST)) if mix.requests else 0.0


def _admitted(shape: Shape, kinds: Sequence[Kind]) -> Bools:
    return np.array([shape.models.admits(*kind) for kind in kinds], dtype=np.bool_)


def _rests(mix: Mix, *, kinds: Sequence[Kind], levels: Reals) -> Reals:
    """What FGD calls fragments, for one GPU: what is free, times how much of all requests can't use it."""
    able = np.zeros((len(kinds), len(levels) + 1, WHOLE.value + 1))
    for one, share in zip(mix.shapes, mix.shares, strict=True):
        if one.gpus:
            enough = int(np.searchsorted(levels, one.cores)) + 1
            able[_admitted(one, kinds), enough:, one.size :] += share
    rests: Reals = np.arange(WHOLE.value + 1) / WHOLE.value * (1.0 - able)
    return rests


def _larges(mix: Mix, *, kinds: Sequence[Kind], levels: Reals) -> tuple[Large, ...]:
    several = [(one, share) for one, share in zip(mix.shapes, mix.shares, strict=True) if one.gpus > 1]
    frequency: dict[int, float] = {}
    for one, share in several:
        frequency[one.gpus] = frequency.get(one.gpus, 0.0) + share
    return tuple(
        Large(
            gpus=one.gpus,
            cores=one.cores,
            level=int(np.searchsorted(levels, one.cores)) + 1,
            kinds=_admitted(one, kinds),
            share=share / frequency[one.gpus],
            frequency=frequency[one.gpus],
        )
        for one, share in several
    )
