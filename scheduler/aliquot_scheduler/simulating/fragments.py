"""Fragmentation as the paper has it: GPU milli of a node that a typical pod could not use.

The definition and its order of summation are in benchmarks/placement/openb/README.md; the order matters, because the
published policy cuts its grades to whole numbers, so that the last bit of a sum can decide.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import numpy.typing as npt

from aliquot_scheduler.simulating.fleet import Rows
from aliquot_scheduler.simulating.workload import Longs, Need, Workload

Reals = npt.NDArray[np.float64]

# Typical are the commonest shapes that make up so much of the list.
TYPICAL = 0.95
# States whose fragments are kept at hand: a run on openb meets some 200,000, 100 bytes each.
_MOST_KEPT = 1_000_000


class Typical(msgspec.Struct, frozen=True, kw_only=True):
    """A shape of the list and its weight."""

    need: Need
    weight: float


def typical_pods(workload: Workload) -> tuple[Typical, ...]:
    """The commonest shapes of the list; main memory does not tell them apart."""
    counted: Counter[Need] = Counter()
    for number, count in enumerate(np.bincount(workload.pods, minlength=len(workload.needs)).tolist()):
        if count:
            counted[msgspec.structs.replace(workload.needs[number], memory=0, card=0)] += count
    ordered = sorted(counted.items(), key=_order, reverse=True)
    total = len(workload.pods)
    chosen: list[tuple[Need, float]] = []
    so_far = 0
    for need, count in ordered:
        if so_far >= TYPICAL * total:
            break
        so_far += count
        chosen.append((need, count / total))
    known = so_far / total if len(chosen) < len(ordered) else 1.0
    return tuple(Typical(need=need, weight=share / known) for need, share in chosen)


def _order(counted: tuple[Need, int]) -> tuple[int, int, int, int, str]:
    need, count = counted
    return count, need.cores, need.milli, need.gpus, "|".join(need.models)


class Fragments:
    """Counts fragments of many states at once, each state but once."""

    def __init__(self, typical: tuple[Typical, ...], *, models: list[str]) -> None:
        self._typical = typical
        self._access = [
            np.array([not one.need.models or model in one.need.models for model in models]) for one in typical
        ]
        self._known: dict[bytes, float] = {}

    def of(self, *, cores: Longs, milli: Longs, model: Rows) -> Reals:
        """Milli that are fragments; a column of `milli` is a node, and which of its GPUs is which does not matter."""
        states = np.vstack([model, cores, np.sort(milli, axis=0)]).astype(np.int32).T.copy()
        keys = states.view(f"V{states.itemsize * states.shape[1]}").ravel().tolist()
        if len(self._known) > _MOST_KEPT:
            self._known.clear()
        new = {key: place for place, key in enumerate(keys) if key not in self._known}
        if new:
            places = list(new.values())
            counted = self._count(cores=cores[places], milli=milli[:, places], model=model[places])
            self._known.update(zip(new, counted.tolist(), strict=True))
        return np.array([self._known[key] for key in keys])

    def _count(self, *, cores: Longs, milli: Longs, model: Rows) -> Reals:
        total = milli.sum(axis=0)
        lacks_both, lacks_gpu, lacks_cores, cpu_fits, cpu_lacks, closed = np.zeros((6, len(total)))
        for one, access in zip(self._typical, self._access, strict=True):
            need = one.need
            enough_cores = cores >= need.cores
            all_of_it = one.weight * total
            if not need.gpus:
                cpu_fits += np.where(enough_cores, all_of_it, 0.0)
                cpu_lacks += np.where(enough_cores, 0.0, all_of_it)
                continue
            small = milli < need.milli
            enough_gpus = (~small).sum(axis=0) >= need.gpus
            opened = access[model]
            closed += np.where(opened, 0.0, all_of_it)
            fits = opened & enough_gpus & enough_cores
            rests = one.weight * (milli * small).sum(axis=0)
            lacks_gpu += np.where(fits, rests, np.where(opened & ~enough_gpus & enough_cores, all_of_it, 0.0))
            lacks_cores += np.where(opened & enough_gpus & ~enough_cores, all_of_it, 0.0)
            lacks_both += np.where(opened & ~enough_gpus & ~enough_cores, all_of_it, 0.0)
        summed: Reals = ((((lacks_both + lacks_gpu) + lacks_cores) + cpu_fits) + cpu_lacks) + closed
        return summed
