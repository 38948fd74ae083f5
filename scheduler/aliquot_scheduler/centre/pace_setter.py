"""The leader says how often nodes are to show that they live, in a Lease that agents read now and then.

Whatever else is in force of its settings, or is known of the nodes, and concerns others stands beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_core.pace import interval_for, write_interval
from aliquot_kube.leadership import Leadership
from aliquot_kube.lease import Claim, LeaseKeeper
from aliquot_scheduler.centre.means import NOT_WRITTEN

log = logging.getLogger(__name__)

# Nodes join and leave one by one, and agents read once a minute at most.
LOOK_AGAIN = 15.0


class PaceSetter:
    """Keeps what is written right for the number of nodes."""

    def __init__(
        self,
        *,
        keeper: LeaseKeeper,
        clock: Clock,
        names: Names,
        leadership: Leadership,
        nodes: Callable[[], int | None],
        beside: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Put it together.

        `keeper` writes only while we lead (`FencedTransport`). `nodes` tells how many nodes there are that beat, None
        while that is not known; `beside` tells further annotations.
        """
        self._keeper = keeper
        self._clock = clock
        self._names = names
        self._leadership = leadership
        self._nodes = nodes
        self._beside = beside

    async def run(self) -> None:
        """Write when it changes, while we lead, until cancelled."""
        while True:
            await self._leadership.until(leads=True)
            nodes = self._nodes()
            try:
                if nodes is not None:
                    await self._say(interval_for(nodes))
            except NOT_WRITTEN as error:
                log.warning("the heart-beat interval could not be written", extra={"error": str(error)})
            await self._clock.sleep(LOOK_AGAIN)

    async def _say(self, interval: float) -> None:
        said = {self._names.heartbeat_interval: write_interval(interval), **self._beside()}
        lease = await self._keeper.read()
        if lease is not None and said.items() <= lease.metadata.annotations.items():
            return
        lease = lease or await self._keeper.make()
        claim = Claim(
            holder=self._leadership.identity,
            duration=interval,
            wall=self._clock.wall(),
            annotations=said,
        )
        await self._keeper.put(claim, over=lease)
        log.info("heart-beat interval written", extra={"seconds": interval})
