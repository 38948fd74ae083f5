"""What `aliquot up` writes into its API server before anybody else does: our kinds, webhooks, and a clean slate.

The objects of an earlier run are all there. Nobody of that run lives any more (its processes die with it, and the
journal is locked), so what only said who was alive is put right at once instead of being waited for: who leads, and
nodes that this run does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from aliquot_core.instants import micro_time
from aliquot_core.names import LEADER_LEASE, Names
from aliquot_core.objects import Node, Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import NotFoundError
from aliquot_kube.patches import strategic_patch
from aliquot_kube.questions import Transport
from aliquot_kube.resources import LEASES, NODES, PODS
from aliquot_standalone.installed import webhooks_at, without_webhooks
from aliquot_standalone.manifests import Manifests

log = logging.getLogger(__name__)

NODE_LOST = "NodeLost"


class Installer:
    """Writes as the one who runs the machine."""

    def __init__(self, *, transport: Transport, names: Names) -> None:
        self._manifests = Manifests(transport=transport)
        self._client = KubeClient(transport=transport)
        self._names = names

    async def install(self) -> None:
        """Our kinds and our namespace."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._names.namespace}}
        for one in (*without_webhooks(), namespace):
            await self._manifests.apply(one)

    async def ask_at(self, url: str, *, authority: bytes) -> None:
        """Have the centre asked at this address from now on."""
        for one in webhooks_at(url, authority=authority):
            await self._manifests.apply(one)

    async def free_leadership(self, *, now: float) -> None:
        """Write that whoever led has let go, so that the new centre need not wait for its lease to run out."""
        space, terms = self._names.namespace, 0
        try:
            old = await self._client.get(LEASES, name=LEADER_LEASE, namespace=space)
        except NotFoundError:
            log.debug("nobody has led yet")
        else:
            terms = old.spec.lease_transitions or 0
            await self._client.delete(LEASES, name=LEADER_LEASE, namespace=space)
        metadata = {"name": LEADER_LEASE, "namespace": space}
        spec = {"renewTime": micro_time(now), "leaseTransitions": terms + 1, "leaseDurationSeconds": 1}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        await self._manifests.create(body)

    async def retire_nodes(self, *, keep: Collection[str]) -> list[str]:
        """Remove nodes that are not there any more; their pods are lost, and say so."""
        nodes = [node for node in await self._client.list(NODES) if node.metadata.name not in keep]
        gone = {node.metadata.name for node in nodes}
        for pod in await self._client.list(PODS):
            if pod.spec.node_name and pod.spec.node_name not in keep:
                await self._lose(pod)
        for node in nodes:
            await self._remove(node)
        return sorted(gone)

    async def _lose(self, pod: Pod) -> None:
        space, name = pod.metadata.namespace, pod.metadata.name
        if pod.metadata.deletion_timestamp:
            await self._client.delete(PODS, namespace=space, name=name, uid=pod.metadata.uid, grace_seconds=0)
        elif not pod.ended:
            message = f"node {pod.spec.node_name} is not there any more"
            status = {"phase": "Failed", "reason": NODE_LOST, "message": message}
            patch = strategic_patch({"status": status})
            await self._client.patch(PODS, namespace=space, name=name, patch=patch, subresource="status")

    async def _remove(self, node: Node) -> None:
        name = node.metadata.name
        await self._client.delete(NODES, name=name)
        try:
            await self._client.delete(LEASES, namespace=self._names.namespace, name=self._names.lease(name))
        except NotFoundError:
            log.debug("a node had no lease", extra={"node": name})
