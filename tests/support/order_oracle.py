"""The order of turns by its plain definition: before each turn everybody's place is worked out anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.waiting.order import Shares, Standing, within_guarantee
from aliquot_scheduler.queues.waiting.waiter import Candidate


class FullRanking:
    """One round, as `Order` is to give it."""

    def __init__(
        self, *, ledger: Ledger, shares: Shares, candidates: Mapping[str, Callable[[], Candidate | None]]
    ) -> None:
        self._ledger = ledger
        self._shares = shares
        self._candidates = candidates
        # Whether it lay beyond guarantees when it became the first of its queue.
        self._beyond: dict[str, bool] = {}

    def __iter__(self) -> Iterator[Candidate]:
        """Who comes first of all, until nobody is left."""
        while found := [one for ask in self._candidates.values() if (one := ask())]:
            yield min(found, key=self._place)

    def _place(self, candidate: Candidate) -> tuple[bool, tuple[Standing, ...]]:
        path = self._ledger.tree.path(candidate.first.queue)
        standings = tuple(self._shares.standing(name) for name in reversed(path) if name != ROOT)
        beyond = not within_guarantee(self._ledger, candidate)
        # What is made room for in a guarantee by those who go before is seen only in its turn.
        return self._beyond.setdefault(candidate.uid, beyond) or beyond, standings
