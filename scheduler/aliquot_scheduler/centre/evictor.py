"""Has those go who have to go for others: asks what is decided, then the API server, one pod after the other.

Only the eviction subresource is used, of the very pod (its UID), with the pod's own grace. What a disruption budget
forbids it says with a 429: then somebody else goes, or nobody. Budgets are read before anything is decided, so that is
rare, and of several victims none is sent in vain.

Before anybody is asked, those for whom it is say where room is made for them: whoever leads next reads that, who is on
the way out and who waits, and goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from aliquot_core.clock import Clock
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError, ConflictError, DisruptionBlockedError, NotFoundError
from aliquot_kube.leadership import NotLeadingError
from aliquot_kube.resources import DISRUPTION_BUDGETS
from aliquot_scheduler.centre.pod_events import PodEvents
from aliquot_scheduler.centre.room_writer import RoomWriter
from aliquot_scheduler.queues.clearings import Clearing
from aliquot_scheduler.queues.line import Waiter
from aliquot_scheduler.queues.notices import Notice
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.reclaim.consolidation import Consolidation
from aliquot_scheduler.reclaim.reclaim import Reclaim
from aliquot_scheduler.reclaim.residents import Budget, budgets_of

log = logging.getLogger(__name__)

_LOOK = 1.0


class Evictor:
    """Carries clearings out."""

    def __init__(
        self,
        *,
        reclaim: Reclaim,
        consolidation: Consolidation,
        turns: Queues,
        client: KubeClient,
        clock: Clock,
        events: PodEvents,
        rooms: RoomWriter,
        why_not: Callable[[], str],
    ) -> None:
        self._rooms = rooms
        self._reclaim = reclaim
        self._consolidation = consolidation
        self._turns = turns
        self._client = client
        self._clock = clock
        self._events = events
        self._why_not = why_not
        # How many were asked to go for others, how many a budget kept, and how many were asked to lie elsewhere.
        self.evicted = 0
        self.kept = 0
        self.moved = 0

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK)
            if not self._turns.register.has_recalled:
                continue
            try:
                if not self._why_not() and self._anybody():
                    await self._decide()
                # First: while it can't be written nobody is asked.
                await self._rooms.write()
                await self._ask_all()
            except (ApiError, NotLeadingError) as error:
                log.warning("nobody can be asked to go now", extra={"error": str(error)})

    def _anybody(self) -> bool:
        now = self._clock.monotonic()
        return self._reclaim.anybody(now=now) or self._consolidation.anybody(now=now)

    async def _decide(self) -> None:
        budgets = await self._budgets()
        if self._why_not():
            return
        now, wall = self._clock.monotonic(), self._clock.wall()
        made = self._reclaim.decide(now=now, wall=wall, budgets=budgets)
        if self._consolidation.anybody(now=now):
            made += self._consolidation.decide(now=now, wall=wall, budgets=budgets)
        for clearing in made:
            victims = [victim.pod.key for victim in clearing.victims]
            who = clearing.candidate.first.pod.key
            log.info("room is made", extra={"pod": who, "nodes": clearing.nodes, "victims": victims})

    async def _budgets(self) -> list[Budget]:
        """What disruption budgets allow at this moment; where there is no such thing, nothing is forbidden."""
        try:
            found = await self._client.list(DISRUPTION_BUDGETS)
        except NotFoundError:
            return []
        return budgets_of(found, bound=self._turns.register.inside.bound.values())

    # --- asking ------------------------------------------------------------------------------------------------------
    async def _ask_all(self) -> None:
        while not self._why_not() and (due := self._next()) is not None:
            await self._ask(*due)

    def _next(self) -> tuple[Waiter, Clearing | None, str] | None:
        """Whoever is to be asked next, and why; clearings come and go while somebody is asked."""
        register = self._turns.register
        clearings, bound = register.clearings, register.inside.bound
        for clearing in clearings:
            for victim in clearings.unasked(clearing, bound=bound):
                whom = clearing.candidate.first
                return (
                    victim,
                    clearing,
                    f"it makes room for {whom.pod.key} of queue {whom.queue}{_goes_to(clearing, victim)}",
                )
        for refuge in register.refuges.drained(bound):
            uid, node = refuge.place.waiter.uid, refuge.place.node
            if not clearings.was_asked(uid):
                return bound[uid], None, f"{refuge.drains}; room is kept on {node} for the pod that comes in its place"
        return None

    async def _ask(self, victim: Waiter, clearing: Clearing | None, why: str) -> None:
        clearings, meta = self._turns.register.clearings, victim.pod.metadata
        clearings.asked(victim.uid)
        try:
            await self._client.evict(namespace=meta.namespace, name=meta.name, uid=meta.uid)
        except DisruptionBlockedError as error:
            self.kept += 1
            clearings.not_asked(victim.uid)
            log.info("a disruption budget keeps a pod", extra={"pod": victim.pod.key, "error": str(error)})
            self._kept(victim, clearing)
        except (NotFoundError, ConflictError):
            log.info("gone before it was asked to go", extra={"pod": victim.pod.key})
        except (ApiError, NotLeadingError):
            # It may have been done or not: to ask once more does no harm to a pod that is on the way out.
            clearings.not_asked(victim.uid)
            raise
        else:
            is_moved = victim.uid in self._turns.register.refuges.movers()
            self.moved += is_moved
            self.evicted += not is_moved
            reason = "MakesRoom" if clearing else "Moved"
            self._events.tell(victim.pod, Notice(reason=reason, message=why), action="Evicting")
            log.info("evicted", extra={"pod": victim.pod.key, "reason": why})

    def _kept(self, victim: Waiter, clearing: Clearing | None) -> None:
        now = self._clock.monotonic()
        if clearing is not None:
            self._reclaim.refused(clearing, victim, now=now)
        else:
            self._reclaim.spare(victim, now=now)
            self._turns.register.refuges.close(victim.uid)


def _goes_to(clearing: Clearing, victim: Waiter) -> str:
    """Of one that is moved: where."""
    nodes = [place.node for place in clearing.moves if place.waiter.uid == victim.uid]
    return f"; room is kept on {nodes[0]} for the pod that comes in its place" if nodes else ""
