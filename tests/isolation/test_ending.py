"""Contexts and streams that end while something is still to be done: nothing is held up or charged too little."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.isolation import CONTEXT, MIB, Built, Container, Tenant, World

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

HOST = -1
BLOCK = 400 * MIB


@pytest.fixture
def container(tmp_path: Path, built: Built) -> Iterator[Container]:
    """One with half of each of two GPUs, and 1,000 MiB."""
    world = World(built=built, folder=tmp_path, memory_mib=(16_384, 16_384))
    yield world.container(memory_mib=1000, guarantee=50, rate=50, gpus=2)
    world.close()


def holding(container: Container, **environment: str) -> Tenant:
    """A program that has taken a block on the first GPU."""
    tenant = container.run(environment=environment).started()
    assert tenant.ask(f"take managed {BLOCK}") == "0"
    return tenant


def place(tenant: Tenant, gpu: int) -> None:
    """Place the block, by the default stream."""
    assert tenant.ask(f"place prefetch 0 0 {BLOCK} {gpu}") == "0"


def placed_on_second(container: Container, tenant: Tenant) -> int:
    """What it is charged there, beside its context if it has made one."""
    assert tenant.ask("info").split()[0] == "0"
    return container.account().processes[tenant.process.pid][1]


@pytest.mark.parametrize("what", ["context", "green"])
def test_while_a_context_ends_the_others_go_on(container: Container, what: str) -> None:
    """The driver may take its time: whoever launches or places elsewhere does not wait for it."""
    tenant = holding(container)
    assert tenant.ask(f"go-on-while-ending {what} {BLOCK}") == "0"
    assert container.world.used(container.number, gpu=1) == placed_on_second(container, tenant) == CONTEXT


@pytest.mark.parametrize("way", ["default", "stream"])
def test_a_green_context_s_end_leaves_the_others_streams_followed(container: Container, way: str) -> None:
    """What was on its way by a stream of another context has left when that one is done."""
    tenant = holding(container)
    assert tenant.ask("work 100000") == "0"
    if way == "stream":
        assert tenant.ask(f"stream-place {BLOCK}") == "0"
    else:
        place(tenant, 1)
        place(tenant, HOST)
    assert tenant.ask("green") == tenant.ask("green-end") == "0"
    assert tenant.ask("graph-wait 0") == "0"
    assert placed_on_second(container, tenant) == 0


def test_after_a_green_context_s_end_the_others_streams_take_away_what_they_brought(container: Container) -> None:
    """They are the same as before."""
    tenant = holding(container)
    assert tenant.ask("work 100000") == "0"
    place(tenant, 1)
    assert tenant.ask("green") == tenant.ask("green-end") == "0"
    place(tenant, HOST)
    assert tenant.ask("graph-wait 0") == "0"
    assert placed_on_second(container, tenant) == 0


@pytest.mark.parametrize("driver", [{}, {"FAKE_CUDA_GREEN_IS_PRIMARY": "1"}])
@pytest.mark.parametrize("how", ["stream", "default"])
def test_what_a_green_context_had_still_to_take_away_stays_charged(
    container: Container, how: str, driver: dict[str, str]
) -> None:
    """Whether it does, nobody can tell any more, until it is freed; whichever context the driver says that it was."""
    tenant = holding(container, **driver)
    assert tenant.ask(f"green-place {how} {BLOCK}") == "0"
    assert tenant.ask("graph-wait 0") == "0"
    assert placed_on_second(container, tenant) == BLOCK
    assert tenant.ask("empty") == "0"
    assert placed_on_second(container, tenant) == 0


def test_what_a_stream_takes_away_that_ends_meanwhile_stays_charged(container: Container) -> None:
    """The call may have come to it, or to the next one of that number."""
    tenant = holding(container)
    place(tenant, 1)
    assert tenant.ask("graph-wait 0") == "0"
    assert tenant.ask(f"end-while-placed {BLOCK}") == "0"
    assert placed_on_second(container, tenant) == BLOCK
