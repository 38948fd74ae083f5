"""Replicas of the centre of two versions beside each other, and one after the other: an upgrade, and a rollback.

What the earlier one is: tests/support/earlier/README.md. Both are processes, as users start them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import urllib3

from aliquot_core.grant import decode_grant
from aliquot_core.names import LEADER_LEASE
from aliquot_standalone.installed import without_webhooks
from support.centre_process import LOOPBACK, Asker, CentreProcess, NotDecidedError, until_decided
from support.earlier_versions import ARCHIVES, unpacked
from support.embedded_thread import embedded_server
from support.http_api import LONG_S, HttpApi, Json, WatchReader
from support.large_cluster import NAMES, NAMESPACE, lease_manifest, node_manifest, node_names, pod_manifest

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMES.namespace}/leases"
QUEUES = f"/apis/{NAMES.domain}/v1alpha1/queues"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES = node_names(2)
OWNER, GUEST = "owner", "guest"
EARLIER, THIS = "earlier", "this"
CREW = ("crew-0", "crew-1")
# MiB that go with a whole card here.
CARD = 80_000


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.parent.name)
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Where the packages of an earlier version lie."""
    return unpacked(request.param, tmp_path_factory.mktemp("earlier"))


@pytest.fixture
def api() -> Iterator[HttpApi]:
    """An embedded server with two nodes of a GPU each, and two queues, of which one has a guarantee."""
    with embedded_server() as url:
        api = HttpApi(url=url)
        for one in without_webhooks():
            api.post(DEFINITIONS, one).ok()
        for name in (NAMES.namespace, NAMESPACE):
            api.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
        for node in NODES:
            api.post("/api/v1/nodes", node_manifest(node, cards=1)).ok()
            api.post(LEASES, lease_manifest(node)).ok()
        for name, spec in ((OWNER, {"compute": {"guarantee": 250}}), (GUEST, {})):
            api.post(QUEUES, {"metadata": {"name": name}, "spec": {**spec, "namespaces": [NAMESPACE]}}).ok()
        yield api


class Replicas:
    """One of each version, which trust each other."""

    def __init__(self, api: HttpApi, *, folder: Path, earlier: list[Path]) -> None:
        self._api = api
        later = CentreProcess(folder=folder, url=api.url, token="", name=THIS)
        before = CentreProcess(
            folder=folder, url=api.url, token="", name=EARLIER, authority=later.authority, code=earlier
        )
        self.of = {THIS: later, EARLIER: before}

    def start(self, version: str) -> None:
        """Until it answers."""
        self.of[version].component.start()
        self.of[version].component.wait_ready(timeout=LONG_S)

    def wait_until_leads(self, version: str) -> None:
        """By what is written of it."""
        with self._api.watch(LEASES, fieldSelector=f"metadata.name={LEADER_LEASE}") as watch:
            while not str(watch.next()["object"]["spec"].get("holderIdentity")).startswith(f"{version}_"):
                pass

    def stop(self) -> None:
        """Both."""
        for one in self.of.values():
            one.component.kill()


@pytest.fixture
def replicas(api: HttpApi, tmp_path: Path, earlier: list[Path]) -> Iterator[Replicas]:
    """None of them is started."""
    both = Replicas(api, folder=tmp_path, earlier=earlier)
    try:
        yield both
    finally:
        both.stop()


def gated(name: str, percent: int, *, queue: str, **annotations: str) -> Json:
    """A pod as the webhook lets it in, with its share of a card's memory."""
    pod = pod_manifest(name, compute=percent, memory=CARD * percent // 100, schedulingGates=[{"name": NAMES.gate}])
    group = {NAMES.group: "crew"} if annotations else {}
    pod["metadata"] |= {"labels": {NAMES.queue: queue, **group}, "annotations": annotations}
    return pod


def seen(watch: WatchReader, *, name: str, is_so: Any) -> Json:
    """Wait until a pod is as it is to be."""
    while True:
        pod: Json = watch.next()["object"]
        if pod["metadata"]["name"] == name and is_so(pod):
            return pod


def let_in(api: HttpApi, name: str) -> Json:
    """Wait until the queues have let it in."""
    with api.watch(PODS) as watch:
        return seen(watch, name=name, is_so=lambda pod: not pod["spec"].get("schedulingGates"))


def placed(api: HttpApi, asker: Asker, name: str) -> Json:
    """As kube-scheduler places it, by asking this replica."""
    pod = let_in(api, name)
    until_decided(lambda: asker.place(pod, NODES), seconds=LONG_S)
    asker.close()
    return api.get(f"{PODS}/{name}").ok()


def gpus_of(pod: Json) -> set[tuple[str, str]]:
    """Node and GPU of all that it was granted."""
    grant = decode_grant(pod["metadata"]["annotations"][NAMES.grant])
    return {(pod["spec"]["nodeName"], part.gpu) for _, part in grant.slices()}


def page_of(centre: CentreProcess) -> Json:
    """What its page shows, whoever knows that."""
    answer = urllib3.request("GET", f"http://{LOOPBACK}:{centre.status_port}/page/state.json", timeout=LONG_S)
    if answer.status != HTTPStatus.OK:
        raise NotDecidedError(answer.data.decode())
    state: Json = answer.json()
    if state["paused"]:
        raise NotDecidedError(state["paused"])
    return state


def complaints(centre: CentreProcess) -> list[str]:
    """What its log has that is more than news, and not of a server that is slow because the machine is busy."""
    lines = (json.loads(line) for line in centre.log.read_text().splitlines() if line.startswith("{"))
    told = [line for line in lines if line["level"].lower() not in {"debug", "info"}]
    return [line["message"] for line in told if not line.get("error", "").startswith("no answer within")]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("first", "then"), [(EARLIER, THIS), (THIS, EARLIER)], ids=["upgrade", "rollback"])
def test_whoever_leads_first_the_other_asks_it_and_goes_on_where_it_was_killed(
    api: HttpApi, replicas: Replicas, first: str, then: str
) -> None:
    """Calls are passed on and answered; what was granted, a gang, and room that is being made are taken over."""
    leader, follower = replicas.of[first], replicas.of[then]
    for version in (first, then):
        replicas.start(version)
    crew = {NAMES.group_size: "2"}
    for pod in (gated("alone", 100, queue=OWNER), *(gated(name, 50, queue=GUEST, **crew) for name in CREW)):
        api.post(PODS, pod).ok()
    lying = {name: placed(api, follower.asker(), name) for name in ("alone", CREW[0])}
    lying[CREW[1]] = placed(api, leader.asker(), CREW[1])
    # What the earlier version never wrote: so it is that one.
    assert (NAMES.promised in lying["alone"]["metadata"]["annotations"]) is (first == THIS)
    assert {node["name"] for node in until_decided(lambda: page_of(follower), seconds=LONG_S)["nodes"]} == {*NODES}

    with api.watch(PODS) as watch:
        api.post(PODS, gated("owned", 100, queue=OWNER)).ok()
        seen(watch, name="owned", is_so=lambda pod: NAMES.room in pod["metadata"].get("annotations", {}))
    for name in CREW:
        with api.watch(PODS) as watch:
            seen(watch, name=name, is_so=lambda pod: "deletionTimestamp" in pod["metadata"])
    api.post(PODS, gated("small", 50, queue=OWNER)).ok()
    leader.component.kill()
    api.delete(f"{PODS}/{CREW[0]}", {"gracePeriodSeconds": 0}).ok()
    replicas.wait_until_leads(then)
    # There is room for the small one from the first turn on: it is kept.
    until_decided(lambda: page_of(follower), seconds=LONG_S)
    api.delete(f"{PODS}/{CREW[1]}", {"gracePeriodSeconds": 0}).ok()

    owned = placed(api, follower.asker(), "owned")
    assert owned["metadata"]["annotations"][NAMES.charged] == OWNER
    assert gpus_of(owned) == gpus_of(lying[CREW[0]]) == gpus_of(lying[CREW[1]])
    assert api.get(f"{PODS}/small").ok()["spec"]["schedulingGates"]
    alone = api.get(f"{PODS}/alone").ok()
    assert "deletionTimestamp" not in alone["metadata"]
    assert gpus_of(alone) == gpus_of(lying["alone"])
    assert complaints(leader) + complaints(follower) == []
