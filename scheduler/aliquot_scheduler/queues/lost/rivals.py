"""Who else waits for what one would take: for nobody else's sake does who has lost turns let it stand idle.

Of who waits for a limit, its queue's or one above it, nothing is taken but by those who count under that limit too. So
one that a limit keeps out, under which the other does not come, is none; nor is one of a queue that lets nobody in, or
of a group that can't start. Of all others, whatever keeps them out, it is taken that they could use it.

Users in doubt are no rivals of each other: after an outage all of them are, and each would let all cards stand idle for
the others. Between them the order of turns decides, which counts what they kept. But what is guaranteed to one queue
none of its users keeps from another one, in doubt or not.

What must always hold: whoever could be let in, if those of a user in doubt were not there, is a rival, unless its user
is in doubt as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import islice

from aliquot_scheduler.queues.lost.doubts import Doubts
from aliquot_scheduler.queues.said.tree import ROOT, Vector
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.line import Line
from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Candidate

# Of more than so many of one user it is not looked at each.
_LOOKED_AT = 64
# As many users as tell that there is another one, whoever asks.
_ENOUGH = 2

# A queue whose limit keeps somebody out, of no limit the root's name; and whose that is.
_KeptOut = tuple[str, Whose]


class _Waiting:
    """Whom limits of which queues keep out: looked at no further than an answer needs, for thousands may wait."""

    def __init__(self, more: Iterator[_KeptOut]) -> None:
        self._more = more
        self._known: dict[str, set[Whose]] = {}

    def some(self, queues: Collection[str], *, enough: int) -> AbstractSet[Whose]:
        """Of those whom a limit of any of these keeps out; so many if there are."""
        found = {who for name in queues for who in self._known.get(name, ())}
        while len(found) < enough and (more := next(self._more, None)):
            name, who = more
            users = self._known.setdefault(name, set())
            if len(users) < _ENOUGH:
                users.add(who)
            if name in queues:
                found.add(who)
        return found


class Rivals:
    """As of one instant; `doubted` knows the users in doubt."""

    def __init__(self, *, hall: Hall, books: Books, doubted: Doubts) -> None:
        self._hall = hall
        self._books = books
        self._doubted = doubted
        self._trusted = _Waiting(self._kept_out(trusted=True))
        self._fresh = _Waiting(self._kept_out(fresh=True))
        self._below: dict[str, _Waiting] = {}
        # What was asked already, by queue: hundreds of users may be in doubt.
        self._of: dict[str, bool] = {}

    def of(self, queue: str) -> bool:
        """Whether anybody who is not in doubt could use what pods of that queue's would take."""
        if queue not in self._of:
            self._of[queue] = bool(self._trusted.some(self._path(queue), enough=1))
        return self._of[queue]

    def of_guarantee(self, queue: str, *, owner: str) -> AbstractSet[Whose]:
        """Who below a queue could use what pods of that one's would take: as many as tell that there is another one."""
        lines = self._lines_below[owner]
        if len(lines) == 1 and len(lines[0][1].users()) == 1:
            return set()
        found = self._beside(queue)
        if len(found) < _ENOUGH:
            if owner not in self._below:
                self._below[owner] = _Waiting(self._kept_out(below=owner))
            found |= self._below[owner].some(self._path(queue), enough=_ENOUGH)
        return found

    def of_second_turns(self, queues: Collection[str]) -> bool:
        """Whether anybody who has lost none, and may come now, could use what turns in these queues would take."""
        return bool(self._fresh.some({name for queue in queues for name in self._path(queue)}, enough=1))

    def _beside(self, queue: str) -> AbstractSet[Whose]:
        """Who waits in the same queue: whichever limit keeps them out, it is one of this queue's limits as well."""
        lines = self._hall.lines
        if self._books.ledger.tree.nodes[queue].stop:
            return set()
        wait = ((queue, user) for user in lines[queue].users() if any(self._heads(lines[queue], user, fresh=False)))
        return set(islice(wait, _ENOUGH))

    def _path(self, queue: str) -> Collection[str]:
        return self._books.ledger.tree.path(queue)

    def _kept_out(self, *, trusted: bool = False, fresh: bool = False, below: str = ROOT) -> Iterator[_KeptOut]:
        """Of those who wait below a queue, whether or not they may come now.

        `trusted` are of users not in doubt alone; `fresh` are alone who have lost no turn, and may come now.
        """
        for queue, line in self._lines_below[below]:
            users = [user for user in line.users() if not (trusted and (queue, user) in self._doubted)]
            own = bool(users) and self._is_full(queue, line.least(runs=self._books.runs))
            for user in users:
                heads = self._heads(line, user, fresh=fresh)
                yield from ((name, (queue, user)) for name in self._names(queue, heads, own=own))

    @cached_property
    def _lines_below(self) -> Mapping[str, Sequence[tuple[str, Line]]]:
        """Of each queue that lets anybody in, in which somebody waits: by all queues that it is below, and itself."""
        found = defaultdict[str, list[tuple[str, Line]]](list)
        nodes = self._books.ledger.tree.nodes
        for queue, line in self._hall.lines.items():
            for name in () if nodes[queue].stop else self._path(queue):
                found[name].append((queue, line))
        return found

    def _heads(self, line: Line, user: str, *, fresh: bool) -> Iterator[Candidate]:
        runs = self._books.runs
        for one in line.heads(user, runs=runs) if fresh else line.all_heads(user, runs=runs):
            if not (self._hall.is_never(one.first) or (fresh and one.first.lost)):
                yield one

    def _names(self, queue: str, heads: Iterator[Candidate], *, own: bool) -> Iterator[str]:
        if own:
            yield from (queue for _ in islice(heads, 1))
            return
        for one in islice(heads, _LOOKED_AT):
            yield self._kept_out_by(queue, one.amounts)
        yield from (ROOT for _ in islice(heads, 1))

    def _is_full(self, queue: str, least: Vector) -> bool:
        """Whether its own limit keeps out whoever waits in it."""
        return bool(least) and self._kept_out_by(queue, least) == queue

    def _kept_out_by(self, queue: str, amounts: Vector) -> str:
        """Of GPUs of a model a limit keeps it off those alone; and what is asked of memory may come to less then."""
        ledger = self._books.ledger
        over = None if ledger.limits_models(queue) else ledger.over(queue, amounts)
        return over[0].node.name if over else ROOT
