"""A replica of the centre that is told to end: who keeps a connection to it loses no call."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aliquot_core.names import LEADER_LEASE, Names
from aliquot_scheduler.admission.routes import MUTATE
from aliquot_standalone.installed import without_webhooks
from support.admitting import container, review, written
from support.centre_http import SCHEDULER
from support.centre_process import LOOPBACK, CentreProcess
from support.embedded_thread import embedded_server
from support.http_api import LONG_S, HttpApi

NAMES = Names()
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMES.namespace}/leases"
KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POD = review(written(container(compute="30")))


@pytest.fixture
def api() -> Iterator[HttpApi]:
    """An embedded server without a node."""
    with embedded_server() as url:
        api = HttpApi(url=url)
        for one in without_webhooks():
            api.post(KINDS, one).ok()
        api.post("/api/v1/namespaces", {"metadata": {"name": NAMES.namespace}}).ok()
        yield api


def asked(connection: http.client.HTTPSConnection) -> tuple[int, bool]:
    """The status of an answer, and whether it says that it is the last there."""
    connection.request("POST", MUTATE, body=POD, headers={"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    return response.status, response.getheader("Connection") == "close"


def until_let_go(api: HttpApi, *, version: str) -> None:
    """Wait until nobody holds the leader's Lease any more."""
    with api.watch(LEASES, fieldSelector=f"metadata.name={LEADER_LEASE}", resourceVersion=version) as watch:
        while watch.next()["object"]["spec"].get("holderIdentity"):
            pass


def test_who_keeps_a_connection_is_answered_once_more_and_told_that_it_was_the_last(
    api: HttpApi, tmp_path: Path
) -> None:
    """SIGTERM lets the next one lead at once; Go's clients send no POST twice, so the connection outlives that."""
    centre = CentreProcess(folder=tmp_path, url=api.url, token="")
    centre.component.start()
    try:
        centre.component.wait_ready()
        context = centre.authority.caller(centre.authority.signs(SCHEDULER))
        kept = http.client.HTTPSConnection(LOOPBACK, centre.port, timeout=LONG_S, context=context)
        assert asked(kept) == (http.client.OK, False)
        version = api.get(f"{LEASES}/{LEADER_LEASE}").ok()["metadata"]["resourceVersion"]
        with ThreadPoolExecutor(max_workers=1) as pool:
            leaving = pool.submit(centre.component.stop, timeout=LONG_S)
            until_let_go(api, version=version)
            assert asked(kept) == (http.client.OK, True)
            kept.close()
            leaving.result()
    finally:
        centre.component.stop()
