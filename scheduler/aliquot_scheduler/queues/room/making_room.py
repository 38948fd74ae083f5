"""Room that is being made for some who wait: they rest until it is there, and stand in line again if it never will be.

Which room, and who has to go for it, is kept in `clearings.py` and `refuges.py`; here is what that means for the states
of pods. What the leader before us kept is kept by us, once all is known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from aliquot_core.objects import Pod
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.planting import Planting
from aliquot_scheduler.queues.room.clearings import Clearing, Clearings, Place, longest_grace
from aliquot_scheduler.queues.room.graces import OVERDUE
from aliquot_scheduler.queues.room.recalling import drained_said, recalled, refuges_said
from aliquot_scheduler.queues.room.refuges import Refuge, Refuges
from aliquot_scheduler.queues.room.torn_groups import Going, TornGroups, going_for, torn
from aliquot_scheduler.queues.room.yielding import is_demanded
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.inside import Inside
from aliquot_scheduler.queues.waiting.waiter import Candidate, GangKey, Waiter

log = logging.getLogger(__name__)

# Whoever takes the place of one that was moved comes, and is let in, within so long: controllers take seconds.
_COMES = 60.0


class MakingRoom:
    """All of it; `wait_anew` is how one comes to wait who rests for nothing any more."""

    def __init__(
        self,
        *,
        picture: Picture,
        planting: Planting,
        hall: Hall,
        inside: Inside,
        books: Books,
        wait_anew: Callable[[Pod], None],
        max_grace: int,
    ) -> None:
        self.clearings = Clearings(picture=picture, max_grace=max_grace)
        self.refuges = Refuges(picture=picture)
        self.torn_groups = TornGroups()
        self._planting = planting
        self._hall = hall
        self._inside = inside
        self._books = books
        self._wait_anew = wait_anew
        # What the leader before us kept of those who were moved for nobody else.
        self.drained_before = ""

    def begin(self, clearing: Clearing) -> None:
        """Room is made for some who wait in a line: they rest until it is there, as those as whom they will lie."""
        failing = self.clearings.failing(clearing)
        clearing = msgspec.structs.replace(clearing.held(self._as_it_lies), known_to_fail=failing)
        for uid in clearing.gives_up:
            self.refuges.lapse(uid)
        self.clearings.make(clearing)
        self.torn_groups.put_down(going_for(clearing))
        self.refuges.open(clearing.moves, until=clearing.until + _COMES, whose=clearing.uid)
        for place in clearing.places:
            self._hall.rest(place.waiter, until=clearing.until, books=self._books)

    def why_unwanted(self, clearing: Clearing, *, closely: bool = True) -> str:
        """Why the room is of no use; empty if all for whom it was made rest for it still, and may come.

        With every event it is asked only whether they rest there still: the rest is slower by far.
        """
        nodes = self._books.ledger.tree.nodes
        # Who was in when it was decided may have ended: its group would run with fewer than its minimum.
        if self._books.runs.still_needed(clearing.candidate.first) > len(clearing.places):
            return "more of its group have to come in at once by now"
        for place in clearing.places:
            waiter = self._hall.resting(place.waiter.uid)
            if waiter is None:
                return "one of those for whom it was made is gone"
            if waiter.queue != place.waiter.queue:
                return f"it waits in queue {waiter.queue} now"
            if not closely:
                continue
            if why := self._planting.enrolment.why_never(waiter):
                return why
            if nodes[waiter.queue].stop:
                return f"queue {waiter.queue} lets nobody in"
        return ""

    def broken_by(self, clearing: Clearing) -> set[GangKey]:
        """Of which groups some went for it, or were asked to; whoever was not may be left with too few."""
        went = (
            one for one in clearing.victims if one.uid not in self._inside.bound or self.clearings.was_asked(one.uid)
        )
        # The leader before us has asked some as well.
        groups = (going.named for going in self.torn_groups.of(clearing.uid))
        return {one.gang for one in went if one.gang} | torn(groups, bound=self._inside.bound)

    def torn_before(self) -> set[GangKey]:
        """Of which groups the leader before us sent some away, and some are there."""
        return torn((going.named for going in self.torn_groups), bound=self._inside.bound)

    def still_going(self, *, is_short: Callable[[GangKey], bool]) -> list[Going]:
        """Of which groups the next leader is to know; `is_short` says of one that it lacks whom it has lost."""
        standing = {going for clearing in self.clearings for going in going_for(clearing)}
        self.torn_groups.forget(lambda going: going not in standing and self._is_over(going, is_short=is_short))
        return list(self.torn_groups)

    def _is_over(self, going: Going, *, is_short: Callable[[GangKey], bool]) -> bool:
        """Whether as many as it needs run on, or nobody is left."""
        there = [self._inside.bound[uid] for uid in going.named if uid in self._inside.bound]
        return not any(self.is_leaving(one) or (one.gang and is_short(one.gang)) for one in there)

    def call_off(self, *clearings: Clearing) -> None:
        """They are made no more: whoever rests for one stands in line again. So do those who had counted on them."""
        for clearing in clearings:
            self._let_stand_in_line(clearing)
        # Once for all of them: it looks at everybody who is bound.
        if clearings:
            self.call_off_vain()

    def tell_time(self, now: float) -> None:
        """It is so late: room is kept no more for who has not come in time, and for who could not come by now."""
        self.refuges.tell_time(now)
        self._give_way()

    def _give_way(self) -> None:
        """What a borrower's successor would find is an owner's that demands it; who was not asked yet stays instead."""
        for refuge in self.refuges if len(self.refuges) and self._is_anything_held() else ():
            asked = refuge.uid not in self._inside.bound or self.clearings.was_asked(refuge.uid)
            # Of who goes for another one it is decided with that one.
            if not (asked or refuge.drains) or not self._is_demanded(refuge):
                continue
            if asked:
                self.refuges.lapse(refuge.uid)
            else:
                self.refuges.refused(refuge.uid, going=self.clearings.was_asked)

    def _is_anything_held(self) -> bool:
        """Whether anybody demands a guarantee at all: seldom, and else nobody need be asked."""
        return any(any(account.held) for account in self._books.ledger.accounts.values())

    def _is_demanded(self, refuge: Refuge) -> bool:
        return is_demanded(refuge, ledger=self._books.ledger, cards=self._planting.cards)

    def call_off_void(self, *, now: float) -> None:
        """Those whose time is over, or whose node is out, or for which nobody rests any more."""
        void = list[Clearing]()
        for clearing in self.clearings:
            if why := self.clearings.why_void(clearing, now=now) or self.why_unwanted(clearing, closely=False):
                log.info("no room is made any more", extra={"pod": clearing.candidate.first.pod.key, "reason": why})
                void.append(clearing)
        self.call_off(*void)

    def may_come_true(self, clearing: Clearing) -> bool:
        """Whether anybody still goes: what it lacks though its room is free, only they can leave."""
        return any(victim.uid in self._inside.bound for victim in clearing.victims) or bool(self._leaving())

    def vain(self) -> Iterator[Clearing]:
        """What will not be there though all go who were asked to, or are to be, by those who are so now."""
        leaving = self._leaving() if len(self.clearings) else frozenset[str]()
        return (one for one in self.clearings if not self.clearings.comes_true(one, leaving=leaving))

    def call_off_vain(self) -> None:
        """Of others and of the leader before us, until none is left: one may count on whom another was to send away."""
        called_off = True
        while called_off:
            called_off = False
            for one in self.vain():
                self._let_stand_in_line(one)
                called_off = True

    def _let_stand_in_line(self, clearing: Clearing) -> None:
        self.clearings.drop(clearing)
        for place in clearing.moves:
            if place.waiter.uid in self._inside.bound and not self.clearings.was_asked(place.waiter.uid):
                self.refuges.close(place.waiter.uid)
        for place in clearing.places:
            if (waiter := self._hall.resting(place.waiter.uid)) is not None:
                self._hall.leave(waiter.uid, books=self._books)
                self._wait_anew(waiter.pod)

    def is_leaving(self, one: Waiter) -> bool:
        """Whether one that is bound has been asked to go, or ends by itself."""
        return bool(one.pod.metadata.deletion_timestamp) or self.clearings.was_asked(one.uid)

    def _leaving(self) -> set[str]:
        ending = {uid for uid, one in self._inside.bound.items() if self.is_leaving(one)}
        return ending | self.clearings.victims() | self.refuges.movers()

    def begin_for_substitute(self, waiter: Waiter, *, now: float) -> bool:
        """Whether one comes for somebody who was moved: the room that is kept for that one is for it."""
        self._give_way()
        if not len(self.refuges) or (refuge := self.refuges.taken_by(waiter)) is None:
            return False
        alone = Candidate(members=(waiter,), amounts=waiter.amounts)
        # Others may be on their way out of it still.
        until = max(now + _COMES, refuge.until)
        place = Place(waiter=waiter, node=refuge.node, claims=refuge.claims, gpus=refuge.gpus)
        self.begin(Clearing(candidate=alone, places=(place,), victims=(), until=until))
        return True

    def recall(self, waiters: Sequence[Waiter], *, word: str, now: float) -> Iterator[Waiter]:
        """Keep what the leader before us kept, for these of whom it wrote so; nobody had a turn of us yet."""
        bound = self._inside.bound.values()
        going = [one for one in bound if one.pod.metadata.deletion_timestamp]
        until = now + longest_grace(going, most=self.clearings.max_grace) + OVERDUE
        leaving = {one.uid for one in going}
        for clearing in recalled(waiters, bound=bound, word=word, until=until):
            yield from (place.waiter for place in clearing.places)
            self.begin(clearing)
            self._recall_moves(clearing.candidate.first, word=word, until=until, going=leaving)
        for one in bound:
            self._recall_moves(one, word=word, until=until, going=leaving)
        for refuge in drained_said(self.drained_before, until=until + _COMES):
            self._open_again(refuge, going=leaving)
        for waiter in waiters:
            if self._hall.standing(waiter.uid) is not None:
                self.begin_for_substitute(waiter, now=now)

    def _recall_moves(self, whose: Waiter, *, word: str, until: float, going: Collection[str]) -> None:
        """Keep room for those who come in the place of whom the one before us has moved; not of who was not asked."""
        for refuge in refuges_said(whose, word=word, until=until + _COMES):
            self._open_again(refuge, going=going)

    def _open_again(self, refuge: Refuge, *, going: Collection[str]) -> None:
        if (there := self._inside.bound.get(refuge.uid)) is not None:
            refuge = msgspec.structs.replace(refuge, waiter=there)
            if refuge.uid not in going:
                return
            # Else it had ended by itself.
            self.clearings.asked(refuge.uid)
        self.refuges.open_again(refuge, leaving=going)

    def call_off_unwanted(self) -> None:
        """When everything else was put down anew: what is of no use any more; the others are read anew."""
        self.call_off(*(clearing for clearing in self.clearings if self.why_unwanted(clearing)))
        self.clearings.read_anew(self._as_it_lies)

    def _as_it_lies(self, place: Place) -> Waiter:
        """One for whom room is made, as it counts by now."""
        waiter = self._hall.resting(place.waiter.uid) or place.waiter
        return self._planting.enrolment.held_to(waiter, node=place.node, gpus=place.claims)
