"""What is told of every queue: its status, worked out of the leader's books, and taken up again by the next leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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
# No queue's name.
SHARES = "fair shares of all queues"
_NO_SHARES = (
    "fairShare says nothing for now: what queues are due could not be worked out. It is a defect of Aliquot, and the "
    "log of its scheduler has more: please report it"
)


def statuses(
    books: Books,
    *,
    reach: Reach,
    waiting: Iterable[Waiter],
    at: str,
    now: float,
    attempt: Attempt[str] = unguarded,
) -> dict[str, QueueStatus]:
    """Every queue's status at this instant; `attempt` is each by the queue's name, or what all have (`named`)."""
    tree, accounts = books.ledger.tree, books.ledger.accounts
    books.users.prune(now=now, least=_FORGOTTEN)
    due = attempt(SHARES, partial(_due, books, reach))
    counts = Counter(name for waiter in waiting for name in tree.path(waiter.queue))
    users = _users(books)
    problems = attempt(ROOT, partial(_problems, books)) or {}
    no_shares = (_NO_SHARES,) if due is None else ()

    def status(name: str, account: Account) -> QueueStatus:
        return QueueStatus(
            used=_amounts(account.used),
            borrowed=_amounts(borrowed(account)),
            fair_share=_amounts(share[name] for share in due) if due else Amounts(),
            asked=_amounts(account.asked),
            waiting=counts[name],
            lately=_amounts(books.usage.of(name, now=now)),
            users=_who_used_most(_used(books, name, users.get(name, ()), now=now)),
            problems=(*no_shares, *problems.get(name, ())),
            at=at,
        )

    found = {name: attempt(name, partial(status, name, one)) for name, one in accounts.items() if name != ROOT}
    return {name: status for name, status in found.items() if status is not None}


def named(whose: str) -> str:
    """What is attempted for whom, for a log."""
    return {ROOT: "all queues", SHARES: SHARES}.get(whose, f"queue {whose}")


def recall(
    books: Books,
    told: Mapping[str, QueueStatus],
    *,
    forgetting: Forgetting,
    wall: float,
    now: float,
    attempt: Attempt[str] = unguarded,
) -> None:
    """Take up what the leader before us has put down; what was used since then is not known.

    Of a queue of which `attempt` fails nothing is.
    """
    for name, status in told.items():
        read = attempt(name, partial(_read_usage, status, forgetting=forgetting, wall=wall))
        if read is not None:
            lately, users = read
            books.usage.restore(name, lately, now=now)
            for user, used in users.items():
                books.users.restore((name, user), used, now=now)


def _read_usage(
    status: QueueStatus, *, forgetting: Forgetting, wall: float
) -> tuple[tuple[float, float], dict[str, tuple[float, float]]]:
    # What says no time is taken as written now.
    written = seconds_of(status.at)
    kept = forgetting.kept(0.0 if written is None else wall - written)
    return _decayed(status.lately, kept), {user: _decayed(used, kept) for user, used in status.users.items()}


def _due(books: Books, reach: Reach) -> list[dict[str, int]]:
    """What each queue is due, of compute and of memory."""
    tree, ledger = books.ledger.tree, books.ledger
    return [rounded(tree, due_of(ledger, dimension=dimension, reach=reach)) for dimension in (COMPUTE, MEMORY)]


def _problems(books: Books) -> dict[str, tuple[str, ...]]:
    """What by the cards that are there is wrong with queues, by queue."""
    tree = books.ledger.tree
    cut, overkept = problems_by_cards(tree), kept_beyond_all(tree, capacity=books.capacity)
    return {name: (*cut.get(name, ()), *overkept.get(name, ())) for name in cut.keys() | overkept.keys()}


def _users(books: Books) -> dict[str, list[str]]:
    """By queue."""
    found: dict[str, list[str]] = {}
    for queue, user in books.users.everybody():
        found.setdefault(queue, []).append(user)
    return found


def _used(books: Books, queue: str, users: Iterable[str], *, now: float) -> Iterator[_Used]:
    for user in users:
        yield books.users.of((queue, user), now=now), user


def _who_used_most(users: Iterable[_Used]) -> dict[str, Amounts]:
    return {user: _amounts(lately) for lately, user in sorted(users, reverse=True)[:_MOST_USERS]}


def _amounts(pair: Iterable[float]) -> Amounts:
    compute, memory, *_ = pair
    return Amounts(compute=round(compute), memory=round(memory))


def _decayed(amounts: Amounts, kept: float) -> tuple[float, float]:
    return kept * amounts.compute, kept * amounts.memory
