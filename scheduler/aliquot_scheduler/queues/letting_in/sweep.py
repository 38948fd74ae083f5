"""One sweep over all candidates in their order: each is let in, or passed over until the next sweep.

What no card was found for is not asked again until the cards change, and who may fit nowhere is not asked for at all.
A sweep that has searched too often in vain is broken off, since nobody else is answered meanwhile; the next one goes on
where it ended, whatever has changed: it asks for none of those again for whom it has searched already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial

from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.deciding.turns import MOST_IN_VAIN
from aliquot_scheduler.queues.charged.ledger import Charge
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.elsewhere import Without, admissible
from aliquot_scheduler.queues.judging.rules import Cause, First, Refusal, Rules, no_room
from aliquot_scheduler.queues.judging.stayers import Stayers
from aliquot_scheduler.queues.letting_in.beside import Beside
from aliquot_scheduler.queues.letting_in.gangs import Placing
from aliquot_scheduler.queues.letting_in.keeping import Keeping
from aliquot_scheduler.queues.letting_in.sound_first import SoundFirst
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.letting_in.walk import Walk, Watched
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.order import Order, within_guarantee
from aliquot_scheduler.queues.waiting.waiter import Candidate, asked_by

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
        sound_first: SoundFirst,
        without: Without,
        now: float,
    ) -> None:
        self._books = books
        self._hall = hall
        self._cards = cards
        self._memory = memory
        self._stayers = stayers
        self._placing = placing
        self._sound_first = sound_first
        self._without = without
        self._now = now
        self._rules = Rules(ledger=books.ledger, cards=cards)
        self._shares = books.shares(now=now)
        # Whether somebody was let in and left what was kept for it: those who were passed over for that come anew.
        self.again = False
        memory.pause(now=now)
        self._keeping = Keeping(books=books, cards=cards, lines=hall.lines, memory=memory, placing=placing, now=now)
        self._beside = Beside(
            keeping=self._keeping, ledger=books.ledger, hall=hall, memory=memory, placing=placing, now=now
        )
        self._impatient = memory.patience.impatient(now=now)
        # Who is looked at though nothing is free for them: nodes may be kept, now or for some time already; or quota,
        # which matters only if anybody comes in.
        self._pressing = memory.to_look_at(now=now) | memory.owed(now=now)
        # Whether any guarantee is demanded and not met.
        self._somebody_misses = any(map(books.ledger.held_back, range(books.ledger.tree.dimensions.cards)))
        self._walk = Walk(
            books=books,
            hall=hall,
            cards=cards,
            shares=self._shares,
            memory=memory,
            keeping=self._keeping,
            beside=self._beside,
            watched=Watched(
                hall=hall, pressing=self._pressing, closing=memory.looks.closing(), impatient=self._impatient
            ),
            head_of=self._head_of,
        )

    def let_in(self) -> Iterator[tuple[Candidate, list[Promise]]]:
        """Who is let in, with the room that is kept; the caller books it before asking for the next."""
        self._memory.begin(version=self._cards.version)
        nodes = self._books.ledger.tree.nodes
        candidates = {
            queue: partial(self._walk.next, queue)
            for queue, line in self._hall.lines.items()
            if not nodes[queue].stop and not self._walk.is_hopeless(queue, line)
        }
        complete = self._walk.is_over(candidates)
        try:
            for candidate in (
                () if complete else Order(ledger=self._books.ledger, shares=self._shares, candidates=candidates)
            ):
                tried, refusal = self._admissible(candidate)
                asks = refusal is None and self._walk.may_fit(tried)
                promises, beside = self._promised(tried) if asks else ([], None)
                if promises:
                    kept = self._memory.kept(now=self._now)
                    yield tried, promises
                    self.again = candidate.uid in kept and self._leaves_anything(candidate, kept)
                    self._shares.changed(candidate.first.queue)
                    self.room_changed()
                    if self.again:
                        return
                    if self._walk.is_over(candidates):
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

    def _leaves_anything(self, candidate: Candidate, kept: Mapping[str, tuple[str, ...]]) -> bool:
        """Whether others may have what was `kept` for one that has come in: most take all, and hundreds may come.

        Room is left on its nodes, or for others other nodes are kept than before.
        """
        first = candidate.first
        line = self._hall.lines.get(first.queue)
        if line is not None and first.user in line.users():
            # Its own others wait: they may hand on what was kept, as far as its share reaches now.
            return True
        others = {uid: nodes for uid, nodes in kept.items() if uid != candidate.uid}
        return others != self._memory.kept(now=self._now) or not self._cards.are_taken(kept[candidate.uid])

    def _promised(self, candidate: Candidate) -> tuple[list[Promise], Refusal | None]:
        """Room for all of them, or for none; and why there is none for them though it was found."""
        promises, beside = self._beside.promised(candidate)
        refusal = self._sound_first.refusal(candidate, promises, ledger=self._books.ledger, now=self._now)
        if refusal is None:
            return promises, beside
        self._placing.take_back(promises)
        return [], refusal

    def _admissible(self, candidate: Candidate) -> tuple[Candidate, Refusal | None]:
        """The candidate as it may be let in: kept off models of which its queue has none for it."""
        dimensions = self._books.ledger.tree.dimensions
        tried, refusal = admissible(candidate, rules=self._rules, dimensions=dimensions, without=self._without)
        return tried, refusal or (self._after_heads(tried) if candidate.first.lost else None)

    def _after_heads(self, candidate: Candidate) -> Refusal | None:
        """Who has lost a turn leaves heads that have lost patience what limits leave them, in whatever order.

        Else slivers that nobody can bind, one after the other, keep out who asks for all of a limit; and with him all
        who leave him their room meanwhile.
        """
        path, crowds = self._books.ledger.tree.path(candidate.first.queue), self._books.ledger.crowds
        for head in self._heads_before_losers:
            over = crowds(head.first.queue, head.amounts, by=candidate.amounts, of=path)
            if over is not None:
                return Refusal(cause=Cause.BEHIND, queue=over[0], dimension=over[1], first=First.of(head.first))
        return None

    @cached_property
    def _heads_before_losers(self) -> list[Candidate]:
        """Those who have lost patience, and no turn."""
        heads = [one for one in map(self._hall.standing, sorted(self._impatient)) if one and not one.lost]
        return [self._hall.candidate(one, books=self._books) for one in heads]

    def bring_in_all(self, clearing: Clearing, *, beside: Sequence[Charge] = ()) -> list[Promise]:
        """Room where it was made, for all of them or for none; it is kept for nobody at this moment.

        `beside` others, as if they were in already.
        """
        candidate, ledger = clearing.candidate, self._books.ledger
        ledger.set_apart(beside, ())
        self._rules.let_in()
        ask = asked_by(candidate.members)
        ledger.ask(candidate.first.queue, ask)
        promises = self._placing.place_at(clearing) if self._rules.refusal(candidate) is None else []
        ledger.ask_no_more(candidate.first.queue, ask)
        ledger.set_apart(beside, (), back=True)
        return promises

    def room_changed(self) -> None:
        """Somebody was let in, or room is kept for others than before: what is free is counted anew."""
        self._rules.let_in()
        self._keeping.room_changed()
        self._walk.ask_cards()

    def _head_of(self, candidate: Candidate) -> None:
        """The first of a line that is passed over is its head; a guarantee that lies in pieces is owed to it."""
        memory, uid = self._memory, candidate.first.uid
        memory.head_refused(uid, now=self._now)
        if not self._somebody_misses or not memory.may_be_owed(uid, now=self._now):
            return
        if self._hall.asked.awaits_node(candidate.first):
            return
        tried, refusal = self._admissible(candidate)
        if within_guarantee(self._books.ledger, tried) and (refusal is None or refusal.cause is Cause.BEHIND):
            memory.owe(uid, now=self._now)
            memory.keep(uid, self._keeping.choose(tried))
        else:
            # By a limit, or by others' guarantees, it could not have the node that is kept for it either.
            memory.owe_no_more(uid, now=self._now)

    def _pass_over(
        self, candidate: Candidate, refusal: Refusal | None, *, tried: Candidate, beside: Refusal | None
    ) -> None:
        refusal = refusal or no_room(self._memory.refused.get(tried.shape, ""))
        self._walk.pass_over(candidate)
        self._memory.sayings.say(candidate.first.queue, candidate.first.mark, beside or refusal)
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
        closes = not in_vain and memory.patience.is_impatient(candidate.uid, now=self._now, beyond=True)
        if waits_for_room:
            closes = closes and bool(nodes) and ledger.is_limited(tried.first.queue, tried.amounts)
            if closes:
                self._rules.leaves_to(tried)
        elif closes:
            self._rules.refuses_for(refusal, first=First.of(candidate.first))
        memory.looks.looked_at(candidate, said, now=self._now, closes=closes, closely=candidate.uid in self._pressing)

    def _nodes_for(self, head: Candidate, refusal: Refusal) -> tuple[str, ...]:
        """Those that are kept for it, until its turn to be looked at comes: hundreds may be asked for their quota."""
        if head.uid not in self._pressing and (mine := self._memory.kept(now=self._now).get(head.uid)):
            return mine
        looks = head.uid in self._pressing or refusal.cause in _NO_ROOM
        return self._keeping.choose(head) if looks else ()
