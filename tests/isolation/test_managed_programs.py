"""Any program on several GPUs that minds its own memory has in its slice what GPUs of that size would give it."""

from __future__ import annotations

import os
import random
from contextlib import closing
from pathlib import Path

import pytest

from support.isolation import MIB, Built, Container, Tenant, World

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

LIMIT = 1000
SEEDS = 40 if os.environ.get("ALIQUOT_SOAK") else 3
STEPS = 300
GRANULE = 2 * MIB
SIZES = [4096, 4096, 60_000, MIB, 3 * MIB, 50 * MIB, 120 * MIB]
# Those of which can be told when they have taken something away; of a batch, whose halves are granules.
WAYS = ["prefetch", "prefetch-two"]
BATCHES = ["batch", "discard"]


class Program:
    """The same calls on GPUs of its own, and in a container of that size on larger ones.

    The driver of both leaves at home what it brings elsewhere, too: so much is charged, for it may come back.
    """

    def __init__(self, *, own: Container, native: Tenant, tenant: Tenant, chance: random.Random) -> None:
        self._own, self._native, self._tenant, self._chance = own, native, tenant, chance
        self._gpus = len(own.gpus)
        self._held: list[tuple[str, int]] = []
        self._gpu, self._busy = 0, False

    def step(self) -> None:
        """A few calls."""
        self._chance.choice([self._take] * 4 + [self._give] * 3 + [self._place] * 6 + [self._work, self._ask])()

    def _both(self, call: str) -> bool:
        """Whether its own GPU does it; then so must the slice."""
        native, answer = self._native.ask(call), self._tenant.ask(call)
        assert native == answer, call
        return native == "0"

    def _go_on(self, gpu: int) -> None:
        """With that GPU, when the other one's stream is done."""
        if self._busy and gpu != self._gpu:
            self._wait()
        assert self._both(f"on {gpu}")
        self._gpu = gpu

    def _wait(self) -> None:
        assert self._both("graph-wait 0")
        self._busy = False

    def _take(self) -> None:
        self._go_on(self._chance.randrange(self._gpus))
        way, size = self._chance.choice(["managed", "managed", "linear"]), self._chance.choice(SIZES)
        if self._both(f"take {way} {size}"):
            self._held.append((way, size))

    def _give(self) -> None:
        if not self._held:
            return
        number = self._chance.randrange(len(self._held))
        assert self._both(f"give {number}")
        self._held[number] = self._held[-1]
        self._held.pop()

    def _place(self) -> None:
        managed = [number for number, (way, _) in enumerate(self._held) if way == "managed"]
        if not managed:
            return
        self._go_on(self._chance.randrange(self._gpus))
        number, gpu = self._chance.choice(managed), self._chance.randrange(-1, self._gpus)
        size = self._held[number][1]
        if gpu >= 0 and self._own.world.used(self._own.number, gpu=gpu) + size + GRANULE > LIMIT * MIB:
            return
        way = self._chance.choice(WAYS if size % (2 * GRANULE) else BATCHES)
        assert self._both(f"place {way} {number} 0 {size} {gpu}")

    def _work(self) -> None:
        """What is placed now waits behind it."""
        assert self._both("work 2000")
        self._busy = True

    def _ask(self) -> None:
        """What is left, which both are told the same of."""
        self._wait()
        self._both("info")


@pytest.mark.parametrize("gpus", [2, 3])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_only_what_gpus_of_that_size_would_refuse_is_refused(
    built: Built, tmp_path: Path, seed: int, gpus: int
) -> None:
    """Placed and taken away, in small blocks and large ones, on each GPU by itself: and it is told what is left."""
    folders = [tmp_path / "own", tmp_path / "shared"]
    for folder in folders:
        folder.mkdir()
    own = World(built=built, folder=folders[0], memory_mib=(LIMIT,) * gpus)
    shared = World(built=built, folder=folders[1], memory_mib=(16_384,) * gpus)
    with closing(own), closing(shared):
        alone, container = (world.container(memory_mib=LIMIT, gpus=gpus) for world in (own, shared))
        told = {"FAKE_CUDA_MANAGED": "kept"}
        native = alone.run(interposed=False, environment=told).started()
        tenant = container.run(environment=told).started()
        chance = random.Random(seed)
        program = Program(own=alone, native=native, tenant=tenant, chance=chance)
        for _ in range(STEPS):
            program.step()
            charged = container.account().processes[tenant.process.pid]
            for gpu in range(gpus):
                assert shared.used(container.number, gpu=gpu) <= charged[gpu] <= LIMIT * MIB
