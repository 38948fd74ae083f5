"""How each policy rates machines for a pod: the lower the better.

The published ones, as benchmarks/placement/openb/README.md defines them: their grades are cut to whole numbers.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np

from aliquot_scheduler.simulating.fleet import Bools, Fleet, Rows, Some
from aliquot_scheduler.simulating.fragments import Fragments, Reals, Typical
from aliquot_scheduler.simulating.workload import MILLI, Longs, Need

# The published grades count in the trace's largest node.
_MOST_CORES = 128_000
_MOST_GPUS = 8
_BEST = 100


class Rating(msgspec.Struct, frozen=True, kw_only=True):
    """What each of the asked machines costs (infinite: no room), and which GPU a share would lie on."""

    cost: Reals
    gpu: Rows


class Policy(Protocol):
    """A way to choose machines."""

    @property
    def version(self) -> int:
        """Changes when ratings of machines that did not change may be others."""

    def arrived(self, need: Need) -> None:
        """A pod has arrived, and is about to be rated or refused."""

    def rate(self, need: Need, some: Some) -> Rating:
        """Rate these machines."""


class _Steady:
    """A policy that learns nothing."""

    version = 0

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def arrived(self, need: Need) -> None:
        """Nothing is learnt."""

    def _able(self, need: Need, some: Some) -> tuple[Bools, Bools]:
        takes = self._fleet.takes(need, some)
        return takes, self._fleet.able(need, some, takes)


class BestFit(_Steady):
    """Least of cores and GPUs left, and for a share the GPU with least room."""

    def rate(self, need: Need, some: Some) -> Rating:
        """By 100 * (1 - mean of what is left)."""
        takes, able = self._able(need, some)
        fleet = self._fleet
        left = (fleet.cores[some] - need.cores) / _MOST_CORES * 0.5
        left = left + (fleet.milli[:, some].sum(axis=0) - need.total) / (_MOST_GPUS * MILLI) * 0.5
        grade = np.trunc((1.0 - left) * _BEST)
        return Rating(cost=np.where(able, -grade, np.inf), gpu=tightest(fleet, takes, some))


class GpuPacking(_Steady):
    """Shared GPUs first, then idle ones of busy machines, then idle machines."""

    def rate(self, need: Need, some: Some) -> Rating:
        """By which of the three it has to use."""
        takes, able = self._able(need, some)
        milli, there = self._fleet.milli[:, some], self._fleet.there[:, some]
        if not need.gpus:
            return Rating(cost=np.where(able, 0.0, np.inf), gpu=tightest(self._fleet, takes, some))
        idle = (there & (milli == MILLI)).sum(axis=0)
        room = np.sort(np.where(takes, milli, 2 * MILLI), axis=0)[: need.gpus]
        opened = (room == MILLI).sum(axis=0)
        shared = np.maximum(_BEST - (room * _BEST // MILLI).sum(axis=0) // 10, _BEST // 2)
        busy = np.maximum(_BEST // 2 - opened, _BEST // 3)
        grade = np.where(opened > 0, busy, shared)
        grade = np.where(idle == self._fleet.gpus[some], np.maximum(_BEST // 3 - idle, idle), grade)
        return Rating(cost=np.where(able, -grade.astype(np.float64), np.inf), gpu=tightest(self._fleet, takes, some))


class AnyFit(_Steady):
    """Any machine with room, any GPU with room."""

    def __init__(self, fleet: Fleet, *, random: np.random.Generator) -> None:
        super().__init__(fleet)
        self._random = random

    def rate(self, need: Need, some: Some) -> Rating:
        """All that can are equal."""
        takes, able = self._able(need, some)
        drawn = np.where(takes, self._random.random(takes.shape), -1.0)
        return Rating(cost=np.where(able, 0.0, np.inf), gpu=drawn.argmax(axis=0))


class Fgd(_Steady):
    """Least growth of fragments (the paper's policy)."""

    def __init__(self, fleet: Fleet, *, typical: tuple[Typical, ...]) -> None:
        super().__init__(fleet)
        self._fragments = Fragments(typical, models=fleet.models)

    def rate(self, need: Need, some: Some) -> Rating:
        """By the logistic function of fragments before less after, in GPUs."""
        takes, able = self._able(need, some)
        before = self._count(some, self._fleet.milli[:, some], cores=0)
        grades = np.full(takes.shape, -1.0)
        # A share may lie on each GPU with room; whole ones go where they go.
        gpus, tried = np.nonzero(takes & able if need.shared else able[np.newaxis])
        if tried.size:
            nodes = np.arange(self._fleet.size)[some][tried]
            milli = self._after(need, nodes, takes[:, tried], gpus)
            after = self._count(nodes, milli, cores=need.cores)
            grades[gpus, tried] = _cut_logistic((before[tried] - after) / MILLI)
        return Rating(cost=np.where(able, -grades.max(axis=0), np.inf), gpu=grades.argmax(axis=0))

    def _count(self, some: Some, milli: Longs, *, cores: int) -> Reals:
        return self._fragments.of(cores=self._fleet.cores[some] - cores, milli=milli, model=self._fleet.model[some])

    def _after(self, need: Need, nodes: Rows, takes: Bools, gpus: Rows) -> Longs:
        milli: Longs = self._fleet.milli[:, nodes]
        if need.shared:
            milli[gpus, np.arange(len(nodes))] -= need.milli
        else:
            milli -= need.milli * (takes & (takes.cumsum(axis=0) <= need.gpus))
        return milli


def _cut_logistic(change: Reals) -> Reals:
    grade: Reals = np.trunc(1.0 / (1.0 + np.exp(-change)) * _BEST)
    return grade


def tightest(fleet: Fleet, takes: Bools, some: Some) -> Rows:
    """Of the GPUs with room the first with least."""
    tight: Rows = np.where(takes, fleet.milli[:, some], 2 * MILLI).argmin(axis=0)
    return tight
