"""Places for pods at the least harm: which node for each, and who of all has to go.

Theory of operation. For each shape a bound is worked out for all nodes at once: no node can cost less, since on each of
so many cards somebody of those who may go must. Nodes are then looked at closely (`trying.py`) from the smallest bound
up, until the cheapest that was looked at is no dearer than the next bound: a few nodes of 1,000 for each pod.

What must always hold: nobody is taken who may not be (`rights.py`, budgets); what was found fits, with all who go
away and nobody else; the same scene gives the same answer.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.picture import KnownNode
from aliquot_scheduler.queues.room.clearings import Place
from aliquot_scheduler.queues.said.tree import COMPUTE, Tree
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.reclaim.bounds import bounds_of
from aliquot_scheduler.reclaim.gathering import Elsewhere, Gathering, most_harmful_first
from aliquot_scheduler.reclaim.residents import Resident, Residents
from aliquot_scheduler.reclaim.rights import Taking
from aliquot_scheduler.reclaim.scene import Scene
from aliquot_scheduler.reclaim.trying import Option, Trying

# Of pods whose containers have to be tried out (0.5 ms each), so many nodes are.
_MOST_TRIES = 64

# By shape, rights and what GPUs have no room.
Bounds = dict[tuple[int, Any], "Cheapest"]
# By queue, dimension, and whether the lower priority goes first.
InOrder = dict[tuple[str, int, bool], list[Resident]]


class Cheapest:
    """Nodes by what they cost at the least, the cheapest first; a node may be there more than once."""

    def __init__(self, entries: Iterable[tuple[int, str]]) -> None:
        self._heap = list(entries)
        heapq.heapify(self._heap)
        # Kept beside the heap: there are thousands in it, and it is asked for after each pod.
        self._for_nothing = Counter(name for bound, name in self._heap if not bound)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, bound: int, name: str) -> None:
        """It costs so much at the least."""
        heapq.heappush(self._heap, (bound, name))
        self._for_nothing[name] += not bound

    def pop(self) -> tuple[int, str]:
        """The cheapest."""
        bound, name = heapq.heappop(self._heap)
        self._for_nothing[name] -= not bound
        return bound, name

    def may_be_free(self, names: Iterable[str]) -> None:
        """These may cost nothing by now."""
        for name in names:
            if not self._for_nothing[name]:
                self.push(0, name)


class Search:
    """For one candidate."""

    def __init__(
        self, *, scene: Scene, residents: Residents, rights: Taking, known: Bounds, in_order: InOrder | None = None
    ) -> None:
        """`known` are the bounds of those before it, as far as the same was asked by the same rights.

        `in_order` is who uses something of a queue's in a dimension, as they were put in order for those before it.
        """
        self.scene = scene
        self._residents = residents
        self._rights = rights
        self._trying = Trying(scene=scene, residents=residents, rights=rights)
        self.victims: dict[str, Resident] = {}
        self.places: list[Place] = []
        self._known = known
        self._in_order: InOrder = {} if in_order is None else in_order

    @property
    def moves(self) -> list[tuple[Resident, Place]]:
        """Who is moved, and where to: nobody, where all who go have no place again."""
        return []

    def send_until(self, enough: Callable[[list[Resident]], bool], *, queue: str, dimension: int, tree: Tree) -> bool:
        """Whether those who use something of a queue's are enough, if one after the other goes, with who goes along."""
        sent: list[Resident] = []
        for one in self._users(queue, dimension, tree):
            if unit := self._trying.take_with_it(one):
                self.victims |= {one.uid: one for one in unit}
                sent += unit
                if enough(unit):
                    break
        else:
            return False
        self._look_again((), sent)
        return True

    def _users(self, queue: str, dimension: int, tree: Tree) -> list[Resident]:
        """The least harmful first; put in order once, since hundreds of candidates may lack the same."""
        key = queue, dimension, self._rights.by_priority
        if key not in self._in_order:
            using = (one for one in self._residents.by_uid.values() if one.amounts[dimension])
            self._in_order[key] = self._trying.in_order(one for one in using if queue in tree.path(one.queue))
        return self._in_order[key]

    # --- one after the other -----------------------------------------------------------------------------------------
    def settle(self, waiter: Waiter, *, able: Bools, but: Collection[str] = ()) -> bool:
        """Find the cheapest place for one more pod, on rows that are `able`, and suppose that it lies there."""
        heap = self._heap(waiter, able)
        best: Option | None = None
        for tries, (bound, name) in enumerate(self._pops(heap, able=able, but=but)):
            if best is not None and (best.harm <= bound or (waiter.demand.pieces is None and tries > _MOST_TRIES)):
                heap.push(bound, name)
                break
            option = self._trying.option(waiter, self.scene.picture.nodes[name])
            if option is None:
                continue
            if best is None or option.harm < best.harm:
                if best is not None:
                    heap.push(best.harm, best.place.node)
                best = option
            else:
                heap.push(option.harm, name)
        if best is None:
            return False
        self.take(best)
        return True

    def _pops(self, heap: Cheapest, *, able: Bools, but: Collection[str]) -> Iterable[tuple[int, str]]:
        nodes, put_off = self.scene.picture.nodes, []
        try:
            while heap:
                bound, name = heap.pop()
                if name in but:
                    put_off.append((bound, name))
                # Nodes where somebody goes are looked at again, whether or not they take the pod.
                elif able[nodes[name].row]:
                    yield bound, name
        finally:
            for entry in put_off:
                heap.push(*entry)

    def _heap(self, waiter: Waiter, able: Bools) -> Cheapest:
        key = waiter.number, (self._rights.key, self.scene.shut)
        if key not in self._known:
            bounds = bounds_of(waiter.demand, scene=self.scene, residents=self._residents, rights=self._rights)
            nodes = self.scene.picture.nodes
            heap = [(bound, name) for name, known in nodes.items() if (bound := int(bounds[known.row])) >= 0]
            self._known[key] = Cheapest(entry for entry in heap if able[nodes[entry[1]].row])
        return self._known[key]

    def take(self, option: Option) -> None:
        """Suppose that it is so."""
        for one in option.victims:
            self._trying.go(one)
            self.victims[one.uid] = one
        self.scene.comes(option.place)
        self.places.append(option.place)
        self._look_again([option.place], option.victims)

    def _look_again(self, places: Iterable[Place], victims: Iterable[Resident]) -> None:
        """At nodes where there may be more room now than was thought."""
        changed = {place.node for place in places}
        changed |= {node for one in victims for node, _ in one.claims}
        for heap in self._known.values():
            heap.may_be_free(sorted(changed))

    def undo(self) -> None:
        """Suppose nothing of it any more."""
        self._look_again(self.places, self.victims.values())
        for place in self.places:
            self.scene.leaves(place)
        for one in self.victims.values():
            self._trying.stay(one)
        self.places.clear()
        self.victims.clear()

    def together(
        self, waiters: Sequence[Waiter], known: KnownNode, *, only: tuple[str, ...] = ()
    ) -> list[Option] | None:
        """All of them on one node, or on some of its GPUs; nothing is supposed any more afterwards."""
        found: list[Option] = []
        for waiter in waiters:
            option = self._trying.option(waiter, known, only=only)
            if option is None:
                break
            found.append(option)
            for one in option.victims:
                self._trying.go(one)
            self.scene.comes(option.place)
        for option in reversed(found):
            self.scene.leaves(option.place)
            for one in reversed(option.victims):
                self._trying.stay(one)
        return found if len(found) == len(waiters) else None

    def gather(self, elsewhere: Elsewhere) -> bool:
        """Whether some were laid where others leave more than is taken; `elsewhere` says where else each may lie."""
        gathering = Gathering(
            scene=self.scene, trying=self._trying, victims=self.victims, places=self.places, elsewhere=elsewhere
        )
        if gathered := gathering.gather():
            self._look_again(self.places, self.victims.values())
        return gathered

    def spare(self, may_stay: Callable[[Sequence[Resident]], bool]) -> None:
        """Let everybody stay who need not go after all, the most harmful first; `may_stay` says so of limits."""
        for unit in most_harmful_first(self.victims.values(), trying=self._trying):
            there = self._with_room([one for one in unit if one.uid in self.victims])
            if there and may_stay(there):
                for one in there:
                    del self.victims[one.uid]
            else:
                self._trying.go_together(there)

    def _with_room(self, unit: Sequence[Resident]) -> list[Resident]:
        """Those of them who have room beside all who come, supposed to stay; nobody if they are too few for a gang.

        The most harmful first; and where one of those has taken the room of several, the smallest first.
        """
        for size in (self._trying.harm, lambda one: -one.amounts[COMPUTE]):
            there: list[Resident] = []
            for one in sorted(unit, key=lambda one: (-size(one), one.uid)):
                if self.scene.has_room_for(one):
                    self._trying.stay(one)
                    there.append(one)
            if not there or self._trying.runs(there[0]):
                return there
            self._trying.go_together(there)
        return []
