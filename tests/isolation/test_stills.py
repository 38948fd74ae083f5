"""Which memory the driver may read where it lies: isolation/stills.c."""

from __future__ import annotations

import ctypes
import functools
import mmap
from pathlib import Path

import pytest

from support.pure_c import ROOT, compiled

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]

SIZE = 4 * mmap.PAGESIZE


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
    libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    return libc


@functools.cache
def _library() -> ctypes.CDLL:
    loaded = compiled(ROOT / "isolation" / "stills.c")
    loaded.lies_still.restype = ctypes.c_bool
    loaded.lies_still.argtypes = ctypes.c_void_p, ctypes.c_uint64
    return loaded


@pytest.mark.parametrize(
    ("rights", "flags", "offset", "size", "still"),
    [
        pytest.param(mmap.PROT_READ, mmap.MAP_PRIVATE, 0, SIZE, True, id="all of it"),
        pytest.param(mmap.PROT_READ, mmap.MAP_PRIVATE, 100, SIZE - 100, True, id="to its end"),
        pytest.param(mmap.PROT_READ, mmap.MAP_PRIVATE, 100, SIZE, False, id="past its end"),
        pytest.param(mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, 0, SIZE, False, id="to be written"),
        pytest.param(mmap.PROT_READ, mmap.MAP_SHARED, 0, SIZE, False, id="shared"),
        pytest.param(mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0, SIZE, False, id="of no file"),
    ],
)
def test_only_a_private_map_of_a_file_that_nobody_writes_to_lies_still(
    tmp_path: Path, rights: int, flags: int, offset: int, size: int, *, still: bool
) -> None:
    """And only as far as it goes."""
    path = tmp_path / "library"
    path.write_bytes(bytes(SIZE))
    anonymous = flags & mmap.MAP_ANONYMOUS
    with path.open("r+b") as file:
        at = _libc().mmap(None, SIZE, rights, flags, -1 if anonymous else file.fileno(), 0)
    # Of what lies behind it nobody knows whether it is another map of the same file.
    assert _library().lies_still(at + offset, size) == still
    _libc().munmap(at, SIZE)
