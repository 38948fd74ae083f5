"""What is packed in fat binaries, unpacked as other packers packed it; and nothing else taken for it."""

from __future__ import annotations

import ctypes
import functools

import pytest

from support.packed import Packed, packed
from support.pure_c import ROOT, compiled

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]

SOURCES = ("unlz4.c", "unzstd.c", "entropy.c")
PACKED = packed()


@functools.cache
def _library() -> ctypes.CDLL:
    loaded = compiled(*(ROOT / "isolation" / name for name in SOURCES))
    for function in (loaded.unpack_lz4, loaded.unpack_zstd):
        function.restype = ctypes.c_bool
        function.argtypes = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64
    return loaded


def unpack(one: Packed, *, size: int | None = None, content: bytes | None = None) -> bytes | None:
    """What comes out, or nothing where it is refused."""
    wanted = len(one.plain) if size is None else size
    packed_as = one.content if content is None else content
    room = ctypes.create_string_buffer(wanted + 1)
    function = _library().unpack_lz4 if one.how == "lz4" else _library().unpack_zstd
    return room.raw[:wanted] if function(room, wanted, packed_as, len(packed_as)) else None


@pytest.mark.parametrize("name", PACKED)
def test_what_others_packed_is_unpacked(name: str) -> None:
    """By every form that their packers chose, and with zeros behind it."""
    one = PACKED[name]
    assert unpack(one) == one.plain
    assert unpack(one, content=one.content + bytes(7)) == one.plain


@pytest.mark.parametrize("name", PACKED)
def test_another_size_than_it_has_is_refused(name: str) -> None:
    """Neither a byte less nor one more."""
    one = PACKED[name]
    assert unpack(one, size=len(one.plain) + 1) is None
    assert not one.plain or unpack(one, size=len(one.plain) - 1) is None


@pytest.mark.parametrize("name", [name for name, one in PACKED.items() if one.plain])
def test_what_is_cut_off_is_refused(name: str) -> None:
    """Wherever it is cut, at most 200 places."""
    one = PACKED[name]
    step = len(one.content) // 200 + 1
    assert [at for at in range(0, len(one.content), step) if unpack(one, content=one.content[:at]) is not None] == []
