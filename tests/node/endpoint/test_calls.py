"""What the kubelet asks of the endpoint and what it gets, with an agent, without one, and while agents come and go."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from aliquot_core import door
from aliquot_core.door import Started
from aliquot_deviceplugin.endpoint import plugin, service
from aliquot_deviceplugin.endpoint.agent_calls import AgentCalls
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from aliquot_kube.clock import SystemClock
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb
from aliquot_proto import deviceplugin_v1beta1_pb2_grpc as pb_grpc
from support.endpoints import COMPUTE, ScriptedAgent, agent, endpoint, forever, settings_in
from support.scripted_kubelet import ScriptedKubelet

REPLACED = "UNAVAILABLE: Aliquot's endpoint on this node is being replaced: the start is tried again"


class Node:
    """An endpoint that the kubelet listens to, and the kubelet's client for it."""

    def __init__(self, settings: EndpointSettings, stub: pb_grpc.DevicePluginAsyncStub, stop: asyncio.Event) -> None:
        self.settings = settings
        self.stub = stub
        self.stop = stop

    async def allocate(self, *ids: str) -> str:
        """Allocate, and return the one CDI name that comes back."""
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        (response,) = (await self.stub.Allocate(request)).container_responses
        (device,) = response.cdi_devices
        return device.name

    async def prestart(self, *ids: str, timeout: float = 30) -> str:  # noqa: ASYNC109 - it is the kubelet's deadline
        """Ask to start; return the code and the sentence of a refusal, or nothing."""
        try:
            await self.stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=ids), timeout=timeout)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        return ""

    async def prefer(self, *available: str, must: tuple[str, ...] = (), size: int) -> list[str]:
        """Ask which ids to take."""
        question = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        request = pb.PreferredAllocationRequest(container_requests=[question])
        (response,) = (await self.stub.GetPreferredAllocation(request)).container_responses
        return list(response.deviceIDs)


@pytest.fixture
def settings(folder: Path) -> EndpointSettings:
    """Settings of a node; a test may want others."""
    return settings_in(folder)


@pytest.fixture
async def node(settings: EndpointSettings, kubelet: ScriptedKubelet) -> AsyncIterator[Node]:
    """A node whose endpoint has a table and whose agent just went."""
    async with endpoint(settings) as stop:
        async with agent(settings, ScriptedAgent()):
            client = await kubelet.until_listed(COMPUTE, 200)
        yield Node(settings, client.stub, stop)


async def test_allocate_needs_nobody(node: Node) -> None:
    """Without an agent each Allocate gets a fresh name of our kind, also for ids that were given before."""
    names = [await node.allocate("0-01", "0-02") for _ in range(3)]

    assert len(set(names)) == 3
    assert all(re.fullmatch(r"aliquot\.dev/slice=[0-9a-f]{16}", name) for name in names)


async def test_start_with_all_names_that_were_given(node: Node) -> None:
    """The agent is told the ids and every name given for them, newest last, and lets the container start."""
    handler = ScriptedAgent()
    init, app = await node.allocate("0-01", "0-02"), await node.allocate("0-02", "0-01")
    await node.allocate("0-03")
    async with agent(node.settings, handler):
        assert await node.prestart("0-01", "0-02") == ""

    (asked,) = handler.starts
    assert (asked.resource, asked.ids, asked.names) == (COMPUTE, ["0-01", "0-02"], [init, app])
    assert 20 < asked.patience <= 28


async def test_names_outlive_the_endpoint(settings: EndpointSettings, kubelet: ScriptedKubelet) -> None:
    """After a restart of the endpoint the agent still hears which names were given, also those given without it."""
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        await kubelet.until_listed(COMPUTE, 200)
    async with endpoint(settings) as stop:
        client = await kubelet.until_listed(COMPUTE, 200)
        name = await Node(settings, client.stub, stop).allocate("0-01")
    handler = ScriptedAgent()
    async with endpoint(settings) as stop, agent(settings, handler):
        client = await kubelet.until_listed(COMPUTE, 200)
        assert await Node(settings, client.stub, stop).prestart("0-01") == ""

    assert handler.starts[0].names == [name]


async def test_refusal_is_the_agents_sentence(node: Node) -> None:
    """What the agent says is what the kubelet shows in the pod's Event, whatever letters are in it."""

    async def refuse(_call: door.PreStart) -> str:
        return "pod a/b: its grant names GPU-ä, which is sick; wait for it\nor delete the pod"

    async with agent(node.settings, ScriptedAgent(start=refuse)):
        answer = await node.prestart("0-01")

    assert answer == (
        "FAILED_PRECONDITION: pod a/b: its grant names GPU-ä, which is sick; wait for it\nor delete the pod"
    )


async def test_endless_refusal_arrives(node: Node) -> None:
    """A refusal longer than a gRPC header may be arrives cut, not as an error of its own."""

    async def refuse(_call: door.PreStart) -> str:
        return "€" * 100_000  # nine characters each in a header

    async with agent(node.settings, ScriptedAgent(start=refuse)):
        answer = await node.prestart("0-01")

    assert answer.startswith("FAILED_PRECONDITION: €€")


@pytest.mark.parametrize("connected", [True, False])
async def test_says_what_it_waits_for(node: Node, monkeypatch: pytest.MonkeyPatch, *, connected: bool) -> None:
    """Before the kubelet's deadline the endpoint says whether it waits for an agent or for an agent's answer."""
    # However busy the machine, the sentence is to come before that; and nobody is to wait long for it.
    monkeypatch.setattr(service, "MARGIN", 58.0)
    async with agent(node.settings, ScriptedAgent(start=forever)) as at_door:
        if connected:
            answer = await node.prestart("0-01", timeout=60)
    if not connected:
        answer = await node.prestart("0-01", timeout=60)

    assert answer.startswith("UNAVAILABLE: ")
    assert ("agent-1 has not answered" if connected else "is not connected") in answer
    assert at_door.kubelet is None


async def test_agent_comes_while_a_start_waits(node: Node) -> None:
    """A start that found no agent is answered by the first that comes."""
    start = asyncio.ensure_future(node.prestart("0-01"))
    handler = ScriptedAgent()
    async with agent(node.settings, handler):
        assert await start == ""

    assert len(handler.starts) == 1


async def test_agent_killed_while_it_decides(node: Node) -> None:
    """What a killed agent was deciding is asked of its successor; the kubelet notices nothing."""
    killed, successor = ScriptedAgent(start=forever), ScriptedAgent()
    async with agent(node.settings, killed):
        starts = [asyncio.ensure_future(node.prestart(f"0-{number:02}")) for number in range(10)]
        await killed.until(lambda: len(killed.starts) == 10)
    async with agent(node.settings, successor, name="agent-2"):
        assert await asyncio.gather(*starts) == [""] * 10

    assert sorted(call.ids for call in successor.starts) == [[f"0-{number:02}"] for number in range(10)]
    assert killed.dropped == 10


async def test_kubelet_gives_up(node: Node) -> None:
    """When the kubelet cancels a start, the agent stops deciding it."""
    handler = ScriptedAgent(start=forever)
    async with agent(node.settings, handler):
        start = node.stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=["0-01"]))
        await handler.until(lambda: len(handler.starts) == 1)
        start.cancel()
        await handler.until(lambda: handler.dropped == 1)

    assert start.cancelled()


async def test_a_hundred_starts_at_once(node: Node) -> None:
    """A hundred starts run side by side: none waits for another's decision, none fails."""
    together = asyncio.Barrier(100)

    async def decide(_call: door.PreStart) -> None:
        await together.wait()

    handler = ScriptedAgent(start=decide)
    async with agent(node.settings, handler), asyncio.timeout(60):
        answers = await asyncio.gather(*(node.prestart(f"0-{number:02}") for number in range(100)))

    assert answers == [""] * 100
    assert len(handler.starts) == 100


async def test_leaving_endpoint_answers(node: Node) -> None:
    """Starts that wait when the endpoint leaves are told so, not cut off."""
    taken_in = ScriptedAgent(start=forever)
    async with agent(node.settings, taken_in):
        starts = [asyncio.ensure_future(node.prestart(f"0-{number:02}")) for number in range(100)]
        await taken_in.until(lambda: len(taken_in.starts) == len(starts))
    node.stop.set()

    assert set(await asyncio.gather(*starts)) == {REPLACED}


# As nothing else of an endpoint sleeps.
AS_LONG = 77.0


class PatientLeaver(SystemClock):
    """Tells when whoever leaves begins to wait for what is still to be answered."""

    def __init__(self) -> None:
        """Nobody leaves yet."""
        self.waited = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Sleep, and tell it."""
        if seconds == AS_LONG:
            self.waited.set()
        await super().sleep(seconds)


async def test_streams_end_when_all_starts_are_answered(
    settings: EndpointSettings, kubelet: ScriptedKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long answers take: with a stream the kubelet ends its connection, and what is on its way there."""
    clock, asked = PatientLeaver(), AgentCalls.may_start

    async def answered_late(*given: Any, **named: Any) -> Started | None:
        answer = await asked(*given, **named)
        await clock.waited.wait()
        return answer

    monkeypatch.setattr(plugin, "_GRACE", AS_LONG)
    monkeypatch.setattr(AgentCalls, "may_start", answered_late)
    handler = ScriptedAgent(start=forever)
    async with endpoint(settings, clock=clock) as stop, agent(settings, handler):
        client = await kubelet.until_listed(COMPUTE, 200)
        start = asyncio.ensure_future(Node(settings, client.stub, stop).prestart("0-01"))
        await handler.until(lambda: len(handler.starts) == 1)
        stop.set()

        assert await start == REPLACED


async def test_defect_of_the_agent_is_named(node: Node) -> None:
    """An agent that fails to decide refuses with what went wrong, and gives no advice."""

    async def fail(_call: object) -> None:
        raise ZeroDivisionError("ids divided by nothing")

    handler = ScriptedAgent(start=fail, preference=fail)  # type: ignore[arg-type]  # for either
    async with agent(node.settings, handler):
        answer = await node.prestart("0-01")
        chosen = await node.prefer("0-01", "0-02", size=1)

    assert answer == "FAILED_PRECONDITION: Aliquot's agent failed: ids divided by nothing"
    assert chosen == ["0-01"]


ADVICE = {
    "taken": (["1-01", "1-02"], ["1-01", "1-02"]),
    "none": ([], ["0-01", "0-02"]),
    "too few": (["1-01"], ["0-01", "0-02"]),
    "not available": (["1-01", "9-99"], ["0-01", "0-02"]),
}


@pytest.mark.parametrize(("advice", "expected"), ADVICE.values(), ids=ADVICE)
async def test_preference(node: Node, advice: list[str], expected: list[str]) -> None:
    """The agent's advice is passed on where the kubelet can use it; else the endpoint chooses, on one GPU."""

    async def advise(_call: door.Prefer) -> list[str]:
        return advice

    handler = ScriptedAgent(preference=advise)
    async with agent(node.settings, handler):
        chosen = await node.prefer("1-02", "0-02", "1-01", "0-01", size=2)

    assert chosen == expected
    assert (handler.wishes[0].size, sorted(handler.wishes[0].available)) == (2, ["0-01", "0-02", "1-01", "1-02"])


async def test_preference_of_a_slow_agent(node: Node) -> None:
    """Advice that takes too long is not waited for, and the agent hears that it may stop."""
    handler = ScriptedAgent(preference=forever)  # type: ignore[arg-type]  # it answers nothing
    async with agent(node.settings, handler), asyncio.timeout(60):
        chosen = await node.prefer("1-02", "0-02", "1-01", "0-01", must=("1-02",), size=2)

    assert chosen == ["1-02", "1-01"]


async def test_preference_without_an_agent(node: Node) -> None:
    """Without an agent the endpoint chooses at once."""
    assert await node.prefer("1-02", "0-02", "1-01", "0-01", size=2) == ["0-01", "0-02"]
