"""The tables by which places are valued are worked out beside the decisions: 40 to 150 ms, for which nobody waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aliquot_core.clock import Clock
from aliquot_scheduler.deciding.appraiser import Appraiser, Known, Work

# How work is done beside everything else: in a thread, say.
Aside = Callable[[Work], Awaitable[Known]]

_LOOK = 5.0


async def at_once(work: Work) -> Known:
    """Beside nothing: where time is virtual, and in tests."""
    return work()


class TableRenewer:
    """Has the tables of an appraiser renewed when it is time to."""

    def __init__(self, *, appraiser: Appraiser, clock: Clock, aside: Aside) -> None:
        self._appraiser = appraiser
        self._clock = clock
        self._aside = aside

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK)
            if (work := self._appraiser.due()) is not None:
                self._appraiser.renew(await self._aside(work))
