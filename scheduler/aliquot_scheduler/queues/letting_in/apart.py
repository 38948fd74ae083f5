"""Who stands apart while it is found who is shown to a cluster autoscaler: charged, and mostly out of its line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import add

import msgspec

from aliquot_scheduler.queues.charged.askers import Ask
from aliquot_scheduler.queues.charged.ledger import Charge
from aliquot_scheduler.queues.judging.enrolment import Enrolment
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter


class Apart:
    """For one look."""

    def __init__(self, *, hall: Hall, books: Books, enrolment: Enrolment) -> None:
        self._hall = hall
        self._books = books
        self._enrolment = enrolment
        self._out_of_line: list[Waiter] = []
        # Who is shown with all others at once: they stand in their lines, and are passed over there by who asks.
        self.together: AbstractSet[str] = frozenset()
        self._charged_together: Mapping[Whose, Charge] = {}
        self._asked_together: list[tuple[str, Ask]] = []
        # Charged, and where they are all the same; as they are charged.
        self._held: dict[str, Waiter] = {}

    def show(self, candidate: Candidate) -> None:
        """All of these are shown: the next one is judged beside them."""
        with self._hall.asked.at_once(books=self._books):
            for member in self._books.runs.begun_by(candidate.members):
                self._held.pop(member.uid, None)
                self._leave(member.uid)
                self._books.put(member, self._enrolment.charge(member))
            self._hall.gang_changed(candidate.first, books=self._books)

    def have_quota(self, waiters: Sequence[Waiter]) -> bool:
        """Whether all of these have, who stand in their lines: sure, but not if only one by one would tell."""
        if any(waiter.shape.firm for waiter in waiters):
            return False
        return self._books.ledger.takes_all(self._charges(waiters).values())

    def show_together(self, waiters: Sequence[Waiter]) -> None:
        """All of these are shown, who are of no group and have quota."""
        self.together = frozenset(waiter.uid for waiter in waiters)
        self._charged_together = self._charges(waiters)
        self._asked_together = [(one.queue, ask) for one in waiters for ask in self._hall.asked.by(one.uid)]
        self._books.set_apart(self._charged_together, self._asked_together)

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
        self._books.set_apart(self._charged_together, self._asked_together, back=True)
        for uid in self._held:
            self._books.release(uid)
        shown = [self._books.release(waiter.uid) for waiter in self._out_of_line]
        with self._hall.asked.at_once(books=self._books):
            for one in {one.gang: one for one in shown if one}.values():
                self._hall.gang_changed(one, books=self._books)
            for waiter in self._out_of_line:
                # As it stood there: its room may come on cards that it was kept off for this look.
                self._hall.join(waiter, why_never="", books=self._books)

    def _charges(self, waiters: Iterable[Waiter]) -> Mapping[Whose, Charge]:
        """What they come to, of each user in each queue."""
        sums: dict[Whose, list[int]] = {}
        for charge, waiter in ((self._enrolment.charge(one), one) for one in waiters):
            so_far = sums.setdefault((charge.queue, waiter.user), [0] * len(charge.amounts))
            so_far[:] = map(add, so_far, charge.amounts)
        return {whose: Charge(queue=whose[0], amounts=tuple(amounts)) for whose, amounts in sums.items()}

    def _leave(self, uid: str) -> None:
        if waiter := self._hall.leave(uid, books=self._books):
            self._out_of_line.append(waiter)

    def _charge(self, holder: Waiter) -> None:
        # Its group is no larger by it: who else of it waits may still start with it.
        alone = msgspec.structs.replace(holder, group=None)
        self._books.put(alone, self._enrolment.charge(alone))
