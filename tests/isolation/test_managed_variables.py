"""Managed variables of modules are charged where they are placed, as blocks are, and beside their code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.isolation import CONTEXT, MIB, Built, Container, Tenant, World

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

OUT_OF_MEMORY = "2"
WAYS = ["prefetch", "prefetch-thread", "prefetch-two", "prefetch-two-thread", "advise", "advise-two"]
WAYS += ["batch", "batch-thread", "discard", "discard-thread"]
VARIABLE = 400 * MIB
WITH_GRANULE = VARIABLE + 2 * MIB  # what the driver keeps beside it lies in the same granules


@pytest.fixture
def container(tmp_path: Path, built: Built) -> Iterator[Container]:
    """One with 1,000 MiB of each of two GPUs."""
    world = World(built=built, folder=tmp_path, memory_mib=(16_384, 16_384))
    yield world.container(memory_mib=1000, gpus=2)
    world.close()


def holding(container: Container, *, size: int = VARIABLE) -> Tenant:
    """A program that has loaded a module with one such variable on the first GPU."""
    tenant = container.run().started()
    assert tenant.ask(f"take text-managed {size}") == "0"
    return tenant


def place(tenant: Tenant, way: str, gpu: int, *, at: int = 0, size: int = VARIABLE) -> None:
    """Place part of the variable, and be told that it went well."""
    assert tenant.ask(f"place {way} 0 {at} {size} {gpu}") == "0"


def charged(container: Container, tenant: Tenant) -> tuple[int, ...]:
    """What it is charged by GPU."""
    return container.account().processes[tenant.process.pid]


def used(container: Container, gpu: int) -> int:
    """What it really holds of a GPU."""
    return container.world.used(container.number, gpu=gpu)


@pytest.mark.parametrize("way", WAYS)
def test_a_variable_is_charged_where_it_is_placed(container: Container, way: str) -> None:
    """Once, however often; what is left there is all that can be taken besides."""
    tenant = holding(container)
    before = charged(container, tenant)
    for _ in range(3):
        place(tenant, way, 1)
    assert used(container, 1) == VARIABLE
    assert charged(container, tenant) == (before[0], VARIABLE)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["3", OUT_OF_MEMORY]
    assert container.world.peak(container.number, gpu=1) <= 1000 * MIB


@pytest.mark.parametrize("way", WAYS)
def test_a_variable_stays_where_it_is_if_another_gpu_has_no_room(container: Container, way: str) -> None:
    """The hint is left out, and the GPU keeps what it has."""
    tenant = holding(container, size=600 * MIB)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["7", OUT_OF_MEMORY]
    full = used(container, 1)
    place(tenant, way, 1, size=600 * MIB)
    assert used(container, 1) == full


def test_part_of_a_variable_is_charged_by_itself(container: Container) -> None:
    """Also when the call names an address inside."""
    tenant = holding(container)
    place(tenant, "prefetch", 1, at=100 * MIB, size=100 * MIB)
    assert charged(container, tenant)[1] == used(container, 1) == 100 * MIB
    place(tenant, "prefetch", 1)
    assert charged(container, tenant)[1] == used(container, 1) == VARIABLE


def test_a_variable_that_left_is_charged_no_more(container: Container) -> None:
    """As a block that the same stream took away."""
    tenant = holding(container)
    place(tenant, "prefetch", 1)
    place(tenant, "prefetch", -1)
    assert tenant.ask("graph-wait 0") == "0"
    assert charged(container, tenant)[1] == used(container, 1)


def test_of_a_variable_that_is_mostly_read_copies_stay(container: Container) -> None:
    """That it is placed elsewhere takes none away."""
    tenant = holding(container)
    for way, gpu in (("read", 1), ("prefetch", 1), ("prefetch", -1)):
        place(tenant, way, gpu)
    assert tenant.ask("graph-wait 0") == "0"
    assert charged(container, tenant)[1] == used(container, 1) == VARIABLE


@pytest.mark.parametrize("way", WAYS)
def test_with_its_module_a_variable_is_gone(container: Container, way: str) -> None:
    """At once, from every GPU."""
    tenant = holding(container)
    place(tenant, way, 1)
    assert tenant.ask("give 0") == "0"
    assert used(container, 1) == 0
    assert charged(container, tenant) == (CONTEXT, 0)


def test_a_block_where_a_variable_was_is_charged_by_itself(container: Container) -> None:
    """Its own way, and not as what lay there before."""
    tenant = holding(container)
    place(tenant, "prefetch", 1)
    assert tenant.ask("release") == "0"
    assert tenant.ask("on 0") == "0"
    assert tenant.ask(f"take managed {WITH_GRANULE}") == "0"
    assert charged(container, tenant) == (used(container, 0), 0)
