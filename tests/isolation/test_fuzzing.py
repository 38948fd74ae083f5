"""Chance for a fixed time, with AddressSanitizer and UndefinedBehaviorSanitizer in everything that is C."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from support.isolation import CONTEXT, MIB, SOURCES, TESTED, Built, Container, Tenant, World, build
from support.packed import packed

SOAK = bool(os.environ.get("ALIQUOT_SOAK"))
# In the gate; and where a hunt is asked for.
FUZZ_S = 300 if SOAK else 20
AT_WORK = ["use 0.5 thread 100 10", "use 0.5 graph 100 10", "crowd 8 0.3 100", "sneak stream 0.2 5", "capture 50"]

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600 + 4 * FUZZ_S)]


@pytest.fixture(scope="session")
def sanitized(builds: Path) -> Built:
    """Interposer, fake driver and tenant with sanitizers in them: what they find ends a process, with a status."""
    return build(cache=builds, sanitize=True)


@pytest.fixture
def world(sanitized: Built, tmp_path: Path) -> Iterator[World]:
    """One GPU of 16 GiB."""
    world = World(built=sanitized, folder=tmp_path)
    yield world
    world.close()


@pytest.fixture
def chance(record_property: Callable[[str, object], None]) -> random.Random:
    """Another one each time; a report has its seed."""
    seed = random.randrange(1 << 30)
    record_property("seed", seed)
    return random.Random(seed)


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


def test_sanitizers_find_nothing_while_threads_place_what_others_free(
    sanitized: Built, tmp_path: Path, chance: random.Random
) -> None:
    """On two GPUs and on three, in each other's way: nothing astray, no byte too much, and nothing left charged."""
    end = time.monotonic() + FUZZ_S / 2
    world, rounds = World(built=sanitized, folder=tmp_path, memory_mib=(16_384,) * 3), 0
    with closing(world):
        containers = [world.container(memory_mib=700, gpus=gpus) for gpus in (2, 3)]
        for container in containers:
            for gpu in range(1, len(container.gpus)):
                container.set(msgspec.structs.replace(container.gpus[gpu], memory=60 * MIB), gpu=gpu)
        tenants = [container.run().started() for container in containers]
        while not rounds or time.monotonic() < end:
            rounds += 1
            lines = [[f"wild {chance.randrange(1, 1 << 30)} 300 {len(one.gpus)}"] for one in containers]
            ask_all(tenants, lines)
            for container, tenant in zip(containers, tenants, strict=True):
                for gpu in range(len(container.gpus)):
                    assert world.peak(container.number, gpu=gpu) <= container.gpus[gpu].memory
                home, *others = container.account().processes[tenant.process.pid]
                assert (home, set(others)) == (CONTEXT, {0})
        assert end_all(tenants) == [0, 0]


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


@pytest.fixture(scope="session")
def unpacker(isolation_cache: Path) -> Path:
    """What reads fat binaries, and what is packed in them, with sanitizers in it."""
    program = isolation_cache / "unpacker"
    names = ("unlz4.c", "unzstd.c", "entropy.c", "fat.c", "loadable.c", "weights.c", "ptx.c", "ptx_tokens.c")
    parts = [SOURCES / name for name in names]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = ["gcc", *flags, f"-I{SOURCES}", "-o", program, TESTED / "unpacker.c", *parts]
    subprocess.run(list(map(str, command)), check=True, timeout=180)
    return program


def fat_of(content: bytes, size: int, flags: int, kind: int) -> bytes:
    """A fat binary of one entry."""
    more = struct.pack("<IIIIQQQQ", len(content), 0, 0, 90, 0, flags, 0, size)
    entry = struct.pack("<HHIQ", kind, 0x101, 64, len(content)) + more + content
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry


def hostile(chance: random.Random, content: bytes) -> bytes:
    """Some bytes of it are others, and some are missing or too many."""
    made = bytearray(content)
    for _ in range(chance.choice([0, 1, 1, 2, 5])):
        made[chance.randrange(min(len(made), chance.choice([20, 200, 100_000])))] = chance.randrange(256)
    return bytes(made[: chance.choice([len(made), len(made), chance.randrange(len(made) + 1)])])


TEXTS = [
    b".version 8.0\n.visible .global .align 4 .b8 one[4096], other[0x10];",
    b'.const .v4 .f32 all[12][3] = {1, {2}}; // .global\n/* ; */ .file 1 "a\\".cu"',
    b".entry f(.param .u64 .ptr .global .align 1 p) { ld.global.u32 %r1, [%rd1]; }",
    b".global .align 8 .b8 x<9>, %y[(4*8)+(1<<3)-2/1]; .const[2] .u64 z[][2] = {{0}, {generic(x)}}; .section .dx { 1 }",
    b'.target sm_80, debug .file 1 "a", 2 l: .loc 1 2 3, function_name f+4 /* */ @%p ld .global .u32 r1, [rd1]; // \n',
]


# A head, two sections of which the second holds both names, a segment, and the names.
CUBIN = b"".join(
    [
        struct.pack("<4sB11xHHIQQQI", b"\x7fELF", 2, 2, 190, 1, 0, 192, 64, 0),
        struct.pack("<HHHHHH", 64, 56, 1, 64, 2, 1),
        struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 0, 40, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 9, 3, 0, 0, 248, 16, 0, 0, 0, 0),
        struct.pack("<IIQQQQQQ", 1, 0, 0, 0, 0, 8, 8, 0),
        b"\0.debug_\0.names\0",
    ]
)


def test_sanitizers_find_nothing_in_what_reads_code(unpacker: Path, chance: random.Random) -> None:
    """Whatever stands in a fat binary, packed or not, or in text: nothing astray is read or written, and it ends."""
    end = time.monotonic() + FUZZ_S / 2
    known, rounds = list(packed().values()), 0
    while not rounds or time.monotonic() < end:
        rounds += 1
        cases = []
        for _ in range(300):
            one = chance.choice(known)
            how, content = ("4" if one.how == "lz4" else "z"), hostile(chance, one.content)
            flags = chance.choice([0x2000, 0x8000, 0xA000, 0])
            fat = hostile(chance, fat_of(content, len(one.plain), flags, chance.choice([1, 2, 8])))
            text = hostile(chance, chance.choice(TEXTS))
            image = fat_of(hostile(chance, CUBIN), 0, 0, 2)
            cases += [(how, len(one.plain), content), ("f", 0, fat), ("k", 0, fat), ("f", 0, image), ("t", 0, text)]
        told = b"".join(how.encode() + struct.pack("<QQ", size, len(case)) + case for how, size, case in cases)
        answer = subprocess.run([unpacker], input=told, stdout=subprocess.PIPE, check=True, timeout=120).stdout
        assert len(answer) == len(cases)
        assert b"0" in answer
        assert b"1" in answer
