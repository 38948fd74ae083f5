"""What is told of every queue: its status, worked out of the leader's books, and taken up again by the next leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

from aliquot_core.instants import seconds_of
from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.charged.fair import Reach, due_of
from aliquot_scheduler.queues.charged.shares import rounded
from aliquot_scheduler.queues.charged.usage import Forgetting
from aliquot_scheduler.queues.said.contradictions import problems_by_cards
from aliquot_scheduler.queues.said.overkept import kept_beyond_all
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT
from aliquot_scheduler.queues.telling.each import Attempt, unguarded
from aliquot_scheduler.queues.telling.status import Amounts, QueueStatus
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.order import borrowed
from aliquot_scheduler.queues.waiting.waiter import Waiter

# How much, and the user.
_Used = tuple[tuple[float, ...], str]
# A status is written whole, and etcd is shared.
_MOST_USERS = 50
# Of usage, what is left of a pod after ten half-lives.
_FORGOTTEN = 0.5


def statuses(
    books: Books,
    *,
    reach: Reach,
    waiting: Iterable[Waiter],
    at: str,
    now: float,
    attempt: Attempt[str] = unguarded,
) -> dict[str, QueueStatus]:
    """Every queue's status at this instant; `attempt` is each by the queue's name, and the root for all together."""
    tree, accounts = books.ledger.tree, books.ledger.accounts
    books.users.prune(now=now, least=_FORGOTTEN)
    due = [_due(books, dimension, reach) for dimension in (COMPUTE, MEMORY)]
    counts = Counter(name for waiter in waiting for name in tree.path(waiter.queue))
    users = _users(books, now=now)
    problems = attempt(ROOT, partial(_problems, books)) or {}

    def status(name: str, account: Account) -> QueueStatus:
        return QueueStatus(
            used=_amounts(account.used),
            borrowed=_amounts(borrowed(account)),
            fair_share=_amounts([share[name] for share in due]),
            asked=_amounts(account.asked),
            waiting=counts[name],
            lately=_amounts(books.usage.of(name, now=now)),
            users=_who_used_most(users.get(name, ())),
            problems=problems.get(name, ()),
            at=at,
        )

    found = {name: attempt(name, partial(status, name, one)) for name, one in accounts.items() if name != ROOT}
    return {name: status for name, status in found.items() if status is not None}


def recall(books: Books, told: Mapping[str, QueueStatus], *, forgetting: Forgetting, wall: float, now: float) -> None:
    """Take up what the leader before us has put down; what was used since then is not known."""
    for name, status in told.items():
        # What says no time is taken as written now.
        written = seconds_of(status.at)
        kept = forgetting.kept(0.0 if written is None else wall - written)
        books.usage.restore(name, _decayed(status.lately, kept), now=now)
        for user, lately in status.users.items():
            books.users.restore((name, user), _decayed(lately, kept), now=now)


def _due(books: Books, dimension: int, reach: Reach) -> dict[str, int]:
    return rounded(books.ledger.tree, due_of(books.ledger, dimension=dimension, reach=reach))


def _problems(books: Books) -> dict[str, tuple[str, ...]]:
    """What by the cards that are there is wrong with queues, by queue."""
    tree = books.ledger.tree
    cut, overkept = problems_by_cards(tree), kept_beyond_all(tree, capacity=books.capacity)
    return {name: (*cut.get(name, ()), *overkept.get(name, ())) for name in cut.keys() | overkept.keys()}


def _users(books: Books, *, now: float) -> dict[str, list[_Used]]:
    """By queue, and what each has used."""
    found: dict[str, list[_Used]] = {}
    for queue, user in books.users.everybody():
        found.setdefault(queue, []).append((books.users.of((queue, user), now=now), user))
    return found


def _who_used_most(users: Iterable[_Used]) -> dict[str, Amounts]:
    return {user: _amounts(lately) for lately, user in sorted(users, reverse=True)[:_MOST_USERS]}


def _amounts(pair: Iterable[float]) -> Amounts:
    compute, memory, *_ = pair
    return Amounts(compute=round(compute), memory=round(memory))


def _decayed(amounts: Amounts, kept: float) -> tuple[float, float]:
    return kept * amounts.compute, kept * amounts.memory
