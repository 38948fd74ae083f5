"""The scheduling loop against the embedded API server, on a clock that the tests move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from aliquot_kube.client import KubeClient
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import NODES, PODS
from aliquot_kube.transport import Question
from aliquot_standalone.apiserver.direct import DirectTransport, NoFaults
from aliquot_standalone.apiserver.frontend import Frontend
from aliquot_standalone.scheduling.loop import SchedulingLoop
from support.clocks import VirtualClock
from support.embedded_api import make_frontend
from support.scheduling import OURS, ScriptedExtender, node, pod

Json = dict[str, Any]


@dataclass
class Stage:
    """One API server, one loop."""

    clock: VirtualClock
    frontend: Frontend
    transport: DirectTransport
    extender: ScriptedExtender
    client: KubeClient

    async def create(self, path: str, body: Json) -> None:
        """Create something, and let the loop hear of it."""
        question = Question(method="POST", path=path, body=msgspec.json.encode(body), content_type="application/json")
        await self.transport.request(question)
        await self.clock.advance(0.0)

    async def node(self, name: str, **parts: Any) -> None:
        """Create a node."""
        await self.create("/api/v1/nodes", node(name, **parts))

    async def pod(self, name: str, **parts: Any) -> None:
        """Create a pod."""
        made = pod(name, **parts)
        del made["metadata"]["uid"]
        await self.create("/api/v1/namespaces/default/pods", made)

    async def raw(self, name: str) -> Json:
        """Read a pod, whole."""
        answer = await self.transport.request(Question(method="GET", path=PODS.path(name=name, namespace="default")))
        return dict(msgspec.json.decode(answer.body))

    async def lies_on(self, name: str) -> str:
        """Where a pod is by now."""
        await self.clock.advance(0.0)
        return str((await self.raw(name))["spec"].get("nodeName", ""))

    async def said(self, name: str) -> tuple[str, str]:
        """Why it is nowhere."""
        await self.clock.advance(0.0)
        found = [one for one in (await self.raw(name))["status"].get("conditions", []) if one["type"] == "PodScheduled"]
        return (found[0].get("reason", ""), found[0].get("message", "")) if found else ("", "")


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A loop that runs."""
    clock = VirtualClock(start=1_700_000_000.0)
    frontend = make_frontend()
    transport = DirectTransport(frontend=frontend, clock=clock)
    client = KubeClient(transport=transport)
    extender = ScriptedExtender(writer=client)
    loop = SchedulingLoop(transport=transport, extender=extender, managed=[OURS], clock=clock, random=lambda: 0.5)
    running = asyncio.create_task(loop.run())
    yield Stage(clock=clock, frontend=frontend, transport=transport, extender=extender, client=client)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_pod_of_nobody_in_particular_is_bound_without_the_extender(stage: Stage) -> None:
    """A pod that asks only for CPU is placed by the loop alone."""
    await stage.node("one")
    await stage.pod("plain", cpu="1")
    assert await stage.lies_on("plain") == "one"
    assert stage.extender.asked == []


async def test_a_pod_of_ours_is_filtered_graded_and_bound_by_the_extender(stage: Stage) -> None:
    """Filter, prioritize and bind are asked in this order, and the best grade wins."""
    for name in ("one", "two", "three"):
        await stage.node(name)
    stage.extender.refused = {"one": "no room"}
    stage.extender.grades = {"two": 10, "three": 700}
    await stage.pod("ours", **{OURS: "30"})
    assert await stage.lies_on("ours") == "three"
    assert [(verb, sorted(nodes)) for verb, _, nodes in stage.extender.asked] == [
        ("filter", ["one", "three", "two"]),
        ("prioritize", ["three", "two"]),
        ("bind", ["three"]),
    ]


async def test_the_nominated_node_is_asked_about_alone(stage: Stage) -> None:
    """A pod whose room is promised costs two questions, however many nodes there are."""
    for name in ("one", "two", "three"):
        await stage.node(name)
    await stage.pod("gated", spec={"schedulingGates": [{"name": "aliquot.dev/queue"}]}, **{OURS: "30"})
    nominate = merge_patch({"status": {"nominatedNodeName": "two"}})
    await stage.client.patch(PODS, name="gated", namespace="default", patch=nominate, subresource="status")
    assert await stage.lies_on("gated") == ""
    lift = merge_patch({"spec": {"schedulingGates": None}})
    await stage.client.patch(PODS, name="gated", namespace="default", patch=lift)
    assert await stage.lies_on("gated") == "two"
    assert stage.extender.asked == [("filter", "gated", ["two"]), ("bind", "gated", ["two"])]


async def test_who_fits_nowhere_is_told_why_and_comes_again_when_a_node_changes(stage: Stage) -> None:
    """The condition names the reasons; a node that is uncordoned wakes the pod, after its back-off."""
    await stage.node("one", spec={"unschedulable": True})
    await stage.node("two", cpu="1")
    await stage.pod("big", cpu="4")
    assert await stage.said("big") == (
        "Unschedulable",
        "0 of 2 nodes can take the pod; 1: cordoned; 1: too little cpu",
    )
    await stage.client.patch(NODES, name="one", patch=merge_patch({"spec": {"unschedulable": None}}))
    await stage.clock.advance(1.0)
    assert await stage.lies_on("big") == "one"


async def test_room_that_a_pod_leaves_wakes_who_waits_for_it(stage: Stage) -> None:
    """A pod that ends frees what it asked, and the next one gets it."""
    await stage.node("one", cpu="1")
    await stage.pod("first", cpu="1")
    await stage.pod("second", cpu="1")
    assert (await stage.lies_on("first"), await stage.lies_on("second")) == ("one", "")
    over = merge_patch({"status": {"phase": "Succeeded"}})
    await stage.client.patch(PODS, name="first", namespace="default", patch=over, subresource="status")
    await stage.clock.advance(1.0)
    assert await stage.lies_on("second") == "one"


async def test_an_extender_that_does_not_decide_is_asked_again_with_back_off(stage: Stage) -> None:
    """After an error the pod comes again after 1 s, then after 2, and nobody else is held up."""
    await stage.node("one")
    stage.extender.errors = ["no leader", "no leader"]
    await stage.pod("ours", **{OURS: "30"})
    assert (await stage.said("ours"))[0] == "SchedulerError"
    await stage.pod("plain", cpu="1")
    assert await stage.lies_on("plain") == "one"
    await stage.clock.advance(0.9)
    assert len(stage.extender.asked) == 1
    await stage.clock.advance(0.2)
    assert len(stage.extender.asked) == 2
    await stage.clock.advance(1.8)
    assert len(stage.extender.asked) == 2
    await stage.clock.advance(0.3)
    assert await stage.lies_on("ours") == "one"


async def test_a_binding_that_fails_gives_its_room_back(stage: Stage) -> None:
    """What a pod was counted for while it was bound is others' when that came to nothing."""
    await stage.node("one", cpu="1")
    bind = stage.extender.bind

    async def refuse(pod: Any, *, node: str) -> None:
        stage.extender.errors = ["too late"]
        await bind(pod, node=node)

    stage.extender.bind = refuse  # type: ignore[method-assign]
    await stage.pod("unlucky", **{OURS: "50", "cpu": "1"})
    await stage.pod("plain", cpu="1")
    assert await stage.lies_on("plain") == "one"
    assert await stage.lies_on("unlucky") == ""


async def test_of_two_on_their_way_at_once_one_gets_the_room(stage: Stage) -> None:
    """Room that another pod has taken while the extender was asked is not given twice."""
    await stage.node("one", cpu="1")
    stage.extender.hold = asyncio.Event()
    await stage.pod("first", **{OURS: "30", "cpu": "1"})
    await stage.pod("second", **{OURS: "30", "cpu": "1"})
    assert [name for _, name, _ in stage.extender.asked] == ["first", "second"]
    stage.extender.hold.set()
    assert (await stage.lies_on("first"), await stage.lies_on("second")) == ("one", "")
    assert (await stage.said("second"))[1] == "0 of 1 node can take the pod; 1: too little cpu"


async def test_a_pod_that_goes_while_it_is_decided_leaves_nothing(stage: Stage) -> None:
    """Its room is others' at once, and nobody binds it."""
    await stage.node("one", cpu="1")
    stage.extender.hold = asyncio.Event()
    await stage.pod("gone", **{OURS: "30", "cpu": "1"})
    await stage.client.delete(PODS, name="gone", namespace="default", grace_seconds=0)
    await stage.clock.advance(0.0)
    stage.extender.hold.set()
    await stage.pod("plain", cpu="1")
    assert await stage.lies_on("plain") == "one"
    assert [verb for verb, _, _ in stage.extender.asked] == ["filter"]


class SlowLists(NoFaults):
    """A wire on which the list of one kind takes its time."""

    def __init__(self, *, clock: VirtualClock, kind: str) -> None:
        self._clock = clock
        self._kind = kind

    async def on_question(self, question: Question) -> None:
        """Hold this list up."""
        if question.path.endswith(self._kind) and "watch" not in question.query:
            await self._clock.sleep(5.0)


@pytest.mark.parametrize("slow", ["/nodes", "/pods"])
async def test_a_loop_that_starts_looks_at_no_pod_before_it_knows_all(stage: Stage, slow: str) -> None:
    """It neither complains of nodes that it has not heard of, nor fills one that is full."""
    late = DirectTransport(frontend=stage.frontend, clock=stage.clock, faults=SlowLists(clock=stage.clock, kind=slow))
    scheduler = {"schedulerName": "late"}
    for name in ("one", "two"):
        await stage.node(name)
    await stage.pod("lies", spec={"nodeName": "one"}, cpu="8")
    await stage.pod("waits", spec=scheduler, cpu="8")
    loop = SchedulingLoop(
        transport=late,
        extender=stage.extender,
        managed=[OURS],
        clock=stage.clock,
        random=lambda: 0.5,
        schedulers=["late"],
    )
    running = asyncio.create_task(loop.run())
    await stage.clock.advance(4.0)
    assert await stage.said("waits") == ("", "")
    await stage.clock.advance(2.0)
    assert await stage.lies_on("waits") == "two"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_room_of_a_pod_that_is_deleted_wakes_who_waits_for_it(stage: Stage) -> None:
    """Also where its end was never told of before it was gone."""
    await stage.node("one", cpu="1")
    await stage.pod("first", cpu="1")
    await stage.pod("second", cpu="1")
    await stage.client.delete(PODS, name="first", namespace="default", grace_seconds=0)
    await stage.clock.advance(1.0)
    assert await stage.lies_on("second") == "one"


async def test_what_needs_a_cluster_is_said_and_not_placed(stage: Stage) -> None:
    """A pod that is to be spread lies nowhere rather than anywhere."""
    await stage.node("one")
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    await stage.pod("spread", spec={"topologySpreadConstraints": [spread]}, cpu="1")
    assert await stage.lies_on("spread") == ""
    reason, message = await stage.said("spread")
    assert reason == "Unschedulable"
    assert message.startswith("spec.topologySpreadConstraints needs a cluster")


async def test_pods_of_other_schedulers_and_gated_ones_are_left_alone(stage: Stage) -> None:
    """Nobody is placed who asked somebody else, or who may not go yet."""
    await stage.node("one")
    await stage.pod("foreign", spec={"schedulerName": "somebody-else"}, cpu="1")
    await stage.pod("gated", spec={"schedulingGates": [{"name": "aliquot.dev/queue"}]}, cpu="1")
    assert (await stage.lies_on("foreign"), await stage.lies_on("gated")) == ("", "")
    await stage.pod("plain", cpu="1")
    assert await stage.lies_on("plain") == "one"


async def test_a_pod_that_waits_has_an_event(stage: Stage) -> None:
    """What kubectl describe shows says the same as the condition."""
    await stage.pod("nowhere", cpu="1")
    await stage.clock.advance(0.1)
    answer = await stage.transport.request(Question(method="GET", path="/api/v1/namespaces/default/events"))
    found = [(one["reason"], one["message"]) for one in msgspec.json.decode(answer.body)["items"]]
    assert found == [("FailedScheduling", "there are no nodes")]
