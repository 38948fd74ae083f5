"""What is held back of each queue, counted anew where what it comes of has changed; `ledger.py` says what it means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aliquot_scheduler.queues.charged.account import Account, holding
from aliquot_scheduler.queues.said.tree import ROOT


class HeldBack:
    """Of all queues: what is held back of one counts what is held back of those below it."""

    def __init__(self, accounts: Mapping[str, Account], *, cards: int) -> None:
        """`cards` is how many dimensions are of GPUs: of others nothing is held back."""
        self._accounts = accounts
        self._cards = cards
        self._from_below = sorted(accounts.values(), key=lambda account: -len(account.node.path))

    def count_all(self) -> None:
        """Everywhere, once."""
        for account in self._from_below:
            for dimension in range(self._cards):
                self.count(account, dimension)

    def count_along(self, path: Sequence[Account], dimensions: Iterable[int]) -> None:
        """Of each of these, from below."""
        for dimension in dimensions:
            for account in path:
                self.count(account, dimension)

    def count(self, account: Account, dimension: int) -> None:
        """Of one queue, and pass the differences on to its parent."""
        if dimension >= self._cards or account.node.name == ROOT:
            return
        now = holding(account, dimension)
        parent = self._accounts[account.node.path[1]]
        parent.wanted[dimension] += now.demanded - account.demanded[dimension]
        parent.held_below[dimension] += now.held - account.held[dimension]
        account.demanded[dimension], account.held[dimension] = now.demanded, now.held
        account.missing[dimension] = now.missing
