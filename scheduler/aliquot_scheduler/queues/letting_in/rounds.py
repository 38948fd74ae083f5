"""Rounds of turns: all who wait in a line are looked at in their order, and each is let in who may and has room.

Theory of operation. A round first brings in those for whom room was made, and sweeps over the lines until nobody else
comes in (`sweep.py`); of the rest some are shown to an autoscaler, and stand in line as before (`growth.py`). Each
turn is carried out by the caller, who may stop asking at any time: what is not told yet is told in the next round.

What must always hold:
 1. By an admission no queue comes over its ceiling, and nothing is taken that is held back for others.
 2. Of a gang all that are needed are let in at the same instant, or none.
 3. The same events make the same decisions, whatever order dictionaries are in.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.deciding.turns import MOST_AT_ONCE, Rooms, Turn
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.charged.ledger import Charge
from aliquot_scheduler.queues.judging.trial import FreeInSum
from aliquot_scheduler.queues.letting_in.gangs import Placing
from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.letting_in.sweep import Sweep
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.said.tree import COMPUTE
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter, summed
from aliquot_scheduler.queues.waiting.waits import WaitsSoFar

log = logging.getLogger(__name__)

# A longer number on a pod is not ours.
_LONGEST_COUNT = 10


class Rounds:
    """Gives out turns, round after round."""

    def __init__(self, register: Register, *, picture: Picture, names: Names) -> None:
        self._register = register
        self._picture = picture
        self._names = names
        self._untold: deque[Turn] = deque()
        self.waits = WaitsSoFar()

    def given_out(self, rooms: Rooms, *, now: float) -> Iterator[Turn]:
        """Let through whoever can be; each turn is to be carried out by the caller, who may stop asking at any time."""
        self._register.tell_time(now)
        self._register.taking_over.keep_room(rooms, now=now)
        yield from self._untold_turns()
        if self._register.inside.under_way < MOST_AT_ONCE:
            yield from self._round(rooms, now=now)
        for waiter, times in self._register.growth.look(now=now):
            turn = Turn(pod=waiter.pod, promise=None, number=self._next_turn(waiter), shown=times, queue=waiter.queue)
            self._untold.append(turn)
        yield from self._untold_turns()

    def _round(self, rooms: Rooms, *, now: float) -> Iterator[Turn]:
        sweep = self._sweep(rooms, now=now)
        self._bring_in_cleared(sweep, rooms, now=now)
        yield from self._untold_turns()
        yield from self._swept(sweep, rooms, now=now)
        while sweep.again and self._register.inside.under_way < MOST_AT_ONCE:
            sweep = self._sweep(rooms, now=now)
            yield from self._swept(sweep, rooms, now=now)
        if self._register.inside.under_way < MOST_AT_ONCE:
            self._note_in_vain(now=now)

    def _note_in_vain(self, *, now: float) -> None:
        """Gangs that were not let in though enough is free in sum: what is held back for them may serve nobody.

        Not those for whom nodes are kept: they are in once those have run empty, if others leave them their guarantee.
        """
        hall, cards, kept = self._register.hall, self._register.cards, self._register.memory.kept(now=now)
        in_sum = FreeInSum(grid=self._picture.grid, cards=cards)
        starting, found = list(hall.asked.starting(books=self._register.books)), set[GangKey]()
        free = cards.stock().free[COMPUTE] if starting else 0
        for members in starting:
            amounts, gang = summed(members), members[0].gang
            if kept.get(members[0].uid):
                continue
            # Most ask more than there is at all.
            if gang and amounts[COMPUTE] <= free and in_sum.covers(members, amounts):
                found.add(gang)
        hall.in_vain.found(found, now=now)

    def _swept(self, sweep: Sweep, rooms: Rooms, *, now: float) -> Iterator[Turn]:
        for candidate, promises in sweep.let_in():
            members = self._register.books.runs.begun_by(candidate.members)
            for member, promise in zip(members, promises, strict=True):
                self._let_in(member, promise, rooms=rooms, now=now)
            self._register.gang_changed(candidate.first)
            yield from self._untold_turns()
            if self._register.inside.under_way >= MOST_AT_ONCE:
                return

    def _sweep(self, rooms: Rooms, *, now: float) -> Sweep:
        register, books = self._register, self._register.books
        register.line_up(now=now)
        placing = Placing(
            picture=self._picture,
            cards=register.cards,
            rooms=rooms,
            runs=books.runs,
            bounds=register.inside.bounds,
            stayers=register.stayers,
            now=now,
        )
        return Sweep(
            books=books,
            hall=register.hall,
            cards=register.cards,
            memory=register.memory,
            stayers=register.stayers,
            placing=placing,
            sound_first=register.sound_first,
            without=register.enrolment.without,
            now=now,
        )

    def _bring_in_cleared(self, sweep: Sweep, rooms: Rooms, *, now: float) -> None:
        """Those for whom room was made, as soon as all of it is there."""
        register = self._register
        clearings = register.clearings
        register.making_room.call_off_void(now=now)
        for clearing in clearings:
            if not clearings.is_free(clearing, now=now):
                continue
            if why := register.making_room.why_unwanted(clearing):
                log.info("no room is made any more", extra={"pod": clearing.candidate.first.pod.key, "reason": why})
                register.making_room.call_off(clearing)
            elif not self._is_other_looked_for(clearing, now=now):
                clearings.drop(clearing)
                promises = sweep.bring_in_all(clearing) or sweep.bring_in_all(clearing, beside=self._resting())
                members = register.books.runs.begun_by([place.waiter for place in clearing.places])
                for member, promise in zip(members, promises, strict=False):
                    self._let_in(member, promise, rooms=rooms, now=now)
                    register.lost_turns.brought_in(member, now=now)
                if promises:
                    register.stale.hurry(register.making_room.broken_by(clearing), until=clearing.until)
                    register.gang_changed(clearing.candidate.first)
                elif register.making_room.may_come_true(clearing):
                    clearings.failed(clearing, now=now)
                else:
                    register.making_room.call_off(clearing)
        # Whoever is looked at next must not be let in by room that is kept again, nor be kept out of what is no more.
        sweep.room_changed()

    def _is_other_looked_for(self, clearing: Clearing, *, now: float) -> bool:
        """A GPU of it began to fail, and it is not known yet whether a sound one can be had (`reclaim/swapping.py`)."""
        register = self._register
        begun = register.clearings.has_begun_to_fail(clearing)
        return begun and register.sound_first.is_to_wait(clearing.candidate, now=now)

    def _resting(self) -> list[Charge]:
        """What those come to for whom room is made still: their guarantee is theirs, and not once more held back."""
        charge = self._register.enrolment.charge
        return [charge(place.waiter) for clearing in self._register.clearings for place in clearing.places]

    def _let_in(self, waiter: Waiter, promise: Promise, *, rooms: Rooms, now: float) -> None:
        self.waits.add(waiter.queue, max(0.0, now - self._register.joined.pop(waiter.uid, now)))
        held = self._register.let_in(waiter, promise, now=now)
        if held.off != waiter.off:
            promise = rooms.narrow(promise, self._register.inside.bounds[held.uid].narrowed(held.demand))
        self._untold.append(Turn(pod=waiter.pod, promise=promise, number=self._next_turn(waiter), run=held.run))

    def _next_turn(self, waiter: Waiter) -> int:
        return max(self._turns_had(waiter.pod), self._register.lost_turns.missed_by(waiter.uid)) + 1

    def _untold_turns(self) -> Iterator[Turn]:
        """All of a gang are told, even if the caller stops asking in the middle of it."""
        while self._untold:
            turn = self._untold.popleft()
            uid = turn.pod.metadata.uid
            if uid in (self._register.inside.coming if turn.promise else self._register.showings):
                yield turn

    def _turns_had(self, pod: Pod) -> int:
        """As the pod says: another leader may have given them, and only another number is a change of the pod."""
        text = pod.metadata.annotations.get(self._names.turn, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < _LONGEST_COUNT else 0
