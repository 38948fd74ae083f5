"""Whether room that is kept for somebody's successor is an owner's by now.

Whoever is moved may have borrowed what it has. Once an owner demands its guarantee, and what is free elsewhere is not
enough for that, the rules would not let in who comes in that one's place (`judging/rules.py`): its room would stand
idle for nobody, and the owner would wait for it. So whoever borrows is asked by the same rules before it comes: as if
the one who is moved were gone, and its successor stood in line.

What must always hold: room within a guarantee is kept; the ledger is given back as it was.
"""

from __future__ import annotations

from aliquot_scheduler.queues.charged.askers import Ask
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.judging.cards import Cards, Stock
from aliquot_scheduler.queues.judging.rules import Rules
from aliquot_scheduler.queues.room.refuges import Refuge


class _Then:
    """What is free once this room is kept no more."""

    def __init__(self, stock: Stock, amounts: tuple[int, ...]) -> None:
        free = (there + more for there, more in zip(stock.free, amounts, strict=False))
        self._stock = Stock(capacity=stock.capacity, free=tuple(free))

    def stock(self) -> Stock:
        """That."""
        return self._stock


def is_demanded(refuge: Refuge, *, ledger: Ledger, cards: Cards) -> bool:
    """Whether who comes in the place of this one would take what is held back for others."""
    uid, queue = refuge.uid, refuge.moved.queue
    if queue not in ledger.tree.nodes:
        return True
    amounts = cards.amounts_of(refuge.room)
    amounts += (0,) * (ledger.width - len(amounts))
    ask, charge = Ask(amounts=amounts, least=(*amounts[:2], *(0 for _ in amounts[2:]))), ledger.of(uid)
    ledger.release(uid)
    ledger.ask(queue, ask)
    try:
        return Rules(ledger=ledger, cards=_Then(cards.stock(), amounts)).takes_from_others(queue, amounts)
    finally:
        ledger.ask_no_more(queue, ask)
        if charge is not None:
            ledger.charge(uid, charge)
