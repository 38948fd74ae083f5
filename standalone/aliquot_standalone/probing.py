"""Whether a process of ours that listens on this machine answers, and what: `/healthz`, `/readyz`."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from aliquot_standalone.ports import LOOPBACK

# Longer than a busy machine keeps a process that lives from answering.
_ANSWERS_WITHIN = 5.0


class NobodyThereError(Exception):
    """Nobody listens: it has not come so far, or has ended."""


async def is_well(port: int, path: str) -> bool:
    """Whether it answers that it is; raises `NobodyThereError`."""
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN):
            return await _status(port, path) == HTTPStatus.OK
    except ConnectionRefusedError:
        raise NobodyThereError from None
    except (OSError, ValueError):
        return False


async def _status(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nConnection: close\r\n\r\n".encode())
        words = (await reader.readline()).split()
    finally:
        writer.close()
    return int(words[1]) if words[1:] else 0
