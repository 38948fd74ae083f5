"""Who is shown to a cluster autoscaler, from round to round: who of them is found by `showing.py`, and when it ends.

What is below one uppermost queue is no matter of the others, since no end of cards is taken for given. So a look is
taken only below those where anything has changed since the last one: what is used, asked or held back, who waits, whose
time or pause is over. Elsewhere the same are shown as before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.queues.charged.usage import Forgetting
from aliquot_scheduler.queues.judging.planting import Planting
from aliquot_scheduler.queues.letting_in.apart import Apart
from aliquot_scheduler.queues.letting_in.overdue import LongAwaited, Overdue
from aliquot_scheduler.queues.letting_in.showing import Showing
from aliquot_scheduler.queues.letting_in.showing_order import Held, ShownLately, ShownShares
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.said.tree import Tree
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.showings import MINUTE, Showings, read, what_it_asks
from aliquot_scheduler.queues.waiting.waiter import Waiter


class Growth:
    """Of all queues that grow."""

    def __init__(
        self,
        *,
        names: Names,
        planting: Planting,
        hall: Hall,
        books: Books,
        memory: SweepMemory,
        forgetting: Forgetting,
        patience: float,
    ) -> None:
        """`patience` is how long who awaits a node waits to be shown within quota."""
        self._names = names
        self._planting = planting
        self._hall = hall
        self._books = books
        self._memory = memory
        self._lately = ShownLately(forgetting=forgetting)
        self.showings = Showings()
        self._long_awaited = LongAwaited(patience=patience)
        # What there was below each uppermost queue at the last look.
        self._looked: dict[str, object] = {}
        # Below which of them others may hold quota by being shown than is counted.
        self._unsettled: set[str] = set()
        self._names_below: dict[str, list[str]] = {}
        # Of these those that show pods.
        self._growing_below: dict[str, list[str]] = {}
        # By how much the clock on the wall is ahead.
        self.wall_ahead = 0.0

    def found(self, pod: Pod, *, now: float) -> None:
        """It is shown, or was, if that is written on it: by the leader before us."""
        if holder := self._as_written(pod, now=now):
            before = now - self.showings.since(holder.uid)
            seconds = min(before, MINUTE * self._minutes(holder.queue))
            held, ago = self._held(holder), before - seconds
            self._lately.was_shown(held, tree=self._tree, seconds=seconds, ago=ago, now=now)

    def not_told(self, pod: Pod, *, now: float) -> None:
        """It could not be told that it is shown: if it was before, that is written on it, and has counted."""
        self.forget(pod.metadata.uid)
        self._as_written(pod, now=now)

    def waits(self, pod: Pod, waiter: Waiter | None) -> None:
        """It is to wait; maybe in another queue than before, for something else, or nowhere."""
        uid, lifted = pod.metadata.uid, not pod.spec.scheduling_gates
        is_known = uid in self.showings or lifted == (uid in self.showings.lifted)
        self.showings.waits(uid, lifted=lifted)
        if waiter is None or not self.showings.is_as_shown(waiter):
            self.showings.put_out(uid)
        if is_known and waiter and _counts_as(waiter, self._hall.standing(uid)):
            # Most words on a pod are what we have written on it.
            return
        for one in (waiter, self._hall.find(uid), self.showings.holder(uid)):
            if one is not None:
                self._changed(one.queue)

    def forget(self, uid: str) -> None:
        """It has room, or is gone."""
        if holder := self.showings.holder(uid):
            self._changed(holder.queue)
        self.showings.forget(uid)

    def replant(self, *, now: float) -> None:
        """There are other queues, or other cards."""
        self._names_below.clear()
        self._growing_below.clear()
        self._looked.clear()
        self.showings.replant(self._planting.enrolment.anew)
        self._lately.forget_others(tree=self._tree, now=now)
        self._unsettled |= self._tree.nodes.keys()

    def look_anew(self) -> None:
        """Other hardware, by which gangs may start that could not, or the other way round."""
        self._looked.clear()

    def tell_time(self, now: float) -> None:
        """Whose time is over is shown no more."""
        queues, uids = self.showings.tell_time(now, minutes=self._minutes)
        # Some wait elsewhere by now, and may be shown there.
        for queue in queues | {waiter.queue for waiter in map(self._hall.find, uids) if waiter}:
            self._changed(queue)

    def look(self, *, now: float) -> list[tuple[Waiter, int]]:
        """Who is shown from now on, and how often that makes it."""
        new: list[tuple[Waiter, int]] = []
        growing, overdue = self._growing(), self._overdue(now=now)
        self.showings.none_but_below(growing.keys())
        for top, queues in growing.items():
            there = self._there(top), overdue.get(top)
            if self._looked.get(top) != there:
                self._looked[top] = there
                new += self._look_below(top, queues, overdue=overdue.get(top, set()), now=now)
        # A node is to come for them: nobody is kept waiting for their heads meanwhile. Most of a thousand are no heads.
        for uid in self.showings.shown & self._memory.patience.since.keys():
            self._memory.forget(uid)
        self._settle(now=now)
        return new

    # --- how it is done ----------------------------------------------------------------------------------------------
    def _as_written(self, pod: Pod, *, now: float) -> Waiter | None:
        """Hold quota by what is written on a pod, if that is anything; as it is charged."""
        said = read(pod.metadata.annotations.get(self._names.shown, ""))
        waiter = self._planting.enrolment.waiter(pod)
        if said is None or waiter is None:
            return None
        holder = msgspec.structs.replace(waiter, queue=said.queue or waiter.queue)
        self.showings.found(holder, said, now=now, wall=now + self.wall_ahead)
        self._changed(holder.queue)
        return holder

    def _look_below(
        self, top: str, queues: Sequence[str], *, overdue: Collection[str], now: float
    ) -> list[tuple[Waiter, int]]:
        running, enrolment = self.showings.in_order(self._below(top)), self._planting.enrolment
        apart = Apart(hall=self._hall, books=self._books, enrolment=enrolment)
        shares = ShownShares(self._lately, books=self._books, held=map(self._held, running), now=now)
        look = Showing(
            queues,
            running=running,
            books=self._books,
            hall=self._hall,
            showings=self.showings,
            enrolment=enrolment,
            apart=apart,
            shares=shares,
            now=now,
        )
        shown = look.found()
        beyond = Overdue(
            queues,
            showing=[*running, *shown],
            books=self._books,
            hall=self._hall,
            showings=self.showings,
            enrolment=enrolment,
            shares=shares,
            now=now,
        )
        begun = [waiter for waiter in (*shown, *beyond.found(overdue)) if not self.showings.runs(waiter.uid)]
        new = [(waiter, self._begin(waiter, now=now)) for waiter in begun]
        self.showings.shown_below(top, [waiter.uid for waiter in shown])
        if new:
            self._unsettled.add(top)
        return new

    def _begin(self, holder: Waiter, *, now: float) -> int:
        # As it is read without what it is kept off for now.
        waiter = self._hall.find(holder.uid) or holder
        times = self.showings.times(waiter) + 1
        self.showings.begin(holder, asked=what_it_asks(waiter), now=now, times=times)
        return times

    def _settle(self, *, now: float) -> None:
        for top in self._unsettled & self._tree.nodes.keys():
            held = map(self._held, self.showings.in_order(self._below(top)))
            self._lately.holds(top, held, tree=self._tree, now=now)
        self._unsettled.clear()

    def _growing(self) -> Mapping[str, list[str]]:
        """The queues of which somebody might be shown, by their uppermost one; nearly always there are none."""
        lines = self._hall.lines
        self._sort()
        found = {top: [name for name in names if name in lines] for top, names in self._growing_below.items()}
        return {top: names for top, names in found.items() if names}

    def _there(self, top: str) -> object:
        """What else may be shown by; who asks for it, and whose time runs, is told."""
        accounts, lines = self._books.ledger.accounts, self._hall.lines
        below = [accounts[name] for name in self._below(top)]
        numbers = [(tuple(one.used), tuple(one.asked), tuple(one.held_below)) for one in below]
        there = [lines[one.node.name] for one in below if one.node.name in lines]
        # Whose pods come one at a time since one of them has lost a turn, is known by time alone.
        return numbers, [(len(line), frozenset(line.closed.items())) for line in there]

    def _overdue(self, *, now: float) -> Mapping[str, set[str]]:
        """Whom time alone lets be shown beyond their quota, by their uppermost queue."""
        found = dict[str, set[str]]()
        awaiting = self._hall.asked.awaiting()
        for head in map(self._hall.standing, self._long_awaited.overdue(awaiting, now=now)):
            if head is not None:
                found.setdefault(top_of(head.queue, self._tree), set()).add(head.uid)
        return found

    def _below(self, top: str) -> Sequence[str]:
        """It and all below it."""
        self._sort()
        return self._names_below.get(top, ())

    def _sort(self) -> None:
        """All queues by their uppermost one, until there are others."""
        if self._names_below:
            return
        for name, node in self._tree.nodes.items():
            top = top_of(name, self._tree)
            self._names_below.setdefault(top, []).append(name)
            if node.spec.autoscale and not node.stop:
                self._growing_below.setdefault(top, []).append(name)

    def _changed(self, queue: str) -> None:
        top = top_of(queue, self._tree)
        self._looked.pop(top, None)
        self._unsettled.add(top)

    def _held(self, holder: Waiter) -> Held:
        return holder.user, self._planting.enrolment.charge(holder)

    @property
    def _tree(self) -> Tree:
        return self._books.ledger.tree

    def _minutes(self, queue: str) -> float:
        node = self._tree.nodes.get(queue)
        return (node.spec if node else QueueSpec()).autoscale_minutes


def _counts_as(waiter: Waiter, before: Waiter | None) -> bool:
    """Whether one that stands in a line would be shown, or not, as before: whatever else is new of it."""
    return before is not None and (
        (waiter.queue, waiter.mark, waiter.place, waiter.group, waiter.off)
        == (before.queue, before.mark, before.place, before.group, before.off)
    )


def top_of(queue: str, tree: Tree) -> str:
    """The uppermost queue above one; of one that is gone the root."""
    path = tree.path(queue)
    return path[-2] if len(path) > 1 else path[-1]
