"""The agent reads and writes the two files as isolation/layout.txt has them, to which the compiler holds the C side."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot_agent.isolation.limits_file import (
    ACCOUNT_BYTES,
    MOST_GPUS,
    Account,
    GpuLimits,
    Slot,
    decode_account,
    encode_limits,
    encode_live,
    live_offset,
    read_slots,
)

TABLE = Path(__file__).parents[3] / "isolation" / "layout.txt"
UUID = "GPU-00112233-4455-6677-8899-aabbccddeeff"
NUMBERS = range(1, 9)
SLOTS_AT, SLOTS = 8192, 1024


def layout() -> dict[str, dict[str, tuple[int, int]]]:
    """By struct and member, where it stands and how long it is."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            kind, member, at, size = line.split()
            found.setdefault(kind, {})[member] = int(at), int(size)
    return found


LAYOUT = layout()


def end(kind: str) -> int:
    """How long a struct is, by its last member."""
    return max(at + size for at, size in LAYOUT[kind].values())


def number(content: bytes | bytearray, at: int, size: int) -> int:
    """A number of so many bytes."""
    return int.from_bytes(content[at : at + size], "little")


def put(content: bytearray, kind: str, member: str, value: int, *, base: int = 0) -> None:
    """Write a member of a struct that begins there."""
    at, size = LAYOUT[kind][member]
    content[base + at : base + at + size] = value.to_bytes(size, "little")


def decoded(content: bytearray) -> Account:
    """What the agent reads of two GPUs."""
    put(content, "account", "magic", int.from_bytes(b"ALIQACC1", "little"))
    found = decode_account(bytes(content), gpus=2)
    assert found is not None
    return found


def test_limits_are_written_where_the_library_reads_them() -> None:
    """Head, each number of the second GPU, and what changes while a container runs."""
    members = ("memory", "unaccounted", "context", "guarantee", "rate", "weight", "beat", "limit")
    values: dict[str, Any] = dict(zip(members, NUMBERS, strict=True))
    gpu = GpuLimits(uuid=UUID, **values)
    content = encode_limits([msgspec.structs.replace(gpu, memory=77), gpu], driver="/driver")
    head, (gpus_at, gpus_size) = LAYOUT["limits"], LAYOUT["limits"]["gpu"]
    assert len(content) == end("limits") == gpus_at + MOST_GPUS * end("gpu_limits")
    assert gpus_size == MOST_GPUS * end("gpu_limits")
    assert content.startswith(b"ALIQLIM1")
    assert number(content, *head["version"]) == 1
    assert number(content, *head["gpus"]) == 2
    at, size = head["driver"]
    assert content[at : at + size].rstrip(b"\0") == b"/driver"
    base = gpus_at + end("gpu_limits")
    assert content[base : base + 16].hex() == UUID.removeprefix("GPU-").replace("-", "")
    assert {
        name: number(content, base + at, size) for name, (at, size) in LAYOUT["gpu_limits"].items() if name in values
    } == values
    live = live_offset(1)
    assert content[live : live + len(encode_live(gpu))] == encode_live(gpu)
    assert live == base + LAYOUT["gpu_limits"]["memory"][0]


@pytest.mark.parametrize("member", ["free_at", "in_flight", "charged", "wanted", "held", "busy"])
def test_meters_are_read_where_the_library_writes_them(member: str) -> None:
    """Each number of the second GPU's meter by itself, and no other for it."""
    content = bytearray(ACCOUNT_BYTES)
    base = LAYOUT["account"]["meter"][0] + LAYOUT["account"]["meter"][1] // MOST_GPUS
    put(content, "meter", member, 4711, base=base)
    first, second = decoded(content).meters
    told = {name: getattr(second, name) for name in ("free_at", "in_flight", "charged", "wanted", "held", "busy")}
    assert {name for name, value in told.items() if value} == {member}
    assert told[member] == 4711
    assert getattr(first, member) == 0


def test_moments_and_escapes_are_read_where_the_library_writes_them() -> None:
    """By GPU: when work was in flight, which stands at the file's end, and how many launches passed unpaid."""
    content = bytearray(ACCOUNT_BYTES)
    _, size = LAYOUT["moments"]["in_flight"]
    told = tuple(range(1, size // 8 + 1))
    struct.pack_into(f"<{len(told)}Q", content, ACCOUNT_BYTES - (MOST_GPUS - 1) * size, *told)
    patience_at, patience = LAYOUT["account"]["patience"]
    put(content, "patience", "escapes", 5, base=patience_at + patience // MOST_GPUS)
    first, second = decoded(content).meters
    assert (second.moments, second.escapes) == (told, 5)
    assert (set(first.moments), first.escapes) == ({0}, 0)


def test_whose_slots_are_is_read_where_the_library_writes_it() -> None:
    """Start, number and namespace of the second process; a slot without a start is nobody's."""
    content = bytearray(ACCOUNT_BYTES)
    put(content, "account", "highest", 2)
    for member, value in (("born", 11), ("pid", 12), ("namespace", 13)):
        put(content, "process_slot", member, value, base=SLOTS_AT + end("process_slot"))
    found = read_slots(lambda at, size: bytes(content[at : at + size]))
    assert found == [Slot(number=1, born=11, pid=12, namespace=13)]


def test_slots_and_what_is_lent_are_read_where_the_library_writes_them() -> None:
    """The second process's memory on the second GPU, and what another process borrowed there."""
    content = bytearray(ACCOUNT_BYTES)
    put(content, "account", "highest", 2)
    base = SLOTS_AT + end("process_slot")
    put(content, "process_slot", "born", 1, base=base)
    put(content, "process_slot", "pid", 4711, base=base)
    at, size = LAYOUT["process_slot"]["used"]
    struct.pack_into(f"<{size // 8}Q", content, base + at, 3, 4, *[0] * (size // 8 - 2))
    lending = SLOTS_AT + SLOTS * end("process_slot")
    put(content, "lending", "highest", 2, base=lending)
    entry = lending + LAYOUT["lending"]["borrowed"][0] + end("borrowed")
    put(content, "borrowed", "bytes", 6, base=entry)
    put(content, "borrowed", "gpu", 1, base=entry)
    found = decoded(content)
    assert found.processes == {4711: (3, 4)}
    assert found.borrowed == (0, 6)
