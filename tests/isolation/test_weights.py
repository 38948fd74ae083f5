"""How much device memory cubins and fat binaries take; each figure was worked out by hand."""

from __future__ import annotations

import ctypes
import functools
import struct

import pytest

from support.pure_c import ROOT, compiled

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]

REFUSED = (1 << 64) - 1
GIB = 1 << 30
HEAD = 64
LOAD, NOTE = 1, 4
WORDS, NAMES, EMPTY, OWN = 1, 3, 8, 0x70000000
ALLOCATED = 2
PTX, CUBIN, LATER = 1, 2, 8
SOURCES = ("fat.c", "weights.c", "ptx.c", "ptx_tokens.c", "unlz4.c", "unzstd.c", "entropy.c")


@functools.cache
def _weigher() -> ctypes.CDLL:
    # What tests have for a driver says which GPUs there are.
    driver = ROOT / "tests" / "isolation" / "unpacker.c"
    loaded = compiled(driver, *(ROOT / "isolation" / name for name in SOURCES))
    for function in (loaded.cubin_bytes, loaded.cubin_length, loaded.fat_bytes):
        function.restype = ctypes.c_uint64
        function.argtypes = ctypes.c_char_p, ctypes.c_uint64
    return loaded


def section(*, kind: int, size: int, flags: int = 0, name: int = 0, at: int = 0) -> bytes:
    """One row of a cubin's table."""
    return struct.pack("<IIQQQQIIQQ", name, kind, flags, 0, at, size, 0, 0, 0, 0)


def segment(*, kind: int, file: int, memory: int, at: int = 0) -> bytes:
    """One row of its other table."""
    return struct.pack("<IIQQQQQQ", kind, 0, at, 0, 0, file, memory, 0)


def cubin(*, sections: list[bytes], segments: list[bytes], names: bytes = b"", bits: int = 2, row: int = 56) -> bytes:
    """Its head, both tables, and the names of its sections, which the last of these holds."""
    rows_at, tables = HEAD + 64 * len(sections), b"".join(sections + segments)
    where = HEAD + len(tables)
    if names:
        tables = b"".join([*sections[:-1], section(kind=NAMES, size=len(names), at=where), *segments])
    counts = struct.pack("<HHHHHH", HEAD, row, len(segments), 64, len(sections), max(len(sections) - 1, 0))
    head = struct.pack("<4sB11xHHIQQQI", b"\x7fELF", bits, 2, 190, 1, 0, rows_at, HEAD if sections else 0, 0)
    return head + counts + tables + names


def weight(image: bytes) -> int:
    """Bytes of a cubin."""
    return int(_weigher().cubin_bytes(image, len(image)))


NAMED = b"\0.debug_line\0.nv_debug_x\0.nv.global.init\0"
CUBINS = [
    ("nothing", cubin(sections=[], segments=[]), 0),
    ("room", cubin(sections=[section(kind=EMPTY, size=8 * GIB, flags=ALLOCATED)], segments=[]), 8 * GIB),
    ("room that is not told to be loaded", cubin(sections=[section(kind=EMPTY, size=8 * GIB)], segments=[]), 8 * GIB),
    ("content that is not", cubin(sections=[section(kind=WORDS, size=700)], segments=[]), 700),
    ("a table of its own", cubin(sections=[section(kind=OWN, size=700)], segments=[]), 0),
    ("one that is loaded", cubin(sections=[section(kind=OWN, size=700, flags=ALLOCATED)], segments=[]), 700),
    ("a segment", cubin(sections=[], segments=[segment(kind=LOAD, file=0, memory=8 * GIB)]), 8 * GIB),
    ("a segment's content", cubin(sections=[], segments=[segment(kind=LOAD, file=90, memory=8)]), 90),
    ("a note", cubin(sections=[], segments=[segment(kind=NOTE, file=0, memory=8 * GIB)]), 0),
    (
        "the larger of both",
        cubin(
            sections=[section(kind=WORDS, size=50, flags=ALLOCATED)] * 2,
            segments=[segment(kind=LOAD, file=0, memory=60), segment(kind=LOAD, file=0, memory=30)],
        ),
        100,
    ),
    (
        "a debugger's tables",
        cubin(
            sections=[
                section(kind=WORDS, size=1000, name=1),
                section(kind=WORDS, size=2000, name=13),
                section(kind=WORDS, size=4, name=25),
                section(kind=WORDS, size=40, name=1, flags=ALLOCATED),
                section(kind=WORDS, size=400, name=len(NAMED)),
                section(kind=0, size=0),
            ],
            segments=[],
            names=NAMED,
        ),
        444,
    ),
    (
        "a segment of more than there is",
        cubin(sections=[], segments=[segment(kind=LOAD, file=0, memory=1 << 60)]),
        REFUSED,
    ),
    ("rows of another length", cubin(sections=[], segments=[segment(kind=NOTE, file=0, memory=0)], row=48), REFUSED),
    ("a table that is cut off", cubin(sections=[], segments=[segment(kind=NOTE, file=0, memory=0)])[:-1], REFUSED),
    ("of 32 bits", cubin(sections=[], segments=[], bits=1), REFUSED),
]


@pytest.mark.parametrize(("image", "declared"), [row[1:] for row in CUBINS], ids=[row[0] for row in CUBINS])
def test_a_cubin_takes_what_it_says_in_either_way(image: bytes, declared: int) -> None:
    """By sections or by segments, whatever flags it sets."""
    assert weight(image) == declared


def test_a_cubin_is_as_long_as_its_segments() -> None:
    """What the driver gets a copy of has their content."""
    image = cubin(sections=[], segments=[segment(kind=LOAD, file=500, memory=500, at=1000)])
    assert int(_weigher().cubin_length(image, 0)) == 1500


def fat(*entries: tuple[int, int, bytes]) -> bytes:
    """Entries of a kind, for a machine, as they are."""
    told = b""
    for kind, machine, content in entries:
        told += struct.pack("<HHIQ", kind, 0x101, 64, len(content))
        told += struct.pack("<IIIIQQQQ", 0, 0, 0, machine, 0, 0, 0, 0) + content
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(told)) + told


TEXT = b".version 8.0\n.global .b8 x[100];"
IMAGE = cubin(sections=[section(kind=EMPTY, size=5000)], segments=[])
FATS = [
    ("a cubin", fat((CUBIN, 90, IMAGE)), 5000),
    ("text", fat((PTX, 90, TEXT)), 100 + len(TEXT)),
    ("the larger of both", fat((PTX, 90, TEXT), (CUBIN, 90, IMAGE)), 5000),
    ("text with zeros", fat((PTX, 90, TEXT + bytes(9))), 100 + len(TEXT) + 9),
    ("what is compiled when it is loaded", fat((LATER, 90, b"BC\xc0\xde" + bytes(500))), REFUSED),
    ("that beside a cubin", fat((CUBIN, 90, IMAGE), (LATER, 90, b"BC\xc0\xde")), REFUSED),
    ("of no kind", fat((0, 90, IMAGE)), REFUSED),
    ("a cubin as another kind", fat((64, 90, IMAGE)), REFUSED),
    ("text as a cubin", fat((CUBIN, 90, TEXT)), REFUSED),
    ("a cubin as text", fat((PTX, 90, IMAGE)), REFUSED),
]


@pytest.mark.parametrize(("image", "declared"), [row[1:] for row in FATS], ids=[row[0] for row in FATS])
def test_a_fat_binary_takes_what_its_largest_entry_does(image: bytes, declared: int) -> None:
    """And nothing is loaded whose variables nobody can read."""
    assert int(_weigher().fat_bytes(image, len(image))) == declared
