"""Who is asked to go, by whatever leader; and disruption budgets, which the simulation's API server does not keep."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot_kube.client import KubeClient
from aliquot_kube.errors import DisruptionBlockedError
from simulation.universe.life import Killed


class Evictions:
    """By name and UID, in the order in which they were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tried: list[tuple[str, str]] = []
        # Of those the ones that were told of to whoever asked: one who dies with the answer on its way never hears it.
        self.taken: list[tuple[str, str]] = []
        # Names of pods that a disruption budget keeps.
        self.kept: set[str] = set()
        # Whether one keeps whoever is asked next.
        self.keeps_next = False
        evict = KubeClient.evict

        async def watched(client: KubeClient, *, namespace: str, name: str, uid: str = "", **more: Any) -> None:
            self.tried.append((name, uid))
            if name in self.kept or self.keeps_next:
                self.keeps_next = False
                raise DisruptionBlockedError("its budget has nothing left", where=f"{namespace}/{name}", status=429)
            try:
                await evict(client, namespace=namespace, name=name, uid=uid, **more)
            except Killed:
                # It was never sent.
                self.tried.remove((name, uid))
                raise
            self.taken.append((name, uid))

        monkeypatch.setattr(KubeClient, "evict", watched)

    def clear(self) -> None:
        """Another story begins."""
        self.tried.clear()
        self.taken.clear()
        self.keeps_next = False
