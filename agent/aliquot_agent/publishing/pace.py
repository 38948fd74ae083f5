"""Beats as often as the centre says; it says so in a Lease, which is read now and then.

Read, not watched: a watch is a thread of each agent and a connection of the API server's for a number that changes
when a hundred nodes join. Whatever can't be read or followed changes nothing: five thousand agents that fall back to
five seconds would be what the interval is there to prevent.
"""

from __future__ import annotations

import logging

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_core.pace import read_interval
from aliquot_kube.errors import ApiError
from aliquot_kube.heartbeat import HeartBeat
from aliquot_kube.lease import LeaseKeeper

log = logging.getLogger(__name__)

# So many intervals from one reading to the next: all agents together read ten times a second at most, and one that
# must slow down does within a minute.
BEATS_PER_READING = 12


class Pace:
    """One agent's heart-beat, at the interval in force."""

    def __init__(self, *, beat: HeartBeat, keeper: LeaseKeeper, names: Names, clock: Clock, random: Random) -> None:
        self._beat = beat
        self._keeper = keeper
        self._names = names
        self._clock = clock
        self._random = random

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
            except ApiError as error:
                log.warning("the heart-beat interval could not be read", extra={"error": str(error)})
            # A thousand agents that start together shall not read together for ever.
            await self._clock.sleep(self._beat.interval * BEATS_PER_READING * (0.75 + self._random() / 4))

    async def _follow(self) -> None:
        lease = await self._keeper.read()
        if lease is None:
            return
        text = lease.metadata.annotations.get(self._names.heartbeat_interval, "")
        interval = read_interval(text)
        if interval is None:
            log.warning("the heart-beat interval makes no sense", extra={"said": text[:80]})
        elif interval != self._beat.interval:
            log.info("beats at another interval", extra={"seconds": interval, "before": self._beat.interval})
            self._beat.interval = interval
