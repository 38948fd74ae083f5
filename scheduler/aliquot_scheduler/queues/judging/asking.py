"""What is asked of one dimension, in words: where it counts as more memory than a pod says, with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_core.quantities import WHOLE
from aliquot_scheduler.queues.said.tree import MEMORY, Dimensions
from aliquot_scheduler.queues.said.units import spoken
from aliquot_scheduler.queues.waiting.waiter import Waiter


def asked_of(dimension: int, amount: int, members: Sequence[Waiter], *, of: Dimensions) -> str:
    """So much, asked by these together: `80000 MiB of memory (a whole GPU counts with all its memory)`."""
    said = spoken(amount, dimension, of=of)
    is_memory = dimension < of.cards and dimension % 2 == MEMORY
    why = _why_so_much(members) if is_memory else ""
    return f"{said} ({why})" if why else said


def _why_so_much(members: Sequence[Waiter]) -> str:
    shares = [share for one in members for container in one.demand.request.containers for share in container.shares]
    if any(share.compute == WHOLE for share in shares):
        return "a whole GPU counts with all its memory"
    if any(share.memory is None for share in shares):
        return "memory left out counts as its part of the largest GPU that would do"
    return ""
