"""Who is shown to a cluster autoscaler, from round to round: who of them is found by `showing.py`, and when it ends.

Whoever is looked at stands apart meanwhile, charged and out of its line, so that the next one is judged beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.queues.judging.planting import Planting
from aliquot_scheduler.queues.letting_in.showing import Showing, growing
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.showings import Showings, World
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter


class Growth:
    """Of all queues that grow; `stand_again` is how one stands in its line as before who stood apart."""

    def __init__(
        self,
        *,
        names: Names,
        planting: Planting,
        hall: Hall,
        books: Books,
        memory: SweepMemory,
        stand_again: Callable[[Waiter], None],
    ) -> None:
        self._names = names
        self._planting = planting
        self._hall = hall
        self._books = books
        self._memory = memory
        self._stand_again = stand_again
        self.showings = Showings()
        # By how much the clock on the wall is ahead.
        self.wall_ahead = 0.0

    def found(self, pod: Pod, *, now: float) -> None:
        """It is shown, or was, if that is written on it: by the leader before us, or since when we were not heard."""
        said = pod.metadata.annotations.get(self._names.shown, "")
        self.showings.found(pod.metadata.uid, said, now=now, wall=now + self.wall_ahead)

    def waits(self, pod: Pod, waiter: Waiter | None) -> None:
        """It is to wait; maybe in another queue than before, for something else, or nowhere."""
        if waiter is None:
            self.showings.forget(pod.metadata.uid)
            return
        self.showings.waits(waiter.uid, lifted=not pod.spec.scheduling_gates)
        was = self._hall.find(waiter.uid)
        if was is not None and (was.queue, was.number) != (waiter.queue, waiter.number):
            self.showings.nobody_is_sure()

    def tell_time(self, now: float) -> None:
        """Whose time is over is shown no more."""
        self.showings.tell_time(now, minutes=self._minutes, world=self._world)

    def look(self, *, now: float) -> list[tuple[Waiter, int]]:
        """Who is shown from now on, and how often that makes it."""
        if not (queues := growing(self._hall, self._books.ledger.tree)):
            self.showings.nobody_is_sure()
            return []
        look = Showing(
            queues,
            books=self._books,
            hall=self._hall,
            showings=self.showings,
            without=self._planting.enrolment.without,
            world=self._world,
            now=now,
        )
        shown = self._let_stand_apart(look.without_gates())
        out = list(look.put_out())
        for waiter in out:
            self._set_apart(waiter)
        shown += self._let_stand_apart(look.new())
        for waiter in (*shown, *out):
            self._stand_again(waiter)
        return self._begin(shown, look, now=now)

    def _begin(self, shown: list[Waiter], look: Showing, *, now: float) -> list[tuple[Waiter, int]]:
        self.showings.shown = frozenset(waiter.uid for waiter in shown)
        for waiter in shown:
            # A node is to come for it: nobody is kept waiting for it meanwhile.
            self._memory.forget(waiter.uid)
        new = [(waiter, look.times(waiter)) for waiter in shown if not self.showings.runs(waiter.uid)]
        for waiter, times in new:
            self.showings.begin(waiter.uid, now=now, times=times)
        return new

    def _let_stand_apart(self, candidates: Iterator[Candidate]) -> list[Waiter]:
        found: list[Waiter] = []
        for candidate in candidates:
            for member in candidate.members:
                self._set_apart(member)
            self._hall.gang_changed(candidate.first, books=self._books)
            found += candidate.members
        return found

    def _set_apart(self, waiter: Waiter) -> None:
        self._hall.leave(waiter.uid, books=self._books)
        self._books.put(waiter, self._planting.enrolment.charge(waiter))

    @property
    def _world(self) -> World:
        return self._planting.count, tuple(self._books.capacity)

    def _minutes(self, uid: str) -> float:
        waiter, nodes = self._hall.find(uid), self._books.ledger.tree.nodes
        node = nodes.get(waiter.queue) if waiter else None
        return (node.spec if node else QueueSpec()).autoscale_minutes
