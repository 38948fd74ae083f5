"""Quality of service of memory, from the driver's word to what programs get: agent and limiter together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from aliquot_agent.gpus.model import GpuUsage
from aliquot_agent.isolation.beyond import LOOKS, Owner
from aliquot_agent.isolation.ladder import Rung, Rungs
from aliquot_agent.isolation.limits_file import GpuLimits, decode_limits
from aliquot_agent.isolation.live_limits import LiveLimits
from aliquot_agent.isolation.over_use import OverUse
from aliquot_agent.isolation.pacemaker import Pacemaker
from aliquot_agent.isolation.slice_files import OWNER, SliceFiles
from aliquot_agent.web.accounts import SliceUse
from aliquot_core.modes import INTERPOSER
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from support.clocks import VirtualClock
from support.fake_api import FakeApi
from support.isolation import CONTEXT, MIB, Built, Container, Tenant, World, gpu_uuid
from support.node_figures import facts

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

NAMES, OUT_OF_MEMORY, BLOCK, SAMPLE = Names(), "2", 50, 10.0
GPU = gpu_uuid(0)


class Node:
    """A GPU of 4,000 MiB with slices, and the agent of its node; samples are taken when the test says so."""

    def __init__(self, world: World) -> None:
        self.world, self.clock, self.api = world, VirtualClock(), FakeApi()
        self.slices: dict[Container, SliceUse] = {}
        self.pods: dict[str, Pod] = {}
        client = KubeClient(transport=self.api)
        events = EventRecorder(
            client=client, clock=self.clock, random=lambda: 0.5, controller="c", instance="i", ledger=EventLedger()
        )
        files = SliceFiles(folder=world.folder, library=world.folder / "none")
        self.limits = LiveLimits(names=NAMES, events=events, pods=lambda: self.pods, floor=lambda _: CONTEXT // MIB)
        self.ladder = OverUse(
            names=NAMES, clock=self.clock, client=client, events=events, pods=lambda: self.pods,
            rungs=Rungs(top=Rung.EVICT),
        )  # fmt: skip
        self.pacemaker = Pacemaker(
            files=files,
            clock=self.clock,
            throttled=self.ladder.throttled,
            allowed=lambda: self.limits.allowed,
        )
        self.runs = [asyncio.ensure_future(each.run()) for each in (events, self.ladder)]

    def holds(self, uid: str, memory: int, *, compute: int) -> Container:
        """A pod with a slice that may burst."""
        container = self.world.container(memory_mib=memory, guarantee=compute, rate=compute)
        container.set(msgspec.structs.replace(container.gpus[0], limit=1_000_000))
        (container.folder / OWNER).write_bytes(msgspec.json.encode(Owner(pod=uid, container="main")))
        meta = {"name": uid, "namespace": "team", "uid": uid}
        self.pods[uid] = msgspec.convert({"metadata": meta, "status": {"phase": "Running"}}, Pod)
        self.api.put(f"/api/v1/namespaces/team/pods/{uid}/status", {"metadata": meta, "status": {"phase": "Running"}})
        self.slices[container] = SliceUse(
            namespace="team", pod=uid, uid=uid, container="main", gpu=GPU, compute=compute, limit=100,
            memory_mib=memory, isolation=INTERPOSER, used_percent=0,
        )  # fmt: skip
        return container

    async def sample(self, *, times: int = 1) -> None:
        """So many samples of what the driver says, each handed on as the agent does, with beats between them."""
        for _ in range(times):
            used = sum(self.world.used(number) for number in range(4)) // MIB
            slices = [msgspec.structs.replace(one, used_mib=each.used // MIB) for each, one in self.slices.items()]
            self.pacemaker.measured({(one.uid, "main", GPU): (one.used_mib or 0) * MIB for one in slices})
            self.ladder.hear(slices)
            card = msgspec.structs.replace(facts(GPU), memory_total_mib=4000, memory_reserved_mib=0)
            self.limits.hear(slices, usages={GPU: GpuUsage(uuid=GPU, memory_used_mib=used)}, facts={GPU: card})
            self.pacemaker.beat()
            await self.clock.advance(SAMPLE)

    def told(self, uid: str) -> set[str]:
        """Reasons of the Events of a pod."""
        made = [msgspec.json.decode(one.body or b"{}") for one in self.api.asked if one.path.endswith("/events")]
        return {one["reason"] for one in made if one["regarding"]["name"] == uid}

    async def close(self) -> None:
        """End."""
        for one in self.runs:
            one.cancel()
        await asyncio.gather(*self.runs, return_exceptions=True)


@pytest.fixture
async def node(built: Built, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    """A node of its own for each test."""
    world = World(built=built, folder=tmp_path_factory.mktemp("world"), memory_mib=(4000,))
    made = Node(world)
    yield made
    await made.close()
    world.close()


def in_force(container: Container) -> GpuLimits:
    """What stands in its limits now."""
    (told,) = decode_limits(container.limits_path.read_bytes())
    return told


def filled(program: Tenant) -> int:
    """Take blocks until it is refused; how many MiB there were."""
    count, why = program.ask(f"fill linear {BLOCK * MIB}").split()
    assert why == OUT_OF_MEMORY
    return int(count) * BLOCK


async def test_under_memory_pressure_best_effort_goes_first(node: Node) -> None:
    """A stranger holds 1,000 MiB of a sold-out GPU: best effort asks first, and who has compute finds his all."""
    firm, loose = node.holds("firm", 2400, compute=50), node.holds("loose", 1600, compute=0)
    first, second = firm.run().started(), loose.run().started()
    await node.sample()
    stranger = node.world.container(memory_mib=4000).run(interposed=False).started()
    assert stranger.ask(f"take linear {700 * MIB}") == "0"
    await node.sample(times=LOOKS)
    taken = filled(second)
    assert loose.used // MIB == 300 + taken < 700
    # All that was granted, but what is let pass.
    assert filled(first) + 300 >= 2400 - 64 - BLOCK
    held = loose.used
    await node.sample(times=LOOKS)
    assert loose.used == held
    assert (node.told("loose"), node.told("firm")) == ({"MemoryLacks"}, set())
    assert stranger.ask("empty") == "0"
    await node.sample()
    assert filled(second) > 500


async def test_over_use_is_never_a_neighbour_s_loss(node: Node) -> None:
    """Who goes round the limiter pays by himself, rung by rung; the other has all of his slice at each of them."""
    good, bad = node.holds("good", 2000, compute=50), node.holds("bad", 1000, compute=20)
    mine, its = good.run().started(), bad.run().started()
    around = bad.run(interposed=False).started()
    assert around.ask(f"take linear {900 * MIB}") == "0"
    seen = set()
    for _ in range(20):
        await node.sample()
        seen.add(node.ladder.rungs.get(("bad", "main", GPU), Rung.INSIDE))
        assert filled(mine) + 300 == 2000
        assert mine.ask("empty") == "0"
        limits = in_force(good)
        assert (limits.memory, limits.guarantee, limits.limit, limits.unaccounted) == (
            2000 * MIB,
            500_000,
            1_000_000,
            0,
        )
    assert seen == set(Rung)
    assert filled(its) == 0
    assert node.ladder.throttled() == {("bad", "main", GPU)}
    assert (in_force(bad).rate, in_force(bad).guarantee) == (200_000, 200_000)
    assert (node.told("bad"), node.told("good")) == ({"OverUse"}, set())
    conditions = node.api.objects["/api/v1/namespaces/team/pods/bad/status"]["status"]["conditions"]
    assert [(one["type"], one["status"], one["reason"]) for one in conditions] == [
        (NAMES.of("granted"), "False", "OverUse")
    ]
