"""What placing a pod loses of a node's value: the whole of Aliquot's idea of a good place.

A node's state has a value: what the cluster can still take there of the requests it really sees. A pod goes where
least of it is lost. The loss is counted in GPUs, and has these parts:

| part | weight | a pod should not |
|---|--:|---|
| slots | 1 | leave a rest on a GPU that nobody asks for (`slots.py`) |
| evenness | 0.1 | leave compute without memory beside it, or memory without compute (`tables.py`) |
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
from aliquot_scheduler.worth.room import STEPS, Bools, Ints, Reals, Room
from aliquot_scheduler.worth.scarcity import Scarcity
from aliquot_scheduler.worth.tables import Tables

STRANDING = 0.1
CROWDING = 0.1
LARGE = 0.03
RESTS = 0.05
TIGHTNESS = 0.001
MOST_CORES = 128.0
MOST_GPUS = 8.0
_FULL = WHOLE.value
# Of so many nodes it is quicker to work a table out for the pod first.
_MANY = 256

# Where GPUs are in the table of slots, and percent free on both axes.
State = tuple[Ints, Ints]
_Value = TypeVar("_Value", np.float64, np.int64, np.bool_)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod asks of one GPU, `count` times: percent of compute and of each card's memory, and where it fits."""

    # Percent, of every card the same, or of each its own.
    compute: Ints | int
    memory: Ints | int
    fits: Bools
    count: int = 1
    # What else is the matter with a GPU, in GPUs.
    penalty: Reals | None = None

    @property
    def even(self) -> bool:
        """Whether it takes as much of memory as of compute, on every card."""
        return isinstance(self.memory, int) and isinstance(self.compute, int) and self.memory == self.compute

    @property
    def size(self) -> Ints | int:
        """What of a GPU nobody else can have."""
        if isinstance(self.memory, int) and isinstance(self.compute, int):
            return max(self.compute, self.memory)
        return np.maximum(self.compute, self.memory)


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
    lost += TIGHTNESS * (left / MOST_CORES + (room.total - taken) / (_FULL * MOST_GPUS))
    return Loss(nodes=lost, gpu=best)


def _on_gpus(room: Room, part: Part, *, level: Ints, tables: Tables, scarcity: Scarcity) -> tuple[Reals, Ints]:
    """What each GPU alone loses, infinite where the part does not fit; and what would be free of it afterwards."""
    # The kind of each GPU, or of each node where all its GPUs are of one: half the steps, and the usual case.
    kinds = room.kinds if room.mixed else room.node_kinds
    line = (kinds * tables.rests.shape[1] + level) * STEPS
    if isinstance(part.compute, int) and part.even and room.nodes > _MANY:
        rest = room.free - part.compute
        lost = _by_steps(room, compute=part.compute, line=line, tables=tables)
    else:
        place, rest = _after(room, part)
        lost = _gpu_loss(before=(room.place, room.free), after=(place, rest), line=line, tables=tables)
    lost += CROWDING * scarcity.crowding.take(kinds) * (part.size / _FULL)
    if part.penalty is not None:
        lost += part.penalty
    return np.where(part.fits, lost, np.inf), rest


def _gpu_loss(*, before: State, after: State, line: Ints, tables: Tables) -> Reals:
    """The parts that are of one GPU; `line` is where the table of rests begins for its kind and cores."""
    # Where the pod does not fit places may lie outside: what is read there is not looked at.
    lost: Reals = tables.slots.take(before[0], mode="clip") - tables.slots_after.take(after[0], mode="clip")
    grown = tables.rests.take(line + after[1], mode="clip") - tables.rests.take(line + before[1], mode="clip")
    return lost + RESTS * grown


def _by_steps(room: Room, *, compute: int, line: Ints, tables: Tables) -> Reals:
    """The same of many GPUs: what each state loses is worked out first, so that each GPU is looked up but once."""
    slots, after, rests = tables.slots.ravel(), tables.slots_after.ravel(), tables.rests.ravel()
    step = compute * (STEPS + 1)
    by_place, by_rest = np.zeros(slots.size), np.zeros(rests.size)
    by_place[step:] = slots[step:] - after[: slots.size - step]
    by_rest[compute:] = RESTS * (rests[: rests.size - compute] - rests[compute:])
    lost: Reals = by_place.take(room.place, mode="clip")
    lost += by_rest.take(line + room.free, mode="clip")
    return lost


def _after(room: Room, part: Part) -> tuple[Ints, Ints]:
    """Where in the table of slots each GPU would be, and what of it would be free on both axes."""
    if part.even:
        return room.place - part.compute * (STEPS + 1), room.free - part.compute
    # Where there is just room for it a begun percent too much may be asked.
    compute, memory = room.compute - part.compute, np.maximum(0, room.memory - part.memory)
    return compute * STEPS + memory, np.minimum(compute, memory)


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
        now = tables.rests.take((kinds + after[nodes]) * STEPS + free)
        was = tables.rests.take((kinds + before[nodes]) * STEPS + free)
        grown[nodes] = RESTS * (now - was).sum(axis=0)
    return grown
