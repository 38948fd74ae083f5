"""What is scarce at the moment: models that some can't do without, and nodes with several idle GPUs.

Both follow from what is free now, so they are renewed as the cluster fills; between two renewals they are numbers.
"""

from __future__ import annotations

import msgspec
import numpy as np

from aliquot_core.quantities import WHOLE
from aliquot_scheduler.worth.room import Reals, Room
from aliquot_scheduler.worth.tables import Large, Tables

# Demand three times what is there says as much as any more.
_MOST = 3.0
_FULL = float(WHOLE.value)


class Scarcity(msgspec.Struct, frozen=True, kw_only=True):
    """By kind how crowded it is; by kind, idle GPUs and core level what a node is worth to pods with several GPUs."""

    crowding: Reals
    large: Reals


def scarcity(room: Room, tables: Tables) -> Scarcity:
    """Look at all nodes."""
    kinds = tables.rests.shape[0]
    free = np.bincount(room.kinds.ravel(), weights=room.free.ravel(), minlength=kinds)[:kinds] / _FULL
    return Scarcity(crowding=_crowding(free, tables), large=_large(room, tables, free=float(free.sum())))


def _crowding(free: Reals, tables: Tables) -> Reals:
    """If all that is free were asked for in the mix: the demand that may come here, over what could take it.

    Those who may go anywhere add the same to every kind; what differs is the crowding by those who have no choice.
    """
    may_take = tables.allowed @ free
    pressure = np.divide(tables.demand * free.sum(), may_take, out=np.full(len(may_take), _MOST), where=may_take > 0)
    crowding: Reals = np.minimum(_MOST, pressure @ tables.allowed)
    return crowding


def _large(room: Room, tables: Tables, *, free: float) -> Reals:
    """A place for a large pod is worth its GPUs, as likely as places run out before such pods do."""
    kinds, levels, _ = tables.rests.shape
    worth = np.zeros((kinds, room.idle.shape[0] + 1, levels))
    pods = free / max(tables.mean_gpus, 1e-9)
    for one in tables.larges:
        places = _places(room, one)
        ratio = min(1.0, pods * one.frequency / places) if places else 1.0
        worth[one.kinds, one.gpus :, one.level :] += one.gpus * one.share * ratio**2
    return worth


def _places(room: Room, one: Large) -> float:
    """How many such pods all nodes could take now."""
    by_gpus = room.idle_count // one.gpus * one.kinds[room.node_kinds]
    return float(np.minimum(by_gpus, np.floor(room.cores / max(one.cores, 1e-9))).sum())
