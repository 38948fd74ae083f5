"""Processes that ended where nobody of their container sees it: the agent frees what they are charged for."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from aliquot_agent.isolation.departed import Departed
from aliquot_agent.isolation.node_processes import NodeProcesses
from aliquot_agent.isolation.slice_files import SliceFiles
from aliquot_kube.clock import SystemClock
from support.isolation import MIB, Container, World
from support.require import skip_or_fail

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(240)]

# A pid namespace of its own, inside the container's; its processes see themselves alone.
NESTED = ["unshare", "--pid", "--fork", "--mount-proc", *(() if os.geteuid() == 0 else ("--map-root-user",))]
OUT_OF_MEMORY = "2"


@pytest.fixture(autouse=True)
def namespaces() -> None:
    """Where they can be made."""
    try:
        subprocess.run([*NESTED, "true"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as error:
        skip_or_fail("native", f"no pid namespaces can be made here: {error}")


def agent_of(world: World) -> Departed:
    """The agent's look at the containers of that world."""
    files = SliceFiles(folder=world.folder, library=world.folder / "none", context_mib=0)
    return Departed(files=files, living=NodeProcesses(), clock=SystemClock())


def into_the_next_tick() -> None:
    """An account knows processes by number and start, which Linux tells in ticks: two of one tick are one to it."""
    tick, until = os.sysconf("SC_CLK_TCK"), time.clock_gettime(time.CLOCK_BOOTTIME)
    while int(time.clock_gettime(time.CLOCK_BOOTTIME) * tick) <= int(until * tick):
        pass


def charged(container: Container) -> int:
    """MiB that its account says its processes hold."""
    return sum(held[0] for held in container.account().processes.values()) // MIB


async def test_what_ended_in_a_nested_namespace_comes_back(world: World) -> None:
    """Its own container can't tell that it ended; with the agent's second look its memory is the container's again."""
    container, agent = world.container(memory_mib=2000), agent_of(world)
    nested = container.run(under=NESTED).started()
    assert nested.ask(f"take linear {1200 * MIB}") == "0"
    for _ in range(3):
        await agent.look()
    assert charged(container) == 1500
    assert nested.process.stdin
    nested.process.stdin.close()
    nested.process.wait(60)
    outer = container.run().started()
    assert outer.ask(f"take linear {1200 * MIB}") == OUT_OF_MEMORY
    for _ in range(2):
        await agent.look()
    assert charged(container) == 300
    assert outer.ask(f"take linear {1200 * MIB}") == "0"
    assert container.peak <= 2000 * MIB


async def test_who_lives_in_a_nested_namespace_keeps_its_charge(world: World) -> None:
    """Also with the number that another process of the container has in a namespace of its own."""
    container, agent = world.container(memory_mib=2000), agent_of(world)
    lives = container.run(under=NESTED).started()
    into_the_next_tick()
    ends = container.run(under=NESTED).started()
    for one in (lives, ends):
        assert one.ask(f"take linear {300 * MIB}") == "0"
    assert ends.process.stdin
    ends.process.stdin.close()
    ends.process.wait(60)
    for _ in range(3):
        await agent.look()
    assert charged(container) == 600
    assert lives.ask("give 0") == "0"
    assert charged(container) == 300
