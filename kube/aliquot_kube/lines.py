"""Bytes in, whole lines out."""

from __future__ import annotations

from aliquot_kube.errors import GarbledError

# The API server takes no object above 3 MiB.
LONGEST_LINE = 8 * 1024 * 1024


class LineSplitter:
    """Cuts a stream into lines; what has no end yet is kept, up to a limit."""

    def __init__(self, *, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take in some bytes and give the lines they complete, without line ends; empty ones are left out."""
        end = chunk.rfind(b"\n")
        if end < 0:
            self._keep(chunk)
            return []
        whole = bytes(self._rest) + chunk[:end] if self._rest else chunk[:end]
        self._rest.clear()
        self._keep(chunk[end + 1 :])
        return [line for line in whole.split(b"\n") if line.strip()]

    def _keep(self, chunk: bytes) -> None:
        self._rest += chunk
        if len(self._rest) > self._longest:
            raise GarbledError(f"a line longer than {self._longest} bytes")
