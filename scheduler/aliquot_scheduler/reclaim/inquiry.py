"""What an owner that waits is told of what it is guaranteed: who has borrowed that, and why nobody goes for it.

The leader tells it of its own decisions. Whoever may read pods, nodes and queues works out the same, by the code that
decides, and with names, which the pod itself is not told: whoever asks here sees all pods. What only the leader knows
(whom a webhook has kept) is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aliquot_core.counting import counted
from aliquot_core.disruptions import PodDisruptionBudget
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.room.clearings import Clearing, Clearings
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.wording import Wording
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter
from aliquot_scheduler.reclaim.foreseen import is_foreseen
from aliquot_scheduler.reclaim.lodgers import residents_of
from aliquot_scheduler.reclaim.patience import FIRST
from aliquot_scheduler.reclaim.planning import Planner
from aliquot_scheduler.reclaim.policy import Policy, policy_of
from aliquot_scheduler.reclaim.residents import budgets_of
from aliquot_scheduler.reclaim.standoff import Lent, lent_to_others

# More than the first looks for moves, for all who are asked about: 0.3 s each.
_MOST_LOOKS = 8


def told_of(
    candidate: Candidate,
    *,
    policy: Policy,
    planner: Planner | None,
    wording: Wording,
    ledger: Ledger,
    settings: QueueSettings,
    paused: str = "",
) -> str:
    """Of one for whom this planner has found nothing just now; without one, for whom it was not asked.

    `paused` is why nobody may go for it for a while.
    """
    if (lent := lent_to_others(candidate, ledger=ledger)) is None:
        return ""
    why = _forbidden(candidate, policy) or paused
    if not why and planner:
        why = planner.why_nobody_goes(candidate, policy=policy, settings=settings)
    return _told(lent, why, wording=wording)


def _told(lent: Lent, why: str, *, wording: Wording) -> str:
    if not why and lent.beyond:
        why = "whoever went would leave its queue less than it is guaranteed"
    return "; nobody goes for it: ".join([lent.said(wording), *([why] if why else [])])


def _forbidden(candidate: Candidate, policy: Policy) -> str:
    """Why nobody is looked for at all."""
    if not policy.reclaims:
        return f"queue {candidate.first.queue} takes nothing back (preemption.reclaim: Never)"
    if not all(map(is_foreseen, candidate.members)):
        return "only kube-scheduler knows where it may lie (affinity between pods, or topology spread)"
    return ""


class Inquiry:
    """At one standing, which comes to nothing else by it."""

    def __init__(self, standing: Standing, *, wall: float, budgets: Iterable[PodDisruptionBudget] = ()) -> None:
        self._standing = standing
        self._wall = wall
        bound = standing.bound
        self._residents = residents_of(
            bound,
            picture=standing.picture,
            books=standing.books,
            wall=wall,
            max_grace=standing.settings.max_grace,
            budgets=budgets_of(budgets, bound=bound),
        )
        # So many looks in addition to the first of each.
        self._looks = _MOST_LOOKS
        # Those who are let in or refused together are told the same.
        self._told: dict[tuple[str, Any], str] = {}

    def why(self, waiter: Waiter) -> str:
        """Of one that waits; empty if it is inside no guarantee."""
        key = waiter.queue, waiter.mark
        if key not in self._told:
            self._told[key] = self._worked_out(self._standing.candidate(waiter))
        return self._told[key]

    def _worked_out(self, candidate: Candidate) -> str:
        standing, ledger = self._standing, self._standing.books.ledger
        if (lent := lent_to_others(candidate, ledger=ledger)) is None:
            return ""
        policy = policy_of(candidate.first.queue, tree=ledger.tree)
        if why := _forbidden(candidate, policy):
            return _told(lent, why, wording=standing.wording)
        clearing, why = self._looked_for(candidate, policy)
        if clearing is None:
            return _told(lent, why, wording=standing.wording)
        goes = f"; {counted(len(clearing.victims), 'pod')} may be sent away for it" if clearing.victims else ""
        return f"{lent.said(standing.wording)}{goes}"

    def _looked_for(self, candidate: Candidate, policy: Policy) -> tuple[Clearing | None, str]:
        """As the leader does, look after look, each from where the last one ended; else why nobody goes."""
        start = FIRST
        while True:
            planner = self._planner()
            with planner.supposing():
                clearing = planner.plan(candidate, policy=policy, start=start)
                if clearing is not None:
                    return clearing, ""
                if not self._looks or not planner.reached or planner.has_tried_all:
                    settings = self._standing.settings
                    return None, planner.why_nobody_goes(candidate, policy=policy, settings=settings, named=True)
            self._looks -= 1
            start = start.later(nodes=planner.reached)

    def _planner(self) -> Planner:
        standing = self._standing
        return Planner(
            picture=standing.picture,
            cards=standing.cards,
            enrolment=standing.enrolment,
            books=standing.books,
            clearings=Clearings(picture=standing.picture, max_grace=standing.settings.max_grace),
            residents=self._residents,
            now=0.0,
            wall=self._wall,
        )
