"""Through the lines in one sweep: who is next in each, without a word to thousands who can't come in.

Who finds no card is passed over at once, if it has patience; so is a whole line of which no card has room for anybody,
and one of which even the smallest are over a limit, its queue's or one above. A line is left alone in that only where
somebody stands who has lost patience, since that one is to be looked at, and may keep others out.

What must always hold: whoever is passed over here would be refused if it was asked, and nothing would come of that but
the words; who is over a limit is told so when it asks (`telling/notices.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain

import numpy as np

from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.letting_in.beside import Beside
from aliquot_scheduler.queues.letting_in.keeping import Keeping
from aliquot_scheduler.queues.letting_in.sayings import Mark
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.said.tree import COMPUTE
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.line import Heads, Line
from aliquot_scheduler.queues.waiting.order import Shares
from aliquot_scheduler.queues.waiting.waiter import Candidate

# Of so few it is as quick to look at each as to ask whether any may be able.
_SHORT = 64
_NOBODY: frozenset[str] = frozenset()


class Watched:
    """Who is looked at though nothing is free for them, and in whose queues they stand."""

    def __init__(
        self, *, hall: Hall, pressing: AbstractSet[str], closing: AbstractSet[str], impatient: AbstractSet[str]
    ) -> None:
        """`pressing` are those for whom nodes may be kept now; `closing` those of the impatient who kept quota."""
        self.pressing = pressing
        self.uids = pressing | (impatient & closing)
        self._users = _users_of(hall, self.uids)
        self._impatient = _users_of(hall, impatient | pressing)

    def users(self, queue: str) -> AbstractSet[str]:
        """Of a queue."""
        return self._users.get(queue, _NOBODY)

    def has_patience(self, queue: str) -> bool:
        """Whether nobody of a queue is one of them, nor has lost patience."""
        return queue not in self._impatient


def _users_of(hall: Hall, uids: Iterable[str]) -> Mapping[str, AbstractSet[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for waiter in filter(None, map(hall.standing, uids)):
        found[waiter.queue].add(waiter.user)
    return found


class Walk:
    """In one sweep."""

    def __init__(
        self,
        *,
        books: Books,
        hall: Hall,
        cards: Cards,
        shares: Shares,
        memory: SweepMemory,
        keeping: Keeping,
        beside: Beside,
        watched: Watched,
        head_of: Callable[[Candidate], None],
    ) -> None:
        """`head_of` is told the first of each line that is passed over."""
        self._ledger: Ledger = books.ledger
        self._runs = books.runs
        self._hall = hall
        self._cards = cards
        self._shares = shares
        self._refused = memory.refused
        self._keeping = keeping
        self._beside = beside
        self._watched = watched
        self._head_of = head_of
        self._headed: set[str] = set()
        self._reached: dict[tuple[str, str], tuple[Heads, int]] = {}
        self._passed: defaultdict[str, set[Mark]] = defaultdict(set)
        self.ask_cards()

    def ask_cards(self) -> None:
        """Others have room than before."""
        cards = self._cards
        self._may, self._fits, self._few = cards.fitting(), cards.fits(), cards.few_fitting()

    def may_fit(self, candidate: Candidate) -> bool:
        """Whether a card may be there: what is taken in this sweep changes nothing of what was found not to be."""
        if candidate.number >= len(self._may):
            # It asks for what nobody did before.
            self.ask_cards()
        return self._may[candidate.number] and candidate.shape not in self._refused

    def pass_over(self, candidate: Candidate) -> None:
        """It was asked: not in this sweep any more."""
        queue = candidate.first.queue
        if queue not in self._headed:
            self._head(queue, candidate)
        self._passed[queue].add((candidate.first.user, candidate.shape))

    def is_hopeless(self, queue: str, line: Line) -> bool:
        """Whether a line has nobody who could come in: of 200 lines most are so."""
        able = self._able(queue, line)
        if able is not None and not able:
            self._note_first(queue, line)
            return True
        if self._keeping.anything():
            # Where nodes are kept they often are all that has room.
            return self._next(queue, line, able) is None
        if self._is_full(queue, line):
            self._note_first(queue, line)
            return True
        return False

    def is_over(self, queues: Iterable[str]) -> bool:
        """Whether no card has room for anybody any more: most rounds end so at once."""
        if self._few is None or self._few or self._watched.pressing:
            return False
        for queue in queues:
            if queue not in self._headed and (line := self._hall.lines.get(queue)):
                self._note_first(queue, line)
        return True

    def next(self, queue: str) -> Candidate | None:
        """The first of a line that was not passed over."""
        line = self._hall.lines.get(queue)
        return None if line is None else self._next(queue, line, self._able(queue, line))

    def _next(self, queue: str, line: Line, able: AbstractSet[str] | None) -> Candidate | None:
        full = self._is_full(queue, line)
        for user in self._users(queue, line):
            if able is not None and user not in able and queue in self._headed:
                continue
            heads = line.heads(user, runs=self._runs)
            before, start = self._reached.get((queue, user), (heads, 0))
            number = self._first_able(queue, user, heads, start if before is heads else 0, full=full)
            # All before this one were passed over, as long as it is the same list.
            self._reached[queue, user] = heads, number
            if number < len(heads):
                return heads[number]
        return None

    # --- whole lines -------------------------------------------------------------------------------------------------
    def _able(self, queue: str, line: Line) -> AbstractSet[str] | None:
        """Users of whom a card may have room for anybody, or whose head is to be looked at; None if that may be all."""
        if self._few is None:
            return None
        return line.users_asking(self._few) | self._watched.users(queue)

    def _is_full(self, queue: str, line: Line) -> bool:
        """Whether all of a line are over a limit; as more comes in they stay so."""
        if not self._watched.has_patience(queue):
            return False
        least = line.least(runs=self._runs)
        # Where no GPUs of a model are limited nobody is kept off a model for a limit.
        asked = self._whatever_the_card(least) if self._ledger.limits_models(queue) else least
        return self._ledger.over(queue, asked) is not None

    def _whatever_the_card(self, least: Sequence[int]) -> Sequence[int]:
        """What of that is asked on cards of any model: memory that is left out may come to less."""
        cards = self._ledger.tree.dimensions.cards
        return [amount if dim == COMPUTE or dim >= cards else 0 for dim, amount in enumerate(least)]

    def _note_first(self, queue: str, line: Line) -> None:
        """All of a line are passed over."""
        if queue not in self._headed:
            users = self._users(queue, line)
            self._note_head(queue, chain.from_iterable(line.heads(user, runs=self._runs) for user in users))

    def _users(self, queue: str, line: Line) -> Sequence[str]:
        users = line.users()
        return tuple(users) if len(users) == 1 else self._shares.in_order(queue, users)

    # --- one user's --------------------------------------------------------------------------------------------------
    def _first_able(self, queue: str, user: str, heads: Heads, number: int, *, full: bool) -> int:
        """The place of the next candidate that may come in; thousands may not, so little is done for each."""
        if number >= len(heads):
            return number
        start, number = number, len(heads)
        watches = user in self._watched.users(queue)
        if len(heads) <= _SHORT or watches or not self._none_able(heads):
            number = self._next_place(queue, user, heads, start, watches=watches, full=full)
        if queue not in self._headed:
            self._note_head(queue, (heads[place] for place in range(start, number)))
        return number

    def _next_place(self, queue: str, user: str, heads: Heads, start: int, *, watches: bool, full: bool) -> int:
        passed, watched = self._passed[queue], self._watched.uids if watches else _NOBODY
        stands_back = self._beside.stand_back(queue)
        for place in self._places(heads, start, watched):
            candidate = heads[place]
            able = candidate.uid in watched or (self.may_fit(candidate) and not stands_back(candidate))
            if able and not full and (user, candidate.shape) not in passed and not self._is_never(candidate):
                return place
        return len(heads)

    def _places(self, heads: Heads, start: int, watched: AbstractSet[str]) -> Iterable[int]:
        """From there on, whose place it is that a card may have room for, or who is looked at in any case."""
        if len(heads) <= _SHORT:
            may = self._may
            places = [place for place in range(start, len(heads)) if may[heads[place].number]]
        else:
            able: list[int] = np.flatnonzero(self._fits[heads.in_order[start:]]).tolist()
            places = [start + place for place in able] if start else able
        found = heads.places.keys() & watched if watched else ()
        if not found:
            return places
        return sorted({*places, *(place for uid in found if (place := heads.places[uid]) >= start)})

    def _none_able(self, heads: Heads) -> bool:
        """Whether that is plain without looking at each of them: no card has room for any."""
        few = self._few
        return few is not None and heads.lone and heads.numbers.isdisjoint(few)

    def _note_head(self, queue: str, skipped: Iterator[Candidate]) -> None:
        """Of those who are passed over the first is the head of its line."""
        if head := next((one for one in skipped if not self._is_never(one)), None):
            self._head(queue, head)

    def _head(self, queue: str, candidate: Candidate) -> None:
        self._headed.add(queue)
        self._head_of(candidate)

    def _is_never(self, candidate: Candidate) -> bool:
        """A gang that can't be let in whatever others do stands in line, but is no head of it."""
        return candidate.first.group is not None and self._hall.is_never(candidate.first)
