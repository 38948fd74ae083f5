"""What `aliquot up` writes into its API server before anybody else: twice is as good as once."""

from __future__ import annotations

import pytest

from aliquot_core.names import LEADER_LEASE, Names
from aliquot_core.objects import Node, ObjectMeta, Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.election import Election, ElectionSettings, Take
from aliquot_kube.patches import strategic_patch
from aliquot_kube.resources import LEASES, MUTATING_WEBHOOKS, NODES, PODS, queues_of
from aliquot_standalone.apiserver.direct import DirectTransport
from aliquot_standalone.installing import Installer
from aliquot_standalone.manifests import Manifests
from support.clocks import VirtualClock
from support.embedded_api import NOW, make_frontend

NAMES = Names()


class Ground:
    """An API server, and whoever writes there."""

    def __init__(self) -> None:
        self.transport = DirectTransport(frontend=make_frontend(), clock=VirtualClock())
        self.client = KubeClient(transport=self.transport)
        self.manifests = Manifests(transport=self.transport)
        self.installer = Installer(transport=self.transport, names=NAMES)

    async def pod(self, name: str, *, node: str = "", phase: str = "") -> None:
        """A pod, where it is bound, and what has become of it."""
        container = {"name": "main", "image": "none", "command": ["true"]}
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}
        await self.manifests.create({"apiVersion": "v1", "kind": "Pod", **body})
        if node:
            await self.client.bind(namespace="default", name=name, node=node)
        if phase:
            patch = strategic_patch({"status": {"phase": phase}})
            await self.client.patch(PODS, namespace="default", name=name, patch=patch, subresource="status")

    async def found(self, name: str) -> Pod:
        """The pod as it is now."""
        return await self.client.get(PODS, namespace="default", name=name)


@pytest.fixture
async def ground() -> Ground:
    """A server on which everything is installed."""
    ground = Ground()
    await ground.installer.install()
    return ground


async def test_what_is_installed_twice_is_there_once(ground: Ground) -> None:
    """A second run finds kind, namespace and webhooks, and has the centre asked at its new address."""
    for port in (1, 2):
        await ground.installer.install()
        await ground.installer.ask_at(f"https://127.0.0.1:{port}", authority=b"somebody")
    assert await ground.client.list(queues_of(NAMES)) == []
    (found,) = await ground.client.list(MUTATING_WEBHOOKS)
    urls = {hook["clientConfig"]["url"] for hook in found.webhooks}
    assert all(url.startswith("https://127.0.0.1:2/") for url in urls)


@pytest.mark.parametrize("terms", [0, 1, 3])
async def test_a_new_centre_may_lead_at_once(ground: Ground, terms: int) -> None:
    """Whoever led is gone: it need not wait until their lease has run out; a term is never given twice."""
    seen = []
    for _ in range(terms + 1):
        await ground.installer.free_leadership(now=NOW)
        lease = await ground.client.get(LEASES, namespace=NAMES.namespace, name=LEADER_LEASE)
        election = Election(identity="new", settings=ElectionSettings(), told_until=NAMES.told_until)
        election.seen(lease, now=100.0)
        assert isinstance(election.step(now=100.0), Take)
        seen.append(lease.spec.lease_transitions or 0)
    assert seen == sorted(set(seen))


async def test_nodes_that_are_gone_take_their_pods_along(ground: Ground) -> None:
    """Who ran there is lost and says so, who was to be deleted is, and nobody else is touched."""
    for name in ("kept", "gone"):
        await ground.client.create(NODES, Node(metadata=ObjectMeta(name=name)))
    lease = {"name": NAMES.lease("gone"), "namespace": NAMES.namespace}
    await ground.manifests.create({"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": lease})
    await ground.pod("lost", node="gone", phase="Running")
    await ground.pod("done", node="gone", phase="Succeeded")
    await ground.pod("going", node="gone", phase="Running")
    await ground.pod("runs", node="kept", phase="Running")
    await ground.pod("waits")
    await ground.client.delete(PODS, namespace="default", name="going")
    assert await ground.installer.retire_nodes(keep={"kept"}) == ["gone"]
    assert [node.metadata.name for node in await ground.client.list(NODES)] == ["kept"]
    assert await ground.client.list(LEASES, namespace=NAMES.namespace) == []
    phases = {pod.metadata.name: pod.status.phase for pod in await ground.client.list(PODS)}
    assert phases == {"lost": "Failed", "done": "Succeeded", "runs": "Running", "waits": "Pending"}
    assert (await ground.found("lost")).status.message == "node gone is not there any more"
