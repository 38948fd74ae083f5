"""Who may be shown to a cluster autoscaler, by the sentences of docs/queues.md, worked out from turns and pods."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_scheduler.deciding.turns import Turn
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.queue_stage import Stage

# For so many minutes, in each queue of a walk.
MINUTES = 3
_LASTS = 60.0 * MINUTES


class ShowingsOracle:
    """Since when each is shown whose gate was lifted for that, whatever the leader keeps of it."""

    def __init__(self) -> None:
        # By UID: since when, and as it was then.
        self._since: dict[str, tuple[float, Waiter]] = {}
        self._seen: dict[str, Turn] = {}
        self.new: set[str] = set()
        self.count = 0

    def is_new(self, turn: Turn) -> bool:
        """Whether this turn was not told yet."""
        return self._seen.get(turn.pod.metadata.uid) is not turn

    def told(self, world: Stage, turn: Turn) -> None:
        """One is shown from now on; a second time at the earliest twice as long after the first as that lasted."""
        uid = turn.pod.metadata.uid
        self._seen[uid] = turn
        self.count += 1
        holder = next(one for one in world.queues.waiting() if one.uid == uid)
        before = self._since.get(uid)
        if before and (before[1].queue, before[1].number) == (holder.queue, holder.number):
            assert world.now >= before[0] + 2 * _LASTS, (uid, before[0], world.now)
        self._since[uid] = world.now, holder
        self.new.add(uid)

    def forget(self, uid: str) -> None:
        """It could not be told."""
        self._since.pop(uid, None)

    def clock_back(self) -> None:
        """From here on nobody's time is known."""
        self._since.clear()

    def check(self, world: Stage) -> None:
        """Who is shown is within quota together and beside all that is used, at each queue on the way up."""
        waiting = {waiter.uid: waiter for waiter in world.queues.waiting()}
        for uid in [uid for uid in self._since if uid not in waiting]:
            del self._since[uid]
        shown = [waiting[uid] for uid in world.queues.register.showings.shown]
        _within(world, shown, at=shown)

    def check_new(self, world: Stage) -> None:
        """No gate is lifted by quota that another was shown by whose time runs."""
        waiting = {waiter.uid for waiter in world.queues.waiting()}
        running = [holder for uid, (since, holder) in self._since.items() if since + _LASTS > world.now]
        running = [holder for holder in running if holder.uid in waiting]
        _within(world, running, at=[self._since[uid][1] for uid in self.new])


def _within(world: Stage, some: Sequence[Waiter], *, at: Sequence[Waiter]) -> None:
    """What these ask together, beside all that is used, is within the ceilings above `at`."""
    ledger = world.queues.books.ledger
    for name in {name for one in at for name in ledger.tree.path(one.queue)}:
        below = [one for one in some if name in ledger.tree.path(one.queue)]
        for dimension, ceiling in enumerate(ledger.tree.nodes[name].ceiling):
            # Of models only what it can't do without.
            asked = sum(one.least[dimension] for one in below)
            if any(one.least[dimension] for one in at if name in ledger.tree.path(one.queue)):
                used = ledger.accounts[name].used[dimension]
                assert used + asked <= ceiling, (name, dimension, used, [one.uid for one in below])
