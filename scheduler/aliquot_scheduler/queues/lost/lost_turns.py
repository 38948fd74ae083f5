"""What turns led to: the one place that is told, and that knows what follows from it.

A turn keeps room for half a minute. Of pods that nobody can bind each new turn is lost again, so in a cluster that is
idle but for them others would find no room for as long as there are such pods. Of a turn that led to nothing follows:

1. the pod rests, the longer the more it has lost (`rests.py`), and then stands behind its user's pods that have lost
   fewer (`line.py`);
2. those who have lost turns try again few at a time, and in turns (`tries.py`);
3. the other pods of a user who owes what turns have kept for nothing (`doubts.py`) come one by one, since their lines
   are closed meanwhile (`second_turns.py`);
4. where others were sent away for it nobody is for a while, for the pod, for others of its user, or of its queue
   (`claims.py`).

What is known of a user outlives its pods: who deletes them, and makes them anew, is no better off. A user is as
everybody when all is paid that it owes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from aliquot_core.backoff import Random
from aliquot_core.objects import Pod
from aliquot_scheduler.queues.lost.claims import Claims
from aliquot_scheduler.queues.lost.doubts import Debt, Doubts, Kept
from aliquot_scheduler.queues.lost.instants import at_the_next
from aliquot_scheduler.queues.lost.rests import Rests
from aliquot_scheduler.queues.lost.second_turns import SecondTurns
from aliquot_scheduler.queues.lost.tries import Tries
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.inside import Inside
from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Waiter


class LostTurns:
    """What came of all turns; `stand_in_line` is how one does who rests no more."""

    def __init__(self, *, hall: Hall, inside: Inside, books: Books, stand_in_line: Callable[[Waiter], None]) -> None:
        self._inside = inside
        self._books = books
        self.rests = Rests(hall=hall)
        self.doubts = Doubts()
        self.tries = Tries(doubts=self.doubts)
        self.claims = Claims()
        self._second_turns = SecondTurns(
            doubts=self.doubts,
            tries=self.tries,
            hall=hall,
            inside=inside,
            books=books,
            stand_in_line=stand_in_line,
        )

    def __contains__(self, uid: str) -> bool:
        return uid in self.tries.times

    # --- what turns led to -------------------------------------------------------------------------------------------
    def let_in(self, waiter: Waiter) -> None:
        """Its turn has come."""
        self._second_turns.let_in(waiter)

    def brought_in(self, waiter: Waiter, *, now: float) -> None:
        """Others have gone for it, and its turn has come."""
        self.claims.brought_in(waiter, now=now)

    def found(self, uid: str, *, now: float) -> None:
        """The leader before us has let it in, perhaps by sending others away, and it is not bound."""
        self.claims.found(uid, now=now)

    def missed(self, pod: Pod, *, random: Random, now: float) -> float | None:
        """The time of one that is in has led to no binding: until when it rests; None if it waits on as it did.

        To be asked while it is in.
        """
        uid, inside = pod.metadata.uid, self._inside
        if inside.was_adopted(uid):
            self.found(uid, now=now)
        if inside.is_unasked(uid, now=now):
            # kube-scheduler did not come for it, so it lost nothing; it is to be woken.
            self._had_none(uid)
            return None
        rests = self.rests.after_lost(pod, random=random, now=now)
        if rests is None:
            self._had_none(uid)
            return None
        if self.left(uid, now=now):
            self.tries.lost(uid, inside.coming[uid].whose, now=now)
        return at_the_next(now + rests)

    def untold(self, uid: str, *, random: Random, now: float) -> float:
        """It could not be told of its turn: until when it rests."""
        self._had_none(uid)
        return now + self.rests.after_untold(uid, random=random)

    def _had_none(self, uid: str) -> None:
        """It had no turn, after all."""
        self._books.runs.vacancies.given_back(uid)

    def left(self, uid: str, *, now: float) -> bool:
        """It is let in no more, and was not bound: it is gone, or waits by another right, or has lost its turn.

        Whether anything follows: not where nobody could have been bound meanwhile.
        """
        if (waiter := self._inside.coming.get(uid)) is None:
            return False
        lasted = self._inside.lasted(uid, now=now)
        if self.rests.is_nobodys_doing(waiter.pod, since=now - lasted, now=now):
            self._had_none(uid)
            return False
        part = max(waiter.amounts[dim] / max(1, self._books.capacity[dim]) for dim in (COMPUTE, MEMORY))
        kept = Kept(amounts=waiter.amounts, part=part, lasted=lasted)
        self.doubts.came_to_nothing(waiter.whose, kept, pod=waiter.pod.key, again=uid in self, now=now)
        self.claims.lost(waiter)
        self._books.runs.vacancies.settle(uid)
        return True

    def bound(self, waiter: Waiter, *, now: float) -> None:
        """It is as everybody, and pays what its user owes."""
        self.claims.bound(waiter, now=now)
        self.gone(waiter.uid, now=now)
        self.doubts.bound(waiter.uid, waiter.whose, waiter.amounts, now=now)
        if waiter.whose not in self.doubts:
            self.claims.trusts(waiter.whose)

    def placed(self, pod: Pod, *, now: float) -> None:
        """It has a node, whoever gave it that."""
        self.rests.forget(pod.metadata.uid)
        self.rests.heard.placed(pod.spec.scheduler_name, now=now)

    def gone(self, uid: str, *, now: float) -> None:
        """It needs no turn any more, and holds nothing; its user owes as much as before."""
        self.tries.gone(uid)
        self.doubts.gone(uid, now=now)
        self.claims.gone(uid)
        self._second_turns.gone(uid)
        self._books.runs.vacancies.settle(uid)
        self.rests.forget(uid)

    # --- what follows ------------------------------------------------------------------------------------------------
    def tell_time(self, now: float, *, is_cleared_for: Callable[[str], bool]) -> None:
        """Who has paid is as everybody; and who has rested long enough stands in line, if it may try again.

        `is_cleared_for` says of a pod (UID) whether room is made for it: that one may in any case.
        """
        for who, has_paid in self.doubts.tell_time(now).items():
            self.tries.forget(who)
            if has_paid:
                self.claims.trusts(who)
        self.claims.tell_time(now)
        self._second_turns.end_rests(is_cleared_for=is_cleared_for, now=now)

    def close_lines(self, *, heads: Iterable[str], now: float) -> AbstractSet[str]:
        """To users' pods that may not come now; which of these heads of lines they are (UIDs)."""
        return self._second_turns.close_lines(heads=heads, now=now)

    def heard(self, scheduler: str, *, now: float) -> list[Waiter]:
        """It asks for a pod: who gave it up need not rest any longer, if it was never heard before."""
        return self.rests.woken(scheduler, now=now)

    # --- questions ---------------------------------------------------------------------------------------------------
    @property
    def times(self) -> Mapping[str, int]:
        """How many turns each has lost that had room (UIDs)."""
        return self.tries.times

    def missed_by(self, uid: str) -> int:
        """How many turns of a pod that waits have led to nothing, with room or without."""
        return self.rests.lost.get(uid, 0)

    def rests_unheard(self, uid: str) -> bool:
        """Whether it rests since its scheduler was never heard."""
        return self.rests.rests_unheard(uid)

    def unheard_pods(self) -> int:
        """How many rest for that."""
        return self.rests.unheard_pods()

    def doubted(self) -> list[Whose]:
        """All users who are in doubt."""
        return self.doubts.doubted()

    def debt(self, who: Whose, *, now: float) -> Debt:
        """What a user in doubt is told."""
        return self.doubts.debt(who, now=now)

    def is_doubted(self, waiter: Waiter) -> bool:
        """Whether its user's turns that led to nothing bear on it: not if it has lost one itself, which tries again."""
        return self._second_turns.is_doubted(waiter)

    def is_closed(self, waiter: Waiter) -> bool:
        """Whether the others of its user in that queue may not come now."""
        return self._second_turns.is_closed(waiter)

    def keeps_waiting(self, waiter: Waiter) -> bool:
        """Whether one that waits may not come now, whatever there is room for: for turns that others have lost."""
        return self._second_turns.keeps_waiting(waiter)

    def why_nobody_goes(self, waiter: Waiter, *, others: Iterable[Waiter], now: float) -> str:
        """Why nobody is sent away for it now; empty if somebody may be. `others` are those for whom somebody is."""
        return self.claims.why_not(waiter, others=others, now=now)
