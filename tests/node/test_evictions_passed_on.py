"""Whom a kube-scheduler may evict by priority, asked of a replica that does not lead; both are processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from aliquot_scheduler.admission.sparing import SPARE
from aliquot_standalone.installed import without_webhooks
from support.admitting import container, written
from support.centre_http import SCHEDULER
from support.centre_process import LOOPBACK, CentreProcess
from support.embedded_thread import embedded_server
from support.http_api import LONG_S, HttpApi, Json
from support.large_cluster import NAMES
from support.up_process import eventually

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DNS = "/api/v1/namespaces/kube-system/pods/dns"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
VICTIM = written(container(compute="30"), nodeName="n1")
KEPT, GOES = "kept from eviction by priority", "goes for a pod that runs the cluster"
UNJUDGED = "evicted by priority unjudged"


@pytest.fixture
def api() -> Iterator[HttpApi]:
    """An embedded server."""
    with embedded_server() as url:
        api = HttpApi(url=url)
        for one in without_webhooks():
            api.post(DEFINITIONS, one).ok()
        api.post("/api/v1/namespaces", {"metadata": {"name": NAMES.namespace}}).ok()
        api.post(CLASSES, {"metadata": {"name": "high"}, "value": 1_000}).ok()
        yield api


def may_go(asked: CentreProcess) -> bool:
    """What the API server would hear of the victim's deletion."""
    request: Json = {"uid": "u", "operation": "DELETE", "oldObject": VICTIM, "userInfo": {"username": "k"}}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    context = asked.authority.caller(asked.authority.signs(SCHEDULER))
    url = f"https://{LOOPBACK}:{asked.port}{SPARE}?timeout=3s"
    with urllib3.PoolManager(ssl_context=context) as pool:
        said = pool.request("POST", url, body=json.dumps(review), timeout=LONG_S).json()["response"]
    assert said["uid"] == "u"
    return bool(said["allowed"])


def logged(asked: CentreProcess) -> list[str]:
    """How often it has said which of the three."""
    lines = [json.loads(line)["message"] for line in asked.log.read_text().splitlines() if line.startswith("{")]
    return [word for line in lines for word in (KEPT, GOES, UNJUDGED) if line.startswith(word)]


@pytest.mark.timeout(120)
def test_a_follower_asks_the_leader_and_looks_itself_where_none_answers(api: HttpApi, tmp_path: Path) -> None:
    """A leader knows who runs the cluster and waits; where it is gone the API server does."""
    leader = CentreProcess(folder=tmp_path, url=api.url, token="", name="first")
    follower = CentreProcess(folder=tmp_path, url=api.url, token="", name="second", authority=leader.authority)
    try:
        for one in (leader, follower):
            one.component.start()
            one.component.wait_ready(timeout=LONG_S)
        # A leader that does not answer in time, on a busy machine, is done without.
        eventually(lambda: not may_go(follower) and KEPT in logged(leader))
        spec = {"containers": [{"name": "main", "image": "none"}], "priorityClassName": "high"}
        api.post("/api/v1/namespaces/kube-system/pods", {"metadata": {"name": "dns"}, "spec": spec}).ok()
        eventually(lambda: may_go(follower) and GOES in logged(leader))
        assert set(logged(leader)) == {KEPT, GOES}
        leader.component.kill()
        judged, seen = logged(leader), logged(follower)
        assert may_go(follower)
        api.delete(DNS, gracePeriodSeconds="0")
        eventually(lambda: not may_go(follower))
        assert logged(leader) == judged
        assert {GOES, KEPT} <= set(logged(follower)[len(seen) :])
    finally:
        for one in (leader, follower):
            one.component.kill()
