"""Chance for a fixed time, with AddressSanitizer and UndefinedBehaviorSanitizer in everything that is C."""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.isolation import MIB, Built, Container, Tenant, World, build

SOAK = bool(os.environ.get("ALIQUOT_SOAK"))
# In the gate; and where a hunt is asked for.
FUZZ_S = 300 if SOAK else 20
AT_WORK = ["use 0.5 thread 100 10", "use 0.5 graph 100 10", "crowd 8 0.3 100", "sneak stream 0.2 5", "capture 50"]

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(300 + 4 * FUZZ_S)]


@pytest.fixture(scope="session")
def sanitized(isolation_cache: Path) -> Built:
    """Interposer, fake driver and tenant with sanitizers in them: what they find ends a process, with a status."""
    return build(cache=isolation_cache, sanitize=True)


@pytest.fixture
def world(sanitized: Built, tmp_path: Path) -> Iterator[World]:
    """One GPU of 16 GiB."""
    world = World(built=sanitized, folder=tmp_path)
    yield world
    world.close()


@pytest.fixture
def chance(record_property: Callable[[str, object], None]) -> random.Random:
    """Another one each time; a report has its seed."""
    seed = random.randrange(1 << 30)  # noqa: S311 - chance for tests
    record_property("seed", seed)
    return random.Random(seed)  # noqa: S311


def ask_all(tenants: list[Tenant], lines: list[list[str]]) -> None:
    """All are told at once, each its own; and all answer."""
    for tenant, told in zip(tenants, lines, strict=True):
        for line in told:
            tenant.tell(line)
    for tenant, told in zip(tenants, lines, strict=True):
        for _ in told:
            tenant.answer()


def end_all(tenants: list[Tenant]) -> list[int]:
    """With which status each ends that is told to."""
    for tenant in tenants:
        tenant.tell("quit")
    return [tenant.process.wait(60) for tenant in tenants]


def test_sanitizers_find_nothing_while_all_ways_are_mixed(world: World, chance: random.Random) -> None:
    """Three processes take, give and work at random; no read or write astray, no undefined step, no byte too much."""
    end = time.monotonic() + FUZZ_S
    container = world.container(memory_mib=1500, guarantee=60, rate=60)
    tenants, rounds = [container.run() for _ in range(3)], 0
    while not rounds or time.monotonic() < end:
        rounds += 1
        works = [chance.sample(AT_WORK, 2) for _ in tenants]
        ask_all(tenants, [[f"churn {chance.randrange(1, 1 << 30)} 1000", *work, "empty"] for work in works])
        assert container.peak <= 1500 * MIB
    assert end_all(tenants) == [0, 0, 0]


# Of the account: how many slots were used; meters, slots and lent memory. The lock between is left: who breaks that
# stops his own container, as he can with any lock of his own.
_SCRIBBLED = [(12, 16), (1024, 8192), (8192, 8192 + 8 * 192), (204_800, 204_808), (204_808, 262_144)]
_WORDS = [0, 1, 2, 16, 255, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63, (1 << 64) - 1]


def scribble(container: Container, chance: random.Random) -> None:
    """Write some words into the account, as a tenant may."""
    with container.account_path.open("r+b") as file:
        for _ in range(20):
            start, end = chance.choice(_SCRIBBLED)
            size = min(8, end - start)
            word = chance.choice([*_WORDS, chance.randrange(1 << 64)])
            file.seek(start + size * chance.randrange((end - start) // size))
            file.write(struct.pack("<Q", word)[:size])


def test_an_account_that_is_scribbled_on_leads_nobody_astray(world: World, chance: random.Random) -> None:
    """Whatever a tenant writes there, his container may lack memory; no process reads or writes where it must not."""
    end = time.monotonic() + FUZZ_S / 2
    # A whole GPU is not paced: who writes that his container owes for a year waits for a year.
    container = world.container(memory_mib=1500)
    tenants, rounds = [container.run().started() for _ in range(3)], 0
    while not rounds or time.monotonic() < end:
        rounds += 1
        for tenant in tenants:
            tenant.tell(f"churn {chance.randrange(1, 1 << 30)} 200")
        for _ in range(10):
            scribble(container, chance)
        for tenant in tenants:
            tenant.answer()
        ask_all(tenants, [["info", "empty"]] * 3)
    assert end_all(tenants) == [0, 0, 0]
