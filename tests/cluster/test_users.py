"""Whose a pod is: stamped where a person makes the workload, and nobody's to forge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from cluster.charts import template
from cluster.guarded import asking
from cluster.harness import binaries
from cluster.harness.api import Api, Json
from cluster.harness.cluster import ClusterHarness, Options
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.errors import ApiError
from cluster.harness.pods import pod, shell
from cluster.harness.ports import free_port
from cluster.installed import NAMES, manifests
from cluster.product_image import ROOT
from cluster.refusals import expect_refused
from support.require import skip_or_fail

LABEL = NAMES.of("user")
ANN, BOB = "ann@example.com", "bob_b"
STAMPS = {ANN: "ann_aexample.com", BOB: "bob__b", "oidc:team/eve|1": "oidc_cteam_seve_b1"}
# All controllers where each has no account of its own.
CONTROLLERS = "system:kube-controller-manager"
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A control plane without nodes, and the policies of daemonset/users.yaml in force."""
    with ClusterHarness(Options(nodes=())) as running:
        for obj in yaml.safe_load_all((ROOT / "daemonset" / "users.yaml").read_text()):
            running.apply(obj)
        subjects = [
            {"apiGroup": RBAC, "kind": "User", "name": name} for name in (*STAMPS, CONTROLLERS, "a b", "x" * 64)
        ]
        role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"}
        binding = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "people"}}
        running.apply({**binding, "roleRef": role, "subjects": subjects})
        running.wait_for("the policies to be in force", partial(_in_force, running))
        yield running


@pytest.fixture
def namespace(cluster: ClusterHarness) -> Iterator[str]:
    """Give the test a namespace of its own."""
    name = cluster.make_namespace()
    yield name
    cluster.api.delete(f"/api/v1/namespaces/{name}")


def _in_force(cluster: ClusterHarness) -> bool:
    wanted = workload("CronJob", "default")
    path = cluster.api.collection_of(wanted)
    ann = cluster.api_as(ANN)
    try:
        made = ann.request("POST", path, body=wanted, query={"dryRun": "All"})
        ann.request("POST", path, body=workload("CronJob", "default", user="x"), query={"dryRun": "All"})
    except ApiError as error:
        if "aliquot-user" in str(error):
            return bool(label_of(made))
        return False
    return False


def workload(kind: str, namespace: str, *, user: str = "") -> Json:
    """A workload of a kind, whose template says whose it is, or nothing."""
    labels = {"app": "x", **({LABEL: user} if user else {})}
    single = pod("x", shell("true"), namespace=namespace, labels=labels, restart="Always")
    if kind == "Pod":
        return single
    template: Json = {"metadata": {"labels": labels}, "spec": single["spec"]}
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    group = "apps/v1"
    if kind in {"Job", "CronJob"}:
        template["spec"]["restartPolicy"] = "Never"
        group, spec = "batch/v1", {"template": template}
    if kind == "CronJob":
        spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}
    if kind == "StatefulSet":
        spec["serviceName"] = "x"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "x", "namespace": namespace}, "spec": spec}


def label_of(made: Json) -> str | None:
    """Whose a workload's pods are."""
    spec = made["spec"]
    spec = spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec
    meta = spec["template"]["metadata"] if "template" in spec else made["metadata"]
    found: str | None = meta.get("labels", {}).get(LABEL)
    return found


KINDS = ["Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_person_makes_carries_their_name(cluster: ClusterHarness, namespace: str, kind: str) -> None:
    """Another's name is refused, at creation and later; colleagues may change everything else."""
    ann, bob = cluster.api_as(ANN), cluster.api_as(BOB)
    expect_refused(lambda: ann.create(workload(kind, namespace, user=STAMPS[BOB])), by="aliquot-user")
    made = ann.create(workload(kind, namespace))
    assert label_of(made) == STAMPS[ANN]
    path = ann.path_of(made)
    assert label_of(bob.patch(path, {"metadata": {"annotations": {"seen": "by-bob"}}})) == STAMPS[ANN]
    meta: Json = {"metadata": {"labels": {LABEL: "nobody"}}}
    forged = meta if kind == "Pod" else {"spec": {"template": meta}}
    forged = {"spec": {"jobTemplate": forged}} if kind == "CronJob" else forged
    # Kubernetes itself lets nobody change the template of a Job.
    expect_refused(lambda: bob.patch(path, forged), by="immutable" if kind == "Job" else "aliquot-user")


def test_controllers_hand_the_name_on(cluster: ClusterHarness, namespace: str) -> None:
    """A Deployment's pods are made by two controllers, and are still the person's."""
    cluster.api_as(ANN).create(workload("Deployment", namespace))
    (made,) = cluster.wait_for("its pod", lambda: cluster.api.items(f"/api/v1/namespaces/{namespace}/pods"))
    assert label_of(made) == STAMPS[ANN]


@pytest.mark.parametrize("kind", ["Pod", "ReplicaSet", "Job"])
def test_controllers_without_accounts_hand_the_name_on(cluster: ClusterHarness, namespace: str, kind: str) -> None:
    """Where all act as one user, what they make of a stamped template is made, and is still the person's."""
    made = cluster.api_as(CONTROLLERS).create(workload(kind, namespace, user=STAMPS[ANN]))
    assert label_of(made) == STAMPS[ANN]


def unanswered(obj: Json) -> Json:
    """A configuration whose webhooks are where nobody listens."""
    for webhook in obj["webhooks"]:
        webhook["clientConfig"] = {"url": f"https://{LOOPBACK}:{free_port()}/dead"}
    return obj


def test_a_dead_webhook_keeps_no_stamped_pod_out(cluster: ClusterHarness, namespace: str) -> None:
    """Whose a pod is, is no question to the centre: neither a person's pod nor a workload's waits for its answer."""
    ann = cluster.api_as(ANN)
    validating = next(obj for obj in manifests("60-webhook") if obj["kind"].startswith("Validating"))
    dead = cluster.apply(unanswered(validating))
    try:
        cluster.wait_for(
            "the webhook to be in force", partial(is_kept_out, ann, asking("a", namespace, {"memory": "800"}))
        )
        assert label_of(ann.create(workload("Pod", namespace))) == STAMPS[ANN]
        ann.create(workload("Deployment", namespace))
        made = partial(cluster.api.items, f"/api/v1/namespaces/{namespace}/pods", labelSelector="pod-template-hash")
        cluster.wait_for("the workload's pod", made)
    finally:
        cluster.delete(dead)


def is_kept_out(api: Api, wanted: Json) -> bool:
    """Whether a pod is refused because nobody answers."""
    try:
        api.request("POST", api.collection_of(wanted), body=wanted, query={"dryRun": "All"})
    except ApiError as error:
        return "failed calling webhook" in str(error)
    return False


@pytest.mark.parametrize("user", STAMPS)
def test_names_are_told_apart(cluster: ClusterHarness, namespace: str, user: str) -> None:
    """What a label can't hold is written in another way, and differently for different names."""
    assert label_of(cluster.api_as(user).create(workload("Pod", namespace))) == STAMPS[user]
    assert len(set(STAMPS.values())) == len(STAMPS)


@pytest.mark.parametrize("user", ["a b", "x" * 64])
def test_a_name_that_no_label_holds_is_refused(cluster: ClusterHarness, namespace: str, user: str) -> None:
    """Shortened, two names could become one."""
    expect_refused(lambda: cluster.api_as(user).create(workload("Pod", namespace)), by="aliquot-user")


def test_service_accounts_of_a_namespace_are_one_user(cluster: ClusterHarness, namespace: str) -> None:
    """Whoever may make one may make a hundred."""
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"}
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": namespace} for name in ("default", "other")]
    meta = {"name": "accounts", "namespace": namespace}
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role}
    cluster.apply({**binding, "subjects": subjects})
    stamps = set()
    for subject in subjects:
        account = cluster.api_as(f"system:serviceaccount:{namespace}:{subject['name']}")
        wanted = workload("Pod", namespace)
        wanted["metadata"]["name"] = subject["name"]
        made = cluster.wait_for("its rights", partial(allowed, account, wanted))
        stamps.add(label_of(made))
    assert stamps == {f"system_cserviceaccount_c{namespace}"}


def allowed(api: Api, wanted: Json) -> Json | None:
    """What is made of a workload, once RBAC lets it be made."""
    try:
        return api.create(wanted)
    except ApiError as error:
        if "cannot create resource" not in str(error):
            raise
        return None


def test_the_chart_installs_both_halves_together() -> None:
    """The policies, and the setting by which the centre goes; without the value neither."""
    if binaries.find("helm") is None:
        skip_or_fail("cluster", "helm is not built: run tests/cluster/binaries/build helm")
    made = template({"users": "Maker", "domain": "gpus.example.org"})
    policies = [one for one in made if one["metadata"]["name"].startswith("aliquot-user")]
    assert len(policies) == 8
    assert LABEL not in json.dumps(policies)
    assert _told(made) == ["gpus.example.org/user"]
    usual = template()
    assert _told(usual) == []
    assert not [one for one in usual if one["metadata"]["name"].startswith("aliquot-user")]


def _told(objects: list[Json]) -> list[str]:
    pods = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Deployment"]
    told = [each for pod in pods for container in pod["containers"] for each in container.get("env", [])]
    return [each["value"] for each in told if each["name"] == "ALIQUOT_QUEUES_USER_LABEL"]
