"""What one GPU has left while it is supposed who lies there; what is taken can be given back."""

from __future__ import annotations

from aliquot_core.claims import Claim
from aliquot_scheduler.fit.demand import Piece


class Left:
    """Of one GPU."""

    __slots__ = ("closed", "compute", "holders", "memory", "usable")

    def __init__(
        self, *, compute: int, usable: int, memory: int | None = None, holders: int = 0, closed: bool = False
    ) -> None:
        """All of it, unless something is said to be taken."""
        self.usable = usable
        self.compute = compute
        self.memory = usable if memory is None else memory
        self.holders = holders
        self.closed = closed

    def take(self, claim: Claim, *, sign: int = 1) -> None:
        """Somebody holds so much of it."""
        self.compute -= sign * claim.compute.value
        self.memory -= sign * claim.memory.value
        self.holders += sign
        # Who closes it was alone on it, so nobody else does when it goes.
        self.closed = self.closed or claim.closes if sign > 0 else self.closed and not claim.closes

    def takes(self, piece: Piece) -> bool:
        """Whether a piece has room."""
        if self.closed or (piece.whole and self.holders):
            return False
        return self.compute >= piece.compute and self.memory >= piece.memory_on(self.usable)
