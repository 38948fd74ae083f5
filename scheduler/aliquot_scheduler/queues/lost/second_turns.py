"""When those come again who have lost turns, and to whose other pods lines are closed meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import gt

from aliquot_scheduler.queues.lost.doubts import Doubts
from aliquot_scheduler.queues.lost.rivals import Rivals
from aliquot_scheduler.queues.lost.tries import Tries
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
        doubts: Doubts,
        tries: Tries,
        hall: Hall,
        inside: Inside,
        books: Books,
        stand_in_line: Callable[[Waiter], None],
    ) -> None:
        self._doubts = doubts
        self._tries = tries
        self._hall = hall
        self._inside = inside
        self._books = books
        self._stand_in_line = stand_in_line
        # The users in doubt who wait, and what those of their pods may ask that come all the same.
        self._doubted: dict[Whose, Vector] = {}
        # Who has rested long enough, and rests on since others try (UIDs).
        self._rest_on: set[str] = set()

    def end_rests(self, *, is_cleared_for: Callable[[str], bool], now: float) -> None:
        """Who has rested long enough joins the line; of those who have lost turns as many as may try at a time.

        And whoever room is made for.
        """
        lost: list[Waiter] = []
        for waiter in self._hall.rested(now):
            if self._has_lost(waiter) and not is_cleared_for(waiter.uid):
                lost.append(waiter)
            else:
                self._rest_on.discard(waiter.uid)
                self._stand_in_line(waiter)
        if lost:
            self._try_again(lost, now=now)

    def _try_again(self, rested: Sequence[Waiter], *, now: float) -> None:
        hall, tries, capacity = self._hall, self._tries, self._books.capacity
        trying = tries.trying(hall.lost(tries.times), self._inside.coming.values(), now=now)
        others_wait = self._rivals().of_second_turns({one.queue for one in rested})
        again = tries.again(rested, trying, others_wait=others_wait, capacity=capacity, now=now)
        until, uids = tries.rest_on_until(others_wait=others_wait, now=now), {one.uid for one in again}
        for waiter in rested:
            if waiter.uid in uids:
                self._rest_on.discard(waiter.uid)
                self._stand_in_line(waiter)
            else:
                self._rest_on.add(waiter.uid)
                hall.rest(waiter, until=until, books=self._books)

    def close_lines(self, *, heads: Iterable[str], now: float) -> AbstractSet[str]:
        """To pods of users in doubt who have one under way; and for a while to all of theirs, if others wait.

        Which of these heads may not come in by that (UIDs).
        """
        doubts, lines = self._doubts, self._hall.lines
        for line in lines.values():
            line.closed = {}
        self._doubted.clear()
        if not doubts:
            return frozenset()
        coming = {one.whose for one in self._inside.coming.values() if not self._has_lost(one)}
        rivals = self._rivals()
        for queue, users in self._waiting_in_doubt().items():
            # Once for all users of a queue: after an outage all of them may be in doubt.
            left, could_use_it = self._left_in(queue, rivals=rivals)
            pausing = {user for user in users if doubts.pauses((queue, user), now=now)}
            if pausing and not rivals.of(queue):
                pausing.clear()
            closed = lines[queue].closed
            for user in users:
                who = queue, user
                self._doubted[who] = most = left if could_use_it <= {who} else _NOTHING
                if user in pausing or who in coming:
                    closed[user] = most
        those = filter(None, map(self._hall.standing, heads))
        return {one.uid for one in those if self.is_closed(one) and self.is_doubted(one)}

    def let_in(self, waiter: Waiter) -> None:
        """One has come in: of a user in doubt no other does now that has lost no turn itself."""
        line = self._hall.lines.get(waiter.queue)
        if line and waiter.whose in self._doubts and not self._has_lost(waiter):
            left, could_use_it = self._left_in(waiter.queue, rivals=self._rivals())
            most = left if could_use_it <= {waiter.whose} else _NOTHING
            self._doubted[waiter.whose] = line.closed[waiter.user] = most

    def is_doubted(self, waiter: Waiter) -> bool:
        """Whether its user's turns that led to nothing bear on it: not if it has lost one itself, which tries again."""
        most = self._doubted.get(waiter.whose)
        return most is not None and self._asks_more(waiter, most)

    def is_closed(self, waiter: Waiter) -> bool:
        """Whether its line is closed to its user's pods; where nobody stands there is none."""
        line = self._hall.lines.get(waiter.queue)
        return line is not None and waiter.user in line.closed

    def keeps_waiting(self, waiter: Waiter) -> bool:
        """Whether one that waits may not come now for turns that others have lost."""
        return waiter.uid in self._rest_on or (self.is_closed(waiter) and self.is_doubted(waiter))

    def gone(self, uid: str) -> None:
        """It needs no turn any more."""
        self._rest_on.discard(uid)

    def _has_lost(self, waiter: Waiter) -> bool:
        return waiter.uid in self._tries.times

    def _rivals(self) -> Rivals:
        return Rivals(hall=self._hall, books=self._books, doubted=self._doubts)

    def _asks_more(self, waiter: Waiter, most: Vector) -> bool:
        if self._has_lost(waiter):
            return False
        line, runs = self._hall.lines.get(waiter.queue), self._books.runs
        # Who rests, since it could not be told of its turn, stands in no line, and maybe nobody does.
        mates = line.mates(waiter) if line and waiter.gang else []
        first = mates[: runs.still_needed(waiter)]
        if waiter.uid in {one.uid for one in first} and runs.follows(first):
            return False
        return any(map(gt, summed(mates or [waiter]), most))

    def _left_in(self, queue: str, *, rivals: Rivals) -> tuple[Vector, AbstractSet[Whose]]:
        """What those may ask who come all the same: what of a guarantee is left. And who could use that."""
        tree = self._books.ledger.tree
        owner = next((name for name in tree.path(queue)[:-1] if any(tree.nodes[name].guarantee)), None)
        if owner is None:
            return _NOTHING, set()
        account = self._books.ledger.accounts[owner]
        left = tuple(max(0, due - used) for due, used in zip(account.node.due, account.used, strict=False))
        return left, rivals.of_guarantee(queue, owner=owner)

    def _waiting_in_doubt(self) -> Mapping[str, Sequence[str]]:
        """Users in doubt who wait, by queue."""
        lines, found = self._hall.lines, defaultdict[str, list[str]](list)
        for queue, user in self._doubts.doubted():
            if queue in lines and user in lines[queue].users():
                found[queue].append(user)
        return found
