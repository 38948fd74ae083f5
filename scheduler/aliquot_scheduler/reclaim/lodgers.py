"""Of all who run: who may be sent away for others, who goes already, and of the rest what keeps each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from aliquot_core.objects import Pod
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.room.graces import grace_of, is_leaving, is_overdue
from aliquot_scheduler.queues.room.refuges import Refuge, key_of
from aliquot_scheduler.queues.said.tree import Tree
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.reclaim.policy import policy_of
from aliquot_scheduler.reclaim.residents import (
    Budget,
    Hindrance,
    Kept,
    Resident,
    Residents,
    lost_with,
    runs_since,
)

# Of one who has run so long.
MayGo = Callable[[Resident, float], bool]


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What only the leader knows."""

    # Who goes for others, whether or not the watch has told of it (UIDs).
    going: Collection[str] = ()
    # Who of them was not asked yet: the API server counts them among those who stay.
    unasked: Collection[str] = ()
    # Whom a budget or a webhook has kept, and until when they are left alone, by the clock on the wall.
    spared: Mapping[str, float] = {}
    since: Callable[[Pod], float] = runs_since
    # How long pods were let run by queues that are gone.
    terms: Mapping[str, float] = {}


def terms_of(tree: Tree) -> dict[str, float]:
    """By queue, how long its pods are let run."""
    return {queue: policy_of(queue, tree=tree).min_run for queue in tree.nodes}


def whoever(one: Resident, ran: float) -> bool:
    """Everybody may go."""
    del one, ran
    return True


def residents_of(
    bound: Iterable[Waiter],
    *,
    picture: Picture,
    books: Books,
    wall: float,
    max_grace: int,
    budgets: Sequence[Budget] = (),
    known: Known = Known(),
    may_go: MayGo = whoever,
    to_come: Iterable[Resident] = (),
) -> Residents:
    """Everybody on their cards, sorted; `to_come` is who is awaited there in the place of others."""
    tree = books.ledger.tree
    least = {**known.terms, **terms_of(tree)}
    there, leaving, kept, firm = list(to_come), list[Resident](), list[Kept](), list[str]()
    coming = {uid for uids in books.let_in.values() for uid in uids}
    for waiter in bound:
        coming.discard(waiter.uid)
        if waiter.shape.firm:
            firm.append(waiter.uid)
        since = known.since(waiter.pod)
        grace = grace_of(waiter.pod, most=max_grace)
        if (one := _resident(waiter, picture=picture, books=books, ran=wall - since, grace=grace)) is None:
            continue
        if waiter.uid in known.going or is_leaving(waiter.pod, wall=wall, most=max_grace):
            leaving.append(one)
        elif hindered := _hindered(one, known, may_go_at=since + least.get(one.queue, 0.0), wall=wall):
            kept.append(hindered)
        elif may_go(one, wall - since):
            there.append(one)
    return Residents(
        there,
        gangs=books.let_in,
        leaving=leaving,
        kept=kept,
        firm=firm,
        coming=coming,
        unasked=known.unasked,
        budgets=budgets,
    )


def awaited(refuges: Iterable[Refuge], *, ledger: Ledger, cards: Cards) -> list[Resident]:
    """Who is to come in the place of some who were moved: as if they were there, they may go for whom others may.

    Not of whom the leader before us has moved and who is gone: nobody knows what that one asked of its node.
    """
    return [
        _to_come(refuge, refuge.waiter, ledger=ledger, cards=cards)
        for refuge in refuges
        if refuge.waiter is not None and refuge.moved.queue in ledger.tree.nodes
    ]


def _to_come(refuge: Refuge, moved: Waiter, *, ledger: Ledger, cards: Cards) -> Resident:
    amounts = cards.amounts_of(refuge.room)
    amounts += (0,) * (ledger.width - len(amounts))
    meta = msgspec.structs.replace(moved.pod.metadata, uid=key_of(refuge.uid))
    pod = msgspec.structs.replace(moved.pod, metadata=meta)
    queue = refuge.moved.queue
    waiter = msgspec.structs.replace(moved, pod=pod, amounts=amounts, least=amounts, queue=queue, group=None)
    # It has done nothing that would be lost, and has to wait.
    lost = lost_with(amounts, ran=0.0, grace=0)
    return Resident(waiter=waiter, queue=queue, amounts=amounts, claims=refuge.room, lost=lost, instead_of=refuge.uid)


def _hindered(one: Resident, known: Known, *, may_go_at: float, wall: float) -> Kept | None:
    if one.waiter.shape.firm:
        return Kept(who=one, why=Hindrance.FIRM)
    if is_overdue(one.waiter.pod, wall=wall):
        return Kept(who=one, why=Hindrance.OVERDUE)
    if (until := known.spared.get(one.uid)) is not None:
        return Kept(who=one, why=Hindrance.SPARED, until=until)
    return Kept(who=one, why=Hindrance.YOUNG, until=may_go_at) if wall < may_go_at else None


def _resident(waiter: Waiter, *, picture: Picture, books: Books, ran: float, grace: int) -> Resident | None:
    held, charge = picture.holdings.of(waiter.uid), books.ledger.of(waiter.uid)
    if not held or charge is None:
        return None
    lost = lost_with(charge.amounts, ran=ran, grace=grace)
    stray = charge.queue not in books.ledger.tree.nodes
    return Resident(waiter=waiter, queue=charge.queue, amounts=charge.amounts, claims=held, lost=lost, stray=stray)
