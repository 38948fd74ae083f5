"""Who may be sent away for whom.

1. **An owner takes back what it lent.** The candidate lies within the guarantee of its queue, or of one above it: with
   it, that queue uses no more than it is guaranteed. It may take from all that are not below that queue, as far as they
   have borrowed: a pod may go if each queue on its way up, to the one below that where both ways meet, then still uses
   its whole guarantee, in some dimension in which the pod is charged.
   If those who may go so are too few, also who is **partly** inside, for a candidate that lies within what its queue is
   due in all that it asks: a pod goes if each of those queues has more than it is due, in a dimension in which the
   candidate lacks, and would have more again with that pod (or with as many of its group as start together).
   If those are too few as well, also who lies in a queue that is **gone**: nothing is guaranteed to it any more, and it
   has borrowed nothing that it was told of.
2. **Inside a queue the lower priority goes.** One user's pod may take the place of the same user's pods of strictly
   lower priority; where the queue says so, of anybody's in it.

So there is no going to and fro. Who was sent away by 1 asks for more than is guaranteed, or due, on its way, and who
came in lies within a guarantee: neither may take the place back. Who was sent away by 2 has the lower priority.

**What a queue has** is what it uses, and what is kept idle below it beside the way to the pod: that is used up for all
others, so who borrows beside a reservation goes for it, and nobody owns it twice. It is judged where the pod asks for
what was guaranteed in so many words; what only goes along with a reservation counts for pods that ask for nothing else.

All is judged as if those who go already were gone; and once more at the end, when all are known who go (`hold_good`):
one victim may be borrowed in compute and the next in memory, and both together leave less than was guaranteed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest
from operator import add
from typing import NamedTuple, Protocol

from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.charged.ledger import Charge, Ledger
from aliquot_scheduler.queues.said.tree import ROOT, Vector
from aliquot_scheduler.queues.waiting.waiter import Candidate, GangKey
from aliquot_scheduler.reclaim.policy import ANYBODY, NEVER
from aliquot_scheduler.reclaim.residents import Resident


class _Level(NamedTuple):
    """A queue on a pod's way up, and all on the way from the pod's own to it."""

    account: Account
    way: tuple[Account, ...]

    def kept(self, dimension: int) -> int:
        """What is kept idle below it beside that way."""
        beside = sum(above.idle_below[dimension] - below.idle[dimension] for below, above in pairwise(self.way))
        return self.way[0].idle_below[dimension] + beside

    def judged_in(self, amounts: Sequence[int]) -> list[int]:
        """In which dimensions a pod that asks so much is held against the queue's guarantee."""
        node, asked = self.account.node, [dim for dim, amount in enumerate(amounts) if amount]
        return [dim for dim in asked if node.said[dim]] or [dim for dim in asked if node.guarantee[dim]]


def _levels(path: Sequence[str], ledger: Ledger) -> list[_Level]:
    """All below the root."""
    accounts = [ledger.accounts[name] for name in path if name != ROOT]
    return [_Level(account, tuple(accounts[: at + 1])) for at, account in enumerate(accounts)]


def owner_of(candidate: Candidate, *, ledger: Ledger) -> list[str]:
    """The queues on its way up within whose guarantees it lies."""
    amounts, found = candidate.amounts, []
    for level in _levels(ledger.tree.path(candidate.first.queue), ledger):
        asked, used, node = level.judged_in(amounts), level.account.used, level.account.node
        if asked and all(used[dim] + level.kept(dim) + amounts[dim] <= node.guarantee[dim] for dim in asked):
            found.append(node.name)
    return found


def within_due(candidate: Candidate, *, ledger: Ledger) -> list[str]:
    """The queues on its way up that are due all that it asks of cards, whether they say so or it goes with that."""
    amounts, cards = candidate.amounts, range(ledger.tree.dimensions.cards)
    return [
        level.account.node.name
        for level in _levels(ledger.tree.path(candidate.first.queue), ledger)
        if all(
            level.account.used[dim] + level.kept(dim) + amounts[dim] <= level.account.node.due[dim]
            for dim in cards
            if amounts[dim]
        )
    ]


def owns_with(queue: str, amounts: Sequence[int], charges: Iterable[Charge], *, ledger: Ledger) -> bool:
    """Whether so much lies within a guarantee on a queue's way up, beside these charges and no others."""
    levels = [level for level in _levels(ledger.tree.path(queue), ledger) if level.judged_in(amounts)]
    used = {level.account.node.name: list(amounts) for level in levels}
    for charge in charges:
        for name in ledger.tree.path(charge.queue):
            if name in used:
                used[name] = list(map(add, used[name], charge.amounts))
    return any(
        all(used[level.account.node.name][dim] <= level.account.node.guarantee[dim] for dim in level.judged_in(amounts))
        for level in levels
    )


class Taking(Protocol):
    """Who may be sent away, as a search asks it."""

    @property
    def key(self) -> tuple[object, ...]:
        """The same for all who may send the same away."""

    @property
    def by_priority(self) -> bool:
        """Whether the lower priority goes first, whatever is lost."""

    def may_take(self, one: Resident) -> bool:
        """Whether this one may go, too."""

    def take(self, one: Resident, *, sign: int = 1) -> None:
        """It goes; with the other sign it is spared."""


class Rights:
    """Of one candidate, by one of the two rules; what is taken is counted."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        candidate: Candidate,
        owners: Iterable[str] = (),
        lacking: Iterable[int] = (),
        within: str = NEVER,
        strays: bool = False,
    ) -> None:
        """With `owners` (of `owner_of`) by the first rule, with `within` by the second.

        With `lacking`, the dimensions in which the candidate lacks, those may go too who are partly inside; with
        `strays` those whose queue is gone.
        """
        self._ledger = ledger
        self._path = ledger.tree.path(candidate.first.queue)
        self._owners = [self._path.index(name) for name in owners]
        self._lacking = tuple(lacking)
        self._within = within
        self._strays = strays
        self._queue, self._user = candidate.first.queue, candidate.first.user
        self._amounts = candidate.amounts
        self._priority = min(member.priority for member in candidate.members)
        self._taken: dict[str, list[int]] = {}
        # Those taken of each group, by UID.
        self._mates: dict[GangKey, dict[str, Resident]] = {}
        self._guards: dict[str, list[_Level] | None] = {}

    @property
    def key(self) -> tuple[object, ...]:
        """The same for all who may send the same away."""
        mine = (self._queue, self._user, self._priority) if self.by_priority else tuple(self._owners)
        return self._path, self._within, mine, self._lacking, self._strays

    @property
    def by_priority(self) -> bool:
        """Whether it is the second rule."""
        return self._within != NEVER

    def is_due(self, dimension: int) -> bool:
        """Whether what the candidate takes of it goes with a guarantee by which it is an owner."""
        accounts = [self._ledger.accounts[self._path[place]] for place in self._owners]
        asked = self._amounts[dimension]
        return any(account.used[dimension] + asked <= account.node.due[dimension] for account in accounts)

    def may_take(self, one: Resident) -> bool:
        """Whether this one may go, too."""
        if self.by_priority:
            mine = one.queue == self._queue and (self._within == ANYBODY or one.waiter.user == self._user)
            return mine and one.waiter.priority < self._priority
        if one.stray and not self._strays:
            return False
        guards = self._guarding(one.queue)
        mates = self._mates.get(one.waiter.gang, {}).values() if one.waiter.gang else ()
        return guards is not None and all(
            self._lends(level, one, left=self._left(level.account, one), mates=mates) for level in guards
        )

    def take(self, one: Resident, *, sign: int = 1) -> None:
        """It goes; with the other sign it is spared."""
        for name in self._ledger.tree.path(one.queue):
            taken = self._taken.setdefault(name, [0] * self._ledger.width)
            for dimension, amount in enumerate(one.amounts):
                taken[dimension] += sign * amount
        if (gang := one.waiter.gang) is None:
            return
        if sign > 0:
            self._mates.setdefault(gang, {})[one.uid] = one
        else:
            self._mates.get(gang, {}).pop(one.uid, None)

    def hold_good(self, victims: Sequence[Resident]) -> bool:
        """Whether each of them was taken from what is borrowed still, now that all are released from the ledger."""
        if self.by_priority:
            return True
        mates: dict[GangKey | None, list[Resident]] = {}
        for one in victims:
            mates.setdefault(one.waiter.gang, []).append(one)
        guards = ((level, one) for one in victims for level in self._guarding(one.queue) or ())
        return all(
            self._lends(level, one, left=level.account.used, mates=mates[one.waiter.gang]) for level, one in guards
        )

    def _guarding(self, queue: str) -> list[_Level] | None:
        """The queues that must keep what they are guaranteed; None if nothing may be taken there."""
        if queue not in self._guards:
            self._guards[queue] = self._found_guarding(queue)
        return self._guards[queue]

    def _found_guarding(self, queue: str) -> list[_Level] | None:
        theirs = self._ledger.tree.path(queue)
        meeting = next(name for name in theirs if name in self._path)
        if not any(place < self._path.index(meeting) for place in self._owners):
            return None
        return _levels(theirs[: theirs.index(meeting)], self._ledger)

    def _left(self, account: Account, one: Resident) -> list[int]:
        """What a queue uses without all who are taken, and without this one."""
        taken = self._taken.get(account.node.name) or [0] * self._ledger.width
        return [used - less - own for used, less, own in zip(account.used, taken, one.amounts, strict=True)]

    def _lends(self, level: _Level, one: Resident, *, left: Sequence[int], mates: Iterable[Resident]) -> bool:
        """Whether a queue that uses so much then has lent the pod what it has, as a whole or in part."""
        if _is_whole(level, one, left=left):
            return True
        again, due = _asked_again(one, mates=mates), level.account.node.due
        lacking = (dim for dim in self._lacking if one.amounts[dim])
        return any(left[dim] + level.kept(dim) + again[dim] > due[dim] for dim in lacking)


def _is_whole(level: _Level, one: Resident, *, left: Sequence[int]) -> bool:
    """Whether a queue that uses so much then has its whole guarantee in a dimension that counts for the pod."""
    dimensions, guarantee = level.judged_in(one.amounts), level.account.node.guarantee
    return not dimensions or any(left[dim] + level.kept(dim) >= guarantee[dim] for dim in dimensions)


def _asked_again(one: Resident, *, mates: Iterable[Resident]) -> Vector:
    """What it will ask at the least once it is gone: of a group that is gone as well, so many as start together."""
    group = one.waiter.group
    if group is None:
        return one.amounts
    others = [each.amounts for each in mates if each.uid != one.uid]
    smallest = [sum(sorted(column)[: group.minimum - 1]) for column in zip(*others, strict=True)] if others else []
    return tuple(own + more for own, more in zip_longest(one.amounts, smallest, fillvalue=0))
