"""Who holds a slice of this node: from our word that a container may start until nothing of its pod is left.

What must hold: a slice is not given on while a process of its pod lives, or one may still come. A pod that has ended
(Succeeded, Failed) makes no more processes: its kubelet says so when its work on the pod has come to rest. A pod that
was deleted by force says nothing: its object goes at once, and its kubelet may just be having the runtime make the
container that we let pass. Such a pod holds its slice for `COMING` after our word, though nothing of it is seen.

A node's kubelet as a rule makes a cgroup for each pod, and a sandbox in it before it asks us: then a process of the pod
is seen all the time, and nobody waits for `COMING` to pass. It is for nodes where pods are known by their mounts alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from aliquot_agent.pods.bound_pods import BoundPods
from aliquot_agent.pods.residents import Residents
from aliquot_agent.pods.standing import Standing
from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError

log = logging.getLogger(__name__)

# A look through /proc takes some 20 ms, and a hundred starts may wait for one process to end.
LOOK_FOR_PROCESSES = 1.0
# From our word to a process: 0.2 s as a rule, seconds on a busy machine.
COMING = 10.0


class Memory(Protocol):
    """What outlives the agent."""

    def standing(self) -> dict[str, Standing]:
        """What pods held when their containers last started, by UID; what an agent before us wrote."""
        ...


class SliceHolders:
    """The pods of which something may run, and what they held when it was let start."""

    def __init__(self, *, clock: Clock, residents: Residents, memory: Memory, pods: BoundPods) -> None:
        self._clock = clock
        self._residents = residents
        self._memory = memory
        self._pods = pods
        self._standing: dict[str, Standing] = {}
        # When a container of each last got our word that it may start.
        self._permitted: dict[str, float] = {}
        self._looked_for: set[str] = set()
        self._looked_at = 0.0
        # Of those that are gone: nothing of them lives, and something may come.
        self._coming: frozenset[str] = frozenset()
        # Whether what agents before us gave is known.
        self.remembered = False

    def current(self) -> Mapping[str, Standing]:
        """Who holds what now, by UID."""
        self._remember()
        gone = {uid for uid in self._standing if uid not in self._pods.by_uid or self._pods.ended(uid)}
        now = self._clock.monotonic()
        if gone - self._looked_for or (gone and now >= self._looked_at + LOOK_FOR_PROCESSES):
            self._look_for(gone, now=now)
        return MappingProxyType(self._standing)

    @property
    def coming(self) -> frozenset[str]:
        """Of these, those who will have proved within seconds to hold it or not."""
        return self._coming

    def permit(self, uid: str, standing: Standing) -> None:
        """Count a pod from now on: a container of it was let start."""
        self._standing[uid] = standing
        self._permitted[uid] = self._clock.monotonic()

    def _look_for(self, gone: set[str], *, now: float) -> None:
        """Let go of those of whom nothing lives and nothing comes.

        Also of those who have ended: the kubelet fails a pod that it can't admit again, and only then ends it.
        """
        dead = gone - self._residents.alive(gone)
        self._coming = frozenset(
            uid for uid in dead if not self._pods.ended(uid) and now < self._permitted[uid] + COMING
        )
        for uid in dead - self._coming:
            del self._standing[uid]
            del self._permitted[uid]
        self._looked_for, self._looked_at = gone, now

    def _remember(self) -> None:
        """Take over what the agent before us knew, once; what can't be read now is tried again."""
        if self.remembered:
            return
        try:
            self._standing = self._memory.standing()
        except AliquotError as error:
            log.warning("earlier slices can't be read", extra={"error": str(error)})
            return
        self._permitted = dict.fromkeys(self._standing, self._clock.monotonic())
        self.remembered = True
