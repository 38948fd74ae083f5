"""A control plane with the centre's webhook and policies in force, and who speaks to it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import sys
from functools import partial
from pathlib import Path
from typing import Any

from cluster.harness.api import Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.component import Component, answers
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.credentials import ADMIN
from cluster.harness.errors import ApiError
from cluster.harness.leftovers import MARK
from cluster.harness.pods import pod, shell
from cluster.harness.ports import free_port
from cluster.installed import AGENT, NAMES, SCHEDULER, SYSTEM, binding, manifests
from cluster.refusals import lease

FILES = (
    *("00-namespace", "05-queue", "10-access", "20-policies"),
    *("25-guards", "26-evictions", "27-centre-policies", "60-webhook"),
)
POLICY = "ValidatingAdmissionPolicy"
# What the centre's account will be given, and one right that it never is.
RIGHTS: list[Json] = [
    {"apiGroups": [""], "resources": ["pods/binding", "pods/eviction", "bindings"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods", "pods/status", "configmaps"], "verbs": ["get", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "delete"]},
]


class Guarded:
    """The webhook runs as a process on loopback and is called by URL; the rest is as the manifests have it."""

    def __init__(self, cluster: ClusterHarness) -> None:
        self.cluster = cluster
        self.scheduler = cluster.api_as(SCHEDULER)
        credentials = cluster.credentials
        port = free_port()
        self._url = f"https://{LOOPBACK}:{port}"
        script = str(Path(__file__).with_name("webhook_process.py"))
        self.webhook = Component(
            name="webhook",
            argv=[
                *(sys.executable, script, str(port), str(credentials.certificate), str(credentials.key)),
                str(cluster.kubeconfig()),
            ],
            log=cluster.folder / "logs" / "webhook.log",
            ready=partial(answers, f"{self._url}/healthz"),
            env={MARK: str(cluster.folder)},
        )

    def install(self) -> None:
        """Start the webhook, apply the manifests, and wait until all of it is in force."""
        self.webhook.start()
        self.webhook.wait_ready()
        for obj in manifests(*FILES):
            self.cluster.apply(self._for_this_cluster(obj))
        account = {"kind": "ServiceAccount", "name": "aliquot-scheduler", "namespace": SYSTEM}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "test-centre"}
        for kind, rest in (
            ("ClusterRole", {"rules": RIGHTS}),
            ("ClusterRoleBinding", {"roleRef": role, "subjects": [account]}),
        ):
            version = "rbac.authorization.k8s.io/v1"
            self.cluster.apply({"apiVersion": version, "kind": kind, "metadata": {"name": "test-centre"}, **rest})
        self.cluster.wait_for("webhook and policies to be in force", self._in_force)

    def lift_and_bind(self, made: Json) -> None:
        """What the centre does: lift the gate, then bind with the grant."""
        self.lift(made)
        self.bind(made)

    def lift(self, made: Json) -> None:
        """Its turn has come."""
        self.scheduler.patch(self.cluster.api.path_of(made), {"spec": {"schedulingGates": None}})

    def bind(self, made: Json) -> None:
        """With a grant."""
        path = self.cluster.api.path_of(made)
        self.scheduler.post(f"{path}/binding", binding(made, "node1", {NAMES.grant: grant_text(30)}))

    def policies(self) -> list[Json]:
        """The policies, as the API server has them."""
        return self.cluster.api.items("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")

    def refusal(self, wanted: Json, *, by: Api | None = None) -> str:
        """Why an object would be refused, of an administrator or of somebody else; empty if it would not."""
        try:
            self.tried(wanted, by=by)
        except ApiError as error:
            return str(error)
        return ""

    def tried(self, wanted: Json, *, by: Api | None = None) -> Json:
        """The object as it would come in."""
        api = by or self.cluster.api
        return api.request("POST", api.collection_of(wanted), body=wanted, query={"dryRun": "All"})

    def agent_on(self, node: str) -> Api:
        """Whoever has the token of the agent's pod there."""
        made = pod(f"agent-on-{node}", shell("true"), namespace=SYSTEM, node=node, serviceAccountName=AGENT)
        token = self.cluster.service_account_token(SYSTEM, AGENT, pod=self.cluster.create_pod(made))
        plane, credentials = self.cluster.control_plane, self.cluster.credentials
        return Api(host=LOOPBACK, port=plane.port, token=token, certificate=credentials.certificate)

    def warnings(self, wanted: Json) -> list[str]:
        """What an author reads while the pod is taken in."""
        credentials, plane = self.cluster.credentials, self.cluster.control_plane
        context = ssl.create_default_context(cafile=str(credentials.certificate))
        connection = http.client.HTTPSConnection(LOOPBACK, plane.port, timeout=90, context=context)
        headers = {"Authorization": f"Bearer {credentials.tokens[ADMIN]}", "Content-Type": "application/json"}
        path = f"{self.cluster.api.collection_of(wanted)}?dryRun=All"
        try:
            connection.request("POST", path, body=json.dumps(wanted), headers=headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == http.client.CREATED, text
            return [header.partition(" - ")[2].strip('"') for header in answer.msg.get_all("Warning", [])]
        finally:
            connection.close()

    def _for_this_cluster(self, obj: Json) -> Json:
        if not obj["kind"].endswith("WebhookConfiguration"):
            return obj
        authority = base64.b64encode(self.cluster.credentials.certificate.read_bytes()).decode()
        for webhook in obj["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"{self._url}{path}", "caBundle": authority}
        return obj

    def _in_force(self) -> bool:
        """The API server reads what it is given about once a second: one probe for each policy and webhook."""
        namespace = "default"
        forged = pod("forged", shell("true"), namespace=namespace, annotations={NAMES.grant: "{}"})
        asks = asking("probe", namespace, {"compute": "30"})
        beat = lease("node-probe")
        found = self.warnings(pod("probe", privileged(), namespace=namespace))
        return (
            "aliquot-guard-grants" in self.refusal(forged)
            and "aliquot-centre-leases" in self.refusal(beat, by=self.scheduler)
            and not self.refusal(asks)
            and bool(self.tried(asks)["spec"].get("schedulingGates"))
            and any("aliquot-ways-round" in warning for warning in found)
        )


def asking(name: str, namespace: str, limits: dict[str, str], **settings: Any) -> Json:
    """A pod that asks for a slice; resources go by their short names."""
    named = {NAMES.of(short): amount for short, amount in limits.items()}
    return pod(name, shell("true", limits=named), namespace=namespace, **settings)


def privileged() -> Json:
    """A container that has every device of its node."""
    return {**shell("true"), "securityContext": {"privileged": True}}


def grant_text(compute: int, *, node: str = "node1") -> str:
    """A grant as somebody might forge it."""
    part = {"gpu": "GPU-1", "compute": compute, "memory": 100}
    return json.dumps({"v": 1, "node": node, "pod": "u", "containers": {"main": {"slices": [part]}}})
