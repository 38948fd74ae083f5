"""What queues lack for somebody for whom room is made, and who goes for that: those who use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.judging.elsewhere import Without, kept_off
from aliquot_scheduler.queues.judging.rules import Cause, Refusal
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.telling.wording import Wording
from aliquot_scheduler.queues.waiting.waiter import Candidate
from aliquot_scheduler.reclaim.outlook import Outlook
from aliquot_scheduler.reclaim.residents import Resident
from aliquot_scheduler.reclaim.rights import Rights
from aliquot_scheduler.reclaim.search import Search


class Relieving:
    """In one look at everything."""

    def __init__(self, *, ledger: Ledger, outlook: Outlook) -> None:
        self._ledger = ledger
        self._outlook = outlook
        # By rights, queue and dimension: the least that was asked for which all who may go were too few.
        self._in_vain: dict[tuple[object, str, int], int] = {}
        # What queues lacked at the end of the last plan that came to nothing; and as which refusal.
        self.lacks = ""
        self._refusal: Refusal | None = None

    def forget_the_search(self) -> None:
        """What was found out while others might go than may now."""
        self._in_vain.clear()

    def kept_off(self, candidate: Candidate, *, without: Without) -> Iterator[Candidate]:
        """It; and while nothing comes of that, kept off one more model of which queues lack what nobody may give."""
        tried: Candidate | None = candidate
        while tried is not None:
            self._refusal = None
            yield tried
            tried = self._kept_off(tried, without=without)

    def _kept_off(self, candidate: Candidate, *, without: Without) -> Candidate | None:
        if (lack := self._refusal) is None:
            return None
        return kept_off(candidate, lack.dimension, dimensions=self._ledger.tree.dimensions, without=without)

    def relieved(self, search: Search, candidate: Candidate, rights: Rights, *, but: str | None = None) -> bool:
        """Whether what queues lack for it is there with whom it takes for that: those who use it.

        A limit, and what is held back for others of what goes with the candidate's guarantee: borrowers have that.
        `but` a queue, of which it is not asked yet.
        """
        for one in search.victims.values():
            self._gone(one, rights)
        lack = self._lack(candidate, rights)
        while lack is not None and lack.queue != but:
            if not self._filled(lack, search, candidate, rights):
                break
            lack = self._lack(candidate, rights)
        is_there = lack is None or (lack.queue == but and not self._is_in_vain(lack, rights))
        self.note(None if is_there else lack, candidate, rights)
        for one in search.victims.values():
            self._there(one, rights)
        return is_there

    def _filled(self, lack: Refusal, search: Search, candidate: Candidate, rights: Rights) -> bool:
        """Send one after the other until it is another lack, or none; whether it is."""
        if self._is_in_vain(lack, rights):
            return False
        where = lack.queue, lack.dimension

        def is_filled(unit: Sequence[Resident]) -> bool:
            for one in unit:
                self._gone(one, rights)
            left = self._lack(candidate, rights)
            return left is None or (left.queue, left.dimension) != where

        tree = self._ledger.tree
        if search.send_until(is_filled, queue=lack.queue, dimension=lack.dimension, tree=tree):
            return True
        self._in_vain[rights.key, *where] = lack.asked
        return False

    def _is_in_vain(self, lack: Refusal, rights: Rights) -> bool:
        """Whether it is plain that too little would be given back: to send 8,000 away one by one takes seconds."""
        account, dimension = self._ledger.accounts[lack.queue], lack.dimension
        if (least := self._in_vain.get((rights.key, lack.queue, dimension))) is not None and lack.asked >= least:
            return True
        used = account.used[dimension]
        most = self._outlook.stock().free[dimension] + used if lack.queue == ROOT else account.node.ceiling[dimension]
        return lack.reserved and lack.kept + lack.asked > most

    def _lack(self, candidate: Candidate, rights: Rights) -> Refusal | None:
        """What keeps the candidate out that somebody's going may give it."""
        refusal = self._outlook.refusal(candidate)
        if refusal is None or refusal.cause is Cause.QUOTA:
            return refusal
        return refusal if refusal.cause is Cause.HELD_BACK and rights.is_due(refusal.dimension) else None

    def note(self, lack: Refusal | None, candidate: Candidate, rights: Rights) -> None:
        """What an owner lacks of queues though all have gone who were taken, to be told."""
        self._refusal = lack or self._refusal
        if not rights.by_priority:
            wording = Wording(ledger=self._ledger, stock=self._outlook.stock(), away=self._outlook.away())
            self.lacks = "" if lack is None else wording.of_refusal(lack, candidate.first)

    def _gone(self, one: Resident, rights: Rights) -> None:
        """Charged no more, so it is not to be counted as taken in addition."""
        self._outlook.goes(one)
        rights.take(one, sign=-1)

    def _there(self, one: Resident, rights: Rights) -> None:
        """Charged again, and counted as taken."""
        self._outlook.stays(one)
        rights.take(one)
