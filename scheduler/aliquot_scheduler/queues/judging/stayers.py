"""Who has run for so long that nobody is kept waiting for their end.

Theory of operation. While a head of a line waits, what it waits for is kept from others; that is worth it only if those
in its way end soon. Nobody says when a pod ends, so it is judged by what is known: a pod that has run for longer than
heads may hold others up (`queues.hold`) is not one of those that end within that time. It stays: a head counts on no
room that it has, and where the others' end alone would not let the head in, nothing is kept for that. A pod that says
when it is ended (`activeDeadlineSeconds`) is counted on again once that is near.

So nobody's bound is given up: a head is promised room only where pods end within that time, and such pods never stay.
And a pod that never ends makes others stand back for it once, for that time, and not again and again.

Where pods run for longer that would let a head wait for ever. So one that has waited for long itself counts on the end
of pods that have run for no longer than that: the time doubles, each time that it has waited for so long. Who never
ends is older than any such time sooner or later.

What must always hold: who stays is bound, and was for so long as this leader saw it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from math import inf
from operator import add

from aliquot_core.objects import Pod
from aliquot_scheduler.picture.grid import Cells
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.judging.rules import Cause, Refusal
from aliquot_scheduler.queues.said.tree import ROOT

_NOTHING_YET = (-1, 0)
# From 15 minutes on, ten days.
MOST_DOUBLINGS = 10


class Stayers:
    """Who they are, and what would be left beside them."""

    def __init__(self, *, picture: Picture, after: float) -> None:
        """`after` is how long a pod has run when it stays; 0 where nobody is kept waiting, and so nothing is noted."""
        self._picture = picture
        self._after = after
        self._since: dict[str, float] = {}
        # How often the time has doubled that they have run for, from once on.
        self._staying: dict[str, int] = {}
        # When who begins to stay, or ends to; who is gone by then is passed over.
        self._alarms: list[tuple[float, str, float, bool]] = []
        self._version = 0
        self._held: tuple[int, Ledger | None, Mapping[str, Sequence[int]]] = (-1, None, {})
        self._cells_of: tuple[int, int] = _NOTHING_YET
        self._cells: dict[int, Cells] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._staying

    def runs(self, pod: Pod, *, now: float) -> None:
        """A pod is bound, since now if nothing was known of it."""
        uid, deadline = pod.metadata.uid, pod.spec.active_deadline_seconds
        if not self._after or uid in self._since:
            return
        self._since[uid] = now
        if deadline is None or deadline > 2 * self._after:
            heapq.heappush(self._alarms, (now + self._after, uid, now, True))
        if deadline is not None:
            heapq.heappush(self._alarms, (now + max(0.0, deadline - self._after), uid, now, False))

    def gone(self, uid: str) -> None:
        """It has ended."""
        self._since.pop(uid, None)
        self._set(uid, 0)

    def tell_time(self, now: float) -> None:
        """It is so late."""
        while self._alarms and self._alarms[0][0] <= now:
            _, uid, since, stays = heapq.heappop(self._alarms)
            if self._since.get(uid) != since:
                continue
            times = self._staying.get(uid, 0) + 1 if stays else 0
            self._set(uid, times)
            if stays and times <= MOST_DOUBLINGS:
                heapq.heappush(self._alarms, (since + self._after * 2**times, uid, since, True))
            elif not stays:
                # It ends soon, however long it has run.
                self._since[uid] = inf

    def beside(self, *, hardware: int, doublings: int = 0) -> Cells:
        """The cards as they would be if only those were there who stay; made anew when either has changed.

        For a head that counts on those who have run for the time after which they stay, doubled so often.
        """
        if self._cells_of != (self._version, hardware):
            self._cells_of = self._version, hardware
            self._cells.clear()
        if doublings not in self._cells:
            self._cells[doublings] = self._worked_out(doublings)
        return self._cells[doublings]

    def is_in_vain(self, refusal: Refusal, *, ledger: Ledger, capacity: Sequence[int]) -> bool:
        """Whether who waits for quota would not get it though all others ended, so much those use who stay."""
        if refusal.cause not in {Cause.QUOTA, Cause.HELD_BACK}:
            return False
        dimension = refusal.dimension
        most = capacity[dimension] if refusal.queue == ROOT else ledger.accounts[refusal.queue].node.ceiling[dimension]
        held = self._held_in(ledger).get(refusal.queue)
        return held is not None and held[dimension] + refusal.asked > most - refusal.kept

    def _set(self, uid: str, times: int) -> None:
        if times != self._staying.pop(uid, 0):
            self._version += 1
        if times:
            self._staying[uid] = times

    def _held_in(self, ledger: Ledger) -> Mapping[str, Sequence[int]]:
        """What they hold, by queue; added up once for all heads, since there may be thousands of both."""
        if self._held[:2] != (self._version, ledger):
            leaves: dict[str, Sequence[int]] = {}
            for charge in (charge for uid in self._staying if (charge := ledger.of(uid))):
                so_far = leaves.get(charge.queue)
                leaves[charge.queue] = tuple(map(add, so_far, charge.amounts)) if so_far else charge.amounts
            found: dict[str, Sequence[int]] = {}
            for leaf, amounts in leaves.items():
                for name in ledger.tree.path(leaf):
                    found[name] = tuple(map(add, found[name], amounts)) if name in found else amounts
            self._held = self._version, ledger, found
        return self._held[2]

    def _worked_out(self, doublings: int) -> Cells:
        cells, holdings = self._picture.grid.emptied(), self._picture.holdings
        for uid in (uid for uid, times in self._staying.items() if times > doublings):
            for (node, gpu), claim in holdings.of(uid).items():
                known = self._picture.nodes.get(node)
                if known is None or gpu not in known.columns:
                    continue
                place = known.row, known.columns[gpu]
                cells.compute[place] -= min(claim.compute.value, cells.compute[place])
                cells.memory[place] -= min(claim.memory.value, cells.memory[place])
                cells.holders[place] += 1
                cells.closed[place] |= claim.closes
        return cells
