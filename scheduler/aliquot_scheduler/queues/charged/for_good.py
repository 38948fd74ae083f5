"""What is given for good: to pods that are never evicted for others.

A queue is sure of what it is guaranteed, or of what its pods hold that are never evicted where that is more; above, of
its own guarantee or of what its children are sure of. As long as that stays within every ceiling, and within all there
is, whatever is lent can come back. So such a pod is let in only within what its queue is due (`dues.py`), and if no
more is made sure by it than there is room for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.said.tree import ROOT


def unsure(path: Sequence[Account], amounts: Sequence[int], *, capacity: Sequence[int]) -> tuple[str, int] | None:
    """Where on the way up, and in which dimension, so much more of GPUs can't be given for good; None if nowhere."""
    own, dimensions = path[0], [dim for dim, amount in enumerate(amounts) if amount]
    beyond = next((dim for dim in dimensions if own.firm[dim] + amounts[dim] > own.node.due[dim]), None)
    if beyond is not None:
        return own.node.name, beyond
    broken = ((_breaks(path, dim, amounts[dim], capacity=capacity[dim]), dim) for dim in dimensions)
    return next(((name, dim) for name, dim in broken if name is not None), None)


def make_sure_of_guarantees(accounts: Mapping[str, Account]) -> None:
    """Nothing is given for good yet: each is sure of what is guaranteed there and below."""
    for account in sorted(accounts.values(), key=lambda one: -len(one.node.path)):
        if account.node.name != ROOT:
            below = accounts[account.node.path[1]].sure_below
            below[:] = [sum(pair) for pair in zip(below, account.sure, strict=True)]


def make_sure(path: Sequence[Account], amounts: Sequence[int]) -> None:
    """So much more is given for good there, or less."""
    for dimension, amount in enumerate(amounts):
        path[0].firm[dimension] += amount
        more = 0
        for account in path:
            account.sure_below[dimension] += more
            sure = max(account.node.guarantee[dimension], _for_good(account, dimension))
            more, account.sure[dimension] = sure - account.sure[dimension], sure


def _breaks(path: Sequence[Account], dimension: int, amount: int, *, capacity: int) -> str | None:
    """The queue that could not give all that it would be sure of; the root if all there is were too little."""
    firm = amount
    for account in path:
        sure = max(account.node.guarantee[dimension], _for_good(account, dimension) + firm)
        firm = sure - account.sure[dimension]
        if not firm:
            return None
        room = capacity if account.node.name == ROOT else account.node.ceiling[dimension]
        if sure > room:
            return account.node.name
    return None


def _for_good(account: Account, dimension: int) -> int:
    """What of a queue is given for good, whatever it is guaranteed."""
    return account.firm[dimension] + account.sure_below[dimension]
