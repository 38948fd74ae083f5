"""The whole centre before nodes that are only played: webhook, queues and kube-scheduler are real, cards are not.

The centre runs with the rights that its manifests give it, under the policies that hold it to them. Pods are let in,
bound and granted; nobody runs them, so they hold their slices until a test says that they have ended.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import yaml

from aliquot_core.grant import decode_grant
from aliquot_core.inventory import Gpu, Inventory, encode_inventory
from cluster.centre_half import COMMAND, CentreHalf
from cluster.harness.api import Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.errors import ApiError, WaitTimeoutError
from cluster.harness.waiting import PATIENCE_SECONDS
from cluster.installed import MANIFESTS, NAMES, SCHEDULER, SYSTEM, manifests
from cluster.queueing import QUEUES

MEMORY = 80_000
MODEL = "NVIDIA A100-SXM4-80GB"
# The centre takes a node for gone after two of its intervals of 5 s, Kubernetes after 50 s.
BEAT_SECONDS = 2.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


class PlayedCentre:
    """One node per entry of `gpus`, with so many cards each."""

    def __init__(self, cluster: ClusterHarness, *, gpus: Sequence[int], **settings: str) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self._gpus = {f"gpu{number}": count for number, count in enumerate(gpus, start=1)}
        for obj in (*manifests("00-namespace", "05-queue", "06-view", "27-centre-policies"), *_rights()):
            cluster.apply(obj)
        token = cluster.service_account_token(SYSTEM, SCHEDULER.rpartition(":")[2])
        settings["ALIQUOT_SCHEDULER_KUBECONFIG"] = str(cluster.kubeconfig(SCHEDULER, token=token))
        self.centre = CentreHalf(cluster, **settings)
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)

    def start(self) -> None:
        """Start all of it, and wait until pods that ask come in gated."""
        for name, count in self._gpus.items():
            self._make_node(name, count)
        self._beat_once()
        self._beating.start()
        self.centre.start()
        for obj in manifests("60-webhook"):
            self.cluster.apply(self._for_this_centre(obj))
        self.cluster.wait_for("the webhooks to be in force", self._in_force)

    def stop(self) -> None:
        """Stop what was started."""
        self._ended.set()
        self._beating.join()
        self.centre.stop()

    @contextmanager
    def one_more_node(self, name: str, *, gpus: int) -> Iterator[str]:
        """A node that is there for a while; its path."""
        self._gpus = {**self._gpus, name: gpus}
        self._make_node(name, gpus)
        try:
            yield f"/api/v1/nodes/{name}"
        finally:
            self._gpus = {other: count for other, count in self._gpus.items() if other != name}
            self.api.delete(f"/api/v1/nodes/{name}")

    # --- what examples do --------------------------------------------------------------------------------------------
    @contextmanager
    def applied(self, objects: Sequence[Mapping[str, Any]], *, by: Api | None = None) -> Iterator[None]:
        """Apply manifests in their order; at the end all of it is gone, and what its controllers made.

        But its namespaces stay, bare: the controller manager lets 5 s pass before it begins to take one away, and the
        next who wants one of the name would wait for that.
        """
        api = by or self.api
        try:
            for obj in objects:
                if obj["kind"] == "Namespace":
                    path = self.api.path_of(obj)
                    self.cluster.wait_for(f"{path} not to be on its way out", lambda path=path: not self._leaves(path))  # type: ignore[misc]
                api.apply(obj)
                if obj["kind"] == "Namespace":
                    # Pods are refused before the controller manager has made it.
                    account = f"/api/v1/namespaces/{obj['metadata']['name']}/serviceaccounts/default"
                    self.cluster.wait_for(account, partial(self.api.find, account))
            yield
        finally:
            self._remove(objects)

    def end(self, pod: Json, phase: str = "Succeeded") -> None:
        """Say that a pod has ended, as its kubelet would."""
        self.api.patch(f"{self.api.path_of(pod)}/status", {"status": {"phase": phase}})

    def leaving(self, namespace: str) -> list[Json]:
        """Pods that were asked to go, and are there still."""
        return [pod for pod in self.pods(namespace) if pod["metadata"].get("deletionTimestamp")]

    def runs(self, namespace: str) -> None:
        """Say of all that hold slices there that they run and are ready: disruption budgets are about no others."""
        for pod in self.holding(namespace):
            conditions = [*pod["status"].get("conditions", []), {"type": "Ready", "status": "True"}]
            status = {"phase": "Running", "conditions": conditions}
            self.api.patch(f"{self.api.path_of(pod)}/status", {"status": status})

    def let_go(self, namespace: str) -> None:
        """Let those be gone, as their kubelet would once their processes have ended."""
        for pod in self.leaving(namespace):
            self.api.delete(self.api.path_of(pod), gracePeriodSeconds=0)

    def pods(self, namespace: str) -> list[Json]:
        """All pods of a namespace."""
        found = self.api.items(f"/api/v1/namespaces/{namespace}/pods")
        return [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in found]

    def holding(self, namespace: str) -> list[Json]:
        """Those of them that hold slices."""
        ended = {"Succeeded", "Failed"}
        return [
            pod for pod in self.pods(namespace) if pod["spec"].get("nodeName") and pod["status"]["phase"] not in ended
        ]

    def held(self, namespace: str) -> int:
        """How many percent the pods of a namespace hold, by their grants."""
        grants = [decode_grant(pod["metadata"]["annotations"][NAMES.grant]) for pod in self.holding(namespace)]
        return sum(part.compute.value for grant in grants for _, part in grant.slices())

    def waiting(self, namespace: str) -> int:
        """How many of them wait behind their gates."""
        return sum(bool(pod["spec"].get("schedulingGates")) for pod in self.pods(namespace))

    def settled(self, namespaces: Mapping[str, int], *, timeout: float = 30) -> None:
        """Wait until each namespace holds exactly so many percent."""
        self._are(namespaces, self.held, "held", timeout=timeout)

    def lined_up(self, namespaces: Mapping[str, int]) -> None:
        """Wait until exactly so many pods of each namespace wait behind their gates."""
        self._are(namespaces, self.waiting, "waiting")

    def _are(
        self, wanted: Mapping[str, int], count: Callable[[str], int], words: str, *, timeout: float = PATIENCE_SECONDS
    ) -> None:
        """Wait until each namespace's count is as wanted; what it was last, and all its pods, are told otherwise."""
        found: dict[str, int] = {}

        def as_wanted() -> bool:
            found.update({name: count(name) for name in wanted})
            return found == dict(wanted)

        try:
            self.cluster.wait_for(f"{dict(wanted)} to be {words}", as_wanted, timeout=timeout)
        except WaitTimeoutError as error:
            pods = "\n".join(_told(pod) for name in wanted for pod in self.pods(name))
            raise WaitTimeoutError(f"{words} is {found}: {error}\n{pods}") from None

    def command(self, *arguments: str, token: str = "") -> list[str]:
        """The `aliquot` command, for the administrator or for whose token it is."""
        return [COMMAND, *arguments, "--kubeconfig", str(self.cluster.kubeconfig(token=token))]

    # --- how it is made ----------------------------------------------------------------------------------------------
    def _make_node(self, name: str, count: int) -> None:
        cards = tuple(Gpu(uuid=f"GPU-{name}-{at}", index=at, model=MODEL, memory=MEMORY) for at in range(count))
        has = {NAMES.compute: str(100 * count), NAMES.memory: str(MEMORY * count), NAMES.best_effort: str(32 * count)}
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "250", **has}
        ready = {"type": "Ready", "status": "True", "reason": "Played", "lastHeartbeatTime": _now()}
        meta = {"name": name, "annotations": {NAMES.inventory: encode_inventory(Inventory(driver="580", gpus=cards))}}
        self.api.create({"apiVersion": "v1", "kind": "Node", "metadata": meta})
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        self.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        # The node controller taints what it has not heard of yet.
        self.cluster.wait_for(f"{name} to be untainted", lambda: self._untainted(name))

    def _untainted(self, name: str) -> bool:
        self._beat_once()
        return not self.api.get(f"/api/v1/nodes/{name}")["spec"].get("taints")

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            self._beat_once()

    def _beat_once(self) -> None:
        for name in self._gpus:
            spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now()}
            for namespace, lease, notes in (
                ("kube-node-lease", name, {}),
                (NAMES.namespace, NAMES.lease(name), {NAMES.state: "ready"}),
            ):
                meta = {"name": lease, "namespace": namespace, "annotations": notes}
                body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
                self.api.apply(body)

    def _for_this_centre(self, obj: Json) -> Json:
        authority = base64.b64encode(self.centre.authority.read_bytes()).decode()
        for webhook in obj["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            url = f"https://{LOOPBACK}:{self.centre.replicas[0].port}{path}"
            webhook["clientConfig"] = {"url": url, "caBundle": authority}
        return obj

    def _in_force(self) -> bool:
        wanted = {"apiVersion": f"{NAMES.domain}/v1alpha1", "kind": "Queue", "metadata": {"name": "x"}}
        try:
            self.api.request("POST", QUEUES, body={**wanted, "spec": {"parent": "gone"}}, query={"dryRun": "All"})
        except ApiError as error:
            return "there is no queue" in str(error)
        return False

    def _remove(self, objects: Sequence[Mapping[str, Any]]) -> None:
        found = [obj for obj in objects if self.api.find(self.api.path_of(obj)) is not None]
        namespaces = [obj["metadata"]["name"] for obj in found if obj["kind"] == "Namespace"]
        own = {"Namespace", "Queue"}
        for obj in reversed(found):
            if obj["kind"] not in own:
                self.api.delete(self.api.path_of(obj), gracePeriodSeconds=0, propagationPolicy="Background")
        for name in namespaces:
            self.cluster.wait_for(f"the pods of {name} to be gone", partial(self._emptied, name))
            self.api.delete(f"/apis/events.k8s.io/v1/namespaces/{name}/events")
            bare = {"labels": None, "annotations": None}
            self.api.patch(f"/api/v1/namespaces/{name}", {"metadata": bare})
        for obj in reversed([each for each in found if each["kind"] == "Queue"]):
            self.api.delete(self.api.path_of(obj))

    def _leaves(self, path: str) -> bool:
        found = self.api.find(path)
        return found is not None and "deletionTimestamp" in found["metadata"]

    def _emptied(self, namespace: str) -> bool:
        self.api.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
        return not self.pods(namespace)


def _told(pod: Json) -> str:
    """Where a pod stands, in a line."""
    spec, status = pod["spec"], pod["status"]
    gates = [gate["name"] for gate in spec.get("schedulingGates", ())]
    said = [f"{each['type']}={each['status']} {each.get('message', '')}" for each in status.get("conditions", ())]
    return f"{pod['metadata']['name']}: {spec.get('nodeName')} {status['phase']} gates {gates}; {'; '.join(said)}"


def _rights() -> Iterator[Json]:
    """The centre's account, and what it may do; where budgets are set aside for owners, too."""
    for obj in manifests("50-centre"):
        if obj["kind"] == "ServiceAccount" or obj["apiVersion"].startswith("rbac"):
            yield obj
    yield from yaml.safe_load_all((MANIFESTS.parent / "budgets.yaml").read_text())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
