"""What placing a pod loses of a node's value: the whole of Aliquot's idea of a good place.

A node's state has a value: what the cluster can still take there of the requests it really sees. A pod goes where
least of it is lost. The loss is counted in GPUs, and has these parts:

| part | weight | a pod should not |
|---|--:|---|
| slots | 1 | leave a rest on a GPU that nobody asks for (`slots.py`) |
| stranding | 0.1 | take cores without which GPUs stay empty (`stranding.py`) |
| crowding | 0.1 | take a model that others can't do without (`scarcity.py`) |
| large | 0.03 | break up a node that pods with several GPUs need (`scarcity.py`) |
| rests | 0.05 | leave room that most pods could not use one step ahead (FGD's measure; `tables.py`) |
| tightness | 0.001 | spread over nodes what one could hold: best fit, among places that are equal so far |

Weights were found on arrival orders of their own, not on those that figures are given for (docs/placement.md).

What must always hold: no randomness, no rounding, no state; the same room, pod and tables give the same loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from aliquot_core.quantities import WHOLE
from aliquot_scheduler.worth.room import Bools, Ints, Reals, Room
from aliquot_scheduler.worth.scarcity import Scarcity
from aliquot_scheduler.worth.tables import Tables

STRANDING = 0.1
CROWDING = 0.1
LARGE = 0.03
RESTS = 0.05
TIGHTNESS = 0.001
# Of two GPUs of a node that are equal in all else, the fuller.
TIGHT_GPU = 0.0001
_MOST_CORES = 128.0
_MOST_GPUS = 8.0
_FULL = WHOLE.value
# Entries of a table by percent, 0 among them.
_STEPS = _FULL + 1

# Compute and memory free, of many GPUs or of one.
Free = tuple[Ints, Ints] | tuple[int, int]
_Value = TypeVar("_Value", np.float64, np.int64, np.bool_)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod asks of one GPU, `count` times: percent of compute and of each card's memory, and where it fits."""

    compute: int
    memory: Ints
    fits: Bools
    count: int = 1
    # What else is the matter with a GPU, in GPUs.
    penalty: Reals | None = None


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """By node, in GPUs; and the best GPU for the first part. Meaningless where the pod does not fit."""

    nodes: Reals
    gpu: Ints


def loss(room: Room, *, cores: float, parts: Sequence[Part], tables: Tables, scarcity: Scarcity) -> Loss:
    """Of each node, if the pod were placed there on the GPUs that lose least."""
    left = room.cores - cores
    before, after = tables.level(room.cores), tables.level(left)
    best = np.zeros(room.nodes, dtype=np.int64)
    lost = _growth(room, before, after, tables)
    taken, opened = np.zeros((2, room.nodes), dtype=np.int64)
    for number, part in enumerate(parts):
        on_gpus, rest = _on_gpus(room, part, level=after, tables=tables, scarcity=scarcity)
        if part.count == 1:
            gpu = on_gpus.argmin(axis=0)
            best = best if number else gpu
            lost += _at(on_gpus, gpu)
            taken += _at(room.free, gpu) - _at(rest, gpu)
            opened += _at(room.idle, gpu)
        else:
            chosen = _least(on_gpus, part)
            lost += np.where(chosen, on_gpus, 0.0).sum(axis=0)
            taken += ((room.free - rest) * chosen).sum(axis=0)
            opened += (room.idle & chosen).sum(axis=0)
    lost += STRANDING * (tables.stranding.of(room.total - taken, left) - tables.stranding.of(room.total, room.cores))
    idle, kinds = room.idle_count, room.node_kinds
    still_idle = np.maximum(0, idle - opened)
    lost += LARGE * (scarcity.large[kinds, idle, before] - scarcity.large[kinds, still_idle, after])
    lost += TIGHTNESS * (left / _MOST_CORES + (room.total - taken) / (_FULL * _MOST_GPUS))
    return Loss(nodes=lost, gpu=best)


def _on_gpus(room: Room, part: Part, *, level: Ints, tables: Tables, scarcity: Scarcity) -> tuple[Reals, Ints]:
    """What each GPU alone loses, infinite where the part does not fit; and what would be free of it afterwards."""
    whole = part.compute == _FULL
    compute = np.maximum(0, room.compute - part.compute)
    memory = np.zeros_like(room.memory) if whole else np.maximum(0, room.memory - part.memory)
    lost = gpu_loss(
        before=(room.compute, room.memory),
        after=(compute, memory),
        kinds=room.kinds,
        level=level,
        tables=tables,
        scarcity=scarcity,
    )
    if part.penalty is not None:
        lost += part.penalty
    rest: Ints = np.minimum(compute, memory)
    return np.where(part.fits, lost, np.inf), rest


def gpu_loss(
    *, before: Free, after: Free, kinds: Ints | int, level: Ints | int, tables: Tables, scarcity: Scarcity
) -> Reals:
    """The parts that are of one GPU: of all of them at once, or of a single one. Free are compute and memory."""
    was, rest = np.minimum(*before), np.minimum(*after)
    lost: Reals = tables.slots.take(before[0] * _STEPS + before[1]) - tables.slots.take(after[0] * _STEPS + after[1])
    lost += TIGHT_GPU / _FULL * rest
    # One line of the table of rests for each GPU: its kind's, with the cores that are left.
    line = (kinds * tables.rests.shape[1] + level) * _STEPS
    lost += RESTS * (tables.rests.take(line + rest) - tables.rests.take(line + was))
    size = np.maximum(before[0] - after[0], before[1] - after[1])
    return lost + CROWDING / _FULL * scarcity.crowding.take(kinds) * size


def _least(on_gpus: Reals, part: Part) -> Bools:
    """The GPUs that lose least, as many as are asked for, the first of equals."""
    order = on_gpus.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    return (order < part.count) & part.fits


def _at(values: npt.NDArray[_Value], gpu: Ints) -> npt.NDArray[_Value]:
    """The value at one GPU of each node."""
    return values[gpu, np.arange(len(gpu))]


def _growth(room: Room, before: Ints, after: Ints, tables: Tables) -> Reals:
    """How much more of the room on a node pods can't use because the cores beside it are gone."""
    grown: Reals = np.zeros(room.nodes)
    nodes = np.flatnonzero(before != after)
    if nodes.size:
        kinds, free = room.kinds[:, nodes] * tables.rests.shape[1], room.free[:, nodes]
        now = tables.rests.take((kinds + after[nodes]) * _STEPS + free)
        was = tables.rests.take((kinds + before[nodes]) * _STEPS + free)
        grown[nodes] = RESTS * (now - was).sum(axis=0)
    return grown
