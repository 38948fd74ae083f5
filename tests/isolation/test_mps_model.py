"""The fake driver's clients of MPS: what `benchmarks/isolation/latency.py` compares with must be what is said of it."""

from __future__ import annotations

import time

import pytest

from support.isolation import Container, Tenant, World

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

SECOND = 1_000_000_000
PATIENCE_S = 60


def client(container: Container, *, percent: int) -> Tenant:
    """A process that the interposer does not hold, with the environment that a grant on a GPU of MPS gives it."""
    environment = {"CUDA_MPS_PIPE_DIRECTORY": "/none", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}
    return container.run(interposed=False, environment=environment).started()


def at_work(world: World, *tenants: Tenant, of: Container) -> None:
    """Let each of a container's processes have more to do than there is time for."""
    for tenant in tenants:
        tenant.tell(f"use {PATIENCE_S} kernel {PATIENCE_S * 1_000_000} 1")
    end = time.monotonic() + PATIENCE_S
    while world.queued_ns(of.number) < (len(tenants) * PATIENCE_S - 5) * SECOND:
        assert time.monotonic() < end, "they do not begin"
        time.sleep(0.01)


def shares(world: World, *containers: Container) -> list[float]:
    """Of what all of them get of the GPU in the next half a second that they use, the part of each."""
    before = [world.busy_ns(one.number) for one in containers]
    end = time.monotonic() + PATIENCE_S
    while True:
        used = [world.busy_ns(one.number) - early for one, early in zip(containers, before, strict=True)]
        if sum(used) > SECOND // 2:
            return [one / sum(used) for one in used]
        assert time.monotonic() < end, used
        time.sleep(0.01)


def test_a_client_is_no_wider_than_its_percentage_even_alone(world: World) -> None:
    """30 percent of the multiprocessors do 30 percent of the work, and the rest stands idle."""
    container = world.container(memory_mib=1000)
    began = time.monotonic_ns()
    at_work(world, client(container, percent=30), of=container)
    shares(world, container)
    assert world.busy_ns(container.number) <= 0.3 * (time.monotonic_ns() - began)


@pytest.mark.parametrize(
    ("one", "others", "expected"),
    [(30, [70], [0.3, 0.7]), (20, [100], [1 / 6, 5 / 6]), (30, [70] * 8, [30 / 590, 560 / 590])],
)
def test_clients_run_at_once_as_wide_as_they_may(
    world: World, one: int, others: list[int], expected: list[float]
) -> None:
    """Narrower by the same factor where there is no room for all: a percentage is each process's own."""
    first, second = world.container(memory_mib=1000), world.container(memory_mib=8000)
    at_work(world, client(first, percent=one), of=first)
    at_work(world, *(client(second, percent=percent) for percent in others), of=second)
    assert shares(world, first, second) == pytest.approx(expected, abs=0.02)


def test_clients_have_one_turn_among_them_all(world: World) -> None:
    """To the GPU they are one context: who is no client has as much as all of them."""
    clients, other = world.container(memory_mib=4000), world.container(memory_mib=1000)
    at_work(world, *(client(clients, percent=100) for _ in range(3)), of=clients)
    at_work(world, other.run(interposed=False).started(), of=other)
    assert shares(world, clients, other) == pytest.approx([0.5, 0.5], abs=0.02)
