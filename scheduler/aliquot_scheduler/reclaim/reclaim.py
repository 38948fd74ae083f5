"""Who has to go now, and for whom: asked again and again of what the centre knows, one look after the other.

Pure: told the time and the budgets. What it decides stands in the register's clearings; the shell asks the victims to
go, and turns let those in for whom room was made (`queues/turns.py`).

For whom nothing could be found is not searched for again for a while, since most looks would find the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.said.tree import Tree
from aliquot_scheduler.queues.telling.each import Attempt, unguarded
from aliquot_scheduler.queues.telling.wording import Wording
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.order import Order, Shares
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter
from aliquot_scheduler.reclaim.fitting import Fitting
from aliquot_scheduler.reclaim.foreseen import is_foreseen
from aliquot_scheduler.reclaim.in_the_way import Asked, InTheWay, asked_of
from aliquot_scheduler.reclaim.inquiry import told_of
from aliquot_scheduler.reclaim.planning import Planner
from aliquot_scheduler.reclaim.policy import NEVER, Policy, policy_of
from aliquot_scheduler.reclaim.residents import Budget
from aliquot_scheduler.reclaim.rights import owner_of
from aliquot_scheduler.reclaim.roster import Roster
from aliquot_scheduler.reclaim.searches import Searches
from aliquot_scheduler.reclaim.swapping import Swapping

# For whom nothing was found is searched for again after so many seconds.
COOLDOWN = 10.0
# Nobody is answered meanwhile, and an API server takes no more evictions than that in a second.
_MOST_AT_ONCE = 200


class Reclaim:
    """Decides who has to go."""

    def __init__(self, *, queues: Queues, picture: Picture) -> None:
        self._queues = queues
        self._picture = picture
        self._vain: dict[Asked, float] = {}
        self._in_the_way = InTheWay(names=queues.register.names)
        self._fitting = Fitting(register=queues.register)
        self.roster = Roster(queues=queues, picture=picture)
        self._now = 0.0
        self._searches = Searches()
        self._swapping = Swapping(register=queues.register, again=COOLDOWN)
        # By which shapes have the numbers that those who searched in vain are known by.
        self._cards = queues.register.cards

    def anybody(self, *, now: float) -> bool:
        """Whether there is a candidate to search for at all."""
        self._look_around(now)
        self._tell_who_claims_nothing(now)
        making_room = self._queues.register.making_room
        if any(True for _ in chain(making_room.vain(), self._swapping.due(now=now), self._claimants())):
            return True
        self._fitting.nobody_is_looked_at()
        return False

    @property
    def is_unsettled(self) -> bool:
        """Whether somebody was looked at for whom nobody was sent away: another look may find more."""
        return bool(self._vain or self._fitting)

    def decide(
        self, *, now: float, wall: float, budgets: Sequence[Budget] = (), attempt: Attempt[Candidate] = unguarded
    ) -> list[Clearing]:
        """Decide; what is told stands. For whom `attempt` makes nothing, nobody goes for a while."""
        self._look_around(now)
        self._fitting.look_begins()
        register = self._queues.register
        # No round may have been since its time was over: it counts on some who will not go.
        register.making_room.call_off_void(now=now)
        # The leader before us may have been cut off before all had been asked on whom it counted.
        register.making_room.call_off_vain()
        planner = Planner(
            picture=self._picture,
            cards=register.cards,
            enrolment=register.enrolment,
            books=register.books,
            clearings=register.clearings,
            residents=self.roster.residents(now=now, wall=wall, budgets=budgets, to_come=self.roster.to_come()),
            now=now,
            wall=wall,
            refuges=list(register.refuges),
        )
        with planner.supposing():
            swapped = self._swapping.swapped(planner, now=now, wall=wall)
            decided = self._decided(planner, now=now, wall=wall, attempt=attempt)
            return list(islice(chain(swapped, decided), _MOST_AT_ONCE))

    def _decided(self, planner: Planner, *, now: float, wall: float, attempt: Attempt[Candidate]) -> Iterator[Clearing]:
        """One after the other, in the order of turns."""
        register = self._queues.register
        ledger, shares = register.books.ledger, register.books.shares(now=now)
        lines = {queue: partial(self._next, queue, shares) for queue in sorted(set(self._claimants()))}
        for candidate in Order(ledger=ledger, shares=shares, candidates=lines):
            queue = candidate.first.queue
            clearing = attempt(candidate, partial(self._planned_or_told, candidate, planner, now=now, wall=wall))
            if clearing is None:
                self._vain[asked_of(candidate)] = now + COOLDOWN
                continue
            if not planner.has_to_wait(clearing):
                if not self._fitting.is_awaited(candidate, now=now):
                    planner.withdraw(clearing)
                elif planner.is_on_failing(clearing):
                    register.sound_first.looked_at(candidate, now=now)
                else:
                    return
                continue
            clearing = clearing.begun(now=now, wall=wall)
            register.making_room.begin(clearing)
            register.sound_first.room_is_made(clearing.candidate)
            shares.changed(queue)
            yield clearing

    def _planned_or_told(self, candidate: Candidate, planner: Planner, *, now: float, wall: float) -> Clearing | None:
        """Room for it; or it is told why there is none."""
        policy = policy_of(candidate.first.queue, tree=self._queues.register.books.ledger.tree)
        clearing = self._planned(candidate, planner, policy=policy, now=now, wall=wall)
        if clearing is None:
            self._tell(candidate, planner, now=now)
        return clearing

    def _planned(
        self, candidate: Candidate, planner: Planner, *, policy: Policy, now: float, wall: float
    ) -> Clearing | None:
        """As budgets allow; if they do not, it is long known, and the operator says so, without them."""
        if clearing := self._searched(candidate, planner, policy=policy, now=now):
            return clearing
        grace = self._queues.register.settings.budget_grace
        if not grace or not planner.is_kept_by_budgets(candidate, policy=policy):
            return None
        is_over = self._in_the_way.found(candidate, now=now, wall=wall) >= grace
        return planner.plan_past_budgets(candidate, policy=policy) if is_over else None

    def _searched(self, candidate: Candidate, planner: Planner, *, policy: Policy, now: float) -> Clearing | None:
        """With moves for it if it is its turn to search for those."""
        asked, searches = asked_of(candidate), self._searches
        waited, turn = self._may_move_others(candidate, policy=policy, now=now), searches.may(asked)
        clearing = planner.plan(candidate, policy=policy, moving=waited and turn, start=searches.start(asked))
        until = now + 2 * COOLDOWN
        if clearing is not None or not waited:
            searches.had(asked, reached=0, until=until)
        elif turn and not planner.was_cut_short:
            searches.had(asked, reached=planner.reached, until=until)
        else:
            searches.had_too_few(asked, until=until)
        return clearing

    def _may_move_others(self, candidate: Candidate, *, policy: Policy, now: float) -> bool:
        """An owner that has waited: where pods end within seconds its guarantee is in one piece by itself."""
        register = self._queues.register
        if now - register.joined.get(candidate.uid, now) < register.settings.owed:
            return False
        return policy.reclaims and bool(owner_of(candidate, ledger=register.books.ledger))

    def _tell(self, candidate: Candidate, planner: Planner | None, *, now: float) -> None:
        """Why nobody goes for it: told until it is looked at once more, and a little longer."""
        register = self._queues.register
        ledger, first = register.books.ledger, candidate.first
        policy, wording = policy_of(first.queue, tree=ledger.tree), Wording(ledger=ledger, stock=register.cards.stock())
        said = told_of(
            candidate,
            policy=policy,
            planner=planner,
            wording=wording,
            ledger=ledger,
            settings=register.settings,
            paused=self.why_paused(candidate, now=now),
        )
        register.standoffs.note(first, said, until=now + 2 * COOLDOWN)

    def _tell_who_claims_nothing(self, now: float) -> None:
        """Owners for whom nobody is looked for at all."""
        register = self._queues.register
        tree = register.books.ledger.tree
        for queue, line in register.hall.lines.items():
            if tree.nodes[queue].stop or not _is_guaranteed(queue, tree=tree):
                continue
            takes_back = policy_of(queue, tree=tree).reclaims
            for head in (head for user in line.users() for head in self._heads(queue, user)):
                if not takes_back or not all(map(is_foreseen, head.members)) or self.why_paused(head, now=now):
                    self._tell(head, None, now=now)

    def refused(self, victim: Waiter, *, now: float) -> None:
        """A victim is kept: somebody else is to go for a while, or nobody.

        It was asked for a clearing that may be called off by now, and whoever that was for may have another one.
        """
        register = self._queues.register
        self.roster.spare(victim.uid, now=now)
        if (clearing := register.clearings.counting_on(victim.uid)) is not None:
            register.making_room.call_off(clearing)
        register.refuges.refused(victim.uid, going=register.clearings.was_asked)

    # --- who waits ---------------------------------------------------------------------------------------------------
    def _claimants(self) -> Iterator[str]:
        """Queues in which somebody may have others sent away."""
        register = self._queues.register
        tree = register.books.ledger.tree
        if tree.queueless:
            return
        for queue, line in register.hall.lines.items():
            if tree.nodes[queue].stop or not self._gives_claims(queue):
                continue
            if any(self._may_claim(head) for user in line.users() for head in self._heads(queue, user)):
                yield queue

    def _heads(self, queue: str, user: str) -> Sequence[Candidate]:
        """But for who is shown to an autoscaler: a node is to come for it, and nobody goes meanwhile."""
        register = self._queues.register
        heads = register.hall.lines[queue].heads(user, runs=register.books.runs)
        return [head for head in heads if head.first.uid not in register.showings.shown]

    def _next(self, queue: str, shares: Shares) -> Candidate | None:
        line = self._queues.register.hall.lines.get(queue)
        users = shares.in_order(queue, line.users()) if line else ()
        heads = (head for user in users for head in self._heads(queue, user) if head.uid not in self._fitting)
        return next(filter(self._may_claim, heads), None)

    def _gives_claims(self, queue: str) -> bool:
        """Whether anybody of a queue ever may: asked before a thousand who wait there are."""
        tree = self._queues.books.ledger.tree
        policy = policy_of(queue, tree=tree)
        owns = policy.reclaims and _is_guaranteed(queue, tree=tree)
        return owns or policy.within_queue != NEVER

    def _may_claim(self, candidate: Candidate) -> bool:
        if asked_of(candidate) in self._vain:
            return False
        if not all(is_foreseen(one) for one in candidate.members) or self.why_paused(candidate, now=self._now):
            return False
        ledger = self._queues.books.ledger
        policy = policy_of(candidate.first.queue, tree=ledger.tree)
        if policy.reclaims and owner_of(candidate, ledger=ledger):
            return True
        return policy.within_queue != NEVER and candidate.first.priority > self.roster.lowest(candidate.first.queue)

    def why_paused(self, candidate: Candidate, *, now: float) -> str:
        """Why nobody goes for these for a while, since those before were not bound; empty if that is not so."""
        register = self._queues.register
        others = [clearing.candidate.first for clearing in register.clearings]
        whys = (register.lost_turns.why_nobody_goes(one, others=others, now=now) for one in candidate.members)
        return next(filter(None, whys), "")

    def _look_around(self, now: float) -> None:
        """What is the same for everybody at this look."""
        self._now = now
        if self._queues.register.cards is not self._cards:
            # By these a number is another shape's, which nobody was searched for.
            self._cards = self._queues.register.cards
            self._vain.clear()
            self._searches.clear()
        self._vain = {asked: until for asked, until in self._vain.items() if until > now}
        self._searches.look_around(now)
        self._in_the_way.look_around(now)
        self.roster.look_around(now)


def _is_guaranteed(queue: str, *, tree: Tree) -> bool:
    return any(any(tree.nodes[name].guarantee) for name in tree.path(queue))
