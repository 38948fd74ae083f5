"""The loader's cache of libraries, /etc/ld.so.cache: in which folders a library lies, wherever a distribution puts it.

Read is the format that glibc has written since 2.2 (magic `glibc-ld.so.cache1.1`), alone or behind the older one: a
header with the number of entries, entries of 24 bytes, strings. Little-endian machines only, as are all with NVIDIA's
driver. What does not fit that gives no folder: the known ones are searched in any case.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

LD_CACHE = "/etc/ld.so.cache"
LARGEST_CACHE = 16 * 1024 * 1024

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sIIB3xI12x")
# Flags, name, path, kernel, hardware capabilities.
_ENTRY = struct.Struct("<iIIIQ")
# The processor that a library is for, in the flags' second byte, with `libc6` in the first.
_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}


def folders_of(library: str, *, cache: bytes, machine: str) -> list[str]:
    """The folders in which the cache knows that library for that processor, in the cache's order."""
    paths = (path for name, path, flags in _entries(cache) if name == library and flags == _FLAGS.get(machine))
    return list(dict.fromkeys(path.rpartition("/")[0] for path in paths if path.startswith("/")))


def _entries(cache: bytes) -> Iterator[tuple[str, str, int]]:
    start = cache.find(_MAGIC)
    if start < 0 or len(cache) < start + _HEADER.size:
        return
    table = cache[start:]
    _, count, _, _, _ = _HEADER.unpack_from(table)
    count = min(count, (len(table) - _HEADER.size) // _ENTRY.size)
    for flags, name, path, _, _ in _ENTRY.iter_unpack(table[_HEADER.size : _HEADER.size + count * _ENTRY.size]):
        yield _string(table, name), _string(table, path), flags


def _string(table: bytes, start: int) -> str:
    end = table.find(b"\0", start)
    return table[start:end].decode(errors="replace") if end >= 0 else ""
