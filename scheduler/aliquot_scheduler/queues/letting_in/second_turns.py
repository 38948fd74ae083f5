"""When those come again who have lost turns, and whose other pods come one by one meanwhile (`lost_turns.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.room.clearings import Clearings
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.inside import Inside
from aliquot_scheduler.queues.waiting.lost_turns import LostTurns, whose
from aliquot_scheduler.queues.waiting.waiter import Waiter


class SecondTurns:
    """Ends rests, and closes lines; `stand_in_line` is how one does who rests no more."""

    def __init__(
        self,
        *,
        lost_turns: LostTurns,
        hall: Hall,
        inside: Inside,
        clearings: Clearings,
        memory: SweepMemory,
        stand_in_line: Callable[[Waiter], None],
    ) -> None:
        self._lost_turns = lost_turns
        self._hall = hall
        self._inside = inside
        self._clearings = clearings
        self._memory = memory
        self._stand_in_line = stand_in_line

    def end_rests(self, *, books: Books, now: float) -> None:
        """Who has rested long enough joins the line; of those who have lost turns as many as may try at a time."""
        self._lost_turns.tell_time(now)
        lost: list[Waiter] = []
        for waiter in self._hall.rested(now):
            if waiter.uid in self._lost_turns and waiter.uid not in self._clearings:
                lost.append(waiter)
            else:
                self._stand_in_line(waiter)
        if lost:
            self._try_again(lost, books=books, now=now)

    def _try_again(self, rested: Sequence[Waiter], *, books: Books, now: float) -> None:
        hall, lost_turns = self._hall, self._lost_turns
        standing = hall.lost(lost_turns.times)
        trying = lost_turns.trying(standing, self._inside.coming.values(), now=now)
        others_wait = hall.in_line() > len(standing)
        tries = lost_turns.try_again(rested, trying, others_wait=others_wait, capacity=books.capacity, now=now)
        until, uids = lost_turns.rest_on_until(others_wait=others_wait, now=now), {one.uid for one in tries}
        for waiter in rested:
            if waiter.uid in uids:
                self._stand_in_line(waiter)
            else:
                hall.rest(waiter, until=until, books=books)

    def close_lines(self, *, books: Books, now: float) -> None:
        """To pods of users in doubt who have one under way; and for a while to all of theirs, if others wait."""
        lost_turns, lines = self._lost_turns, self._hall.lines
        coming = {whose(one) for one in self._inside.coming.values() if one.uid not in lost_turns}
        alone = len(lines) == 1 and all(len(line.users()) == 1 for line in lines.values())
        for queue, line in lines.items():
            line.closed = set()
            if lost_turns.anybody_in_doubt and not books.ledger.guaranteed(queue):
                line.closed = lost_turns.closed(queue, line.users(), coming=coming, others_wait=not alone, now=now)
        if lost_turns.anybody_in_doubt:
            self._keep_nothing_for_the_closed(now=now)

    def _keep_nothing_for_the_closed(self, *, now: float) -> None:
        """Who may not come in is no head of a line: else a node stood idle for it, and it waits anew from now on."""
        for waiter in filter(None, map(self._hall.standing, self._memory.patience.impatient(now=now))):
            if waiter.user in self._hall.lines[waiter.queue].closed and waiter.uid not in self._lost_turns:
                self._memory.forget(waiter.uid)

    def let_in(self, waiter: Waiter, *, books: Books) -> None:
        """One has come in: of a user in doubt no other does now that has lost no turn itself."""
        if waiter.uid in self._lost_turns:
            return
        line = self._hall.lines.get(waiter.queue)
        if line and self._lost_turns.in_doubt(whose(waiter)) and not books.ledger.guaranteed(waiter.queue):
            line.closed.add(waiter.user)
