"""The chart with certificates by cert-manager, on a real API server that finds the centre by its Service's name.

Cert-manager is played (`cert_manager.py`), and so is what a kubelet does with a mounted Secret; the centre is a process
with the rights that the chart gives its account.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.extender.verbs import Verb
from cluster.centre_half import Replica
from cluster.cert_manager import CertManager, definitions
from cluster.charts import template
from cluster.guarded import asking
from cluster.harness import binaries
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness, Options
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.errors import ApiError
from cluster.harness.pods import gates
from cluster.installed import NAMES, SCHEDULER, SYSTEM
from support.require import skip_or_fail

VALUES = {"certificates": "cert-manager", "makeNamespace": True}
SERVICE = "aliquot-scheduler"
# A mounted Secret is looked at every ten seconds, unless it is said otherwise.
LOOKS = {"ALIQUOT_WEB_LOOK_AT_FILES": "0.2"}
# What the process is told by the harness, beside what the chart says.
OF_THE_HARNESS = ("ALIQUOT_WEB_", "ALIQUOT_SCHEDULER_ADDRESS")

# So many calls take longer than an API server to notice a changed configuration.
_CALLS = 40


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A control plane of its own, without nodes; there is no network of pods, so it goes by Services' own addresses."""
    if binaries.find("helm") is None:
        skip_or_fail("cluster", "helm is not built: run tests/cluster/binaries/build helm")
    with ClusterHarness(Options(nodes=(), api_server_flags=["--enable-aggregator-routing=false"])) as running:
        yield running


class Mounted:
    """A replica of the centre, with its Secret mounted as its Deployment has it."""

    def __init__(self, cluster: ClusterHarness, manager: CertManager, deployment: Json) -> None:
        self.cluster = cluster
        self._manager = manager
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        (volume,) = deployment["spec"]["template"]["spec"]["volumes"]
        (mount,) = container["volumeMounts"]
        assert mount["readOnly"]
        self._secret = volume["secret"]["secretName"]
        says = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        folder = cluster.folder / "mounted"
        folder.mkdir()
        self.certificate, self.key, self.authority = (
            folder / Path(says[f"ALIQUOT_WEB_{what}"]).relative_to(mount["mountPath"])
            for what in ("CERTIFICATE", "KEY", "AUTHORITY")
        )
        settings = {name: value for name, value in says.items() if not name.startswith(OF_THE_HARNESS)}
        self.replica = Replica(self, name="centre-a", user=SCHEDULER, settings=settings | LOOKS)

    def mount(self) -> None:
        """As the kubelet does a minute or so after a Secret has changed."""
        for name, text in self._manager.files(self._secret).items():
            (self.certificate.parent / name).write_bytes(text)

    def served(self) -> bytes:
        """The certificate that it shows now."""
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((LOOPBACK, self.replica.port)))

    def serves_what_is_mounted(self) -> bool:
        """Whether it has taken it up."""
        return self.served() == ssl.PEM_cert_to_DER_cert(self.certificate.read_text())


@pytest.fixture
def mounted(cluster: ClusterHarness) -> Iterator[Mounted]:
    """All that the chart has, served."""
    for each in definitions():
        cluster.apply(each)
        path = f"/apis/cert-manager.io/v1/{each['spec']['names']['plural']}"
        cluster.wait_for("cert-manager's kinds", partial(is_known, cluster, path))
    objects = template(VALUES)
    (deployment,) = (one for one in objects if (one["kind"], one["metadata"]["name"]) == ("Deployment", SERVICE))
    half = Mounted(cluster, CertManager(cluster.api, namespace=SYSTEM), deployment)
    for each in objects:
        cluster.apply(reaching(each, half.replica.port))
    CertManager(cluster.api, namespace=SYSTEM).act()
    half.mount()
    half.replica.start()
    yield half
    half.replica.process.stop()


def is_known(cluster: ClusterHarness, path: str) -> bool:
    """Whether objects of a kind can be asked for: for a moment the API server knows it, and has no store for it."""
    try:
        return cluster.api.find(path) is not None
    except ApiError:
        return False


def reaching(obj: Json, port: int) -> Json:
    """By the Service's own name, which leads to this machine."""
    if (obj["kind"], obj["metadata"]["name"]) == ("Service", SERVICE):
        return obj | {"spec": {"type": "ExternalName", "externalName": "localhost"}}
    for webhook in obj.get("webhooks", []):
        webhook["clientConfig"]["service"]["port"] = port
    return obj


@pytest.fixture
def manager(cluster: ClusterHarness) -> CertManager:
    """Who issues and renews."""
    return CertManager(cluster.api, namespace=SYSTEM)


def test_with_cert_manager_the_centre_serves_and_takes_up_what_is_renewed(
    cluster: ClusterHarness, manager: CertManager, mounted: Mounted, tmp_path: Path
) -> None:
    """It is trusted throughout, and trusts its callers: also while some know of a new authority, and others not yet."""
    cluster.wait_for("the webhook to be trusted", lambda: not refusal(cluster))
    pid, first = mounted.replica.process.pid, mounted.served()
    assert called(mounted, manager.files("aliquot-kube-scheduler-tls"), tmp_path) != http.client.FORBIDDEN
    assert called(mounted, None, tmp_path) == http.client.FORBIDDEN
    # Its own certificate: nobody's trust changes.
    manager.renew("aliquot-tls")
    manager.inject()
    assert (refusal(cluster), mounted.served()) == ("", first)
    mounted.mount()
    cluster.wait_for("the renewed certificate", mounted.serves_what_is_mounted)
    assert mounted.served() != first
    assert refusal(cluster) == ""
    # The authority; then what it signs, each at its time, and mounted last of all.
    manager.renew("aliquot-authority")
    manager.renew("aliquot-kube-scheduler-tls")
    assert called(mounted, manager.files("aliquot-kube-scheduler-tls"), tmp_path) != http.client.FORBIDDEN
    before = authorities(cluster)
    manager.renew("aliquot-tls")
    manager.inject()
    assert not before & authorities(cluster)
    assert stays_trusted(cluster)
    mounted.mount()
    cluster.wait_for("what the new authority signed", mounted.serves_what_is_mounted)
    assert stays_trusted(cluster)
    assert called(mounted, manager.files("aliquot-kube-scheduler-tls"), tmp_path) != http.client.FORBIDDEN
    assert mounted.replica.process.pid == pid
    # An upgrade leaves the trust alone.
    for each in template(VALUES):
        if "webhooks" in each:
            cluster.apply(reaching(each, mounted.replica.port))
    assert refusal(cluster) == ""


def authorities(cluster: ClusterHarness) -> set[str]:
    """Whom the API server trusts to sign for the webhooks."""
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    found = [cluster.api.get(f"/apis/admissionregistration.k8s.io/v1/{kind}/aliquot") for kind in kinds]
    return {webhook["clientConfig"]["caBundle"] for each in found for webhook in each["webhooks"]}


def stays_trusted(cluster: ClusterHarness) -> bool:
    """Also once the API server has taken in what was injected, which it shows by nothing else than its calls."""
    return not any(refusal(cluster) for _ in range(_CALLS))


def refusal(cluster: ClusterHarness) -> str:
    """Why a pod that asks for a slice would not be let in; else it gets the gate, so the webhook was asked."""
    wanted = asking("a", "default", {"compute": "30", "memory": "4000"})
    try:
        made = cluster.api.request("POST", cluster.api.collection_of(wanted), body=wanted, query={"dryRun": "All"})
    except ApiError as error:
        return str(error)
    assert gates(made) == [NAMES.gate]
    return ""


def called(mounted: Mounted, shown: dict[str, bytes] | None, folder: Path) -> int:
    """What the extender answers to a kube-scheduler that trusts its own `ca.crt`, and shows this certificate."""
    context = ssl.create_default_context(cafile=str(mounted.authority))
    if shown is not None:
        context = ssl.create_default_context(cadata=shown["ca.crt"].decode())
        for name in ("tls.crt", "tls.key"):
            (folder / name).write_bytes(shown[name])
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    connection = http.client.HTTPSConnection(CENTRE, mounted.replica.port)
    plain = socket.create_connection((LOOPBACK, mounted.replica.port), timeout=10)
    with context.wrap_socket(plain, server_hostname=CENTRE) as connection.sock:
        connection.request("POST", f"/extender/{Verb.FILTER.value}", body="{}")
        return connection.getresponse().status
