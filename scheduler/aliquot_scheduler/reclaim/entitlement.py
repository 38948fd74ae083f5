"""By which rights others may have to go for one that waits, the nearest first.

As an owner first: what was lent is nearer than what the queue's own pods have. Of borrowers who is wholly beyond
guarantees goes before who is partly inside; last, whose queue is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.waiting.waiter import Candidate
from aliquot_scheduler.reclaim.lacking import lacking_for
from aliquot_scheduler.reclaim.outlook import Outlook
from aliquot_scheduler.reclaim.policy import NEVER, Policy
from aliquot_scheduler.reclaim.residents import Residents
from aliquot_scheduler.reclaim.rights import Rights, owner_of, within_due


class Entitlement:
    """The rights of whoever waits, as things are when each is asked for."""

    def __init__(self, *, ledger: Ledger, outlook: Outlook, picture: Picture, residents: Residents) -> None:
        self._ledger = ledger
        self._outlook = outlook
        self._picture = picture
        self._residents = residents

    def all_of(self, candidate: Candidate, policy: Policy) -> Iterator[Rights]:
        """All of them."""
        yield from self.as_owner(candidate, policy)
        if policy.within_queue != NEVER:
            yield Rights(ledger=self._ledger, candidate=candidate, within=policy.within_queue)

    def as_owner(self, candidate: Candidate, policy: Policy) -> Iterator[Rights]:
        """To what was lent; none if it is not inside a guarantee."""
        ledger = self._ledger
        if policy.reclaims and (owners := owner_of(candidate, ledger=ledger)):
            yield Rights(ledger=ledger, candidate=candidate, owners=owners)
            due, lacking = within_due(candidate, ledger=ledger), list[int]()
            if inside := [name for name in owners if name in due]:
                lacking = lacking_for(candidate, free=self._outlook.stock().free, grid=self._picture.grid)
                yield Rights(ledger=ledger, candidate=candidate, owners=inside, lacking=lacking)
            if self._residents.strays:
                owners = inside or owners
                yield Rights(ledger=ledger, candidate=candidate, owners=owners, lacking=lacking, strays=True)
