"""Trials of whole groups on the cards as they are, or as they would be: each of its pods has a place, or none has.

Of the nodes that could take one of its pods no more are looked at than it has pods: if more could, there is always one
that none of the others has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from aliquot_core.membership import Topology
from aliquot_scheduler.fit.demand import suits
from aliquot_scheduler.fit.left import Left
from aliquot_scheduler.fit.links import islands
from aliquot_scheduler.picture.grid import Bools, Cells
from aliquot_scheduler.picture.host_room import HostInts
from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.laying import Laying, Lying, Sort, Spot, Tries
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, Vector
from aliquot_scheduler.queues.waiting.waiter import Waiter

# A placement takes 20 us, and nobody is answered meanwhile; groups of a few sorts are laid with a hundred.
MOST_TRIES = 1_000


class Scenery(NamedTuple):
    """What is supposed to be free of GPUs and of their nodes, and which of those could take one, by its number."""

    cells: Cells
    host: HostInts
    able: Callable[[Waiter], Bools]


class Place(NamedTuple):
    """A node; or, of it, only these GPUs."""

    known: KnownNode
    gpus: Sequence[str] = ()


def tries_for(members: Sequence[Waiter]) -> Tries:
    """One for each of them beside those by which others are tried."""
    return Tries(MOST_TRIES + len(members))


def is_plain(members: Sequence[Waiter]) -> bool:
    """Whether who takes the best place each time takes nobody's: all ask the same, of one card or of whole ones."""
    pieces = members[0].demand.pieces
    same = all(one.number == members[0].number for one in members)
    return same and pieces is not None and (len(pieces) == 1 or all(piece.whole for piece in pieces))


def least_memory(members: Iterable[Waiter], amounts: Vector) -> int:
    """What they ask together; what is charged for a closed card, or the largest one, is more than must be free."""
    asked = [
        one.memory.value
        for member in members
        for one in member.demand.request.containers
        if one.memory and one.kind != "init"
    ]
    return min(sum(asked), amounts[MEMORY])


class FreeInSum:
    """What is free of the GPUs that pods may have; worked out once for all who may have the same."""

    def __init__(self, *, grid: Cells, cards: Cards) -> None:
        self._grid = grid
        self._cards = cards
        self._kinds: dict[int, frozenset[int]] = {}
        self._free: dict[frozenset[int], tuple[int, int]] = {}

    def covers(self, members: Sequence[Waiter], amounts: Vector) -> bool:
        """Whether as much is free as they ask together, of the GPUs that any of them may have."""
        for one in members:
            if one.number not in self._kinds:
                self._kinds[one.number] = self._cards.kinds(one.demand.request)
        kinds = frozenset[int]().union(*{self._kinds[one.number] for one in members})
        if kinds not in self._free:
            self._free[kinds] = self._of(kinds)
        compute, memory = self._free[kinds]
        return compute >= amounts[COMPUTE] and memory >= least_memory(members, amounts)

    def _of(self, kinds: frozenset[int]) -> tuple[int, int]:
        grid = self._grid
        free = grid.open & ~grid.closed & grid.bindable[:, np.newaxis] & np.isin(grid.kind, sorted(kinds))
        return int(grid.compute.sum(where=free, dtype=np.int64)), int(grid.memory.sum(where=free, dtype=np.int64))


def places_of(topology: Topology, nodes: Iterable[KnownNode]) -> Iterator[list[Place]]:
    """What a group that wants to lie so is laid on: all of them together, or one node or island after the other."""
    match topology:
        case Topology.NODE:
            yield from ([Place(one)] for one in nodes)
        case Topology.NVLINK:
            yield from ([Place(one, tuple(gpus))] for one in nodes for gpus in islands(one.inventory.gpus))
        case _:
            yield [Place(one) for one in nodes]


def laid(
    members: Sequence[Waiter], places: Iterable[Place], scenery: Scenery, *, picture: Picture, tries: Tries
) -> dict[int, Lying] | None:
    """Where each lies, by its place among them and in the order in which they were placed; the first places first."""
    able = {one.number: scenery.able(one) for one in members}
    chosen, count = list[Place](), dict.fromkeys(able, 0)
    for place in places:
        who = [number for number, rows in able.items() if rows[place.known.row] and count[number] < len(members)]
        for number in who:
            count[number] += 1
        if who:
            chosen.append(place)
    spots = [_spot(place, scenery) for place in chosen]
    sorts = {one.number: _sort(one, able[one.number], chosen, spots, picture=picture) for one in members}
    return Laying([one.number for one in members], sorts, spots).found(tries)


def _spot(place: Place, scenery: Scenery) -> Spot:
    known = place.known
    row, host = scenery.cells.plain(known.row), scenery.host[known.row].tolist()
    gpus = [gpu for gpu in known.inventory.gpus if not place.gpus or gpu.uuid in place.gpus]
    columns = [known.columns[gpu.uuid] for gpu in gpus]
    left = [
        Left(
            compute=row.compute[at],
            usable=row.usable[at],
            memory=row.memory[at],
            holders=row.holders[at],
            closed=row.closed[at],
        )
        for at in columns
    ]
    return Spot(node=known.name, gpus=gpus, left=left, kinds=[row.kind[at] for at in columns], host=host)


def _sort(one: Waiter, able: Bools, places: Sequence[Place], spots: Sequence[Spot], *, picture: Picture) -> Sort:
    request, grid = one.demand.request, picture.grid
    suitable = [suits(kind, request) for kind in grid.kinds]
    may: dict[str, Sequence[int]] = {}
    for place, spot in zip(places, spots, strict=True):
        if able[place.known.row]:
            is_open = grid.open[place.known.row].tolist()
            columns = (place.known.columns[gpu.uuid] for gpu in spot.gpus)
            gpus = enumerate(zip(spot.gpus, spot.kinds, columns, strict=True))
            may[spot.node] = [
                at
                for at, (gpu, kind, column) in gpus
                if suitable[kind] and is_open[column] and request.uuids.admits(gpu.uuid)
            ]
    return Sort(pod=one.pod, demand=one.demand, host=one.shape.host.on_node, may=may)
