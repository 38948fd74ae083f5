"""In which order pods are shown to a cluster autoscaler, by the rule of docs/queues.md, from who is shown since when.

At each level the higher priority goes first; then the queue of which the smaller part is shown now and was lately, by
weight; in a queue the user in the same way; of one user's pods who has lost a turn, then the one that comes first in
its line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations

from aliquot_scheduler.queues.charged.usage import Forgetting
from aliquot_scheduler.queues.waiting.showings import MINUTE
from aliquot_scheduler.queues.waiting.waiter import Place, Waiter
from support.queue_stage import Stage

# A queue, or a user of one.
_Who = tuple[str, ...]
_Both = tuple[float, float]
_NOTHING = (0.0, 0.0)
# What time and rounding may come to.
_LITTLE = 1e-3


class ShownOrderOracle:
    """What was shown of everybody, as an average that forgets."""

    def __init__(self, *, forgetting: Forgetting) -> None:
        self._kept = forgetting.kept
        self._average: dict[_Who, _Both] = {}
        self._held: dict[_Who, _Both] = {}
        self._at = 0.0
        # Of how many pairs it was seen that they are shown in the right order.
        self.pairs = 0
        self._lost: Collection[str] = ()

    def led_anew(self, world: Stage, *, minutes: float) -> None:
        """Another leader knows the last time of each that is there, and is charged for it."""
        self._average.clear()
        self._held.clear()
        self._at, showings = world.now, world.queues.register.showings
        for waiter in world.queues.waiting():
            if holder := showings.holder(waiter.uid):
                before = world.now - showings.since(waiter.uid)
                lasted = min(before, MINUTE * minutes)
                part = (1.0 - self._kept(lasted)) * self._kept(before - lasted)
                for who, amounts in _sums([holder], world).items():
                    self._average[who] = _plus(self._average.get(who, _NOTHING), amounts, part)

    def running(self, world: Stage) -> list[Waiter]:
        """Whose time runs, before a look."""
        showings = world.queues.register.showings
        return [holder for one in world.queues.waiting() if (holder := showings.holder(one.uid))]

    def check(self, world: Stage, running: Sequence[Waiter], new: Iterable[Waiter], *, lost: Collection[str]) -> None:
        """These were shown by a look, one after the other; `lost` have no gate since they have lost turns (UIDs)."""
        self._lost = lost
        held, new = _sums(running, world), list(new)
        for one, other in combinations(new, 2):
            if _top(one, world) == _top(other, world) and not (one.group or other.group):
                self._check_pair(one, other, world, _more(held, _sums(new[: new.index(one)], world)))

    def settle(self, world: Stage) -> None:
        """So much is held from now on."""
        lately = {who: self._lately(who, now=world.now) for who in self._average.keys() | self._held.keys()}
        self._average, self._held, self._at = lately, _sums(self.running(world), world), world.now

    def _check_pair(self, one: Waiter, other: Waiter, world: Stage, held: Mapping[_Who, _Both]) -> None:
        """The second could have been shown when the first was; but for guarantees, which come before all this."""
        ledger = world.queues.books.ledger
        if ledger.guaranteed(one.queue) or ledger.guaranteed(other.queue):
            return
        self.pairs += 1
        if one.queue == other.queue:
            mine, others = (self._part((of.queue, of.user), held, (1, 1), world) for of in (one, other))
            assert mine <= others + _LITTLE, (one.uid, other.uid, mine, others)
            assert one.user != other.user or self._place(one) < self._place(other), (one.uid, other.uid)
            return
        ways = [list(reversed(ledger.tree.path(of.queue))) for of in (one, other)]
        mine_at, others_at = next(pair for pair in zip(*ways, strict=False) if pair[0] != pair[1])
        nodes = ledger.tree.nodes
        weights = [nodes[name].spec.compute.weight for name in (mine_at, others_at)]
        assert nodes[mine_at].priority >= nodes[others_at].priority, (one.uid, other.uid)
        if nodes[mine_at].priority == nodes[others_at].priority:
            mine, others = (
                self._part((name,), held, (weight, nodes[name].spec.memory.weight), world)
                for name, weight in zip((mine_at, others_at), weights, strict=True)
            )
            assert mine <= others + _LITTLE, (one.uid, other.uid, mine_at, mine, others_at, others)

    def _place(self, one: Waiter) -> tuple[bool, Place]:
        return one.uid not in self._lost, one.place

    def _part(self, who: _Who, held: Mapping[_Who, _Both], weight: Sequence[int], world: Stage) -> float:
        lately, now = self._lately(who, now=world.now), held.get(who, _NOTHING)
        there = [max(1, world.queues.stock().capacity[dim]) for dim in (0, 1)]
        return max((now[dim] + lately[dim]) / (there[dim] * (weight[dim] or 1)) for dim in (0, 1))

    def _lately(self, who: _Who, *, now: float) -> _Both:
        kept = self._kept(now - self._at)
        faded = [kept * part for part in self._average.get(who, _NOTHING)]
        return _plus((faded[0], faded[1]), self._held.get(who, _NOTHING), 1.0 - kept)


def _sums(some: Iterable[Waiter], world: Stage) -> dict[_Who, _Both]:
    found: defaultdict[_Who, _Both] = defaultdict(lambda: _NOTHING)
    for one in some:
        for who in [*((name,) for name in world.queues.books.ledger.tree.path(one.queue)), (one.queue, one.user)]:
            found[who] = _plus(found[who], (one.amounts[0], one.amounts[1]), 1.0)
    return dict(found)


def _more(sums: Mapping[_Who, _Both], others: Mapping[_Who, _Both]) -> dict[_Who, _Both]:
    whose = sums.keys() | others.keys()
    return {who: _plus(sums.get(who, _NOTHING), others.get(who, _NOTHING), 1.0) for who in whose}


def _plus(amounts: _Both, others: _Both, part: float) -> _Both:
    return amounts[0] + part * others[0], amounts[1] + part * others[1]


def _top(one: Waiter, world: Stage) -> str:
    path = world.queues.books.ledger.tree.path(one.queue)
    return path[-2] if len(path) > 1 else path[-1]
