"""A program that goes round the interposer, with the agent that has the driver's word for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pytest

from aliquot_agent.isolation.beyond import LOOKS, Owner
from aliquot_agent.isolation.limits_file import GpuLimits, decode_limits
from aliquot_agent.isolation.pacemaker import Pacemaker
from aliquot_agent.isolation.slice_files import OWNER, SliceFiles
from support.clocks import VirtualClock
from support.isolation import CONTEXT, MIB, Container, Tenant, World, gpu_uuid

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]


def limits_of(container: Container) -> GpuLimits:
    """What it may use now."""
    (told,) = decode_limits(container.limits_path.read_bytes())
    return told


class Agent:
    """What the agent does once a sample: it is told what the driver says, and looks at accounts before and after."""

    def __init__(self, world: World, container: Container) -> None:
        self._container = container
        owner = Owner(pod="u1", container="main")
        (container.folder / OWNER).write_bytes(msgspec.json.encode(owner))
        files = SliceFiles(folder=world.folder, library=world.folder / "none")
        self._pacemaker = Pacemaker(files=files, clock=VirtualClock())

    def sample(self, times: int = LOOKS) -> None:
        """So many samples of what the container's processes really hold."""
        for _ in range(times):
            self._pacemaker.beat()
            self._pacemaker.measured({("u1", "main", gpu_uuid(0)): self._container.used})
            self._pacemaker.beat()


def test_what_one_takes_past_the_interposer_its_container_lacks(world: World) -> None:
    """The sum stays what was granted, but for a granule a process; what it gives back is there again at once."""
    container = world.container(memory_mib=2000)
    agent = Agent(world, container)
    honest = container.run().started()
    assert honest.ask(f"take linear {200 * MIB}") == "0"
    rogue = container.run(interposed=False).started()
    assert rogue.ask(f"take linear {900 * MIB}") == "0"
    agent.sample()
    assert container.account().processes == {honest.process.pid: (CONTEXT + 200 * MIB,)}
    taken, _ = honest.ask(f"fill linear {100 * MIB}").split()
    assert int(taken) == 3
    assert container.peak <= 2000 * MIB + 2 * MIB
    assert rogue.ask("empty") == "0"
    agent.sample(times=1)
    taken, _ = honest.ask(f"fill linear {100 * MIB}").split()
    assert int(taken) == 9


@contextmanager
def halted(tenants: Sequence[Tenant]) -> Iterator[None]:
    """Processes that stand still, wherever they are."""
    for tenant in tenants:
        tenant.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(tenant.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
    yield
    for tenant in tenants:
        tenant.process.send_signal(signal.SIGCONT)


def test_a_legal_container_lacks_nothing_however_it_churns(world: World) -> None:
    """At whatever instant processes are looked at, the driver has no byte of them that is not in the account."""
    container = world.container(memory_mib=4000)
    agent = Agent(world, container)
    at_work = [container.run().started() for _ in range(3)]
    for seed, tenant in enumerate(at_work, start=1):
        tenant.tell(f"churn {seed} 1000000000")
    for _ in range(20):
        with halted(at_work):
            agent.sample()
            assert container.used >= 3 * CONTEXT
            assert limits_of(container).unaccounted == 0
