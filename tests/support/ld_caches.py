"""Write a loader's cache as glibc does."""

from __future__ import annotations

import struct

_HEADER = 48
_ENTRY = 24


def ld_cache(*entries: tuple[str, str, int]) -> bytes:
    """The cache of libraries given as (name, path, flags)."""
    strings = b""
    table = b""
    start = _HEADER + _ENTRY * len(entries)
    for name, path, flags in entries:
        name_at = start + len(strings)
        strings += name.encode() + b"\0"
        path_at = start + len(strings)
        strings += path.encode() + b"\0"
        table += struct.pack("<iIIIQ", flags, name_at, path_at, 0, 0)
    header = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", len(entries), len(strings), 2, 0)
    return header + table + strings
