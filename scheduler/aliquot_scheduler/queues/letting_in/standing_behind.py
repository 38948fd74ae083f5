"""Heads of lines before whom others come in that ask the same: what is kept for them, and their patience, is those'.

Whoever of a user's asks the same is let in or refused with it, and the first of them is asked: one of a higher
PriorityClass that comes later, one that is back from a turn that led to nothing, another pod of its own group, another
group. It would be refused the node that is kept for the head, and the head not be asked: the node would stand idle. So
the first of them has waited as long as any of them, and comes in there; then the head goes on from where it was.

And heads of whom nobody is asked: their queue is held, their group is whole no more or can't start whatever others do,
or they wait apart. Nothing would ever come to what is kept for these.
"""

from __future__ import annotations

from collections.abc import Collection

from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.waiter import Candidate


def stand_behind(memory: SweepMemory, *, hall: Hall, books: Books, shown: Collection[str], now: float) -> None:
    """As they stand in their lines now; for who is `shown` to an autoscaler nothing is kept."""
    found: dict[str, Candidate | None] = {}
    for uid in memory.patience.impatient_anywhere(now=now) | memory.owed(now=now):
        head = hall.standing(uid)
        if head is None or not hall.is_asked(head, books=books):
            found[uid] = None
        elif first := hall.lines[head.queue].first_like(head, runs=books.runs):
            found[uid] = None if first.uid in shown else first
    memory.stand_behind(found)
