"""Room for pods that are let in together: for all of them or for none, and lying as their group wants to lie.

Each takes its best place; where one takes what another can't do without, all are laid together (`judging/laying.py`).
On one node, or on GPUs of one NVLink island, places are tried from the fullest that may have room on, so that large
ones stay whole; what is found binds them to that place, also when kube-scheduler asks later. Apart, each is kept from
the nodes of the others. Members that come later lie where, or keep from where, those before them are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np

from aliquot_core.membership import Topology
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.deciding.turns import Rooms
from aliquot_scheduler.fit.bounds import ANYWHERE, Bounds
from aliquot_scheduler.fit.links import islands
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.queues.judging.apart import NOWHERE, apart
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.laying import Lying, Tries
from aliquot_scheduler.queues.judging.stayers import Stayers
from aliquot_scheduler.queues.judging.trial import Place, Scenery, is_plain, laid, least_memory, tries_for
from aliquot_scheduler.queues.letting_in.room_to_come import RoomToCome
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.said.tree import COMPUTE
from aliquot_scheduler.queues.waiting.runs import Runs
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter

# A round that has searched in vain so often is broken off; a search of a node takes as long as so many placements.
_TRIES_OF_ONE = 50


class Placing:
    """Finds room in one round of turns."""

    def __init__(
        self,
        *,
        picture: Picture,
        cards: Cards,
        rooms: Rooms,
        runs: Runs,
        bounds: dict[str, Bounds],
        stayers: Stayers,
        now: float,
    ) -> None:
        """`runs` is who of each gang is in, `bounds` where alone those may lie: new ones are added."""
        self._picture = picture
        self._cards = cards
        self._rooms = rooms
        self._now = now
        self._runs = runs
        self._bounds = bounds
        self.to_come = RoomToCome(picture=picture, cards=cards, stayers=stayers, lay=self._laid)
        # Searches that found nothing.
        self.in_vain = 0
        self._nodes: frozenset[str] | None = None
        # By the number of a shape, as long as the cards are the same.
        self._roomy_at = -1
        self._roomy_on: dict[int, frozenset[str]] = {}

    def place(self, candidate: Candidate, *, but: frozenset[str]) -> list[Promise]:
        """Room for all of them, or for none; not on nodes that are kept for others."""
        if candidate.topology in {Topology.NODE, Topology.NVLINK}:
            promises = self._on_one(candidate, but)
        elif candidate.topology is Topology.SPREAD:
            promises = self._spread(candidate, but | self._taken(candidate))
        else:
            promises = self._anywhere(candidate, Bounds(but=but) if but else ANYWHERE)
        self.in_vain += not promises
        return promises

    def place_at(self, clearing: Clearing) -> list[Promise]:
        """Each of them where room was made for it, or none."""
        promises = self._promised(
            (place.waiter, Bounds(node=place.node, gpus=place.gpus, off=place.waiter.off)) for place in clearing.places
        )
        together = clearing.candidate.topology is not Topology.ANY
        for place in clearing.places if promises else ():
            self._bind(place.waiter, Bounds(node=place.node, gpus=place.gpus) if together else ANYWHERE)
        return promises

    def take_back(self, promises: Iterable[Promise]) -> None:
        """Room that was found is kept for them no more."""
        for made in promises:
            self._rooms.take_back(made.pod.metadata.uid)
            self._bounds.pop(made.pod.metadata.uid, None)

    def _anywhere(self, candidate: Candidate, bounds: Bounds) -> list[Promise]:
        """Each at its best place; or where all have one, if one took what another can't do without."""
        promises = self._promised(_each(candidate, bounds))
        if not promises and not is_plain(candidate.members):
            nodes = [self._picture.nodes[name] for name in self._fullest(self.nodes() - bounds.but)]
            promises = self._pinned(candidate, self._laid(candidate, map(Place, nodes), tries_for(candidate.members)))
        if promises:
            self._bind_to(candidate, promises, bounds)
        return promises

    def _on_one(self, candidate: Candidate, but: frozenset[str]) -> list[Promise]:
        """On the first place of which they take what all of them need."""
        tries = tries_for(candidate.members)
        for bounds in self._places(candidate, but):
            known = self._picture.nodes[bounds.node]
            if not (found := self._laid(candidate, [Place(known, bounds.gpus)], tries)):
                continue
            if promises := self._promised(_each(candidate, bounds)) or self._pinned(candidate, found):
                self._bind_to(candidate, promises, bounds)
                return promises
        return []

    def _laid(
        self, candidate: Candidate, places: Iterable[Place], tries: Tries, scenery: Scenery | None = None
    ) -> dict[int, Lying] | None:
        """A place for each, as things are or are supposed; what the search costs counts as searches in vain."""
        before, picture = tries.left, self._picture
        if scenery is None:
            scenery = Scenery(picture.grid, picture.hosts.free, lambda one: self._admitting(one, on=picture.nodes))
        found = laid(candidate.members, places, scenery, picture=picture, tries=tries)
        self.in_vain += (before - tries.left) // _TRIES_OF_ONE
        return found

    def _pinned(self, candidate: Candidate, found: Mapping[int, Lying] | None) -> list[Promise]:
        """Each where it was found to lie, in that order: who comes after it counted on what it leaves."""
        members, places = candidate.members, found or {}
        promises = self._promised(
            (members[place], Bounds(node=lying.node, gpus=lying.gpus, off=members[place].off))
            for place, lying in places.items()
        )
        return [promise for _, promise in sorted(zip(places, promises, strict=False), key=lambda pair: pair[0])]

    def _spread(self, candidate: Candidate, but: frozenset[str]) -> list[Promise]:
        """Each on the best node that is left; or where all have one, if some of them have less choice than others."""
        promises = self._promised(_each(candidate, Bounds(but=but)), apart=True)
        if not promises and len({member.number for member in candidate.members}) > 1:
            promises = self._promised(self._one_each(candidate, but))
        if promises:
            self._bind_to(candidate, promises, ANYWHERE)
        return promises

    def _one_each(self, candidate: Candidate, but: frozenset[str]) -> list[tuple[Waiter, Bounds]]:
        """A node for each, so that all have one; nothing if there is no such way."""
        members, names = candidate.members, {known.row: name for name, known in self._picture.nodes.items()}
        able = {one.number: self._admitting(one, on=self._picture.nodes.keys() - but) for one in members}
        rows = apart([one.number for one in members], able)
        if NOWHERE in rows:
            return []
        return [(one, Bounds(node=names[row], off=one.off)) for one, row in zip(members, rows, strict=True)]

    def _admitting(self, member: Waiter, *, on: Iterable[str]) -> Bools:
        """Which of these nodes have room for it, by their rows."""
        rows = [self._picture.nodes[name].row for name in on if name in self._picture.nodes]
        roomy = self._cards.roomy(member.demand) & self._cards.ground.admits(member.shape.host)
        asked = np.zeros_like(roomy)
        asked[rows] = roomy[rows]
        return self._cards.ruled.admits(member.pod, member.demand, among=asked)

    def _promised(self, asked: Iterable[tuple[Waiter, Bounds]], *, apart: bool = False) -> list[Promise]:
        """Room for all of them, each within its bounds, or for none; `apart`, each on another node."""
        promises: list[Promise] = []
        for waiter, place in asked:
            taken = place.but.union(made.node for made in promises) if apart else place.but
            bounds = msgspec.structs.replace(place, but=taken)
            promise = self._rooms.promise_best(waiter.pod, waiter.demand, bounds, now=self._now)
            if promise is None:
                for made in promises:
                    self._rooms.take_back(made.pod.metadata.uid)
                return []
            promises.append(promise)
        return promises

    def _fullest(self, nodes: Iterable[str]) -> list[str]:
        """Those first of which least is free: so large ones stay whole."""
        grid = self._picture.grid
        free = (grid.compute * (grid.open & ~grid.closed)).sum(axis=1).tolist()
        return sorted(nodes, key=lambda name: (free[self._picture.nodes[name].row], name))

    def _bind_to(self, candidate: Candidate, promises: Sequence[Promise], place: Bounds) -> None:
        """kube-scheduler may choose another node for each only within the same bounds."""
        apart = candidate.topology is Topology.SPREAD
        for member, promise in zip(candidate.members, promises, strict=True):
            self._bind(member, Bounds(node=promise.node) if apart else place)

    def _bind(self, member: Waiter, bounds: Bounds) -> None:
        bounds = msgspec.structs.replace(bounds, off=member.off)
        if bounds != ANYWHERE:
            self._bounds[member.uid] = bounds

    def _mates(self, candidate: Candidate) -> list[str]:
        gang = candidate.first.gang
        return sorted(self._runs.staying(gang)) if gang else []

    def _taken(self, candidate: Candidate) -> frozenset[str]:
        """The nodes of those of its group who are in."""
        return frozenset(node for uid in self._mates(candidate) for node, _ in self._picture.holdings.of(uid))

    # --- what is asked -----------------------------------------------------------------------------------------------
    def nodes(self) -> frozenset[str]:
        """Those that pods may be bound to."""
        if self._nodes is None:
            self._nodes = frozenset(name for name, known in self._picture.nodes.items() if not known.out)
        return self._nodes

    def roomy(self, candidate: Candidate) -> frozenset[str]:
        """The nodes on which its first pod would have room."""
        first, version = candidate.first, self._cards.version
        if self._roomy_at != version:
            self._roomy_at, self._roomy_on = version, {}
        if first.number not in self._roomy_on:
            able = self._cards.roomy(first.demand) & self._cards.ground.admits(first.shape.host)
            rows = np.flatnonzero(self._cards.ruled.admits(first.pod, first.demand, among=able))
            self._roomy_on[first.number] = frozenset(self.names[row] for row in rows.tolist() if row in self.names)
        return self._roomy_on[first.number]

    @cached_property
    def names(self) -> Mapping[int, str]:
        """Whose row is whose."""
        return {known.row: name for name, known in self._picture.nodes.items()}

    def why_no_node(self, candidate: Candidate) -> str:
        """Why no node takes its first pod that has room on its GPUs; empty if that is not what it lacks."""
        first = candidate.first
        return self._cards.why_no_node(first.pod, first.demand, host=first.shape.host)

    # --- one place for all -------------------------------------------------------------------------------------------
    def _places(self, candidate: Candidate, but: frozenset[str]) -> list[Bounds]:
        """Where all may have room, the fullest first; only where its group is, if some are in."""
        mine = {gpu for uid in self._mates(candidate) for gpu in self._picture.holdings.of(uid)}
        whole = candidate.topology is Topology.NODE
        found: list[tuple[int, str, Bounds]] = []
        for known in self._roomy(candidate, only={node for node, _ in mine}, but=but):
            for gpus in [()] if whole else islands(known.inventory.gpus):
                if mine and gpus and not {gpu for _, gpu in mine} <= set(gpus):
                    continue
                compute, memory = self._free(known, gpus)
                if compute >= candidate.amounts[COMPUTE] and memory >= least_memory(
                    candidate.members, candidate.amounts
                ):
                    found.append((compute, known.name, Bounds(node=known.name, gpus=tuple(gpus))))
        return [place for _, _, place in sorted(found, key=lambda one: (*one[:2], one[2].gpus))]

    def _roomy(self, candidate: Candidate, *, only: set[str], but: frozenset[str]) -> list[KnownNode]:
        """Nodes with as much compute free as is asked; few of 1,000 are looked at closely."""
        grid = self._picture.grid
        free = (grid.compute * (grid.open & ~grid.closed)).sum(axis=1)
        names = sorted(only or self._picture.nodes)
        known = [self._picture.nodes[name] for name in names if name in self._picture.nodes and name not in but]
        asked = candidate.amounts[COMPUTE]
        takes = self._cards.ground.admits(candidate.first.shape.host) & (free >= asked)
        takes = self._admitted(candidate, takes)
        return [one for one in known if not one.out and takes[one.row]]

    def _admitted(self, candidate: Candidate, rows: Bools) -> Bools:
        """Those that no rule refuses to any of them."""
        return self._cards.ruled.all_admitted(((one.pod, one.demand) for one in candidate.members), among=rows)

    def _free(self, known: KnownNode, gpus: Sequence[str]) -> tuple[int, int]:
        grid, row = self._picture.grid, known.row
        columns = [known.columns[uuid] for uuid in gpus] if gpus else list(known.columns.values())
        usable = [column for column in columns if grid.open[row, column] and not grid.closed[row, column]]
        return int(grid.compute[row, usable].sum()), int(grid.memory[row, usable].sum())


def _each(candidate: Candidate, place: Bounds) -> Iterable[tuple[Waiter, Bounds]]:
    """All of them there, each kept off what it is kept off."""
    return ((member, msgspec.structs.replace(place, off=member.off)) for member in candidate.members)
