"""Helm itself, on a real API server: install, upgrade, and what either way of uninstalling leaves behind.

There is no node: what the installed processes do is shown by `test_installed.py`.
"""

from __future__ import annotations

import base64
import http.client
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from aliquot_core.names import MIX, MIX_KEY
from cluster.charts import CHART, helm, template
from cluster.harness import binaries
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness, Options
from cluster.harness.errors import ApiError
from cluster.harness.pods import gates, pod, shell
from cluster.harness.waiting import PATIENCE_SECONDS, wait_until
from cluster.installed import AGENT, NAMES, SCHEDULER, SYSTEM, manifests
from cluster.installed_centre import CENTRE, DEPLOYMENTS, KUBE_SCHEDULER, run_uninstall
from cluster.traces import traces
from support.require import skip_or_fail

RELEASE = "aliquot"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SECRET = f"/api/v1/namespaces/{SYSTEM}/secrets/aliquot-tls"
WEBHOOK = f"{ADMISSION}/mutatingwebhookconfigurations/aliquot"
MIX_PATH = f"/api/v1/namespaces/{SYSTEM}/configmaps/{MIX}"
QUEUE = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.{NAMES.domain}"
WAYS_ROUND = f"{ADMISSION}/validatingadmissionpolicybindings/aliquot-ways-round-deny"


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A control plane of its own: what is installed holds for all of it, and each test leaves nothing there."""
    if binaries.find("helm") is None:
        skip_or_fail("cluster", "helm is not built: run tests/cluster/binaries/build helm")
    with ClusterHarness(Options(nodes=())) as running:
        yield running


def install(cluster: ClusterHarness, values: dict[str, Any] | None = None) -> None:
    """As README.md says: the namespace first, which is not Helm's."""
    for obj in manifests("00-namespace"):
        cluster.apply(obj)
    release(cluster, "install", str(CHART), values=values or {})


def release(cluster: ClusterHarness, verb: str, *what: str, values: dict[str, Any] | None = None) -> str:
    """What Helm says of the release, which it has done as asked."""
    kubeconfig = f"--kubeconfig={cluster.kubeconfig()}"
    done = helm(verb, RELEASE, *what, f"--namespace={SYSTEM}", kubeconfig, values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def missing(cluster: ClusterHarness, wanted: Sequence[Json]) -> list[str]:
    """Those of these objects that the API server has not."""
    return [each["metadata"]["name"] for each in wanted if cluster.api.find(cluster.api.path_of(each)) is None]


def authorities(cluster: ClusterHarness) -> list[str]:
    """By which authority each webhook is trusted."""
    return [each["clientConfig"].get("caBundle", "") for each in cluster.api.get(WEBHOOK)["webhooks"]]


def wait_until_left(cluster: ClusterHarness, wanted: Sequence[str]) -> None:
    """Wait until this alone is left; a failure tells what else is, or what the API server can't tell."""
    seen = ["nothing was looked at"]

    def is_left() -> bool:
        try:
            seen[:] = traces(cluster)
        except ApiError as error:  # while kinds are going
            seen[:] = [str(error)]
            return False
        return seen == list(wanted)

    wait_until(
        f"{list(wanted)} alone to be left",
        is_left,
        timeout=PATIENCE_SECONDS,
        explain=lambda: f"there is {seen}\n{cluster.explain()}",
    )


def test_helm_changes_and_takes_away_what_is_its_own(cluster: ClusterHarness) -> None:
    """Over upgrade and rollback certificates and queues stay, and what values do not have goes; at last all goes."""
    install(cluster)
    assert missing(cluster, template()) == []
    # Queues live as long as their definition; to make one takes a webhook that answers.
    definition = cluster.api.get(QUEUE)["metadata"]["uid"]
    authority = base64.b64encode(cluster.control_plane.credentials.certificate.read_bytes()).decode()
    cluster.api.patch(SECRET, {"data": {"ca.crt": authority}})
    webhooks = cluster.api.get(WEBHOOK)["webhooks"]
    for each in webhooks:
        each["clientConfig"]["caBundle"] = authority
    cluster.api.patch(WEBHOOK, {"webhooks": webhooks})
    other = {"waysRound": "Deny", "centre": {"replicas": 3}, "kubeScheduler": {"enabled": False}}
    release(cluster, "upgrade", str(CHART), values=other)
    assert missing(cluster, template(other)) == []
    assert cluster.api.get(f"{DEPLOYMENTS}/{CENTRE}")["spec"]["replicas"] == 3
    (only,) = cluster.api.get(WAYS_ROUND)["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert (only["operator"], only["values"]) == ("NotIn", ["allow", "warn"])
    assert cluster.api.find(f"{DEPLOYMENTS}/{KUBE_SCHEDULER}") is None
    stays(cluster, definition=definition, authority=authority, webhooks=len(webhooks))
    release(cluster, "rollback", "1")
    assert missing(cluster, template()) == []
    assert cluster.api.get(f"{DEPLOYMENTS}/{CENTRE}")["spec"]["replicas"] == 2
    stays(cluster, definition=definition, authority=authority, webhooks=len(webhooks))
    learn(cluster)
    release(cluster, "uninstall")
    wait_until_left(cluster, [f"namespaces {SYSTEM}"])


def stays(cluster: ClusterHarness, *, definition: str, authority: str, webhooks: int) -> None:
    """What nobody wrote into the chart: what the centre has put in, and whatever there is of queues."""
    assert cluster.api.get(SECRET)["data"]["ca.crt"] == authority
    assert authorities(cluster) == [authority] * webhooks
    assert cluster.api.get(QUEUE)["metadata"]["uid"] == definition


def learn(cluster: ClusterHarness) -> None:
    """What a leader writes by and by; its rights count a moment after they were installed."""

    def written() -> bool:
        try:
            cluster.api_as(SCHEDULER).patch(MIX_PATH, {"data": {MIX_KEY: "{}"}})
        except ApiError as error:
            if error.status == http.client.FORBIDDEN:
                return False
            raise
        return True

    cluster.wait_for("the centre's rights", written)


@pytest.mark.timeout(400)
def test_a_namespace_that_is_deleted_takes_what_is_guarded_along(cluster: ClusterHarness) -> None:
    """Leases and what was learnt, which nobody may delete while it stands; the script tidies up what is left."""
    install(cluster)
    learn(cluster)
    led = cluster.api.path_of(cluster.api_as(SCHEDULER).create(lease("scheduler")))
    cluster.wait_for("the policies to be in force", partial(is_guarded, cluster, led))
    cluster.api.delete(f"/api/v1/namespaces/{SYSTEM}")
    cluster.wait_for("the namespace to be gone", lambda: cluster.api.find(f"/api/v1/namespaces/{SYSTEM}") is None)
    done = run_uninstall(cluster)
    assert done.returncode == 0, done.stderr
    wait_until_left(cluster, [])


def is_guarded(cluster: ClusterHarness, path: str) -> bool:
    """Whether somebody would be kept from deleting it."""
    try:
        cluster.api.request("DELETE", path, query={"dryRun": "All"})
    except ApiError as error:
        return "aliquot-guard-leases" in str(error)
    return False


@pytest.mark.timeout(400)
def test_our_script_takes_away_what_helm_has_installed(cluster: ClusterHarness) -> None:
    """With Helm's own record, which lies in the namespace; and from pods that wait what the centre has said of them.

    While a pod of the centre may live on a node that does not answer, nothing but its Deployment and webhooks goes.
    """
    ours = [NAMES.turn, NAMES.promised, NAMES.room, NAMES.charged, NAMES.over_use, NAMES.group_run]
    notes = dict.fromkeys(ours, "some")
    waits = [waiting(cluster, "gated", {NAMES.turn: "1"}, [{"name": NAMES.gate}]), waiting(cluster, "let-in", notes)]
    install(cluster)
    labels, finalizers = {"app.kubernetes.io/name": CENTRE}, ["example.org/stays"]
    lives = pod("lives", shell("true"), namespace=SYSTEM, node="dead", labels=labels)
    lives["metadata"]["finalizers"] = finalizers
    centre = cluster.api.path_of(cluster.create_pod(lives))
    told = run_uninstall(cluster, variables={"ALIQUOT_PATIENCE": "5"})
    assert told.returncode == 1
    assert told.stderr == (
        "node dead does not answer, and lives may run there: bring it back, or delete it (kubectl delete node dead); "
        "then run this again\n"
    )
    assert cluster.api.find(WAYS_ROUND) is not None
    assert gates(cluster.current(waits[0])) == [NAMES.gate]
    cluster.api.patch(centre, {"metadata": {"finalizers": None}})
    cluster.api.delete(centre, gracePeriodSeconds=0)
    done = run_uninstall(cluster)
    assert (done.returncode, done.stderr) == (0, "")
    wait_until_left(cluster, [])
    for each in map(cluster.current, waits):
        about, status = each["metadata"], each["status"]
        assert (gates(each), about["annotations"]) == ([], {"example.org/note": "theirs"})
        assert (said_of(status), "nominatedNodeName" in status) == (["example.org/said"], False)
        cluster.delete(each)


def waiting(cluster: ClusterHarness, name: str, notes: dict[str, str], gated: Sequence[Json] = ()) -> Json:
    """A pod as the centre leaves it at some step; it was there before what guards the centre's words."""
    theirs = {"example.org/note": "theirs"}
    made = pod(name, shell("true"), namespace="default", annotations=notes | theirs)
    made["spec"] |= {"schedulingGates": [*gated], "schedulerName": "aliquot"}
    # An API server goes by policies for a moment after they are deleted: those of the test before.
    cluster.wait_for("nothing to guard gates any more", lambda: not is_refused(cluster, made))
    made = cluster.create_pod(made)
    said = [{"type": kind, "status": "False"} for kind in (NAMES.admitted, "example.org/said")]
    status = {"conditions": said, "nominatedNodeName": "node1"}
    return cluster.api.patch(f"{cluster.api.path_of(made)}/status", {"status": status})


def is_refused(cluster: ClusterHarness, made: Json) -> bool:
    """Whether one of our policies would keep somebody from creating it."""
    try:
        cluster.api.request("POST", cluster.api.collection_of(made), body=made, query={"dryRun": "All"})
    except ApiError as error:
        if "aliquot-guard" in str(error):
            return True
        raise
    return False


def said_of(status: Json) -> list[str]:
    """Of a pod, by whoever but kube-scheduler."""
    return [each["type"] for each in status["conditions"] if each["type"] != "PodScheduled"]


@pytest.mark.timeout(400)
def test_agents_that_seem_to_write_nothing_are_looked_at_first(cluster: ClusterHarness) -> None:
    """They may write for another domain: nothing goes while one is ready and no node bears a word of it."""
    install(cluster)
    labels = {"app.kubernetes.io/name": AGENT}
    agent = cluster.create_pod(pod("agent", shell("true"), namespace=SYSTEM, node="somewhere", labels=labels))
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    cluster.api.patch(f"{cluster.api.path_of(agent)}/status", {"status": ready})
    refused = run_uninstall(cluster)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(
        f"agents are ready on 1 node, and no node bears what they write for {NAMES.domain}"
    )
    assert missing(cluster, template()) == []
    cluster.api.delete(cluster.api.path_of(agent), gracePeriodSeconds=0)
    assert run_uninstall(cluster).returncode == 0


@pytest.mark.timeout(400)
def test_what_others_have_in_our_namespace_stays(cluster: ClusterHarness) -> None:
    """They write Leases beside ours; when Aliquot goes, the namespace stays with what is theirs and nothing of ours."""
    install(cluster)
    learn(cluster)
    cluster.api_as(SCHEDULER).create(lease("scheduler"))
    cluster.wait_for("policies to be in force", lambda: is_guarded(cluster, cluster.api.path_of(lease("scheduler"))))
    theirs = [cluster.api.create(lease("operator")), cluster.api.create(secret("database"))]
    done = run_uninstall(cluster)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()[-2:]) == ["Lease/operator", "Secret/database"]
    assert missing(cluster, theirs) == []
    wanted = template()
    assert len(missing(cluster, [*wanted, lease("scheduler")])) == len(wanted) + 1
    release(cluster, "uninstall")
    cluster.api.delete(f"/api/v1/namespaces/{SYSTEM}")
    wait_until_left(cluster, [])


def lease(name: str) -> Json:
    """In our namespace, of nobody yet."""
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": SYSTEM}}


def secret(name: str) -> Json:
    """In our namespace, and not ours."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": SYSTEM}}


@pytest.mark.timeout(400)
def test_our_script_knows_by_which_names_it_was_installed(cluster: ClusterHarness) -> None:
    """Another domain or namespace is refused, and so is what is not there; in all of which nothing goes."""
    domain = "acme.example"
    definition = QUEUE.replace(NAMES.domain, domain)
    install(cluster, {"domain": domain})
    for variables in ({"ALIQUOT_DOMAIN": NAMES.domain}, {"ALIQUOT_NAMESPACE": "default"}):
        refused = run_uninstall(cluster, variables=variables)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.endswith(": nothing was done\n")
    assert missing(cluster, template({"domain": domain})) == []
    done = run_uninstall(cluster)
    assert done.returncode == 0, done.stderr
    wait_until_left(cluster, [])
    cluster.wait_for("the definition to be gone", lambda: cluster.api.find(definition) is None)
    again = run_uninstall(cluster)
    assert (again.returncode, again.stderr.startswith("Aliquot is not installed in ")) == (1, True)
