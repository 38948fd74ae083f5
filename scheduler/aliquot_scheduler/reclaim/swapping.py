"""Other room for an owner whose room has begun to fail while it is cleared: the new one in exchange for the old one.

What was cleared stays the owner's until a sound place is found. To call it off first would leave it to whoever borrows
and comes next: those who went would have gone for nothing, and the owner would wait though nobody else can go for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.waiting.waiter import Candidate, summed
from aliquot_scheduler.reclaim.planning import Planner
from aliquot_scheduler.reclaim.policy import policy_of


class Swapping:
    """Of all clearings that stand."""

    def __init__(self, *, register: Register, again: float) -> None:
        """Where nothing was found it is looked for again in so many seconds (`again`)."""
        self._register = register
        self._again = again
        # For whom nothing was found, until then.
        self._vain: dict[str, float] = {}

    def due(self, *, now: float) -> Iterator[Clearing]:
        """Those for which another room is to be looked for.

        Not before all have been asked who go for it: they count as gone in this look, and would not be asked any more.
        And once more when its room is there, before it comes to that: whoever could not go a while ago may by now.
        """
        clearings, bound = self._register.clearings, self._register.inside.bound
        sound_first = self._register.sound_first
        self._vain = {uid: until for uid, until in self._vain.items() if now < until}
        for clearing in clearings:
            if not clearings.has_begun_to_fail(clearing):
                continue
            if clearing.uid in self._vain and not sound_first.awaits_look(clearing.candidate):
                continue
            if not clearings.unasked(clearing, bound=bound):
                yield clearing

    def swapped(self, planner: Planner, *, now: float, wall: float) -> Iterator[Clearing]:
        """The new ones, one after the other."""
        making_room, clearings = self._register.making_room, self._register.clearings
        for old in self.due(now=now):
            new = self._sound(old, planner)
            if new is None:
                self._vain[old.uid] = now + self._again
                self._register.sound_first.looked_at(old.candidate, now=now)
                continue
            new = new.begun(now=now, wall=wall)
            making_room.begin(new)
            clearings.has_another(new.uid)
            yield new

    def _sound(self, old: Clearing, planner: Planner) -> Clearing | None:
        """Room on GPUs of which none fails, and nothing is kept for the old one any more; or all is as it was."""
        candidate = self._as_it_asks(old)
        if candidate is None:
            return None
        policy = policy_of(candidate.first.queue, tree=self._register.books.ledger.tree)
        self._register.clearings.drop(old)
        planner.without(old)
        new = planner.on_sound(candidate, policy)
        if new is None:
            self._register.clearings.make(old)
            planner.with_again(old)
        return new

    def _as_it_asks(self, old: Clearing) -> Candidate | None:
        """Those for whom it is, kept off no model on account of where they were to lie."""
        resting = [self._register.hall.resting(member.uid) for member in old.candidate.members]
        read = [self._register.enrolment.waits_again(waiter) for waiter in resting if waiter]
        members = tuple(waiter for waiter in read if waiter)
        return Candidate(members=members, amounts=summed(members)) if len(members) == len(old.places) else None
