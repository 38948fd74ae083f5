"""Which CDI names were answered for which ids: a bounded memory.

The kubelet's own checkpoint is the record that counts; this serves where that can't be read. Ids are kept as a digest:
a slice of eight whole GPUs has 800 of them. One set of ids has several names: each Allocate gets a fresh one, and the
init containers of a pod hand their ids on to its app containers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

# A node starts some hundred containers between two looks at the record; 1,024 sets of 16 names take 0.5 MiB at most.
MOST_SETS = 1024
MOST_NAMES = 16


class GivenNames:
    """Remembers the newest names of the newest sets of ids."""

    def __init__(self, remembered: dict[str, list[str]] | None = None) -> None:
        self._names = {digest: list(names[-MOST_NAMES:]) for digest, names in (remembered or {}).items()}
        self._shrink()

    def remember(self, *, resource: str, ids: Iterable[str], name: str) -> None:
        """Note that this name was answered for these ids."""
        digest = _digest(resource, ids)
        names = self._names.pop(digest, [])
        self._names[digest] = [*names, name][-MOST_NAMES:]
        self._shrink()

    def names(self, *, resource: str, ids: Iterable[str]) -> list[str]:
        """All names answered for exactly these ids, newest last."""
        return list(self._names.get(_digest(resource, ids), ()))

    def snapshot(self) -> dict[str, list[str]]:
        """Everything, as the state file keeps it."""
        return {digest: list(names) for digest, names in self._names.items()}

    def _shrink(self) -> None:
        while len(self._names) > MOST_SETS:
            del self._names[next(iter(self._names))]


def _digest(resource: str, ids: Iterable[str]) -> str:
    text = "\n".join([resource, *sorted(ids)])
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
