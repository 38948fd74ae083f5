"""Who stands apart while it is found who is shown to a cluster autoscaler: charged, and mostly out of its line."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aliquot_scheduler.queues.judging.enrolment import Enrolment
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter


class Apart:
    """For one look; `stand_again` is how one stands in its line as before who stood apart."""

    def __init__(
        self, *, hall: Hall, books: Books, enrolment: Enrolment, stand_again: Callable[[Waiter], None]
    ) -> None:
        self._hall = hall
        self._books = books
        self._enrolment = enrolment
        self._stand_again = stand_again
        self._out_of_line: list[Waiter] = []
        # Charged, and where they are all the same; as they are charged.
        self._held: dict[str, Waiter] = {}

    def show(self, candidate: Candidate) -> None:
        """All of these are shown: the next one is judged beside them."""
        for member in candidate.members:
            self._held.pop(member.uid, None)
            self._leave(member.uid)
            self._books.put(member, self._enrolment.charge(member))
        self._hall.gang_changed(candidate.first, books=self._books)

    def hold(self, holder: Waiter) -> None:
        """It is put out, and charged where it was shown, wherever it waits by now; of a group it may be shown anew."""
        standing = self._hall.standing(holder.uid)
        if standing and not standing.group:
            self._leave(holder.uid)
        else:
            self._held[holder.uid] = holder
        self._charge(holder)

    def without(self, candidate: Candidate) -> list[Waiter]:
        """Of these nobody is charged: it is judged whether all of them can be shown; who was."""
        held = [self._held[member.uid] for member in candidate.members if member.uid in self._held]
        for holder in held:
            self._books.release(holder.uid)
        return held

    def hold_again(self, held: list[Waiter]) -> None:
        """They can't."""
        for holder in held:
            self._charge(holder)

    def end(self) -> None:
        """Everybody is where they were."""
        for uid in self._held:
            self._books.release(uid)
        for waiter in self._out_of_line:
            self._stand_again(waiter)

    def _leave(self, uid: str) -> None:
        if waiter := self._hall.leave(uid, books=self._books):
            self._out_of_line.append(waiter)

    def _charge(self, holder: Waiter) -> None:
        # Its group is no larger by it: who else of it waits may still start with it.
        alone = msgspec.structs.replace(holder, group=None)
        self._books.put(alone, self._enrolment.charge(alone))
