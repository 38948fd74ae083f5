"""Heads of requests as the clients write them that call all the time; pure.

Theory of operation. kube-scheduler (Go's client), the API server and our own replicas ask by POST with a length, and
with a handful of headers. Such a head is read here in a few steps; of any other one only its end is looked for, and
aiohttp, which knows all of HTTP, gets it as it came.

What must always hold: a head is read here only if it can mean nothing else. So each header must be one of a few, and
there once; none of these changes how long a body is, or what is to be done with the connection.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

# Who passed a call on: a replica of the centre to its leader.
HOP = "Aliquot-Forwarded-By"
_LENGTH, _HOP = b"content-length", HOP.lower().encode()
_HARMLESS = frozenset(
    (b"host", b"user-agent", b"accept", b"accept-encoding", b"content-type", b"traceparent", _LENGTH, _HOP)
)
_END = b"\r\n\r\n"
_LONGEST = 8 * 1024
_METHOD, _VERSION = b"POST ", b" HTTP/1.1"
# More digits than any length that is taken.
_DIGITS = 9


class UnusualHeadError(Exception):
    """Somebody else has to read it."""


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is asked, how long the body is, and where it begins."""

    path: str
    size: int
    ends: int
    hop: str


def read_head(data: bytes | bytearray) -> Head | None:
    """The head that these bytes begin with; None if it has not come whole yet."""
    end = data.find(_END, 0, _LONGEST)
    if end < 0:
        if len(data) >= _LONGEST:
            raise UnusualHeadError
        return None
    return _read(bytes(data[:end]))


# Callers say the same with every call, and pods of one workload make bodies of one length.
@lru_cache(maxsize=64)
def _read(text: bytes) -> Head:
    """A head without its end."""
    first, *lines = text.split(b"\r\n")
    if not (first.startswith(_METHOD) and first.endswith(_VERSION)):
        raise UnusualHeadError
    headers = _headers(lines)
    size = headers.get(_LENGTH, b"")
    # Digits of ASCII and nothing else: `int` alone would take signs, blanks and underscores.
    if not size.isdigit() or len(size) > _DIGITS:
        raise UnusualHeadError
    path = first[len(_METHOD) : -len(_VERSION)].decode("latin-1")
    return Head(path=path, size=int(size), ends=len(text) + len(_END), hop=headers.get(_HOP, b"").decode("latin-1"))


def _headers(lines: list[bytes]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        name = name.lower()
        # A line that begins with a blank goes on with the one before it, and has no harmless name.
        if name not in _HARMLESS or name in found or b"\n" in value or b"\r" in value:
            raise UnusualHeadError
        found[name] = value.strip(b" \t")
    return found
