"""One sweep over all candidates in their order: each is let in, or passed over until the next sweep.

What no card was found for is not asked again until the cards change, and who may fit nowhere is not asked for at all.
A sweep that has searched too often in vain is broken off, since nobody else is answered meanwhile; the next one goes on
where it ended, whatever has changed: it asks for none of those again for whom it has searched already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain

import numpy as np

from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.deciding.turns import MOST_IN_VAIN
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.elsewhere import Without, admissible
from aliquot_scheduler.queues.judging.rules import Cause, Refusal, Rules, no_room
from aliquot_scheduler.queues.judging.stayers import Stayers
from aliquot_scheduler.queues.letting_in.beside import Beside
from aliquot_scheduler.queues.letting_in.gangs import Placing
from aliquot_scheduler.queues.letting_in.keeping import Keeping
from aliquot_scheduler.queues.letting_in.sweep_memory import Mark, SweepMemory
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.line import Candidate, Heads, Line, asked_by
from aliquot_scheduler.queues.waiting.order import Order, within_guarantee

# Of so few it is as quick to look at each as to ask whether any may be able.
_SHORT = 64
_NO_ROOM = frozenset({Cause.CARDS, Cause.NODES})
_QUOTA = frozenset({Cause.QUOTA, Cause.HELD_BACK})


class Sweep:
    """One sweep."""

    def __init__(
        self,
        *,
        books: Books,
        hall: Hall,
        cards: Cards,
        memory: SweepMemory,
        stayers: Stayers,
        placing: Placing,
        without: Without,
        now: float,
    ) -> None:
        self._books = books
        self._hall = hall
        self._cards = cards
        self._memory = memory
        self._stayers = stayers
        self._placing = placing
        self._without = without
        self._now = now
        self._rules = Rules(ledger=books.ledger, cards=cards)
        self._shares = books.shares(now=now)
        # Whether somebody was let in for whom nodes were kept: those who were passed over for that come anew.
        self.again = False
        self._headed: set[str] = set()
        self._may, self._fits, self._few = cards.fitting(), cards.fits(), cards.few_fitting()
        memory.pause(now=now)
        self._keeping = Keeping(books=books, cards=cards, lines=hall.lines, memory=memory, placing=placing, now=now)
        self._beside = Beside(
            keeping=self._keeping, ledger=books.ledger, hall=hall, memory=memory, placing=placing, now=now
        )
        self._impatient = memory.impatient(now=now)
        # Who is looked at though nothing is free for them: nodes may be kept, now or for some time already; or quota,
        # which matters only if anybody comes in.
        self._pressing = memory.to_look_at(self._impatient, now=now) | memory.owed(now=now)
        self._watched = self._pressing | (self._impatient & memory.closing())
        self._watched_users: defaultdict[str, set[str]] = defaultdict(set)
        for waiter in filter(None, map(hall.standing, self._watched)):
            self._watched_users[waiter.queue].add(waiter.user)
        # Whether any guarantee is demanded and not met.
        self._somebody_misses = any(map(books.ledger.held_back, range(books.ledger.tree.dimensions.cards)))
        self._reached: dict[tuple[str, str], tuple[Heads, int]] = {}
        self._passed: defaultdict[str, set[Mark]] = defaultdict(set)

    def let_in(self) -> Iterator[tuple[Candidate, list[Promise]]]:
        """Who is let in, with the room that is kept; the caller books it before asking for the next."""
        self._memory.begin(version=self._cards.version)
        nodes = self._books.ledger.tree.nodes
        candidates = {
            queue: partial(self._next, queue)
            for queue, line in self._hall.lines.items()
            if not nodes[queue].stop and not self._is_hopeless(queue, line)
        }
        complete = self._is_over(candidates)
        try:
            for candidate in (
                () if complete else Order(ledger=self._books.ledger, shares=self._shares, candidates=candidates)
            ):
                tried, refusal = self._admissible(candidate)
                asks = refusal is None and self._may_fit(tried)
                promises, beside = self._beside.promised(tried) if asks else ([], None)
                if promises:
                    self.again = candidate.uid in self._memory.kept(now=self._now)
                    yield tried, promises
                    self._shares.changed(candidate.first.queue)
                    self.room_changed()
                    if self.again:
                        return
                    if self._is_over(candidates):
                        break
                else:
                    self._pass_over(candidate, refusal, tried=tried, beside=beside)
                if self._placing.in_vain >= MOST_IN_VAIN:
                    return
            complete = True
        finally:
            broken_off = self._placing.in_vain >= MOST_IN_VAIN
            self._memory.end(version=self._cards.version, broken_off=broken_off, complete=complete)
            self._books.keep_idle(self._keeping.idle(), now=self._now)

    def _admissible(self, candidate: Candidate) -> tuple[Candidate, Refusal | None]:
        """The candidate as it may be let in: kept off models of which its queue has none for it."""
        dimensions = self._books.ledger.tree.dimensions
        tried, refusal = admissible(candidate, rules=self._rules, dimensions=dimensions, without=self._without)
        if tried.number >= len(self._may):
            # It asks for what nobody did before.
            self._ask_cards()
        return tried, refusal

    def bring_in_all(self, clearing: Clearing) -> list[Promise]:
        """Room where it was made, for all of them or for none; it is kept for nobody at this moment."""
        candidate, ledger = clearing.candidate, self._books.ledger
        self._rules.let_in()
        ask = asked_by(candidate.members)
        ledger.ask(candidate.first.queue, ask)
        promises = self._placing.place_at(clearing) if self._rules.refusal(candidate) is None else []
        ledger.ask_no_more(candidate.first.queue, ask)
        return promises

    def room_changed(self) -> None:
        """Somebody was let in, or room is kept for others than before: what is free is counted anew."""
        self._rules.let_in()
        self._keeping.room_changed()
        self._ask_cards()

    def _ask_cards(self) -> None:
        cards = self._cards
        self._may, self._fits, self._few = cards.fitting(), cards.fits(), cards.few_fitting()

    def _is_hopeless(self, queue: str, line: Line) -> bool:
        """Whether a line has nobody whom any card has room for: of 200 lines most are so."""
        able = self._able(queue, line)
        if able is None or able:
            # Where nodes are kept they often are all that has room.
            return self._keeping.anything() and self._next(queue) is None
        self._note_first(queue, line)
        return True

    def _able(self, queue: str, line: Line) -> AbstractSet[str] | None:
        """Users of whom a card may have room for anybody, or whose head is to be looked at; None if that may be all."""
        if self._few is None:
            return None
        return line.users_asking(self._few) | self._watched_users.get(queue, frozenset())

    def _is_over(self, queues: Iterable[str]) -> bool:
        """Whether no card has room for anybody any more: most rounds end so at once."""
        if self._few is None or self._few or self._pressing:
            return False
        for queue in queues:
            if queue not in self._headed and (line := self._hall.lines.get(queue)):
                self._note_first(queue, line)
        return True

    def _note_first(self, queue: str, line: Line) -> None:
        """All of a line are passed over."""
        users = self._users(queue, line)
        self._note_head(queue, chain.from_iterable(line.heads(user, let_in=self._books.let_in) for user in users))

    def _next(self, queue: str) -> Candidate | None:
        """The first of a line that was not passed over; who finds no card is so at once, if it has patience."""
        line = self._hall.lines.get(queue)
        if line is None:
            return None
        able = self._able(queue, line)
        for user in self._users(queue, line):
            if able is not None and user not in able and queue in self._headed:
                continue
            heads = line.heads(user, let_in=self._books.let_in)
            before, start = self._reached.get((queue, user), (heads, 0))
            number = self._first_able(queue, user, heads, start if before is heads else 0)
            # All before this one were passed over, as long as it is the same list.
            self._reached[queue, user] = heads, number
            if number < len(heads):
                return heads[number]
        return None

    def _users(self, queue: str, line: Line) -> Sequence[str]:
        users = line.users()
        return tuple(users) if len(users) == 1 else self._shares.in_order(queue, users)

    def _first_able(self, queue: str, user: str, heads: Heads, number: int) -> int:
        """The place of the next candidate that may come in; thousands may not, so little is done for each."""
        if number >= len(heads):
            return number
        start, number = number, len(heads)
        if len(heads) <= _SHORT or not self._none_able(heads):
            passed, watched = self._passed[queue], self._watched
            stands_back = self._beside.stand_back(queue)
            for place in self._places(heads, start):
                candidate = heads[place]
                able = candidate.uid in watched or (self._may_fit(candidate) and not stands_back(candidate))
                if able and (user, candidate.shape) not in passed and not self._is_never(candidate):
                    number = place
                    break
        if queue not in self._headed:
            self._note_head(queue, (heads[place] for place in range(start, number)))
        return number

    def _note_head(self, queue: str, skipped: Iterable[Candidate]) -> None:
        """Of those who are passed over the first is the head of its line."""
        if head := next((one for one in skipped if not self._is_never(one)), None):
            self._head_of(queue, head)

    def _places(self, heads: Heads, start: int) -> Iterable[int]:
        """From there on, whose place it is that a card may have room for, or who is looked at in any case."""
        able: list[int] = np.flatnonzero(self._fits[heads.in_order[start:]]).tolist()
        places = [start + place for place in able] if start else able
        watched = heads.places.keys() & self._watched if self._watched else ()
        if not watched:
            return places
        return sorted({*places, *(place for uid in watched if (place := heads.places[uid]) >= start)})

    def _none_able(self, heads: Heads) -> bool:
        """Whether that is plain without looking at each of them: no card has room for any."""
        few = self._few
        return (
            few is not None
            and heads.lone
            and heads.numbers.isdisjoint(few)
            and heads.places.keys().isdisjoint(self._watched)
        )

    def _head_of(self, queue: str, candidate: Candidate) -> None:
        """The first of a line that is passed over is its head; a guarantee that lies in pieces is owed to it."""
        self._headed.add(queue)
        memory, uid = self._memory, candidate.first.uid
        memory.head_refused(uid, now=self._now)
        if not self._somebody_misses or not memory.may_be_owed(uid, now=self._now):
            return
        tried, refusal = self._admissible(candidate)
        if within_guarantee(self._books.ledger, tried) and (refusal is None or refusal.cause is Cause.BEHIND):
            memory.owe(uid, now=self._now)
            memory.keep(uid, self._keeping.choose(tried))
        else:
            # By a limit, or by others' guarantees, it could not have the node that is kept for it either.
            memory.owe_no_more(uid, now=self._now)

    def _is_never(self, candidate: Candidate) -> bool:
        """A gang that can't be let in whatever others do stands in line, but is no head of it."""
        return candidate.first.group is not None and self._hall.is_never(candidate.first)

    def _may_fit(self, candidate: Candidate) -> bool:
        """Whether a card may be there: what is taken in this sweep changes nothing of what was found not to be."""
        return self._may[candidate.number] and candidate.shape not in self._memory.refused

    def _pass_over(
        self, candidate: Candidate, refusal: Refusal | None, *, tried: Candidate, beside: Refusal | None
    ) -> None:
        refusal = refusal or no_room(self._memory.refused.get(tried.shape, ""))
        self._remember(candidate, beside or refusal)
        if candidate.first.uid in self._impatient:
            self._hold_up(candidate, refusal, tried=tried, said=beside or refusal)

    def _hold_up(self, candidate: Candidate, refusal: Refusal, *, tried: Candidate, said: Refusal) -> None:
        """Who has lost patience keeps quota from who comes after, and a node."""
        memory, ledger, waits_for_room = self._memory, self._books.ledger, refusal.cause in _NO_ROOM
        in_vain = self._stayers.is_in_vain(refusal, ledger=ledger, capacity=self._books.capacity)
        begins = memory.keeping(tried.uid) is None
        # Who waits for quota has its node run empty meanwhile: else others fill it before the quota is there.
        keeps = waits_for_room or (refusal.cause in _QUOTA and not in_vain)
        memory.keep_for(tried, nodes := self._nodes_for(tried, refusal) if keeps else ())
        if begins:
            self._keeping.begin(tried)
        closes = not in_vain and memory.is_impatient(candidate.uid, now=self._now, beyond=True)
        if waits_for_room:
            closes = closes and bool(nodes) and ledger.is_limited(tried.first.queue, tried.amounts)
            if closes:
                self._rules.leaves_to(tried)
        elif closes:
            self._rules.refuses_for(refusal, first=candidate.first.pod.key)
        memory.looked_at(candidate, said, now=self._now, closes=closes, closely=candidate.uid in self._pressing)

    def _nodes_for(self, head: Candidate, refusal: Refusal) -> tuple[str, ...]:
        """Those that are kept for it, until its turn to be looked at comes: hundreds may be asked for their quota."""
        if head.uid not in self._pressing and (mine := self._memory.kept(now=self._now).get(head.uid)):
            return mine
        looks = head.uid in self._pressing or refusal.cause in _NO_ROOM
        return self._keeping.choose(head) if looks else ()

    def _remember(self, candidate: Candidate, refusal: Refusal) -> None:
        """Not in this sweep any more."""
        queue, mark = candidate.first.queue, (candidate.first.user, candidate.shape)
        if queue not in self._headed:
            self._head_of(queue, candidate)
        self._passed[queue].add(mark)
        self._memory.said(queue, candidate.first.mark, refusal)
