"""All of `daemonset/` on a real cluster: from a plain Deployment to slices that run, and gone again without a trace."""

from __future__ import annotations

import base64
import json
import os
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from aliquot_core.counting import agreed, counted
from aliquot_core.grant import decode_grant
from aliquot_core.hosts import quantity
from aliquot_core.names import LEADER_LEASE, PACE_LEASE
from cluster.harness.api import Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import BY_HAND, gates, pod, shell, stays
from cluster.installed import (
    AGENT,
    DAEMONSETS,
    ENDPOINT,
    NAMES,
    PODS_OF,
    SYSTEM,
    binding,
    forgets_its_plugin,
    nothing_left,
)
from cluster.installed_centre import CENTRE, InstalledCentre, run_uninstall
from cluster.node_half import SHOW
from cluster.queues.test_decide import priority_class
from cluster.refusals import LEASES, NODE1, annotated, expect_refused, lease
from cluster.traces import traces
from support.admitting import container, review, written

pytestmark = pytest.mark.timeout(400)  # the first test also starts the cluster, and imports three images

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SECRET = f"/api/v1/namespaces/{SYSTEM}/secrets/aliquot-tls"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
WEBHOOKS = f"{ADMISSION}/mutatingwebhookconfigurations"
PACE = f"{LEASES}/{PACE_LEASE}"
ASKS = {NAMES.compute: "30", NAMES.memory: "8000"}
SOAK = bool(os.environ.get("ALIQUOT_SOAK"))
SPARED, GOES = "kept from eviction by priority", "goes for a pod that runs the cluster"
# MiB that a CUDA context takes, as the chart has it.
CONTEXT = 512
MPS = "aliquot-mps"
# Some GPU is told so, which is what the keeper of daemons is there for; these nodes have none of that name.
SHARED_SO = {"isolationOf": ["*of-nobody*=mps"]}


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A cluster of its own: the webhook and the policies hold for all of it."""
    with ClusterHarness() as running:
        yield running


@pytest.fixture(scope="module")
def installation(cluster: ClusterHarness) -> Iterator[InstalledCentre]:
    """What there is to install."""
    whole = InstalledCentre(cluster)
    whole.values["node"] = SHARED_SO
    yield whole
    whole.door.close()


@pytest.fixture
def installed(installation: InstalledCentre) -> InstalledCentre:
    """Aliquot, as an operator installs it; whoever uninstalls it need not install it again."""
    installation.install()
    return installation


def deployment(name: str, namespace: str, container: Json, *, replicas: int) -> Json:
    """What users write: no gate, no scheduler's name."""
    labels = {"app": name}
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def pods_of(cluster: ClusterHarness, namespace: str) -> list[Json]:
    """All pods there."""
    found = cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")
    return [{"apiVersion": "v1", "kind": "Pod", **each} for each in found]


def all_run(cluster: ClusterHarness, namespace: str, count: int) -> list[Json] | None:
    """The pods, once so many of them run."""
    found = [each for each in pods_of(cluster, namespace) if each["status"].get("phase") == "Running"]
    return found if len(found) == count else None


def test_a_plain_deployment_gets_its_slices(
    cluster: ClusterHarness, installed: InstalledCentre, namespace: str
) -> None:
    """The webhook fills in, the gate is lifted, the pods are bound with their grants, and say what they got."""
    wanted = cluster.apply(deployment("plain", namespace, stays(SHOW, limits=ASKS), replicas=4))
    made = cluster.wait_for("four to run", partial(all_run, cluster, namespace, 4))
    for each in made:
        grant = decode_grant(each["metadata"]["annotations"][NAMES.grant])
        ((_, part),) = grant.slices()
        assert each["spec"]["schedulerName"] == "aliquot"
        assert grant.node == each["spec"]["nodeName"]
        assert part.gpu in {installed.gpu(grant.node, index) for index in range(8)}
        assert cluster.first_words(each) == f"{part.gpu} 30 8000 void\n"
    cluster.delete(wanted, propagationPolicy="Foreground")


def test_a_bad_request_is_refused_in_the_centre_s_own_words(installed: InstalledCentre, namespace: str) -> None:
    """Where the pod is made: what is wrong, and what to write."""
    limits = {NAMES.compute: "30", NAMES.memory: "8Gi"}
    expect_refused(
        lambda: installed.cluster.create_pod(pod("bad", shell("true", limits=limits), namespace=namespace)),
        by="write 8192",
    )


def test_both_replicas_answer_and_one_leads(installed: InstalledCentre) -> None:
    """On two nodes, with certificates that they made themselves and share."""
    cluster = installed.cluster
    assert installed.door.ready() == sorted(cluster.nodes)
    budget = cluster.api.get(f"/apis/policy/v1/namespaces/{SYSTEM}/poddisruptionbudgets/{CENTRE}")
    assert budget["status"]["desiredHealthy"] == 1
    leader = cluster.api.get(f"{LEASES}/{LEADER_LEASE}")["spec"]["holderIdentity"]
    assert any(each["metadata"]["name"] in leader for each in installed.pods(CENTRE))


def test_the_page_is_shown_to_whoever_may_list(
    cluster: ClusterHarness, installed: InstalledCentre, namespace: str
) -> None:
    """Through the leader and through the other: the API server says whose a token is, and what they may."""
    viewer, stranger = viewing(cluster, namespace), cluster.service_account_token(namespace, "default")
    authority = base64.b64decode(cluster.api.get(SECRET)["data"]["ca.crt"]).decode()
    for _ in cluster.nodes:
        status, page = looked(installed.url("/page/state.json"), authority=authority, token=viewer)
        assert (status, sorted(node["name"] for node in page["nodes"])) == (200, sorted(cluster.nodes))
        assert looked(installed.url("/page/state.json"), authority=authority, token=stranger)[0] == 401
        assert looked(installed.url("/page/state.json"), authority=authority)[0] == 401


def viewing(cluster: ClusterHarness, namespace: str) -> str:
    """The token of an account that may list pods and nodes, once that is known everywhere."""
    meta = {"name": f"viewer-{namespace}"}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": meta}
    rule = {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list"]}
    account = {"name": "viewer", "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    cluster.apply({**rbac, "kind": "ClusterRole", "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": meta["name"]}
    subjects = [{"kind": "ServiceAccount", **account}]
    cluster.apply({**rbac, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects})
    user = f"system:serviceaccount:{namespace}:viewer"
    spec = {"user": user, "resourceAttributes": {"verb": "list", "resource": "nodes"}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    cluster.wait_for("the right to look", lambda: cluster.api.post(REVIEWS, review)["status"]["allowed"])
    return cluster.service_account_token(namespace, "viewer")


def looked(url: str, *, authority: str, token: str = "") -> tuple[int, Json]:
    """What the page says to whoever has a token."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    context = ssl.create_default_context(cadata=authority)
    try:
        with urlopen(Request(url, headers=headers), context=context, timeout=60) as answer:  # noqa: S310 - our own
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_an_upgrade_fails_no_pod_that_arrives(
    cluster: ClusterHarness, installed: InstalledCentre, namespace: str
) -> None:
    """None is refused while replicas are replaced, all run, and who ran before is not touched; then new values hold."""
    before = {each["metadata"]["uid"] for each in installed.pods(CENTRE)}
    lasts = cluster.create_pod(pod("lasts", stays(limits=ASKS), namespace=namespace))
    lasts = cluster.wait_for_phase(lasts, "Running")
    certificates = cluster.api.get(SECRET)["data"]
    privileged = pod("privileged", shell("true") | {"securityContext": {"privileged": True}}, namespace=namespace)
    dry_run(cluster, privileged)
    installed.upgrade({"waysRound": "Deny", "centre": {"settings": {"queues": {"half_life": 3601}}}})
    made: list[Json] = []
    while len(made) < 10 or not installed.has_rolled_out(CENTRE):
        made.append(cluster.create_pod(pod(f"arrives{len(made)}", shell(SHOW, limits=ASKS), namespace=namespace)))
        cluster.wait_for_phase(made[-1], "Succeeded")
        assert len(made) < 100, installed.explain()
    now = installed.pods(CENTRE)
    assert before.isdisjoint(each["metadata"]["uid"] for each in now)
    assert [each["status"]["containerStatuses"][0]["restartCount"] for each in now] == [0, 0]
    assert container_of(cluster.current(lasts)) == container_of(lasts)
    assert cluster.api.get(SECRET)["data"] == certificates
    expect_refused(lambda: dry_run(cluster, privileged), by="aliquot-ways-round")

    def told() -> bool:
        # The first leader of a cluster tells some seconds after it begins, and its Lease is there before.
        lease = cluster.api.find(PACE) or {"metadata": {}}
        return '"half_life":3601' in lease["metadata"].get("annotations", {}).get(NAMES.settings, "")

    cluster.wait_for("the leader to tell its new settings", told)


def test_an_upgrade_replaces_agents_and_nothing_that_work_hangs_on(
    cluster: ClusterHarness, installed: InstalledCentre
) -> None:
    """Pods that arrive would fail with the endpoint, and all who share by MPS with its keeper: a person deletes those.

    Only then another one comes, by the new template.
    """
    for node in cluster.nodes:
        cluster.wait_for(f"{MPS} to run on {node}", partial(installed.runs, MPS, node=node))
    agents, others = there(installed, AGENT), there(installed, ENDPOINT, MPS)
    installed.upgrade({"node": {**SHARED_SO, "settings": {"mps": {"most_clients": 11}}}})
    cluster.wait_for("the agents to be rolled out", installed.rolled_out, timeout=150)
    for name in (ENDPOINT, MPS):
        cluster.wait_for(f"the new template of {name} to be seen", partial(is_seen, cluster, name))
    assert there(installed, AGENT).isdisjoint(agents)
    assert there(installed, ENDPOINT, MPS) == others
    first, second = installed.pods(MPS)
    assert [clients(first), clients(second)] == [None, None]
    cluster.delete(first)

    def comes() -> Json | None:
        node = first["spec"]["nodeName"]
        found = [each for each in installed.pods(MPS, node=node) if each["metadata"]["uid"] != first["metadata"]["uid"]]
        return found[0] if found and installed.runs(MPS, node=node) else None

    assert clients(cluster.wait_for("another one to run there", comes)) == "11"
    assert second["metadata"]["uid"] in there(installed, MPS)


def there(installed: InstalledCentre, *names: str) -> set[str]:
    """The pods of DaemonSets, without those that are on their way out."""
    found = [each["metadata"] for name in names for each in installed.pods(name)]
    return {meta["uid"] for meta in found if "deletionTimestamp" not in meta}


def is_seen(cluster: ClusterHarness, name: str) -> bool:
    """Whether a DaemonSet's controller has done what its newest template wants."""
    found = cluster.api.get(f"{DAEMONSETS}/{name}")
    return bool(found["status"]["observedGeneration"] == found["metadata"]["generation"])


def clients(made: Json) -> str | None:
    """How many a keeper's daemons are to serve, if it was told."""
    told = {each["name"]: each.get("value") for each in made["spec"]["containers"][0].get("env", [])}
    return told.get("ALIQUOT_MPS_MOST_CLIENTS")


def test_no_tenant_s_priority_evicts_a_slice_and_what_runs_the_cluster_does(
    cluster: ClusterHarness, installed: InstalledCentre, namespace: str
) -> None:
    """The cluster's own kube-scheduler is as it was, and the API server asks whichever replica.

    A slice holds 60 % of a node's CPU. A pod of the system that waits for something else opens no node to tenants.
    """
    node, high = min(cluster.nodes), priority_class(1_000_000, name="aliquot-test-high")
    cluster.apply(high)
    milli = 1000 * quantity(cluster.api.get(NODE1)["status"]["allocatable"]["cpu"], where="allocatable") * 6 // 10

    def wanted(name: str, *, where: str, limits: Json | None = None, **spec: Any) -> Json:
        made = pod(name, stays(limits=limits), namespace=where, affinity=only_on(node), **spec)
        made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{milli}m"}
        return cluster.create_pod(made)

    held = cluster.wait_for_phase(wanted("slice", where=namespace, limits=ASKS), "Running", timeout=90)
    missing = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]
    critical: Json = {"where": "kube-system", "priorityClassName": "system-node-critical"}
    stuck = wanted("aliquot-test-stuck", volumes=missing, **critical)
    try:
        cluster.wait_for("it to be looked at", lambda: _says_unschedulable(cluster, stuck))
        with cluster.namespace("tenant-b") as tenant:
            more = wanted("more", where=tenant, priorityClassName="aliquot-test-high")
            cluster.wait_for("it to be refused", lambda: SPARED in _logged(cluster, installed))
            cluster.wait_for("it to be nominated", lambda: cluster.current(more)["status"].get("nominatedNodeName"))
            kept = cluster.current(held)
            assert "deletionTimestamp" not in kept["metadata"]
            assert "DisruptionTarget" not in {one["type"] for one in kept["status"]["conditions"]}
            system = wanted("aliquot-test-system", **critical)
            try:
                # kube-scheduler looks again by itself after five minutes.
                cluster.wait_for_phase(system, "Running", timeout=90)
                assert _logged(cluster, installed).count(GOES) > 0
                # It has ended by then, and is gone when the kubelet has said so.
                cluster.wait_for("the slice to be gone", lambda: cluster.api.find(cluster.api.path_of(held)) is None)
            finally:
                cluster.delete(system, gracePeriodSeconds=0)
    finally:
        cluster.delete(stuck, gracePeriodSeconds=0)
        cluster.delete(high)


def only_on(node: str) -> Json:
    """As a DaemonSet pins its pods."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _says_unschedulable(cluster: ClusterHarness, made: Json) -> bool:
    conditions = cluster.current(made)["status"].get("conditions", [])
    return any((one["type"], one.get("reason")) == ("PodScheduled", "Unschedulable") for one in conditions)


def _logged(cluster: ClusterHarness, installed: InstalledCentre) -> str:
    return "".join(cluster.logs(each, "scheduler") for each in installed.pods(CENTRE))


def test_less_than_a_context_takes_is_refused_by_every_replica(
    cluster: ClusterHarness, installed: InstalledCentre
) -> None:
    """What the nodes' agents say of it, the leader knows from them and the other from the leader."""
    authority = base64.b64decode(cluster.api.get(SECRET)["data"]["ca.crt"]).decode()

    def is_let_in(node: str, memory: int) -> bool:
        asked = review(written(container(compute="30", memory=str(memory))))
        return answered(installed.url_of(node, "/mutate"), asked, authority=authority)

    assert len(installed.door.ready()) == len(cluster.nodes)
    for node in cluster.nodes:
        cluster.wait_for(f"the one on {node} to refuse it", lambda node=node: not is_let_in(node, CONTEXT - 1))  # type: ignore[misc]
        assert is_let_in(node, CONTEXT)


def answered(url: str, asked: bytes, *, authority: str) -> bool:
    """Whether a webhook lets in what it is asked about."""
    context = ssl.create_default_context(cadata=authority)
    # It is called by its node's address, and has a certificate for the Service's.
    context.check_hostname = False
    request = Request(url, data=asked, headers={"Content-Type": "application/json"})  # noqa: S310 - our own
    with urlopen(request, context=context, timeout=60) as answer:  # noqa: S310 - our own
        allowed: bool = json.load(answer)["response"]["allowed"]
    return allowed


def container_of(made: Json) -> tuple[str, int]:
    """Which container runs in a pod, and how often it was started anew."""
    (status,) = made["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]


def dry_run(cluster: ClusterHarness, wanted: Json) -> None:
    """Let the API server judge a pod."""
    path = cluster.api.collection_of(wanted)
    cluster.api.request("POST", path, body=wanted, query={"dryRun": "All"})


MAY_NOT: dict[str, Callable[[Api, str], object]] = {
    # But where the operator lets it set disruption budgets aside.
    "delete a pod": lambda api, path: api.delete(path),
    "create a pod": lambda api, path: api.post(path.removesuffix("/any"), {}),
    "read another Secret": lambda api, _: api.get(f"/api/v1/namespaces/{SYSTEM}/secrets/other"),
    "list Secrets": lambda api, _: api.get(f"/api/v1/namespaces/{SYSTEM}/secrets"),
    "read another ConfigMap": lambda api, _: api.get(f"/api/v1/namespaces/{SYSTEM}/configmaps/other"),
    "have a token made by a Secret": lambda api, _: api.post(f"/api/v1/namespaces/{SYSTEM}/secrets", {}),
    "write a node": lambda api, _: api.patch(NODE1, {"spec": {"unschedulable": True}}),
    "write another webhook": lambda api, _: api.patch(f"{WEBHOOKS}/other", {}),
    "delete its webhook": lambda api, _: api.delete(f"{WEBHOOKS}/aliquot"),
    "change a policy": lambda api, _: api.patch(f"{ADMISSION}/validatingadmissionpolicies/aliquot-guard-grants", {}),
}


@pytest.mark.parametrize("what", MAY_NOT)
def test_the_centre_may_not(installed: InstalledCentre, what: str) -> None:
    """Its account has the rights that it needs and no more."""
    path = "/api/v1/namespaces/default/pods/any"
    expect_refused(lambda: MAY_NOT[what](installed.scheduler, path), by="is forbidden: User")


def test_the_centre_is_held_to_what_a_leader_writes(
    cluster: ClusterHarness, installed: InstalledCentre, namespace: str
) -> None:
    """What its rights allow beyond that, policies refuse: pods that ask for nothing, the system's own, heart-beats."""
    plain = cluster.create_pod(pod("plain", shell("true"), namespace=namespace, scheduler=BY_HAND))
    path, centre = cluster.api.path_of(plain), installed.scheduler
    where = {"name": "any", "namespace": "kube-system"}
    evicted = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": where}
    beat = lease("node-forged")
    expect_refused(lambda: centre.patch(path, {"metadata": {"finalizers": ["a.b/c"]}}), by="aliquot-centre-pods")
    expect_refused(lambda: centre.patch(f"{path}/status", {"status": {"phase": "Failed"}}), by="aliquot-centre-pods")
    expect_refused(lambda: centre.post(f"{path}/binding", binding(plain, "node1", {})), by="aliquot-centre-bindings")
    system = "/api/v1/namespaces/kube-system/pods/any"
    expect_refused(lambda: centre.post(f"{system}/eviction", evicted), by="aliquot-centre-evictions")
    expect_refused(lambda: centre.create(beat), by="aliquot-centre-leases")
    expect_refused(
        lambda: centre.patch(cluster.api.path_of(lease("node-node1")), annotated({"a": "b"})),
        by="aliquot-centre-leases",
    )


@pytest.mark.timeout(1_000)
def test_uninstalled_leaves_no_trace(cluster: ClusterHarness, installed: InstalledCentre, namespace: str) -> None:
    """Not while slices are held, nor where nodes can't withdraw; then no object, no right, no word on a node, no gate.

    It waits for the kubelets, as it does unless told otherwise: a soak for all of their five minutes, this by making
    them forget.
    """
    cluster.delete(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "aliquot-withdraw", "namespace": SYSTEM}}
    )
    told = run_uninstall(cluster)
    assert (told.returncode, told.stdout) == (1, "")
    there = f"{counted(len(cluster.nodes), 'node')} {agreed(len(cluster.nodes), 'withdraws', 'withdraw')}"
    assert f"by which {there}, is not in {SYSTEM} of" in told.stderr
    assert installed.has_rolled_out(CENTRE)
    # By the policies that stamp pods too; and the ConfigMap is there again.
    installed.upgrade({"users": "Maker"})
    cluster.wait_for("the centre to be rolled out", partial(installed.has_rolled_out, CENTRE), timeout=150)
    holds = cluster.create_pod(pod("holds", stays(limits=ASKS), namespace=namespace))
    cluster.wait_for_phase(holds, "Running")
    elsewhere = {NAMES.gpu_model: "of-nobody"}
    waits = cluster.create_pod(pod("waits", stays(limits=ASKS), namespace=namespace, annotations=elsewhere))
    assert gates(cluster.current(waits)) == [NAMES.gate]
    told = run_uninstall(cluster)
    assert (told.returncode, told.stderr) == (1, "1 pod holds slices: end them, or run this with --force\n")
    assert installed.has_rolled_out(CENTRE)
    cluster.delete(holds)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(run_uninstall, cluster, waits=True)
        for node in () if SOAK else cluster.nodes:
            cluster.wait_for(f"{node} to withdraw", partial(withdraws, cluster, node), timeout=200)
            forgets_its_plugin(cluster, node)
        told = running.result()
    assert told.returncode == 0, told.stderr
    installed.forget()
    assert gates(cluster.current(waits)) == []
    cluster.delete(waits)
    assert list(traces(cluster, spared=namespace)) == []
    for node in cluster.nodes:
        cluster.wait_for(f"nothing to be left on {node}", partial(nothing_left, cluster, node))


def withdraws(cluster: ClusterHarness, node: str) -> bool:
    """Whether the pod runs that takes back what was written of a node."""
    found = cluster.api.items(PODS_OF, labelSelector="app.kubernetes.io/name=aliquot-withdraw")
    return any(each["spec"]["nodeName"] == node and each["status"].get("phase") == "Running" for each in found)
