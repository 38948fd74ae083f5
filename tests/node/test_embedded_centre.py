"""The real centre on the embedded API server: it leads, is asked as webhook, lets pods in, and binds with a grant."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from aliquot_core.grant import decode_grant
from aliquot_core.names import Names
from aliquot_standalone.installed import as_installed, webhooks_at, without_webhooks
from support.centre_process import LOOPBACK, CentreProcess, NotDecidedError, until_decided
from support.embedded_thread import embedded_server
from support.http_api import LONG_S, HttpApi, Json, Reply
from support.large_cluster import capacity, inventory_note, lease_manifest, node_names

NAMES = Names()
PODS = "/api/v1/namespaces/default/pods"
QUEUES = "/apis/aliquot.dev/v1alpha1/queues"
NODES = node_names(2)
MANIFESTS = Path(__file__).parents[2] / "daemonset" / "manifests"
KINDS = {"CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
ADDRESSES = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}


def create_all(api: HttpApi, objects: list[Json]) -> None:
    """Create what an installation brings along."""
    for one in objects:
        api.post(ADDRESSES[one["kind"]], one).ok()


@pytest.fixture(scope="module")
def api() -> Iterator[HttpApi]:
    """An embedded server with two nodes of eight GPUs that beat."""
    with embedded_server() as url:
        api = HttpApi(url=url)
        create_all(api, without_webhooks())
        api.post("/api/v1/namespaces", {"metadata": {"name": NAMES.namespace}}).ok()
        for node in NODES:
            amounts = {"cpu": "64", "memory": "512Gi", "pods": "250", **capacity(8)}
            metadata = {"name": node, "annotations": inventory_note(node, cards=8)}
            api.post("/api/v1/nodes", {"metadata": metadata, "status": {"capacity": amounts}}).ok()
            leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMES.namespace}/leases"
            api.post(leases, lease_manifest(node)).ok()
        yield api


@pytest.fixture(scope="module")
def centre(api: HttpApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CentreProcess]:
    """The centre as users start it, and the configurations by which it is asked."""
    process = CentreProcess(folder=tmp_path_factory.mktemp("centre"), url=api.url, token="")
    process.component.start()
    try:
        process.component.wait_ready()
        url = f"https://{LOOPBACK}:{process.port}"
        create_all(api, webhooks_at(url, authority=process.authority.pair.certificate))
        yield process
    finally:
        process.component.stop()


def asking(name: str, compute: str = "30", **metadata: Any) -> Json:
    """A pod as a user writes it."""
    container = {"name": "main", "image": "none:1", "resources": {"limits": {NAMES.compute: compute}}}
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [container]}}


def gate_lifted(api: HttpApi, name: str) -> Json:
    """Wait until the queues have let a pod in."""
    with api.watch(PODS, fieldSelector=f"metadata.name={name}") as watch:
        while True:
            pod: Json = watch.next()["object"]
            if not pod["spec"].get("schedulingGates"):
                return pod


def test_what_is_installed_here_is_what_is_installed_on_a_cluster() -> None:
    """Queue, its view and the webhooks are those of the manifests."""
    files = [MANIFESTS / f"{name}.yaml" for name in ("05-queue", "06-view", "60-webhook")]
    written = [one for file in files for one in yaml.safe_load_all(file.read_text()) if one["kind"] in KINDS]
    assert as_installed() == written


def test_a_pod_is_gated_let_in_and_bound_with_its_grant(api: HttpApi, centre: CentreProcess) -> None:
    """The webhook gates it, the queues lift the gate, and the binding carries node and grant in one write."""
    created = api.post(PODS, asking("one")).ok()
    assert created["spec"]["schedulerName"] == "aliquot"
    assert created["spec"]["schedulingGates"] == [{"name": NAMES.gate}]
    pod = gate_lifted(api, "one")
    asker = centre.asker()
    nodes = until_decided(lambda: asker.filter(pod, NODES), seconds=LONG_S)
    assert asker.bind(pod, nodes[0]) == ""
    bound = api.get(f"{PODS}/one").ok()
    asker.close()
    grant = decode_grant(bound["metadata"]["annotations"][NAMES.grant])
    assert (bound["spec"]["nodeName"], grant.node, grant.pod) == (nodes[0], nodes[0], bound["metadata"]["uid"])


def written(old: Json, new: Json) -> bool:
    """Whether more was written on a pod than why it waits."""

    def apart(pod: Json) -> Json:
        status = {key: value for key, value in pod.get("status", {}).items() if key != "conditions"}
        meta = {key: value for key, value in pod["metadata"].items() if key not in {"resourceVersion", "managedFields"}}
        return {**pod, "metadata": meta, "status": status}

    return apart(old) != apart(new)


def test_a_pod_is_written_three_times_at_most_until_it_is_bound(api: HttpApi, centre: CentreProcess) -> None:
    """Its gate is lifted, its node nominated, and it is bound; a turn that is lost on a slow machine costs as many."""
    created = api.post(PODS, asking("thrice")).ok()
    with api.watch(
        PODS, fieldSelector="metadata.name=thrice", resourceVersion=created["metadata"]["resourceVersion"]
    ) as seen:
        pod, asker = gate_lifted(api, "thrice"), centre.asker()
        nodes = until_decided(lambda: asker.filter(pod, NODES), seconds=LONG_S)
        assert asker.bind(pod, nodes[0]) == ""
        asker.close()
        events = seen.until(lambda event: bool(event["object"]["spec"].get("nodeName")))
    revisions = [created, *(event["object"] for event in events)]
    writes = [new for old, new in pairwise(revisions) if written(old, new)]
    turns = int(revisions[-1]["metadata"]["annotations"].get(NAMES.turn, 1))
    assert 1 < len(writes) <= 3 * turns, writes


def test_what_the_webhook_refuses_is_refused(api: HttpApi, centre: CentreProcess) -> None:
    """The centre's own words reach the user, under the name of the webhook."""
    reply = api.post(PODS, asking("odd", annotations={"aliquot.dev/gpus": "none"}))
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert 'admission webhook "mutate.aliquot.dev" denied the request' in reply.body["message"]
    assert centre.component.running


def test_pods_that_ask_nothing_are_not_asked_about(api: HttpApi, centre: CentreProcess) -> None:
    """The match conditions of the real configurations hold here too."""
    plain = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "main", "image": "none:1"}]}}
    assert "schedulingGates" not in api.post(PODS, plain).ok()["spec"]
    assert centre.component.running


def test_queues_are_judged_as_a_tree(api: HttpApi, centre: CentreProcess) -> None:
    """A queue that hangs on none is refused by the centre, one that is right is kept and its status written."""

    def queue(name: str, **spec: Any) -> Reply:
        return api.post(QUEUES, {"metadata": {"name": name}, "spec": spec})

    refused = queue("lost", parent="nowhere")
    assert 'admission webhook "queues.aliquot.dev" denied the request' in refused.body["message"]
    queue("team", compute={"guarantee": 400}).ok()
    with api.watch(QUEUES, fieldSelector="metadata.name=team") as watch:
        while "status" not in (found := watch.next()["object"]):
            pass
    assert found["spec"]["compute"] == {"guarantee": 400}
    assert centre.component.running


def test_a_pod_that_runs_says_how_far_its_queue_goes_with_over_use(api: HttpApi, centre: CentreProcess) -> None:
    """As the queue above it says; when that says something else, so does the pod, which was bound long before."""
    org = api.post(QUEUES, {"metadata": {"name": "org"}, "spec": {"overUse": "evict"}}).ok()
    api.post(QUEUES, {"metadata": {"name": "below"}, "spec": {"parent": "org", "namespaces": ["default"]}}).ok()
    api.post(PODS, asking("hungry", labels={NAMES.queue: "below"})).ok()
    pod, asker = gate_lifted(api, "hungry"), centre.asker()
    nodes = until_decided(lambda: asker.filter(pod, NODES), seconds=LONG_S)
    assert asker.bind(pod, nodes[0]) == ""
    asker.close()
    with api.watch(PODS, fieldSelector="metadata.name=hungry") as seen:
        seen.until(lambda event: says(event["object"], "evict"))
    api.put(f"{QUEUES}/org", {**org, "spec": {"overUse": "note"}}).ok()
    with api.watch(PODS, fieldSelector="metadata.name=hungry") as seen:
        seen.until(lambda event: says(event["object"], "note"))
    wrong = api.post(QUEUES, {"metadata": {"name": "wrong"}, "spec": {"overUse": "shoot"}})
    assert wrong.code == 422


def says(pod: Json, word: str) -> bool:
    """Whether a pod says that its queue goes so far."""
    return bool(pod["metadata"]["annotations"].get(NAMES.over_use) == word)


def test_a_namespace_is_shown_its_queue(api: HttpApi, centre: CentreProcess) -> None:
    """As on a cluster: a view that says what the queue has, in the namespace that is at home there."""
    api.post(QUEUES, {"metadata": {"name": "seen"}, "spec": {"compute": {"guarantee": 300}}}).ok()
    api.post("/api/v1/namespaces", {"metadata": {"name": "sees", "labels": {NAMES.queue: "seen"}}}).ok()
    with api.watch("/apis/aliquot.dev/v1alpha1/namespaces/sees/queueviews") as watch:
        view = watch.next()["object"]
    assert (view["metadata"]["name"], view["status"]["guarantee"]["compute"]) == ("seen", 300)
    assert centre.component.running


def known_to(page: str) -> Json:
    """What the page shows, once the leader knows everything."""
    state: Json = urllib3.request("GET", f"{page}/state.json", timeout=60).json()
    if state["paused"]:
        raise NotDecidedError(state["paused"])
    return state


def test_the_page_is_served_where_probes_are(api: HttpApi, centre: CentreProcess) -> None:
    """Without login on this machine, and with a token alone on the port that has TLS."""
    plain = f"http://{LOOPBACK}:{centre.status_port}/page"
    state = until_decided(lambda: known_to(plain), seconds=LONG_S)
    assert [(node["name"], len(node["gpus"])) for node in state["nodes"]] == [(node, 8) for node in NODES]
    node = urllib3.request("GET", f"{plain}/nodes/{NODES[1]}", timeout=60)
    assert f"<h1>Node {NODES[1]}</h1>" in node.data.decode()
    with urllib3.PoolManager(ssl_context=centre.authority.caller()) as https:
        assert https.request("GET", f"https://{LOOPBACK}:{centre.port}/page", timeout=60).status == 401
    assert api.get(f"/api/v1/nodes/{NODES[0]}").ok()
