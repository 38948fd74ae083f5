"""From who waits and who lies there to clearings: for whom room is made now, where, and who goes for it.

Theory of operation. Everything is judged as if all clearings that stand had come true: whoever leaves is charged with
nothing, and whoever room is made for is charged. Whoever is sent away stands in line again (`again.py`). Candidates are
taken in the order of turns. For each a place is searched by its rights as an owner, then by its priority; what was
found is judged by the very rules that will let it in; and it counts for the next one. The ledger is borrowed for that,
and given back as it was.

What must always hold: nobody goes for a candidate that would not be let in then, or for whom no place was found on
real cards; the same state gives the same clearings; nothing that was lent here is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.enrolment import Enrolment
from aliquot_scheduler.queues.room.clearings import Clearing, Clearings, Place, held
from aliquot_scheduler.queues.room.graces import OVERDUE
from aliquot_scheduler.queues.room.refuges import Refuge
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter
from aliquot_scheduler.reclaim.entitlement import Entitlement
from aliquot_scheduler.reclaim.on_the_way import OnTheWay
from aliquot_scheduler.reclaim.outlook import Outlook
from aliquot_scheduler.reclaim.patience import DEPTHS, FIRST, Patience, Start
from aliquot_scheduler.reclaim.policy import Policy
from aliquot_scheduler.reclaim.rearranging import Orders, Rearranging, Wider
from aliquot_scheduler.reclaim.relieving import Relieving
from aliquot_scheduler.reclaim.residents import Resident, Residents
from aliquot_scheduler.reclaim.rights import Rights
from aliquot_scheduler.reclaim.scene import Scene, failing_gpus
from aliquot_scheduler.reclaim.search import Bounds, InOrder, Search
from aliquot_scheduler.reclaim.settling import Settling
from aliquot_scheduler.reclaim.standoff import FoundStandoffs, why_nobody_goes

# Places tried in one look where others are to be moved: 0.4 s at the most.
_MOST_TRIES = 800


class Planner:
    """One look at everything."""

    def __init__(
        self,
        *,
        picture: Picture,
        cards: Cards,
        enrolment: Enrolment,
        books: Books,
        clearings: Clearings,
        residents: Residents,
        now: float,
        wall: float,
        refuges: Collection[Refuge] = (),
    ) -> None:
        """`refuges` are of those who go and come again to room that is kept for them."""
        self._picture = picture
        self._cards = cards
        self._enrolment = enrolment
        self._books = books
        self._clearings = clearings
        self._residents = residents
        self._now = now
        self._moved = [one.uid for one in refuges]
        self._patience, self._orders = Patience(_MOST_TRIES), Orders()
        # By how many nodes the search for moves may begin later at the next look, where it came to nothing; and whether
        # it had no whole share of the tries, since others had taken them.
        self.reached = 0
        self.was_cut_short = False
        # Whether there was nothing more to try for it.
        self.has_tried_all = False
        leaving = residents.leaving.values()
        self._scene, self._failing = Scene(picture=picture, leaving=leaving), failing_gpus(picture)
        self._settling = Settling(picture=picture, cards=cards, runs=books.runs)
        self._on_the_way = OnTheWay(picture=picture, leaving=leaving, most=clearings.max_grace)
        self._bounds: Bounds = {}
        self._in_order: InOrder = {}
        self._standoffs = FoundStandoffs(residents=residents, refuges=refuges, picture=picture, later=wall - now)
        self._outlook = Outlook(ledger=books.ledger, cards=cards, picture=picture, gangs=residents.gangs)
        self._relieving = Relieving(ledger=books.ledger, outlook=self._outlook)
        self._rights = Entitlement(ledger=books.ledger, outlook=self._outlook, picture=picture, residents=residents)

    @contextmanager
    def supposing(self) -> Iterator[None]:
        """While all is judged as it will be; what clearings were made meanwhile counts to the end."""
        places = [place for clearing in self._clearings for place in clearing.places]
        try:
            self._outlook.begin(
                leaving=self._residents.leaving.values(),
                places=places,
                scene=self._scene,
                moved=self._moved,
                awaited=[one for one in self._residents.by_uid.values() if one.instead_of],
            )
            yield
        finally:
            self._outlook.end()

    def plan(
        self, candidate: Candidate, *, policy: Policy, moving: bool = True, start: Start = FIRST
    ) -> Clearing | None:
        """Room for a candidate, and whoever has to go for it; None if none can be made.

        With `moving` others may be moved for an owner, where that alone helps; looked for from `start` on.
        """
        self._relieving.lacks, self.reached, self.was_cut_short, self.has_tried_all = "", 0, False, False
        if clearing := self.on_sound(candidate, policy):
            return clearing
        tried = candidate
        for tried in self._relieving.kept_off(candidate, without=self._enrolment.without):
            if clearing := self._planned(tried, self._rights.all_of(tried, policy), residents=self._residents):
                return clearing
        return self._rearranged(tried, policy, start=start) if moving else None

    def on_sound(self, candidate: Candidate, policy: Policy) -> Clearing | None:
        """Room for an owner where no GPU fails, if any does: rather than on such a one, though that be free."""
        if not self._failing:
            return None
        with self._scene.without(self._failing):
            clearing = self._planned(candidate, self._rights.as_owner(candidate, policy), residents=self._residents)
        self._relieving.lacks = ""
        return clearing

    def plan_past_budgets(self, candidate: Candidate, *, policy: Policy) -> Clearing | None:
        """The same as if no disruption budget kept what was lent; inside a queue they hold."""
        lacks, residents = self._relieving.lacks, self._residents.past_budgets()
        self._forget_the_search()
        variants = self._relieving.kept_off(candidate, without=self._enrolment.without)
        plans = (self._planned(one, self._rights.as_owner(one, policy), residents=residents) for one in variants)
        clearing = next((plan for plan in plans if plan is not None), None)
        self._forget_the_search()
        self._relieving.lacks = lacks
        return clearing

    def _forget_the_search(self) -> None:
        """What was found out while others might go than may now."""
        self._bounds.clear()
        self._relieving.forget_the_search()

    def _planned(self, candidate: Candidate, by: Iterable[Rights], *, residents: Residents) -> Clearing | None:
        for rights in by:
            search = Search(
                scene=self._scene, residents=residents, rights=rights, known=self._bounds, in_order=self._in_order
            )
            if clearing := self._found(search, candidate, rights):
                return clearing
        return None

    def _rearranged(self, candidate: Candidate, policy: Policy, *, start: Start) -> Clearing | None:
        """Room for an owner that finds none in one piece: pods that a controller makes anew are moved before others."""
        lacks, begun = self._relieving.lacks, self._patience.left
        self._patience.begin()
        self._patience.keep_for_deep_plans()
        for deepest, (orphans, moves_first) in ((deep, way) for deep in DEPTHS for way in start.ways(deepest=deep)):
            if deepest > DEPTHS[0]:
                # By then all have been tried that are nearest to hand.
                self.reached = self.reached or self._patience.reached
                self._patience.go_deep()
            for rights in self._rights.as_owner(candidate, policy):
                wider = Wider(rights, orphans=orphans, moves_first=moves_first)
                if clearing := self._found(self._rearranging(wider, deepest=deepest, start=start), candidate, rights):
                    # Nobody has told those who search by each right of the nodes that are not as they were.
                    self._bounds.clear()
                    return clearing
        self._relieving.lacks = lacks
        self.was_cut_short = begun < _MOST_TRIES and self._patience.is_over
        self.has_tried_all = self._patience.sufficed
        return None

    def _rearranging(self, wider: Wider, *, deepest: int, start: Start) -> Rearranging:
        return Rearranging(
            scene=self._scene,
            residents=self._residents,
            rights=wider,
            able=self._settling.able,
            patience=self._patience,
            orders=self._orders,
            deepest=deepest,
            start=start,
        )

    def _found(self, search: Search, candidate: Candidate, rights: Rights) -> Clearing | None:
        if self._made_room(search, candidate, rights):
            search.places[:], settled = held(search.places, candidate, self._as_it_lies)
            self._spare(search, settled)
            if clearing := self._judged(search, settled, rights):
                return clearing
        for one in search.victims.values():
            self._outlook.stays(one)
        search.undo()
        # Nodes that were out of the question for it need not be for the next.
        self._bounds.clear()
        return None

    def why_nobody_goes(
        self, candidate: Candidate, *, policy: Policy, settings: QueueSettings, named: bool = False
    ) -> str:
        """Of one that is inside its guarantee, and for which no room could be made just now; with names, or without."""
        rights = list(self._rights.as_owner(candidate, policy))
        return why_nobody_goes(
            self._standoffs.by(rights),
            refuges=self._standoffs.kept_for_moved(rights, able=self._settling.able(candidate.first)),
            lacks=self._relieving.lacks,
            tried_all=self.has_tried_all,
            settings=settings,
            named=named,
        )

    def is_kept_by_budgets(self, candidate: Candidate, *, policy: Policy) -> bool:
        """Whether a disruption budget covers any of those who might go for it as an owner."""
        return self._standoffs.by(list(self._rights.as_owner(candidate, policy))).covered

    def _made_room(self, search: Search, candidate: Candidate, rights: Rights) -> bool:
        """Whether there is a place for it, and queues leave it enough, once those go who are taken for that.

        Under a limit first: whoever goes for that may leave a card, too. What all together lack those may leave who go
        for a card, so it is looked at last.
        """
        relieved = self._relieving.relieved
        if not relieved(search, candidate, rights, but=ROOT) or not self._settling.settle(search, candidate):
            return False
        return relieved(search, candidate, rights)

    def _as_it_lies(self, place: Place) -> Waiter:
        """What it takes of other models it will not take: nobody goes for that."""
        return self._enrolment.held_to(place.waiter, node=place.node, gpus=place.claims)

    def _spare(self, search: Search, candidate: Candidate) -> None:
        """Let everybody stay whom neither cards nor queues want gone."""
        for one in search.victims.values():
            self._outlook.goes(one)

        def may_stay(unit: Sequence[Resident]) -> bool:
            for one in unit:
                self._outlook.stays(one)
            if self._outlook.refusal(candidate) is None:
                return True
            for one in unit:
                self._outlook.goes(one)
            return False

        search.spare(may_stay)
        if self._settling.gather(search, candidate):
            search.spare(may_stay)

    # --- what is supposed --------------------------------------------------------------------------------------------
    def _judged(self, search: Search, candidate: Candidate, rights: Rights) -> Clearing | None:
        """The clearing, if it would be let in once they have gone; then it counts for those who come after it."""
        victims = list(search.victims.values())
        if not rights.hold_good(victims):
            return None
        if (refusal := self._outlook.refusal(candidate)) is not None:
            self._relieving.note(refusal, candidate, rights)
            return None
        for place in search.places:
            self._outlook.comes(place)
        return self._clearing(search, candidate, rights)

    def _clearing(self, search: Search, candidate: Candidate, rights: Rights) -> Clearing:
        # Who is moved is asked last: if one of the others is kept, nobody was moved in vain.
        movers = [one for one, _ in search.moves]
        # Nobody is asked for a room to which nobody has come yet.
        there = [one for one in search.victims.values() if not one.instead_of]
        victims = [*sorted(there, key=lambda one: (one.lost, one.uid)), *movers]
        aside = self._residents.set_budgets_aside(victims, gone=self._scene.gone)
        self._on_the_way.go(victims)
        return Clearing(
            candidate=candidate,
            reclaims=not rights.by_priority,
            places=tuple(search.places),
            victims=tuple(one.waiter for one in victims),
            covered=self._residents.covered(victims, aside=aside),
            moves=tuple(place for _, place in search.moves),
            against_budgets=aside,
            gives_up=frozenset(one.instead_of for one in search.victims.values() if one.instead_of),
            until=self._now + self._on_the_way.takes + OVERDUE,
        )

    def withdraw(self, clearing: Clearing) -> None:
        """One for whom nobody goes does not come after all: it counts for nobody who comes after it."""
        for place in clearing.places:
            self._outlook.leaves(place)
            self._scene.leaves(place)
        self._bounds.clear()

    def without(self, clearing: Clearing) -> None:
        """One that stood when this look began does not stand any more: nothing is kept for it."""
        for place in clearing.places:
            self._outlook.leaves(place)
        self._bounds.clear()

    def with_again(self, clearing: Clearing) -> None:
        """It stands again."""
        for place in clearing.places:
            self._outlook.comes(place)
        self._bounds.clear()

    def is_on_failing(self, clearing: Clearing) -> bool:
        """Whether any of it is on a GPU that fails: for who may have others sent away nothing else was found."""
        return any(gpu in self._failing for place in clearing.places for gpu in place.room)

    def has_to_wait(self, clearing: Clearing) -> bool:
        """Whether somebody has to go for it, or goes already; else a turn is all that it needs."""
        return self._on_the_way.keep_waiting(clearing)
