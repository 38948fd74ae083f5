"""In which dimensions there is too little for a candidate: who borrows of them may go for it, and of no others.

There is too little of all together, or nowhere enough of it in one piece. Where each is there, but not on the same
card, all count that it asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_scheduler.fit.places import needed_memory
from aliquot_scheduler.picture.grid import Grid
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter


def lacking_for(candidate: Candidate, *, free: Sequence[int], grid: Grid) -> list[int]:
    """`free` is how much there will be in each dimension of GPUs; the grid is as things are."""
    asked = [dim for dim in range(len(free)) if candidate.amounts[dim]]
    scarce = {kind for member in candidate.members for kind in _scarce_in_pieces(member, grid=grid)}
    # Compute and memory take turns, of all cards and of each model.
    return [dim for dim in asked if candidate.amounts[dim] > free[dim] or dim % 2 in scarce] or asked


def _scarce_in_pieces(waiter: Waiter, *, grid: Grid) -> list[int]:
    """Whether no card has compute, and memory, for the largest piece; of several containers that is not asked."""
    if not waiter.demand.pieces:
        return []
    piece, open_now = waiter.demand.pieces[0], grid.open & ~grid.closed
    enough = {COMPUTE: grid.compute >= piece.compute, MEMORY: grid.memory >= needed_memory(piece, grid=grid)}
    return [kind for kind, cards in enough.items() if not (open_now & cards).any()]
