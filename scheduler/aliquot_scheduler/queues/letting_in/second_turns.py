"""When those come again who have lost turns, and whose other pods come one by one meanwhile (`lost/lost_turns.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import gt

from aliquot_scheduler.queues.letting_in.rivals import Rivals
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.lost.lost_turns import LostTurns
from aliquot_scheduler.queues.room.clearings import Clearings
from aliquot_scheduler.queues.said.tree import Vector
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.inside import Inside
from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Waiter, summed

_NOTHING = (0, 0)


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
        # The users in doubt who wait, and what those of their pods may ask that come all the same.
        self._doubted: dict[Whose, Vector] = {}

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
        hall, tries = self._hall, self._lost_turns.tries
        standing = hall.lost(tries.times)
        trying = tries.trying(standing, self._inside.coming.values(), now=now)
        others_wait = Rivals(hall=hall, books=books).of_second_turns({one.queue for one in rested})
        again = tries.again(rested, trying, others_wait=others_wait, capacity=books.capacity, now=now)
        until, uids = tries.rest_on_until(others_wait=others_wait, now=now), {one.uid for one in again}
        for waiter in rested:
            if waiter.uid in uids:
                self._stand_in_line(waiter)
            else:
                hall.rest(waiter, until=until, books=books)

    def close_lines(self, *, books: Books, now: float) -> None:
        """To pods of users in doubt who have one under way; and for a while to all of theirs, if others wait."""
        doubts, lines = self._lost_turns.doubts, self._hall.lines
        for line in lines.values():
            line.closed = {}
        self._doubted.clear()
        if not doubts:
            self._memory.patience.stand_still(frozenset(), now=now)
            return
        coming = {one.whose for one in self._inside.coming.values() if one.uid not in self._lost_turns}
        rivals = Rivals(hall=self._hall, books=books)
        standing = [who for who in doubts.doubted() if who[0] in lines and who[1] in lines[who[0]].users()]
        self._doubted = {who: self._most(who, rivals=rivals, books=books) for who in standing}
        for who, most in self._doubted.items():
            if who in coming or (doubts.pauses(who, now=now) and rivals.of(who)):
                lines[who[0]].closed[who[1]] = most
        self._keep_nothing_for_the_closed(now=now)

    def let_in(self, waiter: Waiter, *, books: Books) -> None:
        """One has come in: of a user in doubt no other does now that has lost no turn itself."""
        line = self._hall.lines.get(waiter.queue)
        if line and waiter.uid not in self._lost_turns and waiter.whose in self._lost_turns.doubts:
            rivals = Rivals(hall=self._hall, books=books)
            self._doubted[waiter.whose] = most = self._most(waiter.whose, rivals=rivals, books=books)
            line.closed[waiter.user] = most

    def is_doubted(self, waiter: Waiter) -> bool:
        """Whether its user's turns that led to nothing bear on it: not if it has lost one itself, which tries again."""
        most = self._doubted.get(waiter.whose)
        return most is not None and self._asks_more(waiter, most)

    def _asks_more(self, waiter: Waiter, most: Vector) -> bool:
        asked = summed(self._hall.lines[waiter.queue].mates(waiter)) if waiter.gang else waiter.amounts
        return waiter.uid not in self._lost_turns and any(map(gt, asked, most))

    def _most(self, who: Whose, *, rivals: Rivals, books: Books) -> Vector:
        """What those may ask who come all the same: what of a guarantee is of use to nobody else who waits."""
        accounts = [books.ledger.accounts[name] for name in books.ledger.tree.path(who[0])[:-1]]
        owner = next((one for one in accounts if any(one.node.guarantee)), None)
        if owner is None or rivals.of(who, below=owner.node.name):
            return _NOTHING
        return tuple(max(0, due - used) for due, used in zip(owner.node.due, owner.used, strict=False))

    def _keep_nothing_for_the_closed(self, *, now: float) -> None:
        """Who may not come in is no head of a line meanwhile, else a node stood idle for it; then it waits on."""
        patience = self._memory.patience
        heads = filter(None, map(self._hall.standing, patience.since))
        closed = {one.uid for one in heads if one.user in self._hall.lines[one.queue].closed and self.is_doubted(one)}
        for uid in closed & patience.impatient(now=now):
            self._memory.keep_nothing(uid)
        patience.stand_still(closed, now=now)
