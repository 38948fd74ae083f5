"""The numbers of one queue, and how what is held back for it comes of them; `ledger.py` says what they mean."""

from __future__ import annotations

from typing import NamedTuple

from aliquot_scheduler.queues.charged.portions import Portions
from aliquot_scheduler.queues.said.tree import Node


class Account:
    """The numbers of one queue."""

    __slots__ = (
        "asked",
        "awaiting",
        "demanded",
        "firm",
        "held",
        "held_below",
        "idle",
        "idle_below",
        "missing",
        "node",
        "portions",
        "sure",
        "sure_below",
        "tied",
        "used",
        "wanted",
    )

    def __init__(self, node: Node, *, width: int) -> None:
        self.node = node
        # Of those who demand its guarantee, where it has one.
        self.portions = tuple(Portions() if node.guarantee[dim] else None for dim in range(width))
        self.used = [0] * width
        # What is charged here itself and never taken back.
        self.firm = [0] * width
        # What is guaranteed or never taken back, whichever is more; and the sum of the children's.
        self.sure = list(node.guarantee)
        self.sure_below = [0] * width
        self.asked = [0] * width
        # What of that is asked, here itself, by those who could come in only by a node that is yet to come.
        self.awaiting = [0] * width
        # What of that is asked, here itself, by others who may lie on GPUs of a model alone; by dimensions of models.
        self.tied = [0] * width
        # What is asked here and demanded of the children; and what is demanded here.
        self.wanted = [0] * width
        self.demanded = [0] * width
        self.missing = [0] * width
        self.held = [0] * width
        # What is kept idle, whoever asks (`reservations.py`).
        self.idle = [0] * width
        # The sums of the children's.
        self.held_below = [0] * width
        self.idle_below = [0] * width


class Holding(NamedTuple):
    """What is held back of a queue, in one dimension."""

    room: int
    demanded: int
    missing: int
    held: int


def holding(
    account: Account,
    dimension: int,
    *,
    more: int = 0,
    wanted: int | None = None,
    below: int = 0,
    idle: int = 0,
    but: int = 0,
) -> Holding:
    """One queue's numbers.

    Or what they would be with so much more in use, held back and kept idle below, and one less asking.
    """
    node, used, portions = account.node, account.used[dimension] + more, account.portions[dimension]
    room = max(0, node.ceiling[dimension] - used)
    wanted = account.wanted[dimension] if wanted is None else wanted
    demanded = min(max(wanted, node.kept[dimension] - used), room)
    lacks = min(node.guarantee[dimension] - used, demanded)
    if portions is not None and lacks > 0:
        fitting = portions.fitting(node.guarantee[dimension] - used, but=but)
        lacks = min(lacks, max(fitting + account.idle_below[dimension] + idle, node.kept[dimension] - used))
    missing = max(lacks, account.held_below[dimension] + below, 0)
    # By position: names would double what it takes, and it is asked 1,000 times for each card that is given back.
    return Holding(room, demanded, missing, min(missing, room))
