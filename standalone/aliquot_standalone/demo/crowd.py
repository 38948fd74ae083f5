"""Jobs that come and go by themselves, so that there is something to look at once the story is told."""

from __future__ import annotations

import logging
from random import Random

from aliquot_core.errors import AliquotError
from aliquot_standalone.demo.cast import TEAMS, Act, played_pod
from aliquot_standalone.demo.stage import Stage

log = logging.getLogger(__name__)

_BEGINNING = "job-"
# One after another, in seconds on average; and how long each is at work.
_PAUSE, _SHORTEST, _LONGEST = 1.5, 5.0, 60.0
_SIZES = (10, 20, 30, 50, 50, 100, 100, 200)
# Whoever has ended stays to be looked at, but not all of them.
_KEPT = 20


class Crowd:
    """Submits until cancelled; `chance` is what makes it a crowd."""

    def __init__(self, *, stage: Stage, chance: Random) -> None:
        self._stage = stage
        self._chance = chance

    async def run(self) -> None:
        """A job now and then, and the oldest that have ended are cleared away."""
        number = 0
        while True:
            await self._stage.clock.sleep(self._chance.expovariate(1 / _PAUSE))
            number += 1
            try:
                await self._stage.submit(played_pod(self.act(number), names=self._stage.names))
                await self._tidy()
            except AliquotError as error:
                # A name of an earlier run that is still taken, or a centre that is just being replaced.
                log.info("a job of the crowd was not submitted", extra={"why": str(error)})

    def act(self, number: int) -> Act:
        """The next of them."""
        compute = self._chance.choice(_SIZES)
        return Act(
            team=self._chance.choice(TEAMS),
            name=f"{_BEGINNING}{number:04}",
            compute=compute,
            memory=self._chance.randrange(1_000, 1_000 + 100 * compute),
            seconds=round(self._chance.uniform(_SHORTEST, _LONGEST), 1),
            use=self._chance.randrange(40, 101),
        )

    async def _tidy(self) -> None:
        ended = [pod for pod in await self._stage.pods() if pod.ended]
        ended.sort(key=lambda pod: pod.metadata.creation_timestamp or "")
        await self._stage.remove(ended[:-_KEPT])
