"""Limits that change while a container runs, by the agent that changes them: next time it asks, the tenant is told."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_agent.isolation.allowance import Allowed
from aliquot_agent.isolation.beyond import Owner, Whose
from aliquot_agent.isolation.pacemaker import Pacemaker
from aliquot_agent.isolation.slice_files import OWNER, SliceFiles
from support.clocks import VirtualClock
from support.isolation import CONTEXT, MIB, Container, World, gpu_uuid

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

OUT_OF_MEMORY = "2"


class Agent:
    """What beats, and what it was found that the container may have."""

    def __init__(self, world: World, container: Container) -> None:
        owner = Owner(pod="u1", container="main")
        (container.folder / OWNER).write_bytes(msgspec.json.encode(owner))
        files = SliceFiles(folder=world.folder, library=world.folder / "none")
        self._allowed: dict[Whose, Allowed] = {}
        self._pacemaker = Pacemaker(files=files, clock=VirtualClock(), allowed=lambda: self._allowed)

    def allow(self, mib: int) -> None:
        """One beat later it may have so much."""
        self._allowed["u1", "main", gpu_uuid(0)] = Allowed(memory=mib, limit=100)
        self._pacemaker.beat()


@pytest.mark.parametrize("way", ["linear", "async", "managed", "handle", "array", "graph"])
def test_a_lower_limit_refuses_what_comes_next_and_leaves_what_is_held(world: World, way: str) -> None:
    """However it takes memory; and when the limit is back, there is as much for it as before."""
    container = world.container(memory_mib=1000)
    tenant = container.run().started()
    assert tenant.ask(f"take linear {200 * MIB}") == "0"
    agent, size = Agent(world, container), 20 * MIB
    agent.allow(600)
    assert int(tenant.ask(f"fill {way} {size}").split()[0]) > 0
    assert CONTEXT + 200 * MIB < container.peak <= 600 * MIB
    agent.allow(400)
    held = container.used
    assert tenant.ask(f"take {way} {size}") == OUT_OF_MEMORY
    assert tenant.ask(f"take linear {2 * MIB}") == OUT_OF_MEMORY
    assert container.used == held
    agent.allow(1000)
    assert int(tenant.ask(f"fill {way} {size}").split()[0]) > 0
    assert 600 * MIB < container.peak <= 1000 * MIB


def test_a_tenant_is_told_of_its_lower_limit(world: World) -> None:
    """The whole is what it may have now, and nothing of it is free while it holds more."""
    container = world.container(memory_mib=1000)
    tenant = container.run().started()
    assert tenant.ask(f"take linear {400 * MIB}") == "0"
    agent = Agent(world, container)
    agent.allow(800)
    assert tenant.ask("info").split()[:3] == ["0", str(100 * MIB), str(800 * MIB)]
    agent.allow(500)
    assert tenant.ask("info").split()[:3] == ["0", "0", str(500 * MIB)]
    assert tenant.ask("empty") == "0"
    assert tenant.ask("info").split()[:3] == ["0", str(200 * MIB), str(500 * MIB)]
    assert int(tenant.ask(f"fill linear {100 * MIB}").split()[0]) == 2


def test_processes_that_start_later_are_held_to_it_too(world: World) -> None:
    """There is one limit for all of a container's processes, and one that starts where nothing is left gets nothing."""
    container = world.container(memory_mib=1000)
    first = container.run().started()
    agent = Agent(world, container)
    agent.allow(CONTEXT // MIB + 100)
    assert first.ask(f"take linear {100 * MIB}") == "0"
    second = container.run()
    assert second.ask("start") == OUT_OF_MEMORY
    assert container.peak == CONTEXT + 100 * MIB
