"""Who lies there and might have to go: all who are bound, and what is known of each from look to look."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_core.objects import Pod
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.room.graces import stays
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.reclaim.lodgers import Known, MayGo, awaited, residents_of, terms_of, whoever
from aliquot_scheduler.reclaim.residents import Budget, Resident, Residents, runs_since

# Whom a budget kept from going is asked again after so many seconds.
SPARED = 60.0
# No pod has a higher priority.
_HIGHEST = 2**31


class Roster:
    """Of one leader."""

    def __init__(self, *, queues: Queues, picture: Picture) -> None:
        self._queues = queues
        self._picture = picture
        self._spared: dict[str, float] = {}
        # By queue, of those who run in it.
        self._lowest: dict[str, int] = {}
        self._since: dict[str, float] = {}
        # Of queues that are there, and of those that are gone while somebody runs in them.
        self._terms: dict[str, float] = {}

    def look_around(self, now: float) -> None:
        """What is the same for everybody at this look."""
        self._spared = {uid: until for uid, until in self._spared.items() if until > now}
        self._lowest = {}
        bound = self._queues.register.inside.bound
        self._since = {uid: since for uid, since in self._since.items() if uid in bound}
        for one in bound.values():
            self._lowest[one.queue] = min(one.priority, self.lowest(one.queue))
        terms = terms_of(self._queues.books.ledger.tree)
        self._terms = {queue: term for queue, term in self._terms.items() if queue in self._lowest} | terms

    def lowest(self, queue: str) -> int:
        """The lowest priority that anybody has who runs in a queue."""
        return self._lowest.get(queue, _HIGHEST)

    def spare(self, uid: str, *, now: float) -> None:
        """It is kept: somebody else is to go for a while, or nobody."""
        self._spared[uid] = now + SPARED

    def to_come(self) -> list[Resident]:
        """In the place of those who were moved; who was not asked yet may stay where it is."""
        register = self._queues.register
        bound, was_asked = register.inside.bound, register.clearings.was_asked
        gone = [one for one in register.refuges if one.uid not in bound or was_asked(one.uid)]
        return awaited(gone, ledger=register.books.ledger, cards=register.cards)

    def residents(
        self,
        *,
        now: float,
        wall: float,
        budgets: Sequence[Budget],
        may_go: MayGo = whoever,
        to_come: Sequence[Resident] = (),
    ) -> Residents:
        """Who may be sent away, of those of whom `may_go` says so too; who goes already, and what keeps the others.

        `to_come` is who is awaited, and may be kept out.
        """
        register = self._queues.register
        bound, clearings = register.inside.bound, register.clearings
        most = clearings.max_grace
        untold = {uid for uid in clearings.all_asked() if uid in bound and stays(bound[uid].pod, wall=wall, most=most)}
        chosen = clearings.victims() | register.refuges.movers()
        known = Known(
            going=chosen | untold,
            unasked={uid for uid in chosen if uid in bound and not clearings.was_asked(uid)},
            spared={uid: wall + until - now for uid, until in self._spared.items()},
            since=self._runs_since,
            terms=self._terms,
        )
        return residents_of(
            bound.values(),
            picture=self._picture,
            books=register.books,
            wall=wall,
            max_grace=most,
            budgets=budgets,
            known=known,
            may_go=may_go,
            to_come=to_come,
        )

    def _runs_since(self, pod: Pod) -> float:
        """Read once: a pod is bound once."""
        uid = pod.metadata.uid
        if uid not in self._since:
            self._since[uid] = runs_since(pod)
        return self._since[uid]
