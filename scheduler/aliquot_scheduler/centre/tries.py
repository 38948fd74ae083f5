"""How often the API server had trouble with one pod: its own is over soon, that of a pod's webhook may last.

So what fails for one pod is tried a few times, and then taken to fail for good: others must not be held up by it.
"""

from __future__ import annotations

from collections.abc import Collection

_MOST = 3


class Tries:
    """By pods' UIDs."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}

    def fails_for_good(self, uid: str, *, among: Collection[str]) -> bool:
        """It has failed once more. Who is not `among` these is forgotten, and so is who has failed for good."""
        self._failures = {one: count for one, count in self._failures.items() if one in among}
        self._failures[uid] = self._failures.get(uid, 0) + 1
        if self._failures[uid] < _MOST:
            return False
        del self._failures[uid]
        return True
