"""Processes that are killed while their launches are paced leave nothing behind in what their container shares."""

from __future__ import annotations

import os
import random
import time

import pytest

from support.isolation import Container, Tenant, World, expect_soon

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

SECOND = 1_000_000_000
KILLS = 1000 if os.environ.get("ALIQUOT_SOAK") else 200
PERCENT = 50
# Short kernels that come in numbers, graphs, threads' own streams, and long ones, which take turns among processes.
WORKS = ["kernel 200 20", "graph 1000 5", "thread 500 10", "cooperative 200 20", "kernel 30000 2"]


def working(container: Container, chance: random.Random) -> Tenant:
    """A process that launches in some way for as long as it lives."""
    tenant = container.run()
    tenant.tell("start")
    how, rest = chance.choice(WORKS).split(" ", 1)
    tenant.tell(f"use 3600 {how} {rest}")
    return tenant


def test_no_kill_leaves_a_turn_or_a_debt(world: World) -> None:
    """At random instants, four always at work: they have no more than their share, and who comes next is let work."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    container = world.container(memory_mib=4000, guarantee=PERCENT, rate=PERCENT)
    began = time.monotonic_ns()
    at_work = [working(container, chance) for _ in range(4)]
    for _ in range(KILLS):
        time.sleep(chance.random() * 0.1)  # the instant is what is random here
        victim = at_work.pop(chance.randrange(4))
        victim.close()
        at_work.append(working(container, chance))
    for tenant in at_work:
        tenant.close()
    (meter,) = container.account().meters
    passed, used = time.monotonic_ns() - began, world.busy_ns(container.number)
    # A fifth of a second that was not used may be caught up with, and what the killed had begun may not be paid yet.
    assert used <= PERCENT * (passed + SECOND // 5) // 100 + SECOND // 2, f"seed {seed}"
    assert meter.charged <= passed, f"seed {seed}"
    container.run().started().tell("use 3600 kernel 200 100")
    expect_soon(
        lambda: world.busy_ns(container.number) > used + SECOND // 5, why=f"the next one stands still, seed {seed}"
    )
