"""Where a candidate is to lie once others have gone for it: a place for each of its pods, or for none.

Who has the least choice of nodes is settled first. A group that has to lie together is tried on one node or island
after the other, and lies where least harm is done; one that lies apart, each pod on a node of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from aliquot_core.membership import Topology
from aliquot_scheduler.fit.links import islands
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.laying import largest_first
from aliquot_scheduler.queues.room.clearings import GpuKey, Place
from aliquot_scheduler.queues.waiting.runs import Runs
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter
from aliquot_scheduler.reclaim.search import Search
from aliquot_scheduler.reclaim.trying import Option

# A group that has to lie together is tried on so many nodes.
_MOST_NODES = 32


class Settling:
    """Of one look; `runs` is who of each gang is in."""

    def __init__(self, *, picture: Picture, cards: Cards, runs: Runs) -> None:
        self._picture = picture
        self._cards = cards
        self._runs = runs

    def settle(self, search: Search, candidate: Candidate) -> bool:
        """A place for each of them, or for none."""
        able = {one.number: self.able(one) for one in candidate.members}
        match candidate.topology:
            case Topology.NODE | Topology.NVLINK:
                return self._together(search, candidate, able)
            case Topology.SPREAD:
                return self._apart(search, candidate, able)
        return all(search.settle(member, able=able[member.number]) for member in _hardest_first(candidate, able))

    def gather(self, search: Search, candidate: Candidate) -> bool:
        """Whether some lie closer together now, so that others may stay; of a topology each keeps its node."""
        able = {one.number: self.able(one) for one in candidate.members}

        def elsewhere(place: Place, nodes: Collection[str]) -> list[str]:
            others = nodes if candidate.topology is Topology.ANY else ()
            takes = able[place.waiter.number]
            return [place.node, *(name for name in others if name != place.node and takes[self._row(name)])]

        return search.gather(elsewhere)

    def _row(self, node: str) -> int:
        return self._picture.nodes[node].row

    def able(self, member: Waiter) -> Bools:
        """The nodes that take it, were their GPUs empty."""
        ground = self._cards.ground
        able = self._cards.able(member.demand) & ground.suits(member.shape.host) & self._picture.grid.bindable
        return self._cards.ruled.admits(member.pod, member.demand, among=able)

    def _apart(self, search: Search, candidate: Candidate, able: Mapping[int, Bools]) -> bool:
        """Each on a node of its own."""
        taken = {node for node, _ in self._of_mates(candidate)}
        for member in _hardest_first(candidate, able):
            if not search.settle(member, able=able[member.number], but=taken):
                return False
            taken.add(search.places[-1].node)
        return True

    def _together(self, search: Search, candidate: Candidate, able: Mapping[int, Bools]) -> bool:
        """On one node, or one island of it: the least harm of those that were tried."""
        members = _hardest_first(candidate, able)
        best: tuple[int, list[Option]] | None = None
        tried = 0
        for known, gpus in self._spots(candidate, np.logical_and.reduce(list(able.values()))):
            if tried >= _MOST_NODES or (best is not None and best[0] == 0):
                break
            found = search.together(members, known, only=gpus)
            if found is not None:
                tried += 1
                harm = sum(option.harm for option in found)
                best = min(best or (harm, found), (harm, found), key=lambda one: one[0])
        for option in best[1] if best else ():
            search.take(option)
        return best is not None

    def _spots(self, candidate: Candidate, able: Bools) -> Iterator[tuple[KnownNode, tuple[str, ...]]]:
        mates = self._of_mates(candidate)
        only = {node for node, _ in mates}
        for name in sorted(only or self._picture.nodes):
            known = self._picture.nodes.get(name)
            if known is None or not able[known.row]:
                continue
            if candidate.topology is Topology.NODE:
                yield known, ()
                continue
            for island in islands(known.inventory.gpus):
                if {gpu for _, gpu in mates} <= set(island):
                    yield known, island

    def _of_mates(self, candidate: Candidate) -> set[GpuKey]:
        gang = candidate.first.gang
        uids = sorted(self._runs.staying(gang)) if gang else []
        return {gpu for uid in uids for gpu in self._picture.holdings.of(uid)}


def _hardest_first(candidate: Candidate, able: Mapping[int, Bools]) -> list[Waiter]:
    """Who has the least choice of nodes, then who asks most: else others of the group lie where alone it could."""
    return sorted(candidate.members, key=lambda one: (int(able[one.number].sum()), largest_first(one.demand)))
