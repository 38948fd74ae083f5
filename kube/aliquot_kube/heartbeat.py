"""The sign of life of one node: its lease, renewed at an interval that may change at run time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from aliquot_core.backoff import Backoff, Random
from aliquot_core.clock import Clock
from aliquot_kube.errors import ApiError
from aliquot_kube.lease import Claim, LeaseKeeper
from aliquot_kube.pacing import sleep_unless
from aliquot_kube.questions import Timeouts

log = logging.getLogger(__name__)

# For the client that beats: a node is out after two missed intervals, so one stuck request must end well before.
HEART_BEAT_TIMEOUTS = Timeouts(connect=2.0, silence=3.0, total=4.0)
# A lease is good for two intervals; so a lost beat is made up for within the next.
_INTERVALS_OF_LIFE = 2
_BACKOFF = Backoff(first=0.5, longest=5.0)


class HeartBeat:
    """Keeps one lease alive until cancelled; `announce` changes what it says at once."""

    def __init__(
        self,
        *,
        keeper: LeaseKeeper,
        clock: Clock,
        random: Random,
        holder: str,
        interval: float,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        self._keeper = keeper
        self._clock = clock
        self._random = random
        self._holder = holder
        self._interval = interval
        self._annotations = dict(annotations or {})
        self._wake = asyncio.Event()
        self._beaten = asyncio.Condition()
        self._wanted = 0
        self._written = 0
        self._failures = 0
        self._renewed_at: float | None = None
        # Who else writes this lease while we live: two agents on one node, say.
        self.rival: str | None = None

    @property
    def interval(self) -> float:
        """Seconds between two beats."""
        return self._interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._interval = seconds
        self._wake.set()

    @property
    def age(self) -> float | None:
        """Seconds since the API server last took a beat; `None` if it never did."""
        return None if self._renewed_at is None else self._clock.monotonic() - self._renewed_at

    async def announce(self, annotations: Mapping[str, str]) -> None:
        """Change what the lease says, and return once the API server has it; `run` must be running."""
        self._annotations |= annotations
        self._wanted += 1
        wanted = self._wanted
        self._wake.set()
        async with self._beaten:
            await self._beaten.wait_for(lambda: self._written >= wanted)

    async def run(self) -> None:
        """Beat until cancelled."""
        due = self._clock.monotonic()
        while True:
            begun = self._clock.monotonic()
            if begun >= due or self._wanted > self._written:
                due = begun + await self._beat()
            # The interval may have shrunk since; and one that grew must not delay a beat that others wait for.
            due = min(due, begun + self._interval)
            left = due - self._clock.monotonic()
            if left > 0:
                await sleep_unless(clock=self._clock, seconds=left, woken=self._wake)

    async def _beat(self) -> float:
        """Write once; the seconds from its beginning to the next."""
        wanted = self._wanted
        claim = Claim(
            holder=self._holder,
            duration=self._interval * _INTERVALS_OF_LIFE,
            wall=self._clock.wall(),
            annotations=self._annotations,
        )
        try:
            await self._keeper.write(claim)
        except ApiError as error:
            self._failures += 1
            log.warning("the heart-beat could not be written", extra={"error": str(error), "failures": self._failures})
            delay = _BACKOFF.delay(failures=self._failures, random=self._random, asked=error.retry_after)
            return min(delay, self._interval)
        self._look_for_a_rival()
        self._failures = 0
        self._renewed_at = self._clock.monotonic()
        async with self._beaten:
            self._written = wanted
            self._beaten.notify_all()
        return self._interval

    def _look_for_a_rival(self) -> None:
        # At our first beat it is our predecessor; later it is somebody who believes to be us.
        if self._renewed_at is not None and self._keeper.taken_from:
            self.rival = self._keeper.taken_from
            about = {"rival": self.rival, "we": self._holder}
            log.error("somebody else writes our heart-beat: are there two agents on this node?", extra=about)
