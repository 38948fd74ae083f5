"""Our client against a real kube-apiserver: the shared contract, and what only a real one does."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Synced
from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock
from aliquot_kube.credentials import Credentials, load_configuration
from aliquot_kube.errors import DisruptionBlockedError, ForbiddenError, Status
from aliquot_kube.mirror import Mirror
from aliquot_kube.resources import NODES, PODS
from aliquot_kube.transport import HttpTransport, Question
from aliquot_kube.wire import Decoder
from cluster.harness.cluster import ClusterHarness, Options
from cluster.harness.credentials import ADMIN
from conformance.contracts.kube_client import KubeClientContract, Told, client, running, transport
from conformance.contracts.space import Space
from support.http_api import HttpApi

__all__ = ["TestKubeClient", "client", "transport"]


def api_of(cluster: ClusterHarness) -> HttpApi:
    """Speak plainly to a cluster's API server."""
    credentials = cluster.credentials
    return HttpApi(
        url=cluster.control_plane.server, token=credentials.tokens[ADMIN], certificate=credentials.certificate
    )


@pytest.fixture(scope="module")
def api_under_test(cluster: ClusterHarness) -> HttpApi:
    """Give the real server to the contract."""
    return api_of(cluster)


@pytest.fixture
def cluster_to_kill(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A control plane of the test's own, without nodes: others shall not feel what is done to it."""
    with ClusterHarness(Options(nodes=())) as running_cluster:
        yield running_cluster


@pytest.fixture
def space(api_under_test: HttpApi) -> Iterator[Space]:
    """Give the test a namespace of its own."""
    made = Space.make(api_under_test)
    yield made
    api_under_test.delete(made.path)


class TestKubeClient(KubeClientContract):
    """Against a real server."""


def transport_as(cluster: ClusterHarness, *, token: str = "") -> HttpTransport:
    """Speak through a kubeconfig, as `aliquot` does outside a pod."""
    kubeconfig = str(cluster.kubeconfig(token=token) if token else cluster.kubeconfig())
    return HttpTransport(credentials=Credentials(lambda: load_configuration(kubeconfig=kubeconfig)))


async def test_kubeconfig_leads_to_the_cluster(cluster: ClusterHarness) -> None:
    """The harness's kubeconfig, TLS and token in it, shows the nodes."""
    made = transport_as(cluster)
    nodes = await KubeClient(transport=made).list(NODES)
    await made.close()
    assert {node.metadata.name for node in nodes} >= {"node1", "node2"}


async def test_service_account_without_the_right_is_told_which(cluster: ClusterHarness, namespace: str) -> None:
    """A 403 names the account, the verb and the resource in the API server's own words."""
    made = transport_as(cluster, token=cluster.service_account_token(namespace, "default"))
    with pytest.raises(ForbiddenError, match=rf"{namespace}:default.*cannot list resource \"pods\""):
        await KubeClient(transport=made).list(PODS, namespace=namespace)
    await made.close()


async def test_silent_watch_over_tls_is_left_at_once(transport: HttpTransport) -> None:
    """Cancelling a watch on which nothing happens takes no time."""
    question = Question(method="GET", path=PODS.collection("default"), query={"watch": "true"})
    # Whoever waited for the server to end it would wait for half an hour and more.
    async with asyncio.timeout(60), transport.stream(question):
        pass
    async with asyncio.timeout(60):
        await transport.close()


async def test_eviction_respects_a_disruption_budget(space: Space, client: KubeClient) -> None:
    """A pod that a PodDisruptionBudget protects is not evicted, and the error says so."""
    space.create_pod("one", labels={"app": "one"})
    await client.bind(namespace=space.name, name="one", node="nowhere")
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "one"}}}}
    space.api.post(f"/apis/policy/v1/namespaces/{space.name}/poddisruptionbudgets", budget).ok()
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    space.api.patch(f"{space.pods}/one/status", ready).ok()
    with pytest.raises(DisruptionBlockedError):
        await client.evict(namespace=space.name, name="one")


async def test_mirror_lives_through_an_api_server_that_is_killed(cluster_to_kill: ClusterHarness) -> None:
    """While the API server is away the copy stays; when it is back, what is new arrives, and nothing comes twice."""
    space = Space.make(api_of(cluster_to_kill))
    made = transport_as(cluster_to_kill)
    mirror = Mirror(transport=made, clock=SystemClock(), random=lambda: 0.5, resource=PODS, namespace=space.name)
    told = Told()
    mirror.subscribe(told.take)
    await asyncio.to_thread(space.create_pod, "before")
    async with running(asyncio.create_task(mirror.run())):
        await mirror.synced()
        await asyncio.to_thread(cluster_to_kill.control_plane.api_server.restart, sig=signal.SIGKILL)
        assert list(mirror.objects) == [f"{space.name}/before"]
        await asyncio.to_thread(space.create_pod, "after")
        await told.until(lambda: f"{space.name}/after" in mirror.objects)
    assert [type(change) for change in told.changes if not isinstance(change, Synced)] == [Added, Added]
    # A server that has just started remembers nothing from before: the real 410, as the reflector understands it.
    question = Question(method="GET", path=PODS.collection(), query={"watch": "true", "resourceVersion": "1"})
    async with made.stream(question) as lines:
        line = Decoder(Pod).line(await anext(lines))
    assert isinstance(line, Status)
    assert line.code == HTTPStatus.GONE
    await made.close()
