"""Processes that ended where nobody of their container sees it: the agent frees what they are charged for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest

from aliquot_agent.isolation.departed import Departed, Life, Living
from aliquot_agent.isolation.node_processes import NodeProcesses
from aliquot_agent.isolation.slice_files import SliceFiles
from aliquot_kube.clock import SystemClock
from support.isolation import MIB, Container, Tenant, World
from support.require import skip_or_fail

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

# A pid namespace of its own, inside the container's; its processes see themselves alone.
NESTED = ["unshare", "--pid", "--fork", "--mount-proc", *(() if os.geteuid() == 0 else ("--map-root-user",))]
OUT_OF_MEMORY = "2"
# About every second two begin in one tick.
_TRIES = 100


@pytest.fixture(autouse=True)
def namespaces() -> None:
    """Where they can be made."""
    try:
        subprocess.run([*NESTED, "true"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as error:
        skip_or_fail("native", f"no pid namespaces can be made here: {error}")


def agent_of(world: World, *, living: Living | None = None) -> Departed:
    """The agent's look at the containers of that world."""
    files = SliceFiles(folder=world.folder, library=world.folder / "none")
    return Departed(files=files, living=living or NodeProcesses(), clock=SystemClock())


class OfOneNamespace:
    """Only those who live in the pid namespace of a tenant's first child."""

    def __init__(self, tenant: Tenant) -> None:
        self._namespace = Path(f"/proc/{first_child(tenant)}/ns/pid").stat().st_ino

    def living(self, born: Collection[int]) -> set[Life]:
        """As the kernel tells."""
        return {life for life in NodeProcesses().living(born) if life.namespace == self._namespace}


def twins(container: Container) -> tuple[Tenant, Tenant]:
    """Two processes that began in one tick of the kernel's clock, each the first of its pid namespace."""
    for _ in range(_TRIES):
        both = [container.run(under=[*NESTED, "sh", "-c", 'echo "$$"; read -r go; exec "$0"']) for _ in range(2)]
        assert [one.answer() for one in both] == ["1", "1"]
        if len({first_of_its_namespace(one) for one in both}) == 1:
            for one in both:
                one.tell("go")
            return both[0].started(), both[1].started()
        for one in both:
            one.close()
    pytest.fail("no two processes began in one tick")


def first_of_its_namespace(one: Tenant) -> int:
    """When the child began that `unshare` made."""
    return NodeProcesses().born(first_child(one))


def first_child(one: Tenant) -> int:
    """The process that `unshare` made."""
    own = one.process.pid
    (child,) = Path(f"/proc/{own}/task/{own}/children").read_text().split()
    return int(child)


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
    """Also with the number of another process of the container, and its start: each is charged for itself."""
    container, agent = world.container(memory_mib=2000), agent_of(world)
    lives, ends = twins(container)
    for one in (lives, ends):
        assert one.ask(f"take linear {300 * MIB}") == "0"
    assert charged(container) == 1200
    assert ends.process.stdin
    ends.process.stdin.close()
    ends.process.wait(60)
    for _ in range(3):
        await agent.look()
    assert charged(container) == 600
    assert lives.ask("give 0") == "0"
    assert charged(container) == 300


async def test_who_sees_no_processes_of_its_namespace_judges_none(world: World) -> None:
    """A sandbox with pids of its own and the /proc of whoever made it: there its numbers are others' or nobody's."""
    container = world.container(memory_mib=1500)
    without_its_own = [part for part in NESTED if part != "--mount-proc"]
    # Its second process: who has the first one's number outside is seldom to be looked at.
    one = container.run(under=[*without_its_own, "sh", "-c", '"$0"; exit']).started()
    for _ in range(2):
        assert one.ask(f"take linear {400 * MIB}") == "0"
    assert one.ask("fork linear 100000000").split() == ["0", "1", OUT_OF_MEMORY]
    assert container.peak <= 1500 * MIB
    assert charged(container) == 1496
    # Anybody on this machine who began in that tick with that number would count as the one that ended.
    agent = agent_of(world, living=OfOneNamespace(one))
    for _ in range(2):
        await agent.look()
    assert charged(container) == 1100
