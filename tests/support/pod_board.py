"""An API server's worth of pods for one node, in memory: where a kubelet's pods come from and its statuses go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from aliquot_core.objects import Node, Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified, Synced


def pod(name: str, *, uid: str = "", namespace: str = "default", **spec: Any) -> Pod:
    """A pod from the JSON of its spec."""
    body = {
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"},
        "spec": {"nodeName": "node", **spec},
    }
    return msgspec.convert(body, Pod)


def container(name: str, *command: str, limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A container that runs a command."""
    return {"name": name, "command": list(command), "resources": {"limits": limits or {}}, **more}


def state_of(status: dict[str, Any], name: str = "main") -> dict[str, Any]:
    """The state of one container in a pod's status."""
    statuses = [*status["initContainerStatuses"], *status["containerStatuses"]]
    found: dict[str, Any] = next(one["state"] for one in statuses if one["name"] == name)
    return found


class PodBoard:
    """Pods by uid; remembers every status written."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.statuses: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[str, dict[str, Any]]] = []
        self.removed: list[str] = []
        self.node: Node | None = None
        self.created_nodes: list[dict[str, Any]] = []
        self.node_statuses: list[dict[str, Any]] = []
        self.changed = asyncio.Condition()
        self._watchers: list[asyncio.Queue[Change[Pod]]] = []

    # --- what tests do ---------------------------------------------------------------------------------------------
    def put(self, new: Pod) -> None:
        """Create or change a pod."""
        old = self.pods.get(new.metadata.uid)
        self.pods[new.metadata.uid] = new
        self._tell(Modified(old=old, new=new) if old else Added(new=new))

    def delete(self, name: str, *, grace: int) -> None:
        """Set the deletion timestamp."""
        old = self.pods[f"uid-{name}"]
        metadata = msgspec.structs.replace(
            old.metadata, deletion_timestamp="2026-01-01T00:00:00Z", deletion_grace_period_seconds=grace
        )
        self.put(msgspec.structs.replace(old, metadata=metadata))

    def force_delete(self, name: str) -> None:
        """Take the pod away without a word to its node."""
        self._tell(Deleted(old=self.pods.pop(f"uid-{name}")))

    async def until(self, name: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until a pod's status is such; the status. One that is refused is told of at once: it stays so."""
        uid = f"uid-{name}"

        def such() -> bool:
            status = self.statuses.get(uid)
            if status is None or holds(status):
                return status is not None
            assert "reason" not in status, f"{name} was refused: {status['message']}"
            return False

        async with self.changed:
            await self.changed.wait_for(such)
        return self.statuses[uid]

    async def until_phase(self, name: str, phase: str) -> dict[str, Any]:
        """Wait for a pod's phase; its status."""
        return await self.until(name, lambda status: status["phase"] == phase)

    async def until_removed(self, name: str) -> None:
        """Wait until the kubelet has removed a pod."""
        async with self.changed:
            await self.changed.wait_for(lambda: f"uid-{name}" in self.removed)

    async def until_node(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the node's status is such; the status."""
        async with self.changed:
            await self.changed.wait_for(lambda: bool(self.node_statuses) and holds(self.node_statuses[-1]))
        return self.node_statuses[-1]

    # --- PodSource -------------------------------------------------------------------------------------------------
    async def changes(self) -> AsyncIterator[Change[Pod]]:
        """All pods, then what happens to them."""
        queue: asyncio.Queue[Change[Pod]] = asyncio.Queue()
        for one in self.pods.values():
            queue.put_nowait(Added(new=one))
        queue.put_nowait(Synced(resource_version="1"))
        self._watchers.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.remove(queue)

    # --- StatusSink ------------------------------------------------------------------------------------------------
    async def write_pod_status(self, pod: Pod, status: dict[str, Any]) -> None:
        """Keep the status and echo it as the API server would: a write that changes nothing is no event."""
        uid = pod.metadata.uid
        same = self.statuses.get(uid) == status
        async with self.changed:
            self.statuses[uid] = status
            self.history.append((uid, status))
            self.changed.notify_all()
        if (known := self.pods.get(uid)) is not None and not same:
            self.put(msgspec.structs.replace(known, status=msgspec.convert(status, type(known.status), strict=False)))

    async def remove_pod(self, pod: Pod) -> None:
        """Take the pod away."""
        if (old := self.pods.pop(pod.metadata.uid, None)) is not None:
            self._tell(Deleted(old=old))
        async with self.changed:
            self.removed.append(pod.metadata.uid)
            self.changed.notify_all()

    async def read_node(self, _name: str) -> Node | None:
        """The node as it is."""
        return self.node

    async def create_node(self, node: dict[str, Any]) -> None:
        """Create it."""
        self.created_nodes.append(node)
        self.node = msgspec.convert(node, Node)

    async def write_node_status(self, _name: str, status: dict[str, Any]) -> None:
        """Change its status."""
        async with self.changed:
            self.node_statuses.append(status)
            old = self.node or Node()
            self.node = msgspec.structs.replace(old, status=msgspec.convert(status, type(old.status)))
            self.changed.notify_all()

    def _tell(self, change: Change[Pod]) -> None:
        for queue in self._watchers:
            queue.put_nowait(change)
