"""Sends back what is left of gangs that can't run, and holds cards for nothing: the gang waits as a whole then.

Who they are is asked anew before each is asked to go: meanwhile the one that was missing may have come.
"""

from __future__ import annotations

from functools import partial

from aliquot_core.objects import Pod
from aliquot_scheduler.centre.evictions import Answer, Evictions
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.put_off import PutOff
from aliquot_scheduler.queues.telling.notices import Notice
from aliquot_scheduler.queues.turns import Queues

_LOOK = 2.0
# Beside all others that are asked to go.
_BETWEEN = 0.1
# A pod that was asked to go may take its time, or a disruption budget may forbid it.
_ASK_AGAIN = 30.0
_ALL = "all groups"
_WHY = Notice(
    reason="GangBroken",
    message="too few of those who belong together run, and the others can't follow: they are to start anew together",
)


class GangReturner:
    """Asks them to go, for whoever leads."""

    def __init__(self, *, turns: Queues, means: Means, evictions: Evictions) -> None:
        self._turns = turns
        self._clock = means.clock
        self._evictions = evictions
        self._why_not = means.why_not
        # When each was asked (by its UID).
        self._asked: dict[str, float] = {}
        self._unfound = PutOff(what="which groups can't go on could not be found", means=means)
        # How many went.
        self.evicted = 0

    @property
    def untold(self) -> int:
        """How often they could not be found."""
        return self._unfound.count

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK)
            self._unfound.look_begins()
            while not self._why_not() and (pod := self._next()) is not None:
                self._asked[pod.metadata.uid] = self._clock.monotonic()
                self.evicted += await self._evictions.ask(pod, why=_WHY) is Answer.TAKEN
                await self._clock.sleep(_BETWEEN)

    def _next(self) -> Pod | None:
        now = self._clock.monotonic()
        found = self._unfound.attempt(_ALL, partial(self._turns.stale_gangs, now=now), of=_ALL)
        stale = {pod.metadata.uid: pod for pod in found or ()}
        self._asked = {uid: when for uid, when in self._asked.items() if uid in stale}
        return next((pod for uid, pod in stale.items() if now - self._asked.get(uid, -_ASK_AGAIN) >= _ASK_AGAIN), None)
