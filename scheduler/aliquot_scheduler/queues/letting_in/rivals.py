"""Who else waits for what one would take: for nobody else's sake does who has lost turns let it stand idle.

Of who waits for a limit, its queue's or one above it, nothing is taken but by those who count under that limit too. So
one that a limit keeps out, under which the other does not come, is none; nor is one of a queue that lets nobody in, or
of a group that can't start. Of all others, whatever keeps them out, it is taken that they could use it.

What must always hold: whoever could be let in, if those of a user in doubt were not there, is a rival.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import NamedTuple

from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.line import Line
from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Candidate

# Of more than so many of one user it is not looked at each.
_LOOKED_AT = 64


class _Waits(NamedTuple):
    """A user's candidates in a queue: the queues whose limits keep them out, of no limit the root's name; each once."""

    who: Whose
    kept_out_by: AbstractSet[str]
    # The same of those who have lost no turn.
    fresh: AbstractSet[str]


class Rivals:
    """As of one instant."""

    def __init__(self, *, hall: Hall, books: Books) -> None:
        self._hall = hall
        self._books = books

    def of(self, who: Whose, *, below: str = ROOT) -> bool:
        """Whether anybody else waits below a queue who could use what that user's pods would take."""
        path = self._books.ledger.tree.path
        mine = set(path(who[0]))
        return any(
            one.who != who and below in path(one.who[0]) and not one.kept_out_by.isdisjoint(mine) for one in self._all
        )

    def of_second_turns(self, queues: Collection[str]) -> bool:
        """Whether anybody who has lost none could use what turns in these queues would take."""
        path = self._books.ledger.tree.path
        theirs = {name for queue in queues for name in path(queue)}
        return any(not one.fresh.isdisjoint(theirs) for one in self._all)

    @cached_property
    def _all(self) -> list[_Waits]:
        nodes = self._books.ledger.tree.nodes
        return [
            waits
            for queue, line in self._hall.lines.items()
            if not nodes[queue].stop
            for user in line.users()
            if (waits := self._waits(queue, user, line)).kept_out_by
        ]

    def _waits(self, queue: str, user: str, line: Line) -> _Waits:
        found, fresh = set[str](), set[str]()
        heads = [one for one in line.heads(user, runs=self._books.runs) if not self._hall.is_never(one.first)]
        for candidate in heads[:_LOOKED_AT]:
            by = self._kept_out_by(queue, candidate)
            found.add(by)
            if not candidate.first.lost:
                fresh.add(by)
        if len(heads) > _LOOKED_AT:
            found.add(ROOT)
            fresh.add(ROOT)
        return _Waits((queue, user), found, fresh)

    def _kept_out_by(self, queue: str, candidate: Candidate) -> str:
        """Of GPUs of a model a limit keeps it off those alone; and what is asked of memory may come to less then."""
        ledger = self._books.ledger
        over = None if ledger.limits_models(queue) else ledger.over(queue, candidate.amounts)
        return over[0].node.name if over else ROOT
