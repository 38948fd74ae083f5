"""Where a head would have room once others have ended, and what stands idle on nodes that are kept for heads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from aliquot_core.membership import Topology
from aliquot_scheduler.picture.grid import Bools, Cells
from aliquot_scheduler.picture.host_room import PODS
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.laying import Lying, Tries
from aliquot_scheduler.queues.judging.stayers import Stayers
from aliquot_scheduler.queues.judging.trial import Place, Scenery, is_plain, least_memory, places_of, tries_for
from aliquot_scheduler.queues.said.tree import COMPUTE
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter

# A place for each of them in such a scenery, or none.
Lay = Callable[[Candidate, Iterable[Place], Tries, Scenery], Mapping[int, Lying] | None]


class RoomToCome:
    """In one round of turns."""

    def __init__(self, *, picture: Picture, cards: Cards, stayers: Stayers, lay: Lay) -> None:
        self._picture = picture
        self._cards = cards
        self._stayers = stayers
        self._lay = lay
        # How much compute is in use, by row, as long as the cards are the same.
        self._held_at = -1
        self._held_by: list[int] = []
        # Which nodes a shape could lie on later, by its number and such cards: eight heads are looked at in each round.
        self._able: dict[tuple[int, int], Bools] = {}

    def idle_on(self, groups: Mapping[str, Iterable[str]]) -> dict[str, tuple[int, int]]:
        """What of compute and memory is free on each of these groups of nodes."""
        grid = self._picture.grid
        usable = grid.open & ~grid.closed
        compute: list[int] = (grid.compute * usable).sum(axis=1).tolist()
        memory: list[int] = (grid.memory * usable).sum(axis=1, dtype=np.int64).tolist()
        found: dict[str, tuple[int, int]] = {}
        known = self._picture.nodes
        for name, nodes in groups.items():
            idle = 0, 0
            for node in nodes:
                if node in known:
                    row = known[node].row
                    idle = idle[0] + compute[row], idle[1] + memory[row]
            found[name] = idle
        return found

    def best_kept(self, candidate: Candidate, *, among: Iterable[str], doublings: int = 0) -> tuple[str, ...]:
        """Where it would have room soonest: nodes on which all of it could lie once all but those who stay have ended.

        The emptiest first; none if all of them together would not do.
        """
        cells = self._stayers.beside(hardware=self._hardware, doublings=doublings)
        rows = {name: self._picture.nodes[name].row for name in among if name in self._picture.nodes}
        held = self._held()
        emptiest = sorted(rows, key=lambda name: (held[rows[name]], name))
        if candidate.topology is Topology.ANY and is_plain(candidate.members):
            return self._enough(candidate, emptiest, cells)
        host = self._picture.hosts.allocatable.copy()
        if candidate.topology is Topology.SPREAD:
            host[:, PODS] = np.minimum(host[:, PODS], 1)
        scenery = Scenery(cells, host, lambda one: self._able_later(one, cells))
        tries = tries_for(candidate.members)
        for places in places_of(candidate.topology, map(self._picture.nodes.__getitem__, emptiest)):
            if found := self._lay(candidate, places, tries, scenery):
                return tuple(sorted({lying.node for lying in found.values()}))
        return ()

    @cached_property
    def _hardware(self) -> int:
        return self._cards.hardware()

    def _held(self) -> list[int]:
        """How much compute is in use, by row."""
        grid = self._picture.grid
        if self._held_at != grid.version:
            held = (grid.total * grid.open - grid.compute * (grid.open & ~grid.closed)).sum(axis=1)
            self._held_at, self._held_by = grid.version, held.tolist()
        return self._held_by

    def _enough(self, candidate: Candidate, nodes: Sequence[str], cells: Cells) -> tuple[str, ...]:
        """As many of them as have what is asked, where each takes its part of it."""
        asked, chosen = candidate.amounts, list[str]()
        alike = candidate.number, id(cells)
        if alike not in self._able:
            self._able[alike] = self._able_later(candidate.first, cells)
        able, compute, memory = self._able[alike], 0, 0
        for name in nodes:
            if able[row := self._picture.nodes[name].row]:
                chosen.append(name)
                free = cells.open[row] & ~cells.closed[row]
                compute += int(cells.compute[row, free].sum())
                memory += int(cells.memory[row, free].sum(dtype=np.int64))
                if compute >= asked[COMPUTE] and memory >= least_memory(candidate.members, candidate.amounts):
                    return tuple(chosen)
        return ()

    def _able_later(self, one: Waiter, cells: Cells) -> Bools:
        able = self._cards.roomy(one.demand, cells) & self._cards.ground.suits(one.shape.host)
        return self._cards.ruled.admits(one.pod, one.demand, among=able)
