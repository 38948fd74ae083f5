"""Nodes and pods for the scheduling loop, and an extender that answers as a test says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec

from aliquot_core.objects import Node
from aliquot_standalone.scheduling.attempt import Answer, Ask
from aliquot_standalone.scheduling.demands import Demand, demand_of
from aliquot_standalone.scheduling.extender import ExtenderError
from aliquot_standalone.scheduling.objects import PlacedPod

OURS = "aliquot.dev/compute"
Json = dict[str, Any]


def node(name: str, *, labels: Json | None = None, spec: Json | None = None, ready: str = "True", **room: str) -> Json:
    """A node with so much of each; what is not named there is enough of."""
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", OURS: "800", **room}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec or {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def pod(name: str, *, spec: Json | None = None, metadata: Json | None = None, **asked: str) -> Json:
    """A pod of one container that asks so much."""
    container = {"name": "main", "image": "none:1", "resources": {"limits": asked}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **(metadata or {})},
        "spec": {"containers": [container], **(spec or {})},
    }


def placed_pod(name: str, **parts: Any) -> PlacedPod:
    """The same, as the loop reads it."""
    return msgspec.convert(pod(name, **parts), PlacedPod)


def place(name: str, **parts: Any) -> Node:
    """A node, as the loop reads it."""
    return msgspec.convert(node(name, **parts), Node)


def demand(**parts: Any) -> Demand:
    """What such a pod demands."""
    return demand_of(placed_pod("one", **parts), managed=[OURS])


@dataclass
class ScriptedExtender:
    """Offers all nodes but those that it was told to refuse, and remembers what it was asked."""

    refused: dict[str, str] = field(default_factory=dict)
    grades: dict[str, int] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str, list[str]]] = field(default_factory=list)
    # Said in place of the next answers, one after another.
    errors: list[str] = field(default_factory=list)
    # Set: an answer waits for it.
    hold: asyncio.Event | None = None
    # Makes the binding's write, where there is an API server.
    writer: Any = None

    async def ask(self, pod: PlacedPod, ask: Ask) -> Answer:
        """Answer as set."""
        self.asked.append((ask.verb, pod.metadata.name, list(ask.nodes)))
        if self.hold is not None:
            await self.hold.wait()
        self._raise_if_told()
        if ask.verb == "prioritize":
            return Answer(grades=self.grades)
        failed = {name: why for name, why in self.refused.items() if name in ask.nodes}
        return Answer(nodes=[name for name in ask.nodes if name not in failed], failed=failed)

    async def bind(self, pod: PlacedPod, *, node: str) -> None:
        """Note it, and write it."""
        self.asked.append(("bind", pod.metadata.name, [node]))
        self._raise_if_told()
        self.bound[pod.metadata.name] = node
        if self.writer is not None:
            meta = pod.metadata
            await self.writer.bind(namespace=meta.namespace, name=meta.name, node=node, uid=meta.uid)

    def _raise_if_told(self) -> None:
        if self.errors:
            raise ExtenderError(self.errors.pop(0))
