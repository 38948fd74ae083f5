"""The centre's own certificates on a real API server: replicas race for the Secret, and a webhook is trusted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock
from aliquot_kube.credentials import Credentials, load_configuration
from aliquot_kube.transport import HttpTransport
from aliquot_scheduler.certificates.keeper import CertificateKeeper
from aliquot_scheduler.certificates.keeping import Plan
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.web.tls import TlsFiles
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.errors import ApiError
from support.centre_http import replica

PLAN = Plan(server=CENTRE, hosts=(CENTRE, LOOPBACK), client="system:kube-scheduler")
NAME = "test-certificates"
GROUP = "admissionregistration.k8s.io/v1"


@pytest.fixture
async def client(cluster: ClusterHarness) -> AsyncIterator[KubeClient]:
    """Speak to the API server as the centre does."""
    kubeconfig = str(cluster.kubeconfig())
    transport = HttpTransport(credentials=Credentials(lambda: load_configuration(kubeconfig=kubeconfig)))
    yield KubeClient(transport=transport)
    await transport.close()


def keeper(client: KubeClient, folder: Path, *, namespace: str) -> CertificateKeeper:
    """One replica's."""
    return CertificateKeeper(
        client=client,
        clock=SystemClock(),
        random=random.random,
        namespace=namespace,
        secret="aliquot-tls",
        plan=PLAN,
        folder=folder,
        webhooks=[NAME],
    )


def written(folder: Path) -> dict[str, bytes]:
    """What is in a folder."""
    return {place.name: place.read_bytes() for place in folder.iterdir()}


async def test_replicas_that_race_on_a_real_server_end_with_the_same(
    client: KubeClient, namespace: str, tmp_path: Path
) -> None:
    """Eight at once, where there is no Secret yet."""
    folders = [tmp_path / str(number) for number in range(8)]
    await asyncio.gather(*(keeper(client, folder, namespace=namespace).ensure() for folder in folders))
    first = written(folders[0])
    assert set(first) == {"ca.crt", "tls.crt", "tls.key", "client.crt", "client.key"}
    assert all(written(folder) == first for folder in folders)


@asynccontextmanager
async def webhook(folder: Path) -> AsyncIterator[str]:
    """A webhook that lets everything pass, served with what is in this folder; its URL."""

    async def allow(request: web.Request) -> web.Response:
        review: dict[str, Any] = await request.json()
        answer = {"uid": review["request"]["uid"], "allowed": True}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})

    files = TlsFiles(certificate=f"{folder}/tls.crt", key=f"{folder}/tls.key", authority=f"{folder}/ca.crt")
    async with replica(files, also=[web.post("/mutate", allow)]) as centre:
        yield centre.url("/mutate")


def configuration(kind: str, url: str, namespace: str) -> Json:
    """A webhook about one namespace's ConfigMaps, as somebody installs it: without a caBundle."""
    entry = {
        "name": f"{kind.lower()}.{NAME}.test",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {"url": url},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    }
    metadata = {"name": NAME}
    return {"apiVersion": GROUP, "kind": f"{kind}WebhookConfiguration", "metadata": metadata, "webhooks": [entry]}


@pytest.fixture
def uninstalled(cluster: ClusterHarness) -> Iterator[None]:
    """What the test installs for the whole cluster is gone after it."""
    yield
    for kind in ("mutating", "validating"):
        cluster.api.delete(f"/apis/{GROUP}/{kind}webhookconfigurations/{NAME}")


@pytest.mark.usefixtures("uninstalled")
async def test_the_api_server_trusts_the_webhook_once_it_was_told_to(
    cluster: ClusterHarness, client: KubeClient, namespace: str, tmp_path: Path
) -> None:
    """Before, what is asked about is refused; and nothing else of the configurations is changed."""
    one = keeper(client, tmp_path, namespace=namespace)
    await one.ensure()

    def create() -> Json:
        metadata = {"generateName": "asked-", "namespace": namespace}
        return cluster.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    async with webhook(tmp_path) as url:
        before = [cluster.apply(configuration(kind, url, namespace)) for kind in ("Mutating", "Validating")]
        await asyncio.to_thread(cluster.wait_for, "the webhook to be refused", lambda: refused(create))
        await one.ensure()
        await asyncio.to_thread(cluster.wait_for, "the webhook to be trusted", lambda: not refused(create))
    for was in before:
        now = cluster.current(was)
        for entry in now["webhooks"]:
            del entry["clientConfig"]["caBundle"]
        assert now["webhooks"] == was["webhooks"]


def refused(create: Callable[[], Json]) -> bool:
    """Whether the API server finds no certificate to trust."""
    try:
        create()
    except ApiError as error:
        return "certificate signed by unknown authority" in str(error)
    return False
