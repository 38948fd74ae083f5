"""An owner takes back what it lent from a process that does not want to go: all parts real but the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.endpoints import short_folder
from support.http_api import Json
from support.up_process import NAMES, PODS, Up, eventually, processes_of, running_up

QUEUES = "/apis/aliquot.dev/v1alpha1/queues"
GRACE = 3
# Asked to end, it goes on.
STUBBORN = "trap '' TERM; echo begun; while :; do sleep 0.05; done"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where one `aliquot up` keeps everything; short, for unix sockets."""
    with short_folder() as root:
        yield root / "home"


def asking(name: str, script: str, *, queue: str) -> Json:
    """A pod that asks for the whole card."""
    limits = {NAMES.compute: "100", NAMES.memory: "8000"}
    container = {"name": "main", "image": "none", "command": ["sh", "-c", script], "resources": {"limits": limits}}
    spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": GRACE}
    return {"metadata": {"name": name, "labels": {NAMES.queue: queue}}, "spec": spec}


def condition(pod: Json, kind: str) -> Json:
    """What a pod says of this."""
    return next((one for one in pod["status"].get("conditions", ()) if one["type"] == kind), {})


def test_a_victim_that_ignores_sigterm_is_killed_and_its_card_is_the_owner_s_then(folder: Path) -> None:
    """Not before: the owner waits for the grace of who goes, and for nobody any longer."""
    with running_up(folder, gpus="1xT4") as up:
        for name, spec in (("lent", {}), ("own", {"compute": {"guarantee": 100}})):
            body = {"metadata": {"name": name}, "spec": {"namespaces": ["*"], **spec}}
            up.api.post(QUEUES, body).ok()
        stubborn = _begun(up)
        up.api.post(PODS, asking("owner", "echo in; read forever", queue="own")).ok()
        with up.api.watch(PODS, fieldSelector="metadata.name=stubborn") as watch:
            leaving = watch.until(lambda event: "deletionTimestamp" in event["object"]["metadata"])[-1]["object"]
            assert leaving["metadata"]["deletionGracePeriodSeconds"] == GRACE
            watch.until(lambda event: event["type"] == "DELETED")
        assert processes_of(stubborn) == []
        owner = up.until("owner", "Running", "Succeeded", "Failed")
        assert condition(owner, "PodScheduled")["lastTransitionTime"] >= leaving["metadata"]["deletionTimestamp"]


def _begun(up: Up) -> str:
    """Its UID, once it can't be asked to end any more."""
    made = up.api.post(PODS, asking("stubborn", STUBBORN, queue="lent")).ok()
    up.until("stubborn", "Running")
    eventually(lambda: up.log("stubborn") == "begun\n")
    return str(made["metadata"]["uid"])
