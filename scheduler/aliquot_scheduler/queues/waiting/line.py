"""Who waits in one queue, user by user: pods of the same shape one behind the other, gangs as one.

Of a thousand equal pods only the first is looked at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from operator import gt
from typing import Any

import numpy as np
import numpy.typing as npt

from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, Vector
from aliquot_scheduler.queues.waiting.runs import Runs
from aliquot_scheduler.queues.waiting.waiter import Candidate, GangKey, Place, Waiter, summed


class Heads(list[Candidate]):
    """One user's candidates in their order, and what is asked of all of them at once: thousands are seldom able."""

    @cached_property
    def in_order(self) -> npt.NDArray[np.intp]:
        """The numbers of their shapes, one for each."""
        return np.array([one.number for one in self], dtype=np.intp)

    @cached_property
    def numbers(self) -> frozenset[int]:
        """Of their shapes."""
        return frozenset(one.number for one in self)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where each stands, by the UID by which it is known while others stand back for it."""
        return {one.uid: place for place, one in enumerate(self)}

    @cached_property
    def firsts(self) -> Mapping[Any, Candidate]:
        """By shape the first that asks so: what was refused to it is refused to the others."""
        return {one.shape: one for one in reversed(self)}

    @cached_property
    def leading(self) -> AbstractSet[str]:
        """Whoever is the first that asks so, by UID: of hundreds that are asked about nearly all are."""
        return {one.uid for one in self.firsts.values()}

    @cached_property
    def lone(self) -> bool:
        """Whether none of them is a gang."""
        return all(len(one.members) == 1 for one in self)

    @cached_property
    def least(self) -> Vector:
        """The least that any of them asks, dimension by dimension; empty if there are none."""
        return tuple(map(min, zip(*(one.amounts for one in self), strict=True)))


class Line:
    """Those who wait in one queue."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[Any, list[tuple[Place, str]]]] = {}
        self._waiters: dict[str, Waiter] = {}
        # By the number of a shape, how many pods of it each user has.
        self._askers: dict[int, Counter[str]] = {}
        self._asked: dict[str, list[int]] = {}
        # What of that no node which is there could take, by user and whoever asks; nearly always there is none.
        self._awaiting: dict[str, dict[object, Vector]] = {}
        self._heads: dict[str, Heads] = {}
        # Of whose pods only those may come now that have lost turns (`doubts.py`), ask no more than this, or come in
        # the place of others of their group.
        self.closed: dict[str, Vector] = {}
        self._again: dict[str, tuple[Heads, Vector, Heads]] = {}
        # The first of each row, as long as the row is the same.
        self._firsts: dict[tuple[str, Any], Candidate | None] = {}
        self._least: Vector | None = None

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, uid: str) -> bool:
        return uid in self._waiters

    def __iter__(self) -> Iterator[Waiter]:
        return iter(list(self._waiters.values()))

    def add(self, waiter: Waiter) -> None:
        """Somebody joins."""
        self._waiters[waiter.uid] = waiter
        row = self._rows.setdefault(waiter.user, {}).setdefault(_row(waiter), [])
        insort(row, (waiter.place, waiter.uid))
        self._askers.setdefault(waiter.number, Counter())[waiter.user] += 1
        self._ask(waiter, sign=+1)
        self.changed(waiter)

    def remove(self, uid: str) -> Waiter | None:
        """Somebody leaves."""
        waiter = self._waiters.pop(uid, None)
        if waiter is None:
            return None
        rows = self._rows[waiter.user]
        row = rows[_row(waiter)]
        del row[bisect_left(row, (waiter.place, uid))]
        if not row:
            del rows[_row(waiter)]
        if not rows:
            del self._rows[waiter.user]
            self._again.pop(waiter.user, None)
        self._asks_no_more(waiter)
        self._ask(waiter, sign=-1)
        self.changed(waiter)
        return waiter

    def tell(self, waiter: Waiter) -> None:
        """A later word on one that stands here, by which nothing else is asked."""
        self._waiters[waiter.uid] = waiter
        self.changed(waiter)

    def of(self, uid: str) -> Waiter:
        """Who stands here."""
        return self._waiters[uid]

    def mates(self, waiter: Waiter) -> list[Waiter]:
        """Those who wait here in a gang with it, in their order; it need not be among them."""
        return self.mates_of(waiter.user, _row(waiter))

    def mates_of(self, user: str, gang: Any) -> list[Waiter]:
        """Those of a gang of this user who wait here, in their order."""
        row = self._rows.get(user, {}).get(gang, [])
        return [self._waiters[uid] for _, uid in row]

    def next_like(self, waiter: Waiter) -> Waiter | None:
        """The first of the others who wait here in a gang with it."""
        row = self._rows[waiter.user][_row(waiter)]
        return next((self._waiters[uid] for _, uid in row if uid != waiter.uid), None)

    def gathered(self, waiter: Waiter) -> int:
        """How many stand here in a gang with it."""
        return len(self._rows.get(waiter.user, {}).get(_row(waiter), ()))

    def firsts_of(self, gang: GangKey) -> list[Waiter]:
        """Of each user who has pods of this gang here, the first of them."""
        return [self._waiters[rows[gang][0][1]] for rows in self._rows.values() if gang in rows]

    def of_runs(self, gang: GangKey, runs: Iterable[str]) -> list[Waiter]:
        """All who stand here of these runs of a gang's group."""
        keys = [(*gang[:5], run) for run in runs]
        rows = [rows[key] for rows in self._rows.values() for key in keys if key in rows]
        return [self._waiters[uid] for row in rows for _, uid in row]

    def users(self) -> KeysView[str]:
        """Who has pods here."""
        return self._rows.keys()

    def users_asking(self, numbers: AbstractSet[int]) -> AbstractSet[str]:
        """Who has pods of any of these shapes here."""
        return set[str]().union(*(self._askers[number] for number in self._askers.keys() & numbers))

    def could_have(self, user: str) -> Sequence[int]:
        """What a user's pods here ask together, of compute and memory, but for those who await a node."""
        awaiting = self._awaiting.get(user, {}).values()
        return [self._asked[user][dim] - sum(amounts[dim] for amounts in awaiting) for dim in (COMPUTE, MEMORY)]

    def await_nodes(self, user: str, who: object, amounts: Sequence[Vector]) -> None:
        """Somebody of the user's asks these, and could come in only by nodes that are yet to come."""
        if amounts:
            self._awaiting.setdefault(user, {})[who] = tuple(map(sum, zip(*amounts, strict=True)))
        elif (of_each := self._awaiting.get(user)) and of_each.pop(who, None) and not of_each:
            del self._awaiting[user]

    def changed(self, waiter: Waiter) -> None:
        """Who is the first of its row may have changed, or how much its gang needs."""
        self._heads.pop(waiter.user, None)
        self._least = None
        self._firsts.pop((waiter.user, _row(waiter)), None)

    def heads(self, user: str, *, runs: Runs) -> Heads:
        """The first of each shape and each gang that has its minimum, in their order; of those who may come now."""
        heads, most = self.all_heads(user, runs=runs), self.closed.get(user)
        return heads if most is None else self._heads_again(user, heads, most, runs)

    def all_heads(self, user: str, *, runs: Runs) -> Heads:
        """The same, whoever may come now."""
        if user not in self._heads:
            found = [self._first(user, key, row, runs) for key, row in self._rows.get(user, {}).items()]
            self._heads[user] = Heads(sorted((one for one in found if one), key=lambda one: one.first.place))
        return self._heads[user]

    def without(self, heads: Heads, uids: AbstractSet[str]) -> list[Candidate]:
        """One user's heads, as if these, who are of no group, did not wait."""
        nexts = (head if head.first.uid not in uids else self._next(head.first, uids) for head in heads)
        return sorted(filter(None, nexts), key=lambda one: one.first.place)

    def first_like(self, waiter: Waiter, *, runs: Runs) -> Candidate | None:
        """Who comes in first of those of one's user that ask the same; None if that one may not come now."""
        heads, mine = self.heads(waiter.user, runs=runs), self._firsts.get((waiter.user, _row(waiter)))
        return heads.firsts.get(mine.shape) if mine else None

    def is_whole(self, waiter: Waiter, *, runs: Runs) -> bool:
        """Whether as many stand here of its gang as it needs."""
        return self.gathered(waiter) >= runs.still_needed(waiter)

    def least(self, *, runs: Runs) -> Vector:
        """The least that any candidate asks, dimension by dimension, whoever may come now; empty if there is none."""
        if self._least is None:
            least = [heads.least for user in self._rows if (heads := self.all_heads(user, runs=runs))]
            self._least = tuple(map(min, zip(*least, strict=True)))
        return self._least

    def _next(self, waiter: Waiter, uids: AbstractSet[str]) -> Candidate | None:
        other = next((one for one in self.mates(waiter) if one.uid not in uids), None)
        return Candidate(members=(other,), amounts=other.amounts) if other else None

    def _heads_again(self, user: str, heads: Heads, most: Vector, runs: Runs) -> Heads:
        """Of these those who may come all the same; the same object as long as they are the same."""
        known = self._again.get(user)
        if known is None or known[0] is not heads or known[1] != most:
            found = Heads(
                one
                for one in heads
                if one.first.lost or not any(map(gt, one.amounts, most)) or runs.follows(one.members)
            )
            known = self._again[user] = heads, most, found
        return known[2]

    def _ask(self, waiter: Waiter, *, sign: int) -> None:
        asked = self._asked.setdefault(waiter.user, [0, 0])
        for dimension in (COMPUTE, MEMORY):
            asked[dimension] += sign * waiter.amounts[dimension]
        if waiter.user not in self._rows:
            del self._asked[waiter.user]

    def _asks_no_more(self, waiter: Waiter) -> None:
        askers = self._askers[waiter.number]
        askers[waiter.user] -= 1
        if not askers[waiter.user]:
            del askers[waiter.user]
        if not askers:
            del self._askers[waiter.number]

    def _first(self, user: str, key: Any, row: list[tuple[Place, str]], runs: Runs) -> Candidate | None:
        if (user, key) not in self._firsts:
            self._firsts[user, key] = self._head(row, runs)
        return self._firsts[user, key]

    def _head(self, row: list[tuple[Place, str]], runs: Runs) -> Candidate | None:
        needed = runs.still_needed(self._waiters[row[0][1]])
        if len(row) < needed:
            return None
        members = tuple(self._waiters[uid] for _, uid in row[:needed])
        return Candidate(members=members, amounts=summed(members))


def _row(waiter: Waiter) -> Any:
    return waiter.gang or waiter.number
