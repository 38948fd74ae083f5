"""What placing a pod loses on one node, in plain numbers: what `loss` says of many at once.

Between two pods a node or two of 1,000 change. To ask one takes `loss` some hundred steps of numpy, whatever their
length; a loop over its GPUs takes a tenth of that.

What must always hold: the numbers of `loss` to the last bit, so that equal nodes stay equal, whichever is asked anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from aliquot_core.quantities import WHOLE
from aliquot_scheduler.worth.loss import CROWDING, LARGE, MOST_CORES, MOST_GPUS, RESTS, STRANDING, TIGHTNESS
from aliquot_scheduler.worth.room import STEPS
from aliquot_scheduler.worth.scarcity import Scarcity
from aliquot_scheduler.worth.stranding import PERCENT, Stranding
from aliquot_scheduler.worth.tables import SLACK, Tables

_FULL = WHOLE.value
# Percent of compute and of memory.
Free = tuple[int, int]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Free cores; by GPU what is free of it, and its kind."""

    cores: float
    free: Sequence[Free]
    kinds: Sequence[int]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a GPU, `count` times, and the GPUs that take it, with what is asked of each's memory."""

    compute: int
    memory: Sequence[int]
    places: Sequence[int]
    count: int
    # What else is the matter with a GPU, in GPUs; nothing with any, if empty.
    penalties: Sequence[float] = ()


def node_loss(node: Node, *, cores: float, asked: Sequence[Asked], tables: Tables, scarcity: Scarcity) -> float:
    """In GPUs, if the pod were placed on the GPUs that lose least; each part must find as many as it asks for."""
    left = node.cores - cores
    before, after = level_of(tables, node.cores), level_of(tables, left)
    on_node = [min(free) for free in node.free]
    lost = 0.0 if before == after else _growth(node, on_node, before, after, tables)
    taken = opened = 0
    for part in asked:
        on_gpus = _on_gpus(node, part, level=after, tables=tables, scarcity=scarcity)
        chosen = sorted(on_gpus, key=lambda place: on_gpus[place][0])[: part.count]
        # In the order of the GPUs, as sums of other orders may differ in the last bit.
        lost += _sum([on_gpus[place][0] for place in sorted(chosen)])
        taken += sum(on_node[place] - on_gpus[place][1] for place in chosen)
        opened += sum(on_node[place] == _FULL for place in chosen)
    total, idle = sum(on_node), on_node.count(_FULL)
    stranding = tables.stranding
    lost += STRANDING * (_stranded(stranding, total - taken, left) - _stranded(stranding, total, node.cores))
    kind, still_idle = node.kinds[0], max(0, idle - opened)
    lost += LARGE * (scarcity.large.item(kind, idle, before) - scarcity.large.item(kind, still_idle, after))
    return lost + TIGHTNESS * (left / MOST_CORES + (total - taken) / (_FULL * MOST_GPUS))


def gpu_loss(*, before: Free, after: Free, line: int, tables: Tables) -> float:
    """The parts that are of one GPU; `line` is where the table of rests begins for its kind and cores."""
    lost = tables.slots.item(_place(before)) - tables.slots_after.item(_place(after))
    grown = tables.rests.item(line + min(after)) - tables.rests.item(line + min(before))
    return float(lost + RESTS * grown)


def level_of(tables: Tables, cores: float) -> int:
    """How many core levels are reached; as `Tables.level` counts."""
    return bisect_right(tables.core_levels, cores + SLACK)


def _on_gpus(
    node: Node, part: Asked, *, level: int, tables: Tables, scarcity: Scarcity
) -> dict[int, tuple[float, int]]:
    """By GPU that takes it what is lost there, and what is free afterwards."""
    found: dict[int, tuple[float, int]] = {}
    # GPUs in the same state lose the same: of many nodes half are untouched.
    known: dict[tuple[Free, int, int], tuple[float, int]] = {}
    levels = tables.rests.shape[1]
    for place in part.places:
        (compute, memory), asked, kind = state = node.free[place], part.memory[place], node.kinds[place]
        if (same := known.get(state)) is None:
            after = compute - part.compute, max(0, memory - asked)
            lost = gpu_loss(before=(compute, memory), after=after, line=(kind * levels + level) * STEPS, tables=tables)
            lost += CROWDING * scarcity.crowding.item(kind) * (max(part.compute, asked) / _FULL)
            same = known[state] = lost, min(after)
        found[place] = (same[0] + part.penalties[place], same[1]) if part.penalties else same
    return found


def _growth(node: Node, free: Sequence[int], before: int, after: int, tables: Tables) -> float:
    rests, levels = tables.rests, tables.rests.shape[1]
    grown = [
        rests.item((kind * levels + after) * STEPS + left) - rests.item((kind * levels + before) * STEPS + left)
        for kind, left in zip(node.kinds, free, strict=True)
    ]
    return RESTS * _sum(grown)


def _stranded(stranding: Stranding, percent: int, cores: float) -> float:
    """As `Stranding.of` says it of many."""
    rows, columns = stranding.table.shape
    row = min(max((percent + PERCENT // 2) // PERCENT, 0), rows - 1)
    place = min(max(cores / stranding.step, 0.0), columns - 1.0)
    left = int(place)
    low = stranding.table.item(row, left)
    return float(low + (stranding.table.item(row, min(left + 1, columns - 1)) - low) * (place - left))


def _place(free: Free) -> int:
    return free[0] * STEPS + free[1]


def _sum(numbers: Sequence[float]) -> float:
    """One after the other, where `sum` of some Pythons is more exact than numpy is."""
    total = 0.0
    for number in numbers:
        total += number
    return total
