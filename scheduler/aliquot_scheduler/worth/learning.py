"""The mix as it arrives: each request counts, and counts half as much after so many more have come.

What must always hold: a pod counts once, however often it is seen and however often the centre is started anew. A book
that is read back knows up to which creation time its pods are counted; older ones are not counted again, and of those
after it each is known by its UID. So the order of events, and their repetition, changes nothing.
"""

from __future__ import annotations

from aliquot_core.quantities import WHOLE
from aliquot_scheduler.worth.mix import MOST_SHAPES, Mix, Shape
from aliquot_scheduler.worth.page import Page

# A day's work of a busy cluster. Half the requests of an openb replay: longer learns no better, shorter forgets.
HALF_LIFE = 10_000.0
# Counts that have decayed below this say nothing.
_LEAST = 0.01
# Newer requests weigh more, rather than all older ones less; beyond this weight all are scaled down.
_HEAVY = 1e6


# What is expected before anything is seen counts as so many requests. Without it the first 50 pods of an openb replay,
# placed by best fit, take the last cores beside idle GPUs of small nodes: 0.3 points of `default` for 50 pods.
_EXPECTED = 20.0
# The mix is looked at again when half as many more have come, and at least after so many.
_LOOK_FIRST = 10
_LOOK_AGAIN = 1_000


def next_look(requests: int) -> int:
    """After how many requests tables are worked out anew, if they were now."""
    return requests + min(_LOOK_AGAIN, max(_LOOK_FIRST, requests // 2))


def expected_mix(*, cores_per_gpu: float) -> Mix:
    """What a cluster is built for: GPUs in whole, half and quarter, with their part of the cores."""
    sizes = (WHOLE.value, WHOLE.value // 2, WHOLE.value // 4)
    return Mix.of(
        {Shape(cores=cores_per_gpu * size / WHOLE.value, compute=size, memory=size, gpus=1): 1.0 for size in sizes}
    )


class MixBook:
    """What has arrived so far."""

    def __init__(self, page: Page | None = None, *, half_life: float = HALF_LIFE) -> None:
        page = page or Page()
        self._counts = dict(page.counts)
        self._closed_until = page.until
        self._until = page.until
        self.requests = page.requests
        self._growth = 2.0 ** (1.0 / half_life)
        self._weight = 1.0
        self._seen: set[str] = set()

    @property
    def until(self) -> str:
        """When the newest pod was created that is counted, by the API server's clock; empty if there was none."""
        return self._until

    def seen(self, shape: Shape, *, uid: str, created: str) -> bool:
        """A pod is there; whether it was counted now. `created` is its creation timestamp as Kubernetes writes it."""
        if uid in self._seen or (created and created <= self._closed_until):
            return False
        self._seen.add(uid)
        self._until = max(self._until, created)
        self.count(shape)
        return True

    def gone(self, uid: str) -> None:
        """A pod is gone; its UID never comes again."""
        self._seen.discard(uid)

    def count(self, shape: Shape) -> None:
        """One more request."""
        self.requests += 1
        self._weight *= self._growth
        self._counts[shape] = self._counts.get(shape, 0.0) + self._weight
        if self._weight > _HEAVY or len(self._counts) > 2 * MOST_SHAPES:
            self._settle()

    def mix(self, *, expected: Mix) -> Mix:
        """The mix so far, and what is expected of those to come where little is seen yet."""
        counts = {shape: count / self._weight for shape, count in self._counts.items()}
        seen = sum(counts.values())
        for shape, share in zip(expected.shapes, expected.shares, strict=True):
            counts[shape] = counts.get(shape, 0.0) + _EXPECTED * share
        return Mix.of(counts, requests=seen + 1.0)

    def page(self) -> Page:
        """To be stored."""
        self._settle()
        counts = sorted(self._counts.items(), key=lambda one: -one[1])
        return Page(counts=counts, requests=self.requests, until=self._until)

    def _settle(self) -> None:
        """Scale down, and forget what is hardly seen any more."""
        scaled = sorted(((count / self._weight, shape) for shape, count in self._counts.items()), key=_by_count)
        self._counts = {shape: count for count, shape in scaled[:MOST_SHAPES] if count >= _LEAST}
        self._weight = 1.0


def _by_count(counted: tuple[float, Shape]) -> float:
    return -counted[0]
