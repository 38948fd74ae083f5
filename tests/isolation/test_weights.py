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
SOURCES = ("fat.c", "loadable.c", "weights.c", "ptx.c", "ptx_tokens.c", "unlz4.c", "unzstd.c", "entropy.c")


@functools.cache
def _weigher() -> ctypes.CDLL:
    # What tests have for a driver says which GPUs there are.
    driver = ROOT / "tests" / "isolation" / "unpacker.c"
    loaded = compiled(driver, *(ROOT / "isolation" / name for name in SOURCES))
    for function in (loaded.cubin_bytes, loaded.cubin_length, loaded.fat_bytes, loaded.fat_keep_known):
        function.restype = ctypes.c_uint64
        function.argtypes = ctypes.c_char_p, ctypes.c_uint64
    loaded.text_target.restype = ctypes.c_uint
    loaded.text_target.argtypes = ctypes.c_char_p, ctypes.c_uint64
    return loaded


def section(*, kind: int, size: int, flags: int = 0, name: int = 0, at: int = 0) -> bytes:
    """One row of a cubin's table."""
    return struct.pack("<IIQQQQIIQQ", name, kind, flags, 0, at, size, 0, 0, 0, 0)


def segment(*, kind: int, file: int, memory: int, at: int = 0) -> bytes:
    """One row of its other table."""
    return struct.pack("<IIQQQQQQ", kind, 0, at, 0, 0, file, memory, 0)


def cubin(
    *, sections: list[bytes], segments: list[bytes], names: bytes = b"", bits: int = 2, row: int = 56, flags: int = 0
) -> bytes:
    """Its head, both tables, and the names of its sections, which the last of these holds; flags say for which GPU."""
    rows_at, tables = HEAD + 64 * len(sections), b"".join(sections + segments)
    where = HEAD + len(tables)
    if names:
        tables = b"".join([*sections[:-1], section(kind=NAMES, size=len(names), at=where), *segments])
    counts = struct.pack("<HHHHHH", HEAD, row, len(segments), 64, len(sections), max(len(sections) - 1, 0))
    head = struct.pack("<4sB11xHHIQQQI", b"\x7fELF", bits, 2, 190, 1, 0, rows_at, HEAD if sections else 0, flags)
    return head + counts + tables + names


def weight(image: bytes) -> int:
    """Bytes of a cubin."""
    return int(_weigher().cubin_bytes(image, len(image)))


CHIP = b"\0.nv.shared.f\0.nv.global\0.nv.shared\0"
KIB = 1 << 10
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
        "shared memory of a function, which is on the chip",
        cubin(
            sections=[
                section(kind=EMPTY, size=200 * KIB, flags=ALLOCATED, name=1),
                section(kind=EMPTY, size=256 * KIB, flags=ALLOCATED, name=1),
                section(kind=EMPTY, size=12_000, flags=ALLOCATED, name=14),
                section(kind=0, size=0),
            ],
            segments=[segment(kind=LOAD, file=0, memory=456 * KIB + 12_000)],
            names=CHIP,
        ),
        12_000,
    ),
    (
        "what only looks like it: too much, with content, a name that is none",
        cubin(
            sections=[
                section(kind=EMPTY, size=256 * KIB + 1, flags=ALLOCATED, name=1),
                section(kind=WORDS, size=1000, flags=ALLOCATED, name=1),
                section(kind=EMPTY, size=100, flags=ALLOCATED, name=25),
                section(kind=EMPTY, size=10, flags=ALLOCATED, name=len(CHIP) + 9),
                section(kind=0, size=0),
            ],
            segments=[],
            names=CHIP,
        ),
        256 * KIB + 1111,
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


LZ4 = 0x2000


def packed(content: bytes) -> bytes:
    """As LZ4 with nothing but literals."""
    more = len(content) - 15
    assert more >= 0
    return b"\xf0" + b"\xff" * (more // 255) + bytes([more % 255]) + content


def entry(kind: int, machine: int, content: bytes, *, pack: bool = False) -> bytes:
    """One entry of a fat binary."""
    there = packed(content) if pack else content
    head = struct.pack("<HHIQ", kind, 0x101, 64, len(there))
    told = (len(there), 0, 0, machine, 0, LZ4, 0, len(content)) if pack else (0, 0, 0, machine, 0, 0, 0, 0)
    return head + struct.pack("<IIIIQQQQ", *told) + there


def fat(*entries: tuple[int, int, bytes], pack: bool = False) -> bytes:
    """Entries of a kind, for a machine, as they are or packed."""
    told = b"".join(entry(*each, pack=pack) for each in entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(told)) + told


TEXT = b".version 8.0\n.global .b8 x[100];"
IMAGE = cubin(sections=[section(kind=EMPTY, size=5000)], segments=[])
# For a GPU of compute capability 9.0, as unpacker.c has one; flags as CUDA 12 and as 13 writes them.
OLD_90, NEW_90, OLD_75, NEW_80, NEW_100 = 0x5A055A, 0x06005A04, 0x4B054B, 0x06005004, 0x06006404


def for_gpu(flags: int, size: int = 7000) -> bytes:
    """A cubin that says inside for which GPU it is."""
    return cubin(sections=[section(kind=EMPTY, size=size)], segments=[], flags=flags)


NEWER = b".version 8.7\n.target sm_120\n.global .b8 x[100];"
HERE = b".version 8.7\n.target sm_90a, debug\n.global .b8 x[100];"
FATS = [
    ("a cubin", fat((CUBIN, 90, IMAGE)), 5000),
    ("text", fat((PTX, 90, TEXT)), 100 + len(TEXT)),
    ("the larger of both", fat((PTX, 90, TEXT), (CUBIN, 90, IMAGE)), 5000),
    ("text with zeros", fat((PTX, 90, TEXT + bytes(9))), 100 + len(TEXT) + 9),
    ("a cubin of another generation", fat((CUBIN, 75, for_gpu(OLD_75)), (CUBIN, 90, IMAGE)), 5000),
    ("of a newer one", fat((CUBIN, 100, for_gpu(NEW_100)), (CUBIN, 90, IMAGE)), 5000),
    ("nothing for this GPU", fat((CUBIN, 80, for_gpu(NEW_80)), (PTX, 120, NEWER)), 0),
    ("one that is only said to be of another", fat((CUBIN, 75, for_gpu(OLD_90))), 7000),
    ("and as newer compilers write it", fat((CUBIN, 100, for_gpu(NEW_90))), 7000),
    ("one that says inside that it is", fat((CUBIN, 90, for_gpu(NEW_100))), 7000),
    ("one that says nothing inside", fat((CUBIN, 75, for_gpu(0))), 7000),
    ("one that is no cubin", fat((CUBIN, 75, TEXT)), REFUSED),
    ("text for newer GPUs", fat((PTX, 120, NEWER), (CUBIN, 90, IMAGE)), 5000),
    ("text that is only said to be", fat((PTX, 120, HERE)), 100 + len(HERE)),
    ("text that says inside that it is", fat((PTX, 90, NEWER)), 100 + len(NEWER)),
    ("text that says nothing inside", fat((PTX, 120, TEXT)), 100 + len(TEXT)),
    ("what is compiled when it is loaded", fat((LATER, 90, b"BC\xc0\xde" + bytes(500))), REFUSED),
    ("that beside a cubin", fat((CUBIN, 90, IMAGE), (LATER, 90, b"BC\xc0\xde" + bytes(20))), REFUSED),
    ("of no kind", fat((0, 90, IMAGE)), REFUSED),
    ("a cubin as another kind", fat((64, 90, IMAGE)), REFUSED),
    ("text as a cubin", fat((CUBIN, 90, TEXT)), REFUSED),
    ("a cubin as text", fat((PTX, 90, IMAGE)), REFUSED),
]


@pytest.mark.parametrize(("image", "declared"), [row[1:] for row in FATS], ids=[row[0] for row in FATS])
def test_a_fat_binary_takes_what_the_largest_that_a_gpu_may_load_does(image: bytes, declared: int) -> None:
    """And nothing is loaded whose variables nobody can read."""
    assert int(_weigher().fat_bytes(image, len(image))) == declared


PACKS = [
    ("a cubin", [(CUBIN, 90, IMAGE)], 5000),
    ("of another generation", [(CUBIN, 75, for_gpu(OLD_75)), (CUBIN, 90, IMAGE)], 5000),
    ("only said to be", [(CUBIN, 75, for_gpu(OLD_90)), (CUBIN, 90, IMAGE)], 7000),
    ("text for newer GPUs", [(PTX, 120, NEWER), (CUBIN, 90, IMAGE)], 5000),
    ("text only said to be", [(PTX, 120, HERE + b" " * 6000)], 6100 + len(HERE)),
]


@pytest.mark.parametrize(("entries", "declared"), [row[1:] for row in PACKS], ids=[row[0] for row in PACKS])
def test_for_which_gpu_it_is_is_known_of_what_is_packed_too(
    entries: list[tuple[int, int, bytes]], declared: int
) -> None:
    """Of what can't be unpacked it is not, so that it is refused unless its entry says that nobody may load it."""
    image = fat(*entries, pack=True)
    assert int(_weigher().fat_bytes(image, len(image))) == declared


TARGETS = [
    (b".version 8.0\n.target sm_90\n", 90),
    (b"// by nvcc\n.version 8.0 .target sm_120a, debug\n", 120),
    (b".target sm_90\n", 0),
    (b".version 8.0\n.address_size 64\n.target sm_90", 0),
    (b".version 8.0\n.target texmode_unified, sm_90", 0),
    (b".version 8.0\n.target gfx90", 0),
    (b".version 8.0\n.target sm_", 0),
    (b".version 8.0\n.target sm_99999999999999", 0),
    (b"", 0),
]


@pytest.mark.parametrize(("text", "machine"), TARGETS)
def test_text_says_for_which_gpus_it_is(text: bytes, machine: int) -> None:
    """In its first two lines, or it does not say it plainly."""
    assert _weigher().text_target(text, len(text)) == machine


GOOD, LTO = (CUBIN, 90, IMAGE), (LATER, 90, b"BC\xc0\xde" + bytes(20))
TOMORROW = (PTX, 90, b".version 99.0\n.target sm_90\n.tomorrow 1;   ")
KEPT = [
    ("all", [GOOD, (PTX, 90, TEXT)], [GOOD, (PTX, 90, TEXT)], 5000),
    ("what is yet to be compiled is left out", [LTO, GOOD, LTO, (PTX, 90, TEXT)], [GOOD, (PTX, 90, TEXT)], 5000),
    ("text with words of tomorrow", [GOOD, TOMORROW], [GOOD], 5000),
    ("what no GPU here loads stays", [(CUBIN, 75, for_gpu(OLD_75)), GOOD], [(CUBIN, 75, for_gpu(OLD_75)), GOOD], 5000),
    ("nothing for this GPU", [(CUBIN, 75, for_gpu(OLD_75))], [(CUBIN, 75, for_gpu(OLD_75))], 0),
    ("nothing is left for this GPU", [(CUBIN, 75, for_gpu(OLD_75)), LTO], None, REFUSED),
    ("nothing is left", [TOMORROW], None, REFUSED),
]


@pytest.mark.parametrize(("told", "kept", "declared"), [row[1:] for row in KEPT], ids=[row[0] for row in KEPT])
def test_a_driver_finds_in_its_copy_what_could_be_weighed(
    told: list[tuple[int, int, bytes]], kept: list[tuple[int, int, bytes]] | None, declared: int
) -> None:
    """So that one entry nobody understands does not take away the code that this GPU needs."""
    image = fat(*told)
    room = ctypes.create_string_buffer(image, len(image))
    assert int(_weigher().fat_keep_known(room, len(image))) == declared
    left = b"" if kept is None else fat(*kept)
    assert room.raw.startswith(left)
    assert not any(room.raw[len(left) :]) or kept is None
