"""Has those go who have to go for others: asks what is decided, then the API server, one pod after the other.

Whom a disruption budget keeps, or a webhook, is left alone for a while: somebody else goes, or nobody. Budgets are read
before anything is decided, so that is rare; and of several who go for one those whom budgets cover are asked first, the
others once all of them have been granted, so whom a budget keeps has sent nobody in vain. Whatever is said of one pod,
the others are asked: else a single pod that can't be evicted would keep everybody from what is theirs.

Before anybody is asked, those for whom it is say where room is made for them, and groups that go are put down: whoever
leads next reads that, who is on the way out and who waits, and goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from aliquot_core.objects import Pod
from aliquot_kube.errors import NotFoundError
from aliquot_kube.resources import DISRUPTION_BUDGETS
from aliquot_scheduler.centre.evictions import Answer, Evictions
from aliquot_scheduler.centre.means import NOT_WRITTEN, Means
from aliquot_scheduler.centre.moved_keeper import MovedKeeper
from aliquot_scheduler.centre.put_off import Made, PutOff
from aliquot_scheduler.centre.room_writer import RoomWriter
from aliquot_scheduler.centre.torn_keeper import TornKeeper
from aliquot_scheduler.centre.tries import Tries
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.room.graces import grace_to_ask, is_overdue
from aliquot_scheduler.queues.room.refuges import Refuge
from aliquot_scheduler.queues.telling.notices import Notice
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter
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
        evictions: Evictions,
        rooms: RoomWriter,
        moved: MovedKeeper,
        torn: TornKeeper,
        means: Means,
    ) -> None:
        self._rooms = rooms
        self._moved = moved
        self._torn = torn
        self._reclaim = reclaim
        self._consolidation = consolidation
        self._turns = turns
        self._client = means.client
        self._events = means.events
        self._clock = means.clock
        self._evictions = evictions
        self._why_not = means.why_not
        self._tries = Tries()
        # By name, which steps of a look are put off; and by UID, for whom a search trips.
        self._unable = PutOff(what="a step of making room for those who wait has failed", means=means)
        self._unjudged = PutOff(what="who is to go for a pod could not be decided", means=means)
        # For whom no answer came when they were asked last.
        self._unanswered: frozenset[str] = frozenset()
        # Who was to be gone by now, and is known to be there still.
        self._overdue = frozenset[str]()
        # Who was told that it stays on a degraded GPU, and why.
        self._staying: Mapping[str, str] = {}
        # How many were asked to go for others, how many of such against their budgets, how many were kept, and how many
        # were asked to lie elsewhere.
        self.evicted = 0
        self.against_budgets = 0
        self.kept = 0
        self.moved = 0

    @property
    def untold(self) -> int:
        """How often a defect of ours has kept a step of it from being done, or decided for somebody."""
        return self._unable.count + self._unjudged.count

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK)
            if not self._turns.register.taking_over.has_recalled:
                continue
            for put_off in (self._unable, self._unjudged):
                put_off.look_begins()
            try:
                await self._look()
            except NOT_WRITTEN as error:
                log.warning("nobody can be asked to go now", extra={"error": str(error)})

    async def _look(self) -> None:
        """One step after the other. A defect in one of them ends neither the leader nor the others."""
        await self._step("decide who goes", self._decide)
        # First: nobody is asked for whom this could not be written yet.
        await self._step("tell of room", self._rooms.write)
        await self._step("put down groups that go", self._torn.write)
        await self._step("put down who is moved", self._moved.write)
        await self._step("ask", self._ask_all)
        await self._step("tell who is there still", self._tell_of_overdue)
        await self._step("tell who stays", self._tell_who_stays)

    async def _step(self, named: str, take: Callable[[], Awaitable[None]]) -> None:
        if self._unable.is_put_off(named):
            return
        try:
            await take()
        except NOT_WRITTEN:
            raise
        except Exception as error:  # noqa: BLE001 - a defect of ours: it is told of, and tried again
            self._unable.failed(named, error, of=named)
        else:
            self._unable.is_done(named)

    def _attempt(self, candidate: Candidate, make: Callable[[], Made]) -> Made | None:
        """One for whom a search trips a defect keeps nobody else from what is theirs."""
        return self._unjudged.attempt(candidate.uid, make, of=candidate.first.pod.key)

    def _anybody(self) -> bool:
        now = self._clock.monotonic()
        return self._reclaim.anybody(now=now) or self._consolidation.anybody(now=now)

    async def _decide(self) -> None:
        if self._why_not() or not self._anybody():
            return
        budgets = await self._budgets()
        if self._why_not():
            return
        now, wall = self._clock.monotonic(), self._clock.wall()
        made = self._reclaim.decide(now=now, wall=wall, budgets=budgets, attempt=self._attempt)
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
        """Each once in a look, until no answer comes: to each further one we would wait for as long.

        Who got none before is asked last: it may be that one's webhook alone that is silent, and not the API server.
        """
        failed, before = set[str](), self._unanswered
        self._unanswered = frozenset()
        for later in (before, frozenset[str]()):
            while not self._why_not() and (due := self._next(but=failed | later)) is not None:
                answer = await self._ask(*due)
                if answer is Answer.CUT_OFF:
                    self._unanswered = before | {due[0].uid}
                    return
                if answer is Answer.FAILED:
                    failed.add(due[0].uid)

    def _next(self, *, but: Collection[str]) -> tuple[Waiter, Notice] | None:
        """Whoever is to be asked next, and why; clearings come and go while somebody is asked."""
        register = self._turns.register
        clearings, bound = register.clearings, register.inside.bound
        for clearing in clearings:
            unasked = clearings.unasked(clearing, bound=bound)
            # The others would go for nothing if one of these is kept.
            first = [victim for victim in unasked if victim.uid in clearing.covered]
            for victim in first or unasked:
                if victim.uid not in but and self._rooms.has_told(clearing) and self._torn.has_told(clearing):
                    return victim, _makes_room(clearing, victim)
        for refuge in register.refuges.drained(bound):
            uid = refuge.uid
            if uid not in but and not clearings.was_asked(uid) and self._moved.has_told(refuge):
                return bound[uid], _moved(refuge)
        return None

    async def _ask(self, victim: Waiter, why: Notice) -> Answer:
        register, uid = self._turns.register, victim.uid
        register.clearings.asked(uid)
        clearing = register.clearings.counting_on(uid)
        against_budgets = clearing is not None and uid in clearing.against_budgets
        grace = grace_to_ask(victim.pod, most=register.clearings.max_grace, wall=self._clock.wall())
        answer = await self._evictions.ask(victim.pod, why=why, grace=grace, against_budgets=against_budgets)
        if answer is Answer.TAKEN:
            is_moved = uid in register.refuges.movers()
            self.moved += is_moved
            self.against_budgets += against_budgets
            self.evicted += not (is_moved or against_budgets)
        elif answer is not Answer.GONE:
            register.clearings.not_asked(uid)
        # Of two budgets over one pod the API server says again and again that it has trouble itself.
        fails = answer is Answer.FAILED and self._tries.fails_for_good(uid, among=register.inside.bound)
        if answer is Answer.KEPT or fails:
            self.kept += 1
            self._reclaim.refused(victim, now=self._clock.monotonic())
        return answer

    async def _tell_of_overdue(self) -> None:
        """Of whoever was asked, and whose node has not ended it in time: once."""
        register, wall = self._turns.register, self._clock.wall()
        asked = (register.inside.bound.get(uid) for uid in register.clearings.all_asked())
        late = {one.uid: one.pod for one in asked if one and is_overdue(one.pod, wall=wall)}
        for uid in sorted(late.keys() - self._overdue):
            pod, notice = late[uid], _still_there(late[uid])
            self._events.tell(pod, notice, action="Evicting", warning=True)
            log.warning("a pod that was asked to go is there still", extra={"pod": pod.key, "why": notice.message})
        self._overdue = frozenset(late)

    async def _tell_who_stays(self) -> None:
        """On a degraded GPU: once for each reason."""
        bound, staying = self._turns.register.inside.bound, self._consolidation.staying
        for uid in sorted(staying.keys() & bound.keys()):
            if self._staying.get(uid) != staying[uid]:
                message = f"its GPU is degraded, and it stays there: {staying[uid]}"
                self._events.tell(bound[uid].pod, Notice(reason="StaysThere", message=message), action="Evicting")
        self._staying = staying


def _still_there(pod: Pod) -> Notice:
    """Somebody else goes, or nobody: only who runs the node can do anything about it."""
    message = (
        f"it was asked to go for others and to be gone by {pod.metadata.deletion_timestamp}; node {pod.spec.node_name} "
        "has not ended it, and nobody waits for it any more. Look at the node's kubelet, or at a process that hangs"
    )
    return Notice(reason="StillThere", message=message)


def _makes_room(clearing: Clearing, victim: Waiter) -> Notice:
    whom, own = clearing.candidate.first, victim.pod.metadata.namespace
    # Whose it is may be another tenant.
    who = whom.pod.key if whom.pod.metadata.namespace == own else "a pod"
    aside = "; its PodDisruptionBudget has kept what is borrowed for long enough, and is set aside"
    against = aside if victim.uid in clearing.against_budgets else ""
    message = f"it makes room for {who} of queue {whom.queue}{_goes_to(clearing, victim)}{against}"
    return Notice(reason="MakesRoom", message=message)


def _moved(refuge: Refuge) -> Notice:
    message = f"{refuge.drains}; room is kept on {refuge.node} for the pod that comes in its place"
    return Notice(reason="Moved", message=message)


def _goes_to(clearing: Clearing, victim: Waiter) -> str:
    """Of one that is moved: where."""
    nodes = [place.node for place in clearing.moves if place.waiter.uid == victim.uid]
    return f"; room is kept on {nodes[0]} for the pod that comes in its place" if nodes else ""
