"""Whether pods that are let in together could lie as their group wants to, if every node were empty; or why not.

Told from sums, from how many cards pieces need that can't be cut (`uncut.py`), and by trying (`trial.py`): who passes
here may still find no place where not all ways were tried, and waits as others do. Who does not pass never will, until
there is other hardware: such a gang asks for no guarantee and is told so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from aliquot_core.counting import agreed, counted
from aliquot_core.membership import Topology
from aliquot_core.quantities import WHOLE
from aliquot_scheduler.fit.links import islands
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.queues.judging.apart import NOWHERE, apart
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.trial import Scenery, is_plain, laid, places_of, tries_for
from aliquot_scheduler.queues.judging.uncut import cards_needed
from aliquot_scheduler.queues.said.things import KINDS
from aliquot_scheduler.queues.waiting.waiter import Waiter


class _Room(NamedTuple):
    """Of empty cards in one place: what they have together, and the memory of the largest."""

    compute: int
    memory: int
    largest: int
    # An instance of MIG is one too.
    cards: int


class Together:
    """Asks a picture and its cards; what was found stays so until `forget`."""

    def __init__(self, *, picture: Picture, cards: Cards) -> None:
        self._picture = picture
        self._cards = cards
        self._found: dict[tuple[Topology, tuple[int, ...]], str] = {}

    def forget(self) -> None:
        """There is other hardware."""
        self._found.clear()

    def why_never(self, members: Sequence[Waiter]) -> str:
        """Why these can't lie so; empty if they could."""
        group = members[0].group
        asked = group.topology if group else Topology.ANY, tuple(member.number for member in members)
        if asked not in self._found:
            self._found[asked] = self._why_never(asked[0], members)
        return self._found[asked]

    def _why_never(self, topology: Topology, members: Sequence[Waiter]) -> str:
        able = list(self._able(members).values())
        match topology:
            case Topology.SPREAD:
                return self._too_few(members)
            case Topology.NODE:
                there, where = self._nodes(np.logical_and.reduce(able)), "on one node"
            case Topology.NVLINK:
                there, where = self._islands(np.logical_and.reduce(able)), "on GPUs of one node that NVLinks join"
            case _:
                there, where = [_all_of(self._nodes(np.logical_or.reduce(able)))], "on all nodes together"
        return _told(members, there, where=where) or self._no_way(topology, members, where=where)

    def _no_way(self, topology: Topology, members: Sequence[Waiter], *, where: str) -> str:
        """Not by any way to lay them, where all ways are tried; of equal pods that are on one GPU each sums say it."""
        if is_plain(members) or any(one.demand.pieces is None for one in members):
            return ""
        picture, tries = self._picture, tries_for(members)
        able = self._able(members)
        scenery = Scenery(picture.grid.emptied(), picture.hosts.lasting(), lambda one: able[one.number])
        nodes = [picture.nodes[name] for name in sorted(picture.nodes)]
        for places in places_of(topology, nodes):
            if laid(members, places, scenery, picture=picture, tries=tries) or tries.left <= 0:
                return ""
        asks = f"its group starts with {counted(len(members), 'pod')}"
        return f"{asks}, whose slices can't be cut and find no place {where}, in whatever way they are laid"

    def _able(self, members: Iterable[Waiter]) -> dict[int, Bools]:
        """The nodes that could take each, by shape."""
        shapes = {member.number: member for member in members}
        ground = self._cards.ground
        return {number: self._cards.able(one.demand) & ground.could(one.shape.host) for number, one in shapes.items()}

    def _nodes(self, rows: Bools) -> list[_Room]:
        grid = self._picture.grid
        usable = np.where(grid.open, grid.usable, 0)
        compute = grid.total.sum(axis=1, where=grid.open, dtype=np.int64)
        memory, largest = usable.sum(axis=1, dtype=np.int64), usable.max(axis=1, initial=0)
        columns = (column[rows].tolist() for column in (compute, memory, largest, grid.open.sum(axis=1)))
        return [_Room(*room) for room in zip(*columns, strict=True)]

    def _islands(self, rows: Bools) -> list[_Room]:
        return [
            self._on(known, island)
            for known in self._picture.nodes.values()
            if rows[known.row]
            for island in islands(known.inventory.gpus)
        ]

    def _on(self, known: KnownNode, gpus: Sequence[str]) -> _Room:
        grid, row = self._picture.grid, known.row
        columns = [known.columns[gpu] for gpu in gpus if grid.open[row, known.columns[gpu]]]
        usable = grid.usable[row, columns]
        compute = int(grid.total[row, columns].sum())
        return _Room(compute, int(usable.sum()), int(usable.max(initial=0)), len(columns))

    def _too_few(self, members: Sequence[Waiter]) -> str:
        """Not too few nodes for some of them either, whoever takes which."""
        rows = apart([member.number for member in members], self._able(members))
        if NOWHERE not in rows:
            return ""
        found = len(rows) - rows.count(NOWHERE)
        return f"its group starts with {counted(len(members), 'pod')} on a node each, and {found} could take them"


def _all_of(rooms: Sequence[_Room]) -> _Room:
    compute, memory = (sum(room[dim] for room in rooms) for dim in (0, 1))
    largest = max((room.largest for room in rooms), default=0)
    return _Room(compute, memory, largest, sum(room.cards for room in rooms))


def _told(members: Sequence[Waiter], there: Sequence[_Room], *, where: str) -> str:
    """What they ask together that no place has; empty if one has enough of both, and of cards."""
    asked = tuple(map(sum, zip(*map(_least, members), strict=True)))
    enough = [room for room in there if room.compute >= asked[0] and room.memory >= asked[1]]
    needed = [_needed(members, room) for room in enough]
    if any(cards <= room.cards for cards, room in zip(needed, enough, strict=True)):
        return ""
    said = _of_cards(min(needed), enough) if needed else _of_sums(asked, there)
    ask = agreed(len(members), "asks", "ask")
    return f"its group starts with {counted(len(members), 'pod')}, which {ask} {where} {said}"


def _of_sums(asked: Sequence[int], there: Sequence[_Room]) -> str:
    most = tuple(max((room[dim] for room in there), default=0) for dim in (0, 1))
    pairs = zip(asked, most, ("%", "MiB"), KINDS, strict=True)
    short = [
        f"{ask} {unit} of {what}, of which at most {has} {unit} are there"
        for ask, has, unit, what in pairs
        if has < ask
    ]
    return " and ".join(short) or f"{asked[0]} % of compute and {asked[1]} MiB of memory, and none has both"


def _of_cards(needed: int, rooms: Sequence[_Room]) -> str:
    most = max(room.cards for room in rooms)
    return f"slices that can't be cut and need {counted(needed, 'GPU')}, of which at most {most} are there"


def _needed(members: Sequence[Waiter], room: _Room) -> int:
    """No fewer cards will do; of pods whose containers may share cards nothing is known."""
    pieces = [piece for member in members for piece in member.demand.pieces or ()]
    compute = cards_needed([piece.compute for piece in pieces], card=WHOLE.value)
    return max(compute, cards_needed([piece.memory_on(room.largest) for piece in pieces], card=room.largest))


def _least(member: Waiter) -> tuple[int, int]:
    """What it needs at least: init containers run before the others, perhaps on the same cards."""
    pieces = member.demand.pieces
    if pieces is not None:
        return sum(piece.compute for piece in pieces), sum(piece.memory for piece in pieces)
    return member.demand.request.least
