"""The history on disk, for a centre that is to know after a restart how it was: one file, as large as the ring."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from aliquot_kube.errors import NOT_JSON
from aliquot_scheduler.page.model import Sample

log = logging.getLogger(__name__)

# So much is lost at the most, by a kill; 2,160 points are some 300 kB.
KEEP_EVERY = 60.0
_MOST = 64 * 1024 * 1024


class HistoryFile:
    """Where it is kept. That it can't be is told, and stops nothing."""

    def __init__(self, path: str) -> None:
        """An empty path keeps nothing."""
        self._path = Path(path) if path else None

    def read(self) -> list[Sample]:
        """What was kept; nothing if there is none that can be read."""
        if self._path is None:
            return []
        try:
            if self._path.stat().st_size > _MOST:
                return []
            return msgspec.json.decode(self._path.read_bytes(), type=list[Sample])
        except FileNotFoundError:
            return []
        except (OSError, ValueError, *NOT_JSON) as error:
            log.warning("the page's history can't be read", extra={"path": str(self._path), "why": str(error)})
            return []

    def write(self, samples: Sequence[Sample]) -> None:
        """Keep these and no others; after a crash there are the old ones or the new."""
        if self._path is None or not samples:
            return
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            draft.write_bytes(msgspec.json.encode(samples))
            draft.replace(self._path)
        except (OSError, ValueError) as error:
            log.warning("the page's history can't be kept", extra={"path": str(self._path), "why": str(error)})
            with contextlib.suppress(OSError, ValueError):
                draft.unlink()
