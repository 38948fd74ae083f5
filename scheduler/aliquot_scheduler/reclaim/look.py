"""One look of those who move pods: who decides is told the time and who may be moved, and is asked one after the other.

Each has a condition of its own for when there is anything to decide, so that none waits for another but where it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.reclaim.residents import Residents


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """An instant by both clocks, and those who may be moved then."""

    now: float
    wall: float
    residents: Residents


class Decider(Protocol):
    """Somebody who moves pods for an end of its own."""

    def anything(self, *, now: float) -> bool:
        """Whether there may be somebody to move."""
        ...

    def decide(self, look: Look) -> Sequence[Clearing]:
        """Decide; what is decided stands in the register. For whom room is made, if for anybody."""
        ...


def is_anybody_on_the_way(register: Register) -> bool:
    """Whether room is being made, or kept for who was moved: no plan but off GPUs that fail is begun beside another."""
    return bool(len(register.clearings) or len(register.refuges))
