"""Who may be shown to a cluster autoscaler, by the sentences of docs/queues.md, worked out from turns and pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import msgspec

from aliquot_scheduler.deciding.turns import Turn
from aliquot_scheduler.queues.waiting.showings import Asked, read, what_it_asks
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.centre import NAMES, WALL
from support.queue_stage import Stage

# For so many minutes, in each queue of a walk.
MINUTES = 3
_LASTS = 60.0 * MINUTES
replace = msgspec.structs.replace


class _Shown(NamedTuple):
    """One that was shown: since when, the how manieth time, and as it was then."""

    since: float
    times: int
    holder: Waiter
    # Whatever a clock says that is set back afterwards.
    over: bool = False

    @property
    def pause(self) -> float:
        """When the pause after it is over."""
        return self.since + _LASTS + _LASTS * 2.0 ** (self.times - 1)


class ShowingsOracle:
    """Since when each is shown whose gate was lifted for that, whatever the leader keeps of it."""

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._waits_since: dict[str, float] = {}
        # By UID; and by what was asked what was shown in vain, whatever has become of the pod.
        self._of: dict[str, _Shown] = {}
        self._in_vain: dict[Asked, list[_Shown]] = {}
        self._seen: dict[str, Turn] = {}
        self.new: set[str] = set()
        self.count = 0
        # Who of these though others used the quota; whoever looks twice at once tells who it was at first.
        self.beyond: set[str] = set()
        # So many are shown at a time below an uppermost queue.
        self.most = 100

    def is_new(self, turn: Turn) -> bool:
        """Whether this turn was not told yet."""
        return self._seen.get(turn.pod.metadata.uid) is not turn

    def told(self, world: Stage, turn: Turn) -> None:
        """One is shown from now on: once more than before, and not in the pause after that."""
        uid, now = turn.pod.metadata.uid, world.now
        holder = next(one for one in world.queues.waiting() if one.uid == uid)
        before = [*self._in_vain.get(what_it_asks(holder), ())]
        assert all(now >= one.pause for one in before), (uid, before, now)
        before += [self._of[uid]] if uid in self._of else []
        assert turn.shown == 1 + max((one.times for one in before), default=0), (uid, turn.shown, before)
        self._seen[uid] = turn
        self.count += 1
        self._of[uid] = _Shown(now, turn.shown, holder)
        self.new.add(uid)

    def forget(self, world: Stage, uid: str) -> None:
        """It could not be told: if it was shown before, that is on the pod."""
        del self._of[uid]
        self._read(world, uid)

    def led_anew(self, world: Stage) -> None:
        """Another leader knows what is written on pods."""
        self._of.clear()
        self._in_vain.clear()
        for uid, pod in world.pods.items():
            if not pod.spec.scheduling_gates and not pod.spec.node_name:
                self._read(world, uid)

    def _read(self, world: Stage, uid: str) -> None:
        pod, register = world.pods[uid], world.queues.register
        said, waiter = read(pod.metadata.annotations.get(NAMES.shown, "")), register.enrolment.waiter(pod)
        if said and waiter:
            holder = register.enrolment.anew(replace(waiter, queue=said.queue))
            self._of[uid] = _Shown(min(world.now, said.since - WALL), said.times, holder)

    def check(self, world: Stage) -> None:
        """Who is shown is within quota together and beside all that is used, at each queue on the way up."""
        waiting = {waiter.uid: waiter for waiter in world.queues.waiting()}
        for uid in [uid for uid in self._of if uid not in waiting]:
            del self._of[uid]
        self._waits_since = {uid: self._waits_since.get(uid, world.now) for uid in waiting}
        shown = [waiting[uid] for uid in world.queues.register.showings.shown]
        _within(world, shown, at=shown)

    def tell_time(self, now: float) -> None:
        """A round begins: whose time is over was shown in vain, if it waits yet."""
        for uid, one in self._of.items():
            if not one.over and one.since + _LASTS <= now:
                self._of[uid] = one._replace(over=True)
                self._in_vain.setdefault(what_it_asks(one.holder), []).append(one)

    def check_looked(self, world: Stage) -> None:
        """At once after a look: whose time is over is not shown, nor half a group, nor more than a list holds."""
        waiting = {waiter.uid: waiter for waiter in world.queues.waiting()}
        shown = world.queues.register.showings.shown
        for uid, one in self._of.items():
            assert uid not in shown or not one.over, (uid, one.since, world.now)
        self._check_groups(world, [waiting[uid] for uid in shown])
        self._check_first(waiting, shown)

    def _check_groups(self, world: Stage, shown: Sequence[Waiter]) -> None:
        tree, let_in = world.queues.books.ledger.tree, world.queues.books.let_in
        together = Counter(one.gang for one in shown if one.group)
        for one in shown:
            if one.group:
                assert together[one.gang] >= one.group.minimum - len(let_in.get(one.gang or ("", "", 0, 0, "", ""), ()))
        for top, count in Counter(tree.path(one.queue)[-2] for one in shown).items():
            new = [one for one in shown if one.uid in self.new and tree.path(one.queue)[-2] == top]
            # A group is shown whole.
            last = max((together[one.gang] if one.group else 1 for one in new), default=count)
            assert count - last < self.most, top

    def _check_first(self, waiting: dict[str, Waiter], shown: set[str]) -> None:
        """Of two whose time runs and who ask the same, the first one that was shown goes first."""
        run = [one for one in self._of.values() if one.holder.uid in waiting and not one.holder.group]
        same = [one for one in run if what_it_asks(waiting[one.holder.uid]) == what_it_asks(one.holder)]
        for one, other in combinations(sorted(same, key=lambda one: (one.since, one.holder.uid)), 2):
            if what_it_asks(one.holder) == what_it_asks(other.holder) and other.holder.uid in shown:
                beyond = one.since == other.since and one.holder.uid in self.beyond
                over = one.holder.uid in shown or one.pause < other.since or beyond
                assert over, (one, other)

    def check_new(self, world: Stage) -> None:
        """No gate is lifted by quota that another was shown by whose time runs."""
        waiting = {waiter.uid for waiter in world.queues.waiting()}
        anew = world.queues.register.enrolment.anew
        running = [one.holder for one in self._of.values() if not one.over]
        running = [anew(holder) for holder in running if holder.uid in waiting]
        self.beyond |= self.new - world.queues.register.showings.shown
        before = [holder for holder in running if holder.uid not in self.new & self.beyond]
        _within(world, before, at=[anew(self._of[uid].holder) for uid in self.new - self.beyond])
        beyond = [anew(self._of[uid].holder) for uid in self.new & self.beyond]
        _within(world, running, at=beyond, beside_used=False)
        self._check_overdue(world, beyond)

    def _check_overdue(self, world: Stage, beyond: Sequence[Waiter]) -> None:
        """Only who waits for long is shown though others use the quota, or a group of such, and awaits a node."""
        together: dict[object, list[Waiter]] = {}
        for one in beyond:
            together.setdefault(one.gang or one.uid, []).append(one)
        for members in together.values():
            assert world.queues.register.enrolment.awaits_node(members), members
            since = min(self._waits_since.get(one.uid, world.now) for one in members)
            assert world.now - since >= self._patience, (members, since, world.now)


def _within(world: Stage, some: Sequence[Waiter], *, at: Sequence[Waiter], beside_used: bool = True) -> None:
    """What these ask together, beside all that is used or alone, is within the ceilings above `at`."""
    ledger = world.queues.books.ledger
    for name in {name for one in at for name in ledger.tree.path(one.queue)}:
        below = [one for one in some if name in ledger.tree.path(one.queue)]
        for dimension, ceiling in enumerate(ledger.tree.nodes[name].ceiling):
            # Of models only what it can't do without.
            asked = sum(one.least[dimension] for one in below)
            if any(one.least[dimension] for one in at if name in ledger.tree.path(one.queue)):
                used = ledger.accounts[name].used[dimension] if beside_used else 0
                assert used + asked <= ceiling, (name, dimension, used, [one.uid for one in below])
