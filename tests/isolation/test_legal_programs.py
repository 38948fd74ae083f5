"""A program that keeps to its limit, by what docs/isolation.md says it is charged, is refused nothing."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping

import pytest

from support.isolation import CONTEXT, MIB, World
from support.memory_ways import WAYS

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

LIMIT = 2000 * MIB
GRANULE = 2 * MIB
SEEDS = 100 if os.environ.get("ALIQUOT_SOAK") else 4
STEPS = 600
# Smaller things are charged with what else lies in their granule: not each by itself, but by the most there were.
LEAST, MOST = 2 * MIB, 64 * MIB
# More than a module of the tests has beside its variables.
HEADS = 64 * 1024


def granules(bytes_: int) -> int:
    """So many bytes, in whole granules."""
    return -(-bytes_ // GRANULE) * GRANULE


def in_rows_of_512(bytes_: int) -> int:
    """Rows of 100 bytes, as cuMemAllocPitch lays them out."""
    return granules((bytes_ // 100 + 1) * 512)


def with_smaller_levels(bytes_: int) -> int:
    """A mipmap: each level is a quarter of the one before."""
    return granules((bytes_ // 1024 + 1) * 1024 * 4 // 3)


def in_a_context(bytes_: int) -> int:
    """In one of its own."""
    return CONTEXT + granules(bytes_)


# By which rule a way is charged; all others by their granules.
OTHERWISE: Mapping[str, Callable[[int], int]] = {
    "pitched": in_rows_of_512,
    "mipmap": with_smaller_levels,
    "array": lambda bytes_: granules((bytes_ // 1024 + 1) * 1024),
    "array3d": lambda bytes_: granules((bytes_ // 4096 + 1) * 4096),
    "heap": lambda bytes_: in_a_context(2 * bytes_),  # the heap itself, and as much to print from
    "stack": in_a_context,
} | {way: lambda _: CONTEXT for way in WAYS if way.startswith("context")}
CODE = ("module", "fat", "file", "text", "library", "numbered", "segment", "wrapped", "packed", "linked", "disguised")


def charge(way: str, bytes_: int) -> int:
    """What the documents say that it is charged."""
    if way in OTHERWISE:
        return OTHERWISE[way](bytes_)
    if way.startswith((*CODE, "private")):
        return granules(bytes_ + HEADS)
    return granules(bytes_)


def most_that_fits(way: str, room: int) -> int:
    """How many bytes of that way are charged no more than that; less than the least where none are."""
    low, high = 0, room + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if charge(way, middle) <= room else (low, middle)
    return low if charge(way, low) <= room else 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_legal_program_is_never_refused_whatever_ways_it_mixes(world: World, seed: int) -> None:
    """Taking and giving in all ways in any order, often to the last granule: what is due by the rules is given."""
    chance = random.Random(seed)
    container = world.container(memory_mib=LIMIT // MIB)
    tenant = container.run().started()
    held: list[tuple[str, int]] = []
    for step in range(STEPS):
        room = LIMIT - CONTEXT - sum(due for _, due in held)
        way = chance.choice(WAYS)
        fits = most_that_fits(way, room)
        if fits < LEAST or (held and chance.random() < 0.35):
            if held:
                index = chance.randrange(len(held))
                assert tenant.ask(f"give {index}") == "0", (seed, step, held[index])
                held[index] = held[-1]
                held.pop()
            continue
        bytes_ = fits if chance.random() < 0.1 else chance.randint(LEAST, min(MOST, fits))
        assert tenant.ask(f"take {way} {bytes_}") == "0", (seed, step, way, bytes_, room, held)
        held.append((way, charge(way, bytes_)))
    assert container.peak <= LIMIT
    tenant.ask("empty")
    assert container.account().processes[tenant.process.pid] == (container.used,) == (CONTEXT,)
