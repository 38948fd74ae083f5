"""The small kubelet's doors on the embedded API server, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Deleted, Synced
from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock
from aliquot_kube.credentials import Credentials, load_configuration
from aliquot_kube.errors import InvalidError, NotFoundError
from aliquot_kube.patches import strategic_patch
from aliquot_kube.resources import NODES, PODS
from aliquot_kube.transport import HttpTransport, Question
from aliquot_standalone.apiserver.embedded import kubeconfig, serving
from aliquot_standalone.kubelet.api_doors import ApiDoors
from aliquot_standalone.kubelet.nodestatus import node_object


class Api:
    """An API server with a client, and a node's doors on it."""

    def __init__(self, transport: HttpTransport) -> None:
        self.transport = transport
        self.client = KubeClient(transport=transport)
        luck = random.Random(1).random
        self.doors = ApiDoors(node="node", transport=transport, clock=SystemClock(), random=luck)

    async def raw(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request, undecoded."""
        content = None if body is None else msgspec.json.encode(body)
        question = Question(method=method, path=path, body=content, content_type="application/json" if body else "")
        answer: dict[str, Any] = json.loads((await self.transport.request(question)).body)
        return answer

    async def bound(self, name: str, node: str = "node") -> Pod:
        """A pod that is bound to a node."""
        spec = {"containers": [{"name": "main", "image": "none", "command": ["true"]}]}
        await self.raw("POST", PODS.collection("default"), {"metadata": {"name": name}, "spec": spec})
        await self.client.bind(namespace="default", name=name, node=node)
        return await self.client.get(PODS, namespace="default", name=name)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A server on loopback."""
    async with serving(clock=SystemClock()) as server:
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(kubeconfig(server.url)))
        load = partial(load_configuration, kubeconfig=str(file))
        transport = HttpTransport(credentials=Credentials(load=load))
        yield Api(transport)
        await transport.close()


def condition(kind: str, status: str, **more: str) -> dict[str, str]:
    """A condition."""
    return {"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z", **more}


async def test_conditions_of_others_stay(api: Api) -> None:
    """Ours replace those of their own type whole, a reason that no longer holds included."""
    pod = await api.bound("one")
    foreign = strategic_patch({"status": {"conditions": [condition("aliquot.dev/Granted", "False", reason="R")]}})
    await api.client.patch(PODS, namespace="default", name="one", patch=foreign, subresource="status")
    unready = condition("Ready", "False", reason="ContainersNotReady", message="main")
    await api.doors.write_pod_status(pod, {"phase": "Pending", "conditions": [unready]})
    await api.doors.write_pod_status(pod, {"phase": "Running", "conditions": [condition("Ready", "True")]})
    status = (await api.raw("GET", PODS.path(namespace="default", name="one")))["status"]
    found = {one["type"]: (one["status"], one.get("reason")) for one in status["conditions"]}
    assert status["phase"] == "Running"
    assert found["aliquot.dev/Granted"] == ("False", "R")
    assert found["Ready"] == ("True", None)


async def test_a_pod_made_anew_is_another(api: Api) -> None:
    """Neither a status nor a removal meant for the old pod touches its successor; a pod that is gone is no error."""
    old = await api.bound("one")
    await api.doors.remove_pod(old)
    await api.doors.remove_pod(old)
    await api.doors.write_pod_status(old, {"phase": "Failed", "conditions": []})
    new = await api.bound("one")
    await api.doors.write_pod_status(old, {"phase": "Failed", "conditions": []})
    await api.doors.remove_pod(old)
    assert (await api.client.get(PODS, namespace="default", name="one")).status.phase != "Failed"
    await api.doors.remove_pod(new)
    with pytest.raises(NotFoundError):
        await api.client.get(PODS, namespace="default", name="one")


async def test_status_that_the_server_refuses_is_an_error(api: Api) -> None:
    """A status that breaks the API's rules is our own mistake and is not swallowed."""
    pod = await api.bound("one")
    with pytest.raises(InvalidError):
        await api.doors.write_pod_status(pod, {"phase": 7, "conditions": [{"type": "", "status": "nonsense"}]})


async def test_node_is_made_once_and_keeps_what_others_wrote(api: Api) -> None:
    """Capacity and conditions of others survive our writes."""
    assert await api.doors.read_node("node") is None
    await api.doors.create_node(node_object("node", {"zone": "a"}))
    await api.doors.create_node(node_object("node", {"zone": "b"}))
    foreign = {"capacity": {"aliquot.dev/memory": "8k"}, "conditions": [condition("Other", "True")]}
    await api.client.patch(NODES, name="node", patch=strategic_patch({"status": foreign}), subresource="status")
    await api.doors.write_node_status("node", {"capacity": {"cpu": "2"}, "conditions": [condition("Ready", "True")]})
    node = await api.doors.read_node("node")
    assert node
    assert node.metadata.labels["zone"] == "a"
    assert node.status.capacity == {"aliquot.dev/memory": "8k", "cpu": "2"}
    assert {one.type for one in node.status.conditions} == {"Other", "Ready"}


async def test_only_pods_of_the_node_come_in(api: Api) -> None:
    """Pods bound elsewhere or not at all are not told of; one bound later is, and its end too."""
    await api.bound("elsewhere", node="other")
    await api.bound("before")
    told: list[tuple[str, str]] = []
    async for change in api.doors.changes():
        if isinstance(change, Synced):
            await api.bound("later")
        elif isinstance(change, Added):
            told.append(("added", change.new.metadata.name))
            if change.new.metadata.name == "later":
                await api.doors.remove_pod(change.new)
        elif isinstance(change, Deleted):
            told.append(("deleted", change.old.metadata.name))
            break
    assert told == [("added", "before"), ("added", "later"), ("deleted", "later")]


async def test_a_defect_in_the_watch_is_not_silence(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the mirror breaks, whoever waits for pods hears of it."""

    async def broken() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("broken")

    monkeypatch.setattr(api.doors._pods, "run", broken)
    with pytest.raises(RuntimeError, match="broken"):
        await anext(api.doors.changes())
