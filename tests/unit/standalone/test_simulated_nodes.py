"""Simulated nodes against the embedded API server: what they say of themselves, and how pods fare on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from aliquot_agent.gpus.known_models import KNOWN_MODELS, KnownModel
from aliquot_agent.gpus.simulated import simulated_uuid
from aliquot_agent.health.xids import HealthSettings, policy
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Health, decode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Lease, Node, Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import NotFoundError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import LEASES, NODES, PODS
from aliquot_kube.transport import Question
from aliquot_standalone.apiserver.direct import DirectTransport
from aliquot_standalone.apiserver.frontend import Frontend
from aliquot_standalone.kubelet.status import pod_status
from aliquot_standalone.simulated.fleet import Fleet
from aliquot_standalone.simulated.loads import SimNames
from support.clocks import VirtualClock
from support.embedded_api import make_frontend

NAMES = Names()
SIM = SimNames(NAMES)
# In MiB, what a CUDA context takes: not what agents say by themselves.
CONTEXT = 700
MODEL = KNOWN_MODELS["A100-80GB"]
Json = dict[str, Any]


@dataclass
class Stage:
    """An API server and two simulated nodes of two GPUs."""

    clock: VirtualClock
    frontend: Frontend
    transport: DirectTransport
    client: KubeClient
    fleet: Fleet
    running: asyncio.Task[None]

    async def create(self, path: str, body: Json) -> Json:
        """Create something."""
        question = Question(method="POST", path=path, body=msgspec.json.encode(body), content_type="application/json")
        return dict(msgspec.json.decode((await self.transport.request(question)).body))

    async def node(self, name: str = "sim-0") -> Node:
        """A node as it is by now."""
        await self.clock.advance(0.1)
        return await self.client.get(NODES, name=name)

    async def run(
        self,
        name: str,
        *,
        percent: int = 30,
        granted: int | None = None,
        gpu: int = 0,
        spec: Json | None = None,
        annotations: Json | None = None,
    ) -> None:
        """Create a pod that asks so much, and bind it with a grant."""
        limits = {NAMES.compute: str(percent), NAMES.memory: "1000"}
        container = {"name": "main", "image": "none:1", "resources": {"limits": limits}}
        body = {
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {"containers": [container], "restartPolicy": "Never", **(spec or {})},
        }
        await self.create("/api/v1/namespaces/default/pods", body)
        compute = Percent(percent if granted is None else granted)
        uuid = simulated_uuid(node="sim-0", index=gpu)
        part = Slice(gpu=uuid, compute=compute, limit=compute, memory=MiB(1000))
        await self.bind(name, ContainerGrant(slices=(part,), isolation="observe"))

    async def bind(self, name: str, held: ContainerGrant) -> None:
        """Bind a pod with what its container holds."""
        uid = (await self.client.get(PODS, name=name, namespace="default")).metadata.uid
        note = {NAMES.grant: encode_grant(Grant(node="sim-0", pod=uid, containers={"main": held}))}
        await self.client.bind(namespace="default", name=name, node="sim-0", uid=uid, annotations=note)

    async def pod(self, name: str, *, after: float = 0.1) -> Pod:
        """A pod as it is a little later."""
        await self.clock.advance(after)
        return await self.client.get(PODS, name=name, namespace="default")

    async def ends_as(self, name: str, *, after: float = 0.1) -> tuple[str, int]:
        """The phase and exit code of a pod a little later."""
        pod = await self.pod(name, after=after)
        return pod.status.phase, pod.status.container_statuses[0].state.get("terminated", {}).get("exitCode", -1)


def fleet_of(transport: DirectTransport, clock: VirtualClock, *, model: KnownModel = MODEL) -> Fleet:
    """Two nodes."""
    return Fleet(
        nodes={f"sim-{number}": (model, model) for number in range(2)},
        transport=transport,
        names=NAMES,
        policy=policy(HealthSettings(), names=NAMES),
        context=lambda _: CONTEXT,
        clock=clock,
        random=lambda: 0.5,
    )


async def stop(running: asyncio.Task[None]) -> None:
    """End a fleet."""
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A fleet that has come up."""
    async with staged() as made:
        yield made


@asynccontextmanager
async def staged(*, model: KnownModel = MODEL) -> AsyncIterator[Stage]:
    """A fleet of such GPUs that has come up."""
    clock = VirtualClock(start=1_700_000_000.0)
    frontend = make_frontend()
    transport = DirectTransport(frontend=frontend, clock=clock)
    fleet = fleet_of(transport, clock, model=model)
    stage = Stage(
        clock=clock,
        frontend=frontend,
        transport=transport,
        client=KubeClient(transport=transport),
        fleet=fleet,
        running=asyncio.create_task(fleet.run()),
    )
    await stage.create("/api/v1/namespaces", {"metadata": {"name": NAMES.namespace}})
    await clock.advance(1.0)
    yield stage
    await stop(stage.running)


async def test_a_node_says_what_a_real_agent_and_kubelet_would(stage: Stage) -> None:
    """Inventory, labels, capacity of all our resources, Ready, and that it is simulated."""
    node = await stage.node()
    assert [gpu.uuid for gpu in decode_inventory(node.metadata.annotations[NAMES.inventory]).gpus] == [
        simulated_uuid(node="sim-0", index=index) for index in range(2)
    ]
    assert {gpu.context for gpu in decode_inventory(node.metadata.annotations[NAMES.inventory]).gpus} == {CONTEXT}
    assert node.metadata.labels[NAMES.simulated] == "true"
    assert node.metadata.labels[NAMES.of("gpu.count")] == "2"
    told = {name: node.status.allocatable[name] for name in (*NAMES.resources(), "cpu", "pods")}
    memory = decode_inventory(node.metadata.annotations[NAMES.inventory]).memory.value
    assert told == {
        NAMES.compute: "200",
        NAMES.memory: str(memory),
        NAMES.best_effort: "64",
        "cpu": "24",
        "pods": "250",
    }
    assert [(one.type, one.status) for one in node.status.conditions] == [("Ready", "True")]


async def test_heart_beats_go_on_and_say_ready(stage: Stage) -> None:
    """Each node's lease is renewed every five seconds."""

    async def lease() -> Lease:
        return await stage.client.get(LEASES, name=NAMES.lease("sim-1"), namespace=NAMES.namespace)

    first = await lease()
    await stage.clock.advance(5.0)
    later = await lease()
    assert later.metadata.annotations[NAMES.state] == "ready"
    assert (first.spec.renew_time or "") < (later.spec.renew_time or "")


async def test_a_node_that_is_right_is_not_written_to(stage: Stage) -> None:
    """Ten quiet minutes change no node's object."""
    before = (await stage.node()).metadata.resource_version
    await stage.clock.advance(600.0)
    assert (await stage.node()).metadata.resource_version == before


async def test_a_pod_runs_as_long_as_it_says_and_ends_with_its_code(stage: Stage) -> None:
    """Running at once, ended after its duration, Succeeded or Failed by its exit code."""
    await stage.run("well", annotations={SIM.duration: "30"})
    await stage.run("badly", annotations={SIM.duration: "40", SIM.exit: "3"})
    assert (await stage.pod("well")).status.phase == "Running"
    assert await stage.ends_as("well", after=31.0) == ("Succeeded", 0)
    assert await stage.ends_as("badly") == ("Running", -1)
    assert await stage.ends_as("badly", after=10.0) == ("Failed", 3)


async def test_a_pod_without_a_duration_runs_on(stage: Stage) -> None:
    """A service is not ended by the hour."""
    await stage.run("service")
    assert (await stage.pod("service", after=3600.0)).status.phase == "Running"


@pytest.mark.parametrize(
    ("news", "looked"),
    [({"metadata": {"annotations": {"new": "1"}}}, 1), ({"status": {"message": "said by others"}}, 0)],
)
async def test_a_pod_is_looked_at_again_for_what_it_asks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, news: Json, looked: int
) -> None:
    """A status comes back with every write of one's own: to make it anew each time took a third of a node's work."""
    await stage.run("service")
    await stage.pod("service")
    spell = Mock(wraps=pod_status)
    monkeypatch.setattr("aliquot_standalone.kubelet.pods.pod_status", spell)
    patch, part = merge_patch(news), "status" if "status" in news else ""
    await stage.client.patch(PODS, name="service", namespace="default", patch=patch, subresource=part)
    await stage.pod("service")
    assert spell.call_count == looked


async def test_a_grant_that_is_not_what_was_asked_starts_nothing(stage: Stage) -> None:
    """The agent's own check holds the pod, and its words stand on the container."""
    await stage.run("forged", percent=30, granted=60)
    pod = await stage.pod("forged")
    assert pod.status.phase == "Pending"
    assert "compute 60 where 30 was asked" in pod.status.container_statuses[0].state["waiting"]["message"]


async def test_no_gpu_is_over_granted_whatever_grants_say(stage: Stage) -> None:
    """A second grant on a GPU that is full waits until the first pod has ended."""
    await stage.run("first", percent=80, annotations={SIM.duration: "10"})
    # Of two that were bound in one moment either may go first.
    await stage.pod("first")
    await stage.run("second", percent=30)
    second = await stage.pod("second")
    assert second.status.phase == "Pending"
    assert "would be over-granted" in second.status.container_statuses[0].state["waiting"]["message"]
    assert (await stage.pod("second", after=30.0)).status.phase == "Running"


async def test_a_grant_made_smaller_afterwards_frees_nothing(stage: Stage) -> None:
    """What runs counts as it stood when it started, whatever is written over its grant."""
    await stage.run("first", percent=80)
    uid = (await stage.pod("first")).metadata.uid
    compute = Percent(10)
    part = Slice(gpu=simulated_uuid(node="sim-0", index=0), compute=compute, limit=compute, memory=MiB(1000))
    forged = encode_grant(
        Grant(node="sim-0", pod=uid, containers={"main": ContainerGrant(slices=(part,), isolation="observe")})
    )
    patch = merge_patch({"metadata": {"annotations": {NAMES.grant: forged}}})
    await stage.client.patch(PODS, name="first", namespace="default", patch=patch)
    await stage.clock.advance(0.1)
    await stage.run("second", percent=30)
    assert (await stage.pod("second")).status.phase == "Pending"


async def test_use_is_what_the_pod_says_of_what_it_was_granted(stage: Stage) -> None:
    """Half of 40 percent and of 1000 MiB, and nothing once the pod has ended."""
    await stage.run("half", percent=40, gpu=1, annotations={SIM.use: "50", SIM.duration: "10"})
    await stage.pod("half")
    uuid = simulated_uuid(node="sim-0", index=1)
    used = (await stage.fleet.usage())[uuid]
    assert (used.utilization_percent, used.memory_used_mib) == (20, 500)
    await stage.clock.advance(10.0)
    assert (await stage.fleet.usage())[uuid].processes == ()


async def test_a_hogger_uses_more_compute_than_it_was_granted_and_no_more_memory(stage: Stage) -> None:
    """Compute is not held back here, memory is."""
    await stage.run("hogger", percent=40, annotations={SIM.use: "150"})
    await stage.pod("hogger")
    used = (await stage.fleet.usage())[simulated_uuid(node="sim-0", index=0)]
    assert (used.utilization_percent, used.memory_used_mib) == (60, 1000)


async def test_a_deleted_pod_is_asked_to_end_and_killed_after_its_grace(stage: Stage) -> None:
    """One that ends when asked goes at once, a stubborn one when its grace is over."""
    await stage.run("ready")
    await stage.run("stubborn", annotations={SIM.stop: "100"})
    await stage.clock.advance(0.1)
    for name in ("ready", "stubborn"):
        await stage.client.delete(PODS, name=name, namespace="default", grace_seconds=20)
    with pytest.raises(NotFoundError):
        await stage.pod("ready")
    assert (await stage.pod("stubborn", after=19.0)).status.phase == "Running"
    with pytest.raises(NotFoundError):
        await stage.pod("stubborn", after=1.5)


async def test_a_gpu_that_falls_off_the_bus_is_sick_until_it_is_mended(stage: Stage) -> None:
    """Its pods fail, its node offers less, and an operator's word after the repair makes it well."""
    await stage.run("unlucky", gpu=0)
    await stage.run("lucky", gpu=1)
    await stage.clock.advance(0.1)
    stage.fleet.break_gpu("sim-0", 0)
    assert (await stage.pod("unlucky")).status.phase == "Failed"
    assert (await stage.pod("lucky")).status.phase == "Running"
    node = await stage.node()
    health = [gpu.health for gpu in decode_inventory(node.metadata.annotations[NAMES.inventory]).gpus]
    assert health == [Health.SICK, Health.HEALTHY]
    assert (node.status.capacity[NAMES.compute], node.status.allocatable[NAMES.compute]) == ("200", "100")
    await stage.fleet.mend_gpu("sim-0", 0)
    await stage.clock.advance(70.0)
    node = await stage.node()
    assert node.status.allocatable[NAMES.compute] == "200"
    assert NAMES.clear_health not in node.metadata.annotations


async def test_instances_of_a_card_are_held_apart_and_go_with_it() -> None:
    """What their node offers is theirs; a pod uses its own, and fails with its card, whichever instance it has."""
    async with staged(model=MODEL.cut("3g.40gb+1g.10gb")) as stage:
        node = await stage.node()
        gpus = decode_inventory(node.metadata.annotations[NAMES.inventory]).gpus
        assert [(gpu.index, gpu.compute.value, gpu.isolation) for gpu in gpus] == [
            (index, compute, ["mig"]) for index in (0, 1) for compute in (42, 14)
        ]
        assert node.status.allocatable[NAMES.compute] == str(2 * (42 + 14))
        for name, gpu in (("unlucky", gpus[1]), ("lucky", gpus[2])):
            container = {"name": "main", "image": "none:1", "resources": {"limits": {NAMES.compute: "10"}}}
            body = {"metadata": {"name": name}, "spec": {"containers": [container], "restartPolicy": "Never"}}
            await stage.create("/api/v1/namespaces/default/pods", body)
            part = Slice(gpu=gpu.uuid, compute=gpu.compute, limit=gpu.compute, memory=gpu.usable)
            await stage.bind(name, ContainerGrant(slices=(part,), isolation="mig"))
            assert (await stage.pod(name)).status.phase == "Running"
        used = {uuid: usage.memory_used_mib for uuid, usage in (await stage.fleet.usage()).items()}
        assert [used[gpu.uuid] for gpu in gpus] == [0, gpus[1].memory * 80 // 100, gpus[2].memory * 80 // 100, 0]
        stage.fleet.break_gpu("sim-0", 0)
        assert (await stage.pod("unlucky")).status.phase == "Failed"
        assert (await stage.pod("lucky")).status.phase == "Running"
        await stage.fleet.mend_gpu("sim-0", 0)
        await stage.clock.advance(70.0)
        assert (await stage.node()).status.allocatable[NAMES.compute] == str(2 * (42 + 14))


async def test_pods_go_on_where_they_were_when_the_fleet_starts_again(stage: Stage) -> None:
    """A pod of 30 s that ran for 20 ends 10 s after the restart, and holds its slice meanwhile."""
    await stage.run("long", percent=80, annotations={SIM.duration: "30"})
    assert (await stage.pod("long", after=20.0)).status.phase == "Running"
    await stop(stage.running)
    stage.fleet = fleet_of(stage.transport, stage.clock)
    stage.running = asyncio.create_task(stage.fleet.run())
    await stage.clock.advance(1.0)
    await stage.run("other", percent=30)
    assert (await stage.pod("other")).status.phase == "Pending"
    assert (await stage.pod("long", after=7.0)).status.phase == "Running"
    assert await stage.ends_as("long", after=3.0) == ("Succeeded", 0)


async def test_a_load_that_can_t_be_played_is_said(stage: Stage) -> None:
    """A duration that is no number starts nothing."""
    await stage.run("odd", annotations={SIM.duration: "soon"})
    pod = await stage.pod("odd")
    assert "'soon' can't be played" in pod.status.container_statuses[0].state["waiting"]["message"]


async def test_a_pod_that_restarts_always_is_started_again(stage: Stage) -> None:
    """Restart policies are the small kubelet's own."""
    await stage.run("again", spec={"restartPolicy": "Always"}, annotations={SIM.duration: "20"})
    pod = await stage.pod("again", after=21.0)
    assert pod.status.phase == "Running"
    answer = await stage.transport.request(Question(method="GET", path=PODS.path(name="again", namespace="default")))
    assert msgspec.json.decode(answer.body)["status"]["containerStatuses"][0]["restartCount"] == 1


async def test_a_pod_that_the_node_has_no_room_for_fails_as_on_a_kubelet(stage: Stage) -> None:
    """More CPU than is left is refused at admission; what ended counts no more."""
    resources = {"limits": {"cpu": "20"}}
    spec = {"containers": [{"name": "main", "image": "none:1", "resources": resources}], "restartPolicy": "Never"}
    for name in ("first", "second", "third"):
        note = {SIM.duration: "10"}
        made = {"metadata": {"name": name, "annotations": note}, "spec": {**spec, "nodeName": "sim-1"}}
        await stage.create("/api/v1/namespaces/default/pods", made)
        assert (await stage.pod(name)).status.reason == ("OutOfcpu" if name == "second" else "")
        if name == "second":
            await stage.clock.advance(10.0)
