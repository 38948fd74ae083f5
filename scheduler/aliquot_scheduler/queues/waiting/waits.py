"""How long pods of a queue have waited, in all and lately: the one honest word on when the next one's turn may come."""

from __future__ import annotations

from collections.abc import Container, Iterable
from statistics import median

import msgspec

from aliquot_core.instants import seconds_of
from aliquot_core.objects import Pod

# Of so many pods, those that were placed last.
LATELY = 20


class UsualWait(msgspec.Struct, frozen=True, kw_only=True):
    """Half of the last pods waited no longer."""

    pods: int
    seconds: float

    def __str__(self) -> str:
        if self.pods == 1:
            return f"the last pod of this queue waited {self.seconds:.0f} s"
        return f"half of the last {self.pods} pods of this queue waited {self.seconds:.0f} s at most"


def usual_wait(pods: Iterable[Pod]) -> UsualWait | None:
    """From creation to placement, of those that were placed last; None if none was."""
    waits = sorted(found for pod in pods if (found := _placed(pod)))[-LATELY:]
    if not waits:
        return None
    return UsualWait(pods=len(waits), seconds=median(seconds for _, seconds in waits))


class WaitsSoFar:
    """How many were let in, and how many seconds they had waited together."""

    def __init__(self) -> None:
        self.by_queue: dict[str, tuple[int, float]] = {}
        self.of_all: tuple[int, float] = 0, 0.0

    def add(self, queue: str, seconds: float) -> None:
        """One more."""
        count, waited = self.by_queue.get(queue, (0, 0.0))
        self.by_queue[queue] = count + 1, waited + seconds
        self.of_all = self.of_all[0] + 1, self.of_all[1] + seconds

    def keep(self, queues: Container[str]) -> None:
        """Nothing is told of other queues any more: they come and go under ever new names."""
        self.by_queue = {queue: told for queue, told in self.by_queue.items() if queue in queues}


def _placed(pod: Pod) -> tuple[float, float] | None:
    """When it was placed, and how long after its creation."""
    when = next(
        (
            one.last_transition_time
            for one in pod.status.conditions
            if (one.type, one.status) == ("PodScheduled", "True")
        ),
        None,
    )
    placed, created = seconds_of(when), seconds_of(pod.metadata.creation_timestamp)
    return None if placed is None or created is None else (placed, max(0.0, placed - created))
