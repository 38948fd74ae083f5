"""What limits still leave on a queue's way up."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import add, gt

from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.said.tree import UNLIMITED


def over(path: Sequence[Account], amounts: Sequence[int]) -> tuple[Account, int] | None:
    """Where, and in which dimension, so much more would be over a ceiling; None if nowhere."""
    for account in path:
        ceiling, used = account.node.ceiling, account.used
        for dimension, amount in enumerate(amounts):
            if amount and used[dimension] + amount > ceiling[dimension]:
                return account, dimension
    return None


def crowded(
    path: Sequence[Account], amounts: Sequence[int], *, by: Sequence[int], of: Collection[str]
) -> tuple[str, int] | None:
    """Where so much would not be left any more, and of what, if others `of` that path took `by`."""
    for account in path:
        if account.node.name in of:
            ceiling, used = account.node.ceiling, account.used
            for dim, amount in enumerate(amounts):
                if amount and by[dim] and used[dim] + by[dim] + amount > ceiling[dim]:
                    return account.node.name, dim
    return None


def takes(account: Account, amounts: Sequence[int], *, cards: int) -> bool:
    """Whether a queue has so much left, and nothing is missing there for others under its ceilings of GPUs."""
    ceiling = account.node.ceiling
    if any(map(gt, map(add, account.used, amounts), ceiling)):
        return False
    limited = (dim for dim in range(cards) if ceiling[dim] < UNLIMITED)
    return not any(account.missing[dim] for dim in limited)
