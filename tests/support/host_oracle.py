"""What queues hold of nodes' CPU and memory, counted by hand: by what pods and queues say, not by what is charged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol

from aliquot_core.objects import Pod
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.turns import Queues

# Every amount that walks know, in thousandths of a CPU and in GiB; what is not said is no request, or no limit.
NO_LIMIT = 10**9
CPU = {"500m": 500, "1": 1_000, "1500m": 1_500, "2": 2_000, "3": 3_000}
MEMORY = {"1Gi": 1, "2Gi": 2, "4Gi": 4}


class _World(Protocol):
    queues: Queues
    pods: dict[str, Pod]
    specs: dict[str, QueueSpec]


class HostSums:
    """By queue, with all below it: what those hold together who are charged, and what it may have."""

    def __init__(self, world: _World) -> None:
        self._tree = world.queues.books.ledger.tree
        self._limits = {name: _limits(spec) for name, spec in world.specs.items()}
        self._sums: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for uid, charge in world.queues.books.ledger.charges().items():
            cpu, memory = asked([world.pods[uid]])
            for name in self._tree.path(charge.queue):
                self._sums[name] = self._sums[name][0] + cpu, self._sums[name][1] + memory

    def check_next(self, after: HostSums) -> None:
        """Whoever was let in since took no queue over its limit; one that an edit has put over it takes nobody."""
        for name, limits in after._limits.items():
            for was, now, limit in zip(self._sums[name], after._sums[name], limits, strict=True):
                assert now <= max(was, limit), (name, was, now, limit)

    def may_have(self, queue: str, pods: Iterable[Pod]) -> bool:
        """Whether these may be in that queue together where nobody else is."""
        wants = asked(pods)
        limits = [self._limits[name] for name in self._tree.path(queue) if name in self._limits]
        return all(want <= limit for both in limits for want, limit in zip(wants, both, strict=True))


def asked(pods: Iterable[Pod]) -> tuple[int, int]:
    """CPU and memory, of all of them."""
    said = [pod.spec.containers[0].resources.requests for pod in pods]
    cpu = sum(CPU[str(one["cpu"])] for one in said if "cpu" in one)
    return cpu, sum(MEMORY[str(one["memory"])] for one in said if "memory" in one)


def _limits(spec: QueueSpec) -> tuple[int, int]:
    cpu, memory = spec.hosts.cpu, spec.hosts.memory
    return NO_LIMIT if cpu is None else CPU[str(cpu)], NO_LIMIT if memory is None else MEMORY[str(memory)]
