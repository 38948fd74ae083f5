"""Memory counts where it lies: on the pool's own GPU, on the GPU whose part it is, and on none if it is the host's."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.isolation import CONTEXT, MIB, Built, World

OUT_OF_MEMORY, INVALID_VALUE, INVALID_DEVICE = "2", "1", "101"
# CUmemLocationType: of the host; a part of a device (CUDA 13.4); and one that nobody has heard of.
DEVICE, HOSTS, DOMAIN, UNHEARD_OF = 1, (2, 3, 4), 6, 99
# What the program gives up at.
ALL = "20"

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]


@pytest.mark.parametrize("tells", ["all", "no-place"])
@pytest.mark.parametrize("which", ["default", "present", "default-at", "present-at", "made"])
def test_a_pool_counts_on_its_own_gpu(tmp_path: Path, built: Built, which: str, tells: str) -> None:
    """Whichever GPU's stream takes of it, also where the driver does not say whose a pool is."""
    world = World(built=built, folder=tmp_path, memory_mib=(16_384, 16_384))
    container = world.container(memory_mib=1000, gpus=2)
    tenant = container.run(environment={"FAKE_CUDA_POOLS": tells}).started()
    assert tenant.ask(f"fill-at {which} {DEVICE} 1 {100 * MIB}").split() == ["10", OUT_OF_MEMORY]
    assert container.account().processes[tenant.process.pid] == (CONTEXT, 1000 * MIB)
    assert world.peak(container.number, gpu=1) == 1000 * MIB
    assert tenant.ask(f"take linear {600 * MIB}") == "0"
    world.close()


@pytest.mark.parametrize("what", ["handle", "graph", "made"])
def test_a_part_of_a_gpu_counts_on_it(tmp_path: Path, built: Built, what: str) -> None:
    """Memory of a locality domain is its device's, whose number is the first byte of two."""
    world = World(built=built, folder=tmp_path, memory_mib=(16_384, 16_384))
    container = world.container(memory_mib=1000, gpus=2)
    tenant = container.run().started()
    assert tenant.ask(f"fill-at {what} {DOMAIN} {1 << 8 | 1} {100 * MIB}").split() == ["10", OUT_OF_MEMORY]
    assert container.account().processes[tenant.process.pid] == (CONTEXT, 1000 * MIB)
    assert world.peak(container.number, gpu=1) == 1000 * MIB
    world.close()


@pytest.mark.parametrize(
    ("what", "why"), [("handle", INVALID_VALUE), ("graph", OUT_OF_MEMORY), ("made", INVALID_VALUE)]
)
def test_a_place_that_nobody_knows_is_refused_with_a_word(
    world: World, capfd: pytest.CaptureFixture[str], what: str, why: str
) -> None:
    """It may be a GPU's memory: a driver newer than we has other places."""
    container = world.container(memory_mib=1000)
    tenant = container.run().started()
    for _ in range(2):
        assert tenant.ask(f"fill-at {what} {UNHEARD_OF} 0 {100 * MIB}").split() == ["0", why]
    assert container.used == CONTEXT
    assert capfd.readouterr().err.count(f"nobody here knows on which GPU a location of type {UNHEARD_OF} is") == 1


@pytest.mark.parametrize("tells", ["all", "no-place"])
@pytest.mark.parametrize("place", HOSTS)
@pytest.mark.parametrize("what", ["handle", "graph", "made"])
def test_memory_of_the_host_counts_on_no_gpu(world: World, what: str, place: int, tells: str) -> None:
    """A legal pod has as much of it as the host has, and all of its limit besides."""
    container = world.container(memory_mib=1000)
    tenant = container.run(environment={"FAKE_CUDA_POOLS": tells}).started()
    assert tenant.ask(f"fill-at {what} {place} 0 {100 * MIB}").split() == [ALL, "0"]
    assert container.account().processes[tenant.process.pid] == (container.used,) == (CONTEXT,)
    if what == "made":
        assert tenant.ask("end-pool") == "0"
    assert tenant.ask(f"fill linear {100 * MIB}").split() == ["7", OUT_OF_MEMORY]


def test_the_default_pool_of_the_host_counts_on_no_gpu(world: World) -> None:
    """The driver says that it is the host's."""
    container = world.container(memory_mib=1000)
    tenant = container.run().started()
    assert tenant.ask(f"fill-at default-at 2 0 {100 * MIB}").split() == [ALL, "0"]
    assert container.account().processes[tenant.process.pid] == (CONTEXT,)
