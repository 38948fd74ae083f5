"""Places for an owner whose guarantee lies in pieces: who has borrowed goes, and who lies in the way is moved.

A guarantee is kept in whole pieces as well as in sum. Where all who have borrowed may go, and what they leave is
nowhere in one piece, those are moved who lie inside their own guarantees: each to a place found in the same plan, for
which others who have borrowed go, or once more others are moved. So nobody loses what is guaranteed to it.

Theory of operation. A place is tried card by card, on the nodes where least is lost, and whoever is in the way is laid
anew in the same manner, the largest first, a few deep; what comes to nothing is taken back, and the next is tried. In
the end whoever need not go after all stays. For a few cards all plans are tried that matter; for many it is bounded
(`Patience`), and a plan may be missed.

What must always hold: nobody is moved for whom no place was found; who goes for good has borrowed (`rights.py`); what
was supposed for a plan that came to nothing is supposed no more; the same scene, begun at the same node, gives the same
plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple

import msgspec

from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.picture import KnownNode
from aliquot_scheduler.queues.judging.laying import largest_first
from aliquot_scheduler.queues.room.clearings import Place
from aliquot_scheduler.queues.room.refuges import key_of
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.reclaim.bounds import bounds_of
from aliquot_scheduler.reclaim.foreseen import why_not_elsewhere
from aliquot_scheduler.reclaim.patience import AT_ONCE, DEPTHS, FIRST, MOST_NODES, Patience, Start, turned
from aliquot_scheduler.reclaim.residents import Resident, Residents
from aliquot_scheduler.reclaim.rights import Rights
from aliquot_scheduler.reclaim.scene import Scene
from aliquot_scheduler.reclaim.search import Search
from aliquot_scheduler.reclaim.trying import Option

# Of a node so many choices of cards are tried.
_MOST_CHOICES = 36


# By shape and rights, the nodes in the order in which they are tried.
Orders = dict[tuple[int, tuple[object, ...]], list[str]]


class Wider:
    """An owner's rights, and beside them whoever may be moved while `moving`."""

    by_priority = False

    def __init__(self, rights: Rights, *, orphans: bool, moves_first: bool) -> None:
        """With `orphans` also pods that no controller makes anew.

        With `moves_first` whoever may do both is moved and does not go: so that another may go elsewhere.
        """
        self._rights = rights
        self._orphans = orphans
        self._moves_first = moves_first
        self.moving = False
        # Who is supposed to be moved (UIDs): nothing is taken from them.
        self.moved: set[str] = set()

    @property
    def key(self) -> tuple[object, ...]:
        """The same for all who may send the same away."""
        return (self.moving, self._orphans, *self._rights.key)

    def may_take(self, one: Resident) -> bool:
        """Whether it may go, or be moved."""
        return self._rights.may_take(one) or (self.moving and self._may_move(one))

    def take(self, one: Resident, *, sign: int = 1) -> None:
        """It goes, or is moved; with the other sign it stays."""
        if sign < 0 and one.uid in self.moved:
            self.moved.remove(one.uid)
        elif sign > 0 and self._is_to_move(one):
            self.moved.add(one.uid)
        else:
            self._rights.take(one, sign=sign)

    def _is_to_move(self, one: Resident) -> bool:
        if not self._rights.may_take(one):
            return True
        return self.moving and self._moves_first and self._may_move(one)

    def _may_move(self, one: Resident) -> bool:
        return not (one.stray or one.instead_of) and not why_not_elsewhere(one.waiter, orphans=self._orphans)


class _Task(NamedTuple):
    """A pod to be laid somewhere."""

    waiter: Waiter
    able: Bools
    but: Collection[str]
    # For whom others are moved it is 0, for those 1.
    deep: int


class Rearranging(Search):
    """For one candidate; `victims` are those who go and have no place again."""

    def __init__(
        self,
        *,
        scene: Scene,
        residents: Residents,
        rights: Wider,
        able: Callable[[Waiter], Bools],
        patience: Patience,
        orders: Orders,
        deepest: int,
        start: Start = FIRST,
    ) -> None:
        """`able` is the nodes that take a pod, were their GPUs empty; for those that deep nobody is moved any more.

        `orders` are those for whoever was before it, as far as the same was asked by the same rights; for the first
        pod they are tried from `start` on, and from the first again after the last.
        """
        super().__init__(scene=scene, residents=residents, rights=rights, known={})
        self._wider = rights
        self._able = able
        self._patience = patience
        self._orders = orders
        self._deepest = deepest
        self._start = start
        # Who is moved, and where each of them is to lie, by UID.
        self._movers: dict[str, Resident] = {}
        self._moves: dict[str, Place] = {}

    @property
    def moves(self) -> list[tuple[Resident, Place]]:
        """Who is moved, and where to."""
        return [(self._movers[uid], self._moves[uid]) for uid in sorted(self._moves)]

    def settle(self, waiter: Waiter, *, able: Bools, but: Collection[str] = ()) -> bool:
        """Find a place for one more pod, with a place for each who is moved for it."""
        try:
            return self._all_laid([_Task(waiter, able, but, deep=0)])
        finally:
            self._wider.moving = False

    def undo(self) -> None:
        """Suppose nothing of it any more."""
        for uid in list(self._moves):
            self._stays_after_all(uid)
        super().undo()

    def spare(self, may_stay: Callable[[Sequence[Resident]], bool]) -> None:
        """Let everybody stay who need not be moved, nor go after all, the most harmful first."""
        for one, place in sorted(self.moves, key=lambda move: (-move[0].lost, move[0].uid)):
            self.scene.leaves(place, key=key_of(one.uid))
            room = self.scene.has_room_for(one)
            self.scene.comes(place, key=key_of(one.uid))
            if room:
                self._stays_after_all(one.uid)
        super().spare(may_stay)

    # --- one after the other, and back -------------------------------------------------------------------------------
    def _all_laid(self, tasks: Sequence[_Task]) -> bool:
        """Whether each has a place; of those that a place of one costs, and of one that has none the one before it."""
        if not tasks:
            return True
        task, *later = tasks
        for option in self._options(task):
            movers = self._suppose(option, deep=task.deep)
            sooner = [_Task(one.waiter, self._able(one.waiter), (), task.deep + 1) for one in movers]
            if self._all_laid([*sooner, *later]):
                return True
            self._take_back(option, deep=task.deep)
        return False

    def _suppose(self, option: Option, *, deep: int) -> list[Resident]:
        """It lies there; who is to be moved for that, the largest first: for them there are fewer places."""
        self._wider.moving = deep < self._deepest
        movers = []
        for one in option.victims:
            self._trying.go(one)
            if one.uid in self._wider.moved:
                movers.append(one)
                self._movers[one.uid] = one
            else:
                self.victims[one.uid] = one
        uid = option.place.waiter.uid
        if deep:
            self._moves[uid] = option.place
            self.scene.comes(option.place, key=key_of(uid))
        else:
            self.places.append(option.place)
            self.scene.comes(option.place)
        return sorted(movers, key=lambda one: (largest_first(one.waiter.demand), one.uid))

    def _take_back(self, option: Option, *, deep: int) -> None:
        uid = option.place.waiter.uid
        if deep:
            del self._moves[uid]
            self.scene.leaves(option.place, key=key_of(uid))
        else:
            self.places.remove(option.place)
            self.scene.leaves(option.place)
        for one in reversed(option.victims):
            (self._movers if one.uid in self._wider.moved else self.victims).pop(one.uid)
            self._trying.stay(one)

    def _stays_after_all(self, uid: str) -> None:
        self.scene.leaves(self._moves.pop(uid), key=key_of(uid))
        self._trying.stay(self._movers.pop(uid))

    # --- where -------------------------------------------------------------------------------------------------------
    def _options(self, task: _Task) -> Iterator[Option]:
        """Where it may lie and who goes for it, by what is lost, of a few nodes at a time; at last nobody is moved."""
        nodes = self.scene.picture.nodes
        able = (nodes[name] for name in self._by_bound(task) if name not in task.but)
        there = [known for known in able if task.able[known.row]]
        first, turn = (0, 0) if task.deep else self._start.of(len(there), deepest=self._deepest)
        there = turned(there, by=first)
        if len(there) > MOST_NODES:
            self._patience.pass_over()
        there = there[:MOST_NODES]
        for start in range(0, len(there), AT_ONCE):
            dear = list[Option]()
            for known in there[start : start + AT_ONCE]:
                for option in self._on(task, known):
                    # The usual one of those who are moved: to look any further takes long.
                    if not option.harm:
                        yield option
                    else:
                        dear.append(option)
            yield from turned(sorted(dear, key=lambda option: option.harm), by=turn)

    def _on(self, task: _Task, known: KnownNode) -> Iterator[Option]:
        """Each choice of cards; where those are too many, the one where least is lost."""
        waiter = task.waiter
        pieces, cards = waiter.demand.pieces, [gpu.uuid for _, gpu in self.scene.cards(known, waiter.demand)]
        choices: list[tuple[str, ...]] = [()]
        if pieces and len(pieces) <= len(cards) and comb(len(cards), len(pieces)) <= _MOST_CHOICES:
            choices = list(combinations(cards, len(pieces)))
        for only in choices:
            if not self._patience.one_more():
                return
            self._wider.moving = task.deep < self._deepest
            if (option := self._trying.option(waiter, known, only=only)) is not None:
                place = msgspec.structs.replace(option.place, gpus=())
                yield msgspec.structs.replace(option, place=place)

    def _by_bound(self, task: _Task) -> list[str]:
        """The nodes where least is lost come first, as they were at the beginning; not where it can't lie at all.

        At depth 1 nobody is moved by then but from where the first is to lie, so there it can't lie where somebody
        would have to be moved once more: in a large cluster that is nearly everywhere, and nothing is tried in vain.
        """
        self._wider.moving = task.deep < self._deepest or self._deepest > DEPTHS[0]
        key = task.waiter.number, self._wider.key
        if key not in self._orders:
            bounds = bounds_of(task.waiter.demand, scene=self.scene, residents=self._residents, rights=self._wider)
            nodes = self.scene.picture.nodes
            costs = sorted((int(bounds[known.row]), name) for name, known in nodes.items())
            self._orders[key] = [name for cost, name in costs if cost >= 0]
        return self._orders[key]
