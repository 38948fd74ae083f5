"""The small kubelet's narrow doors to the API server: where pods come from and where status goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from aliquot_core.objects import Node, Pod
from aliquot_kube.changes import Change


class PodSource(Protocol):
    """The pods bound to one node, as changes; `Synced` after the first whole list."""

    def changes(self) -> AsyncIterator[Change[Pod]]:
        """Follow them for ever."""
        ...


class StatusSink(Protocol):
    """Who writes to the API server; failures are `ClusterError`s and are tried again."""

    async def write_pod_status(self, pod: Pod, status: dict[str, Any]) -> None:
        """Replace a pod's status, leaving conditions of others as they are; a pod that is gone is no error."""

    async def remove_pod(self, pod: Pod) -> None:
        """Delete a pod with grace 0, if it is still this one; a pod that is gone is no error."""

    async def read_node(self, name: str) -> Node | None:
        """Our Node, or None where there is none yet."""

    async def create_node(self, node: dict[str, Any]) -> None:
        """Create our Node; one that is there already is no error."""

    async def write_node_status(self, name: str, status: dict[str, Any]) -> None:
        """Merge into our Node's status, leaving conditions of others as they are."""
