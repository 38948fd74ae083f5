"""Other queues, or other hardware: who is put down anew by that, and what need not be so any more.

| what has changed | who is put down anew |
|---|---|
| hardware: gangs may start that could not, or more may be given for good | who waits, and is told otherwise by it |
| queues, which count the same things as before | who waits and is read otherwise; who is in holds what it did |
| queues that count other things, or what any shape comes to on cards | everybody, in their states, as they were read |
"""

from __future__ import annotations

from collections.abc import Callable

from aliquot_core.objects import Pod
from aliquot_scheduler.queues.judging.planting import Change, Planting
from aliquot_scheduler.queues.letting_in.growth import Growth
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.room.making_room import MakingRoom
from aliquot_scheduler.queues.room.standoffs import Standoffs
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.inside import Inside
from aliquot_scheduler.queues.waiting.waiter import Waiter


class Replanting:
    """For all pods; `wait_anew` is how one comes to wait as it is read now, `wait_again` as it was read before."""

    def __init__(
        self,
        *,
        planting: Planting,
        hall: Hall,
        inside: Inside,
        books: Books,
        growth: Growth,
        memory: SweepMemory,
        making_room: MakingRoom,
        standoffs: Standoffs,
        wait_anew: Callable[[Pod], None],
        wait_again: Callable[[Waiter], None],
    ) -> None:
        self._planting = planting
        self._hall = hall
        self._inside = inside
        self._books = books
        self._growth = growth
        self._memory = memory
        self._making_room = making_room
        self._standoffs = standoffs
        self._wait_anew = wait_anew
        self._wait_again = wait_again

    def queues_changed(self, *, now: float) -> None:
        """There are other queues."""
        if self._planting.graft():
            self._graft(now=now)
        else:
            self._replant(now=now)

    def look_at_hardware(self, *, now: float) -> None:
        """There may be other hardware."""
        match self._planting.change(waiting=len(self._hall)):
            case Change.EVERYTHING:
                self._replant(now=now)
            case Change.LOOKS:
                self._look_anew()

    def _look_anew(self) -> None:
        hall, enrolment = self._hall, self._planting.enrolment
        for waiter in [one for one in hall if hall.resting(one.uid) is None]:
            if waiter.shape.firm or enrolment.why_never(waiter) != hall.why_nowhere(waiter.uid):
                self._wait_anew(waiter.pod)
        hall.in_vain.clear()
        hall.asked.look_anew(books=self._books)
        self._growth.look_anew()

    def _graft(self, *, now: float) -> None:
        moved = [waiter for waiter in self._hall if self._waits_otherwise(waiter)]
        self._books.graft(self._planting.tree, capacity=self._capacity())
        self._growth.replant(now=now)
        self._hall.graft([waiter.uid for waiter in moved], books=self._books)
        for waiter in moved:
            self._wait_anew(waiter.pod)
        self._others_may_come(now=now)

    def _waits_otherwise(self, waiter: Waiter) -> bool:
        enrolment = self._planting.enrolment
        return enrolment.why_never(waiter) != self._hall.why_nowhere(waiter.uid) or enrolment.is_read_otherwise(waiter)

    def _replant(self, *, now: float) -> None:
        self._planting.plant_anew()
        enrolment, waiting = self._planting.enrolment, self._hall.clear()
        self._books.replant(self._planting.tree, capacity=self._capacity())
        self._growth.replant(now=now)
        for states in (self._inside.coming, self._inside.bound):
            for uid, was in states.items():
                states[uid] = enrolment.anew(was)
                self._books.put(states[uid], enrolment.charge(states[uid]))
        for waiter in waiting:
            self._wait_again(waiter)
        self._others_may_come(now=now)

    def _others_may_come(self, *, now: float) -> None:
        """By other queues: nothing of what was refused, and of what room is made for, need be so any more."""
        self._making_room.call_off_unwanted()
        self._memory.everything_changed(now=now)
        self._standoffs.forget()

    def _capacity(self) -> tuple[int, ...]:
        return self._planting.cards.stock().capacity
