"""A leader that can't decide for minutes although it renews its lease: nobody else takes over, so it has to go.

Its election and its watches ask the API server in different ways, and one may fail without the other: a right that was
taken away, a proxy between. The kubelet asks `/healthz` every few seconds and starts such a replica anew, which lets
go of the lease first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aliquot_core.clock import Clock

# Many times what it takes to read the largest cluster anew; while the API server is away nobody leads for long.
PATIENCE = 300.0


class Sight:
    """How long this replica has led without being able to decide, by when it was asked."""

    def __init__(self, *, clock: Clock, blind: Callable[[], str]) -> None:
        """`blind` says why the leader can't decide; empty where it can, or where another leads."""
        self._clock = clock
        self._blind = blind
        self._since: float | None = None

    def lost(self) -> Sequence[str]:
        """What keeps it from being of use, a sentence; nothing where all is well or may still become so."""
        why, now = self._blind(), self._clock.monotonic()
        if not why:
            self._since = None
            return []
        self._since = now if self._since is None else self._since
        silent = now - self._since
        return [f"leads, and can't decide for {silent:.0f} s: {why}"] if silent > PATIENCE else []
