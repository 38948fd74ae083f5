"""All of Aliquot in the test cluster as its manifests install it, the centre and its kube-scheduler among them.

Beside what `installed.py` changes: replicas of the centre can't have addresses of their own here, so the pods of each
node get one of the loopback network, and the API server and kube-scheduler call a door in place of the Service.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from cluster.charts import template
from cluster.harness import binaries
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.images import Image
from cluster.harness.ports import free_port
from cluster.installed import MANIFESTS, SYSTEM, Installed, set_variables
from cluster.product_image import CENTRE_IMAGE, HOME, ROOT, centre_image
from cluster.service_door import ServiceDoor

UNINSTALL = ROOT / "daemonset" / "uninstall.sh"
CENTRE = "aliquot-scheduler"
KUBE_SCHEDULER = "aliquot-kube-scheduler"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
_SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{SYSTEM}/endpointslices"
# 12 s on a quiet machine; it waits for what Kubernetes' own controllers take away, and once they took over two minutes.
_UNINSTALLED_WITHIN = 280
# Kubelets take five minutes.
_FORGOTTEN_WITHIN = 400
# What asks a page in a container that has no tool for that; without the modules that would take it most of a second.
_ASK = """
import os, socket, sys
with socket.create_connection((os.environ["POD_IP"], {port})) as page:
    page.sendall(b"GET {path} HTTP/1.0\\r\\n\\r\\n")
    sys.exit(0 if b" 200 " in page.recv(100) else "not yet")
"""


def run_uninstall(
    cluster: ClusterHarness, *, waits: bool = False, variables: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """Run the script that operators run, and let it wait for kubelets to forget the plugin or not."""
    kubectl = binaries.path_of("kubectl")
    own = {"PATH": f"{kubectl.parent}:{os.environ['PATH']}", "KUBECONFIG": str(cluster.kubeconfig()), **variables}
    command, environment = [str(UNINSTALL), "--yes", *([] if waits else ["--no-wait"])], {**os.environ, **own}
    within = _UNINSTALLED_WITHIN + (_FORGOTTEN_WITHIN if waits else 0)
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=within, check=False)
    except subprocess.TimeoutExpired as late:
        late.add_note("\n".join(each.decode() for each in (late.stdout, late.stderr) if each))
        raise


class InstalledCentre(Installed):
    """The whole installation."""

    def __init__(self, cluster: ClusterHarness) -> None:
        super().__init__(cluster)
        # One image for all, since each takes a node 5 s: the centre's holds what nodes need too.
        self.values: dict[str, Any] = {"makeNamespace": True, "images": {"node": CENTRE_IMAGE}}
        self._port, self._status_port, self._scheduler_port = free_port(), free_port(), free_port()
        self._addresses = {node: f"127.0.1.{number}" for number, node in enumerate(cluster.nodes, start=1)}
        self.door = ServiceDoor(slices=self._endpoint_slices, address=lambda node: (self._addresses[node], self._port))

    def install(self) -> None:
        """Apply all, and wait until everything is ready and in force."""
        super().install()
        for name in (CENTRE, KUBE_SCHEDULER):
            self.cluster.wait_for(f"{name} to be rolled out", partial(self.has_rolled_out, name))

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """Apply all again, with these values too; who wants it in force waits."""
        self.values |= values
        self._apply()

    def _wanted(self) -> Iterator[Json]:
        yield from template(self.values)

    def images(self) -> list[Image]:
        """What a registry would have."""
        return [centre_image(), _kube_scheduler_image()]

    def has_rolled_out(self, name: str) -> bool:
        """Whether all pods of a Deployment are of the newest template, and ready."""
        found = self.cluster.api.get(f"{DEPLOYMENTS}/{name}")
        status, wanted = found["status"], found["spec"]["replicas"]
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return False
        return [status.get(name, 0) for name in ("updatedReplicas", "readyReplicas", "replicas")] == [wanted] * 3

    def _endpoint_slices(self) -> list[Json]:
        return self.cluster.api.items(_SLICES, labelSelector=f"kubernetes.io/service-name={CENTRE}")

    def _for_this_cluster(self, obj: Json) -> Json:
        obj = super()._for_this_cluster(obj)
        if obj["kind"].endswith("WebhookConfiguration"):
            for webhook in obj["webhooks"]:
                service = webhook["clientConfig"].pop("service")
                webhook["clientConfig"]["url"] = self.url(service["path"])
        elif obj["metadata"].get("name") == KUBE_SCHEDULER and obj["kind"] == "ConfigMap":
            config = yaml.safe_load(obj["data"]["kube-scheduler.yaml"])
            config["extenders"][0]["urlPrefix"] = self.url("/extender")
            obj["data"]["kube-scheduler.yaml"] = yaml.safe_dump(config)
        elif obj["kind"] == "Deployment":
            # No second pod on a node: they would want the same port.
            obj["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
            {CENTRE: self._lay_centre, KUBE_SCHEDULER: self._lay_scheduler}[obj["metadata"]["name"]](obj["spec"])
        return obj

    def url(self, path: str) -> str:
        """Of something that the Service serves, at either replica."""
        return f"https://{LOOPBACK}:{self.door.port}{path}"

    def url_of(self, node: str, path: str) -> str:
        """Of the same at the replica on this node."""
        return f"https://{self._addresses[node]}:{self._port}{path}"

    def _lay_centre(self, spec: Json) -> None:
        pod_spec = spec["template"]["spec"]
        pod_spec["hostAliases"] = [{"ip": ip, "hostnames": [node]} for node, ip in self._addresses.items()]
        (container,) = pod_spec["containers"]
        ports = {"https": self._port, "http": self._status_port}
        for variable in container["env"]:
            if variable["name"] == "POD_IP":
                variable["valueFrom"] = {"fieldRef": {"fieldPath": "spec.nodeName"}}
        set_variables(
            container,
            {
                "ALIQUOT_WEB_ADDRESS": "$(POD_IP)",
                "ALIQUOT_WEB_PORT": str(ports["https"]),
                "ALIQUOT_WEB_STATUS_PORT": str(ports["http"]),
                "ALIQUOT_SCHEDULER_ADDRESS": f"https://$(POD_IP):{ports['https']}",
                "ALIQUOT_CERTIFICATES_HOSTS": LOOPBACK,
            },
        )
        container["ports"] = [{"name": name, "containerPort": port} for name, port in ports.items()]
        for probe in _probes(container):
            # Kubelets ask the pod's address, which is the node's here; what listens is at another.
            asked = probe.pop("httpGet")
            script = _ASK.format(port=ports[asked["port"]], path=asked["path"])
            probe["exec"] = {"command": [f"{HOME}/bin/python", "-ISc", script]}

    def _lay_scheduler(self, spec: Json) -> None:
        spec["replicas"] = 1  # both would listen at the one address
        (container,) = spec["template"]["spec"]["containers"]
        container["command"] += [f"--bind-address={LOOPBACK}", f"--secure-port={self._scheduler_port}"]
        container["ports"] = [{"name": "https", "containerPort": self._scheduler_port}]
        for probe in _probes(container):
            probe["httpGet"]["host"] = LOOPBACK


def _probes(container: Json) -> Iterator[dict[str, Any]]:
    yield from (container[name] for name in ("readinessProbe", "livenessProbe"))


def _kube_scheduler_image() -> Image:
    """Kubernetes' own, as far as it is used."""
    (deployment,) = (
        each
        for each in yaml.safe_load_all((MANIFESTS / "55-kube-scheduler.yaml").read_text())
        if each["kind"] == "Deployment"
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    program: Path = binaries.path_of("kube-scheduler")
    return Image(reference=container["image"], content={"/usr/local/bin/kube-scheduler": program})
