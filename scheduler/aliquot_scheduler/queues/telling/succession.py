"""In which order all who stand in lines would be let in, if there were quota and room for all.

Whoever comes next is let in at once in the books and lines that are given, so that equals take turns: for nothing else
are these of any use afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from aliquot_scheduler.queues.judging.enrolment import Enrolment
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.order import Order, Shares
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter


def succession(*, books: Books, hall: Hall, enrolment: Enrolment, now: float) -> Iterator[Waiter]:
    """One after the other; who has heard enough may stop."""
    shares, nodes = books.shares(now=now), books.ledger.tree.nodes
    open_lines = [name for name in hall.lines if not nodes[name].stop]
    # A line's first is another one only once somebody of it was let in.
    firsts = {name: _first(name, shares, books=books, hall=hall) for name in open_lines}
    candidates = {name: partial(firsts.get, name) for name in open_lines}
    for candidate in Order(ledger=books.ledger, shares=shares, candidates=candidates):
        queue = candidate.first.queue
        for member in books.runs.begun_by(candidate.members):
            hall.leave(member.uid, books=books)
            books.admit(member, enrolment.charge(member), now=now)
            yield member
        shares.changed(queue)
        hall.gang_changed(candidate.first, books=books)
        firsts[queue] = _first(queue, shares, books=books, hall=hall)


def _first(queue: str, shares: Shares, *, books: Books, hall: Hall) -> Candidate | None:
    line = hall.lines.get(queue)
    for user in shares.in_order(queue, line.users()) if line else ():
        for head in line.heads(user, runs=books.runs) if line else ():
            if not hall.is_never(head.first):
                return head
    return None
