"""Who may be sent away for whom.

1. **An owner takes back what it lent.** The candidate lies within the guarantee of its queue, or of one above it: with
   it, that queue uses no more than it is guaranteed. It may take from all that are not below that queue, as far as they
   have borrowed: a pod may go if each queue on its way up, to the one below that where both ways meet, then still uses
   its whole guarantee, in some dimension in which the pod is charged.
2. **Inside a queue the lower priority goes.** One user's pod may take the place of the same user's pods of strictly
   lower priority; where the queue says so, of anybody's in it.

So there is no going to and fro. Who was sent away by 1 asks for more than is guaranteed on its way, and who came in
lies within a guarantee: neither may take the place back. Who was sent away by 2 has the lower priority.

All is judged as if those who go already were gone; and once more at the end, when all are known who go (`hold_good`):
one victim may be borrowed in compute and the next in memory, and both together leave less than was guaranteed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from aliquot_scheduler.queues.ledger import Account, Ledger
from aliquot_scheduler.queues.line import Candidate
from aliquot_scheduler.queues.tree import ROOT
from aliquot_scheduler.reclaim.policy import ANYBODY, NEVER
from aliquot_scheduler.reclaim.residents import Resident


def owner_of(candidate: Candidate, *, ledger: Ledger) -> list[str]:
    """The queues on its way up within whose guarantees it lies."""
    path, amounts = ledger.tree.path(candidate.first.queue), candidate.amounts
    found = []
    for name in path:
        if name == ROOT:
            break
        account = ledger.accounts[name]
        guarantee = account.node.guarantee
        asked = [dim for dim, amount in enumerate(amounts) if amount and guarantee[dim]]
        if asked and all(account.used[dim] + amounts[dim] <= guarantee[dim] for dim in asked):
            found.append(name)
    return found


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
        self, *, ledger: Ledger, candidate: Candidate, owners: Iterable[str] = (), within: str = NEVER
    ) -> None:
        """With `owners` (of `owner_of`) by the first rule, with `within` by the second."""
        self._ledger = ledger
        self._path = ledger.tree.path(candidate.first.queue)
        self._owners = [self._path.index(name) for name in owners]
        self._within = within
        self._queue, self._user = candidate.first.queue, candidate.first.user
        self._priority = min(member.priority for member in candidate.members)
        self._taken: dict[str, list[int]] = {}
        self._guards: dict[str, list[Account] | None] = {}

    @property
    def key(self) -> tuple[object, ...]:
        """The same for all who may send the same away."""
        mine = (self._queue, self._user, self._priority) if self.by_priority else tuple(self._owners)
        return self._path, self._within, mine

    @property
    def by_priority(self) -> bool:
        """Whether it is the second rule."""
        return self._within != NEVER

    def may_take(self, one: Resident) -> bool:
        """Whether this one may go, too."""
        if self.by_priority:
            mine = one.queue == self._queue and (self._within == ANYBODY or one.waiter.user == self._user)
            return mine and one.waiter.priority < self._priority
        guards = self._guarding(one.queue)
        return guards is not None and all(_lends(self._left(account, one), account, one) for account in guards)

    def take(self, one: Resident, *, sign: int = 1) -> None:
        """It goes; with the other sign it is spared."""
        for name in self._ledger.tree.path(one.queue):
            taken = self._taken.setdefault(name, [0] * self._ledger.width)
            for dimension, amount in enumerate(one.amounts):
                taken[dimension] += sign * amount

    def hold_good(self, victims: Iterable[Resident]) -> bool:
        """Whether each of them was taken from what is borrowed still, now that all are released from the ledger."""
        if self.by_priority:
            return True
        guards = ((account, one) for one in victims for account in self._guarding(one.queue) or ())
        return all(_lends(account.used, account, one) for account, one in guards)

    def _guarding(self, queue: str) -> list[Account] | None:
        """The queues that must keep what they are guaranteed; None if nothing may be taken there."""
        if queue not in self._guards:
            self._guards[queue] = self._found_guarding(queue)
        return self._guards[queue]

    def _found_guarding(self, queue: str) -> list[Account] | None:
        theirs = self._ledger.tree.path(queue)
        meeting = next(name for name in theirs if name in self._path)
        if not any(place < self._path.index(meeting) for place in self._owners):
            return None
        return [self._ledger.accounts[name] for name in theirs[: theirs.index(meeting)]]

    def _left(self, account: Account, one: Resident) -> list[int]:
        """What a queue uses without all who are taken, and without this one."""
        taken = self._taken.get(account.node.name) or [0] * self._ledger.width
        return [used - less - own for used, less, own in zip(account.used, taken, one.amounts, strict=True)]


def _lends(used: Sequence[int], account: Account, one: Resident) -> bool:
    """Whether a queue that uses so much has its whole guarantee in some dimension that counts for the pod."""
    guarantee = account.node.guarantee
    dimensions = [dim for dim, amount in enumerate(one.amounts) if amount and guarantee[dim]]
    return not dimensions or any(used[dim] >= guarantee[dim] for dim in dimensions)
