"""A small cluster on which pods are moved: for whoever waits, and off what is degraded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aliquot_scheduler.queues.said.spec import QueueSpec
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

OPEN = {"blue": queue(), "red": queue()}
APART = {"placement": "spread"}
# A pod of such tests has run for ten hours when it is bound: so long a whole card waits until moving a half pays.
LONG = 60_000.0


class MovingStage(ReclaimStage):
    """A cluster on which pods may be moved, an hour after its leader began."""

    def __init__(self, specs: Mapping[str, QueueSpec] | None = None, **more: Any) -> None:
        super().__init__(OPEN if specs is None else specs, **({"moves_per_hour": 10} | more))
        self.consolidate()
        self.consolidate(after=3_600.0)

    def scattered(self, count: int = 2, compute: int = 50, **more: Any) -> None:
        """So many halves, each on a card of its own."""
        for number in range(count):
            self.submit_made(f"half{number}", compute, by=f"job{number}", queue="blue", notes=APART, **more)
            self.run(after=1.0)
        assert len({gpu for number in range(count) for gpu in self.lies(f"half{number}")}) == count

    def lies(self, uid: str) -> list[tuple[str, str]]:
        """On which cards a pod lies."""
        return sorted(self.picture.holdings.of(uid))

    def goes(self) -> list[str]:
        """Whoever is to go is asked, and is gone."""
        asked = self.evict()
        for uid in asked:
            self.gone(uid)
        return sorted(asked)
