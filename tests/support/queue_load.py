"""A load for benchmarks of queues: two levels of them, and pods of no group that ask more than there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.queue_replay import Job


def two_levels(*, queues: int, nodes: int) -> dict[str, QueueSpec]:
    """Ten queues, and all others below them, each guaranteed its part of half of all on nodes of eight GPUs."""
    guarantee = 100 * 8 * nodes // (2 * queues)
    return {f"org-{number}": QueueSpec() for number in range(10)} | {
        f"q{number:03}": QueueSpec(parent=f"org-{number % 10}", compute=Quota(guarantee=guarantee), namespaces=("*",))
        for number in range(queues)
    }


def lone_pods(*, queues: int, own_shapes: bool) -> Iterator[Job]:
    """One after the other, without end; few shapes, or each its own."""
    chance = Random(2)
    for made in count(1):
        queue = f"q{chance.randrange(queues):03}"
        yield Job(
            name=f"j{made:06}",
            queue=queue,
            user=queue,
            kind="",
            at=float(made),
            runs=1e9,
            compute=chance.choice((25, 50, 75, 100)),
            memory=chance.randrange(1_000, 60_000) if own_shapes else 10_000,
        )
