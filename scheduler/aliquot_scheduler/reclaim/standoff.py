"""Why nobody goes for an owner: who has borrowed, and what keeps each of those by whom its guarantee could come back.

Told are those who might go by the owner's rights, whatever keeps them: never to be evicted, running for too short a
time, a disruption budget, a group that can't go as a whole; the first of each by name, so that it is known whom to ask.
Of those whom nothing keeps it is told why their going would not do: what queues would still lack once they had gone, or
that what they leave has no room for it in one piece, and who stays beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from aliquot_core.counting import agreed, counted
from aliquot_core.instants import second_time
from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT
from aliquot_scheduler.queues.telling.wording import Wording
from aliquot_scheduler.queues.waiting.waiter import Candidate
from aliquot_scheduler.reclaim.residents import Hindrance, Kept, Resident, Residents
from aliquot_scheduler.reclaim.rights import Taking, owner_of

# In what is said of budgets: by this the next leader knows that it was said.
SETTING = "queues.budget_grace"


class Lent(msgspec.Struct, frozen=True, kw_only=True):
    """Of what a candidate is guaranteed: by which queue, and what others beside it use beyond what they are due."""

    owner: str
    dimension: int
    beyond: Mapping[str, int]

    def said(self, wording: Wording) -> str:
        """In words."""
        return f"inside the guarantee of queue {self.owner}; {wording.of_borrowers(self.beyond, self.dimension)}"


class Standoff(msgspec.Struct, frozen=True, kw_only=True):
    """Who might go, by what keeps them; and until when the first of each is kept, by the clock on the wall."""

    kept: Mapping[Hindrance, Sequence[Resident]]
    until: Mapping[Hindrance, float]
    # What keeps the group of the first who is kept by its group, in words.
    group: str
    # Who may not go, on GPUs of those whom nothing keeps.
    beside: Sequence[Kept]
    # How many nothing keeps.
    able: int
    # The disruption budgets that keep some, by name; and whether any covers one of all who might go.
    budgets: tuple[str, ...]
    covered: bool


def lent_to_others(candidate: Candidate, *, ledger: Ledger) -> Lent | None:
    """Where it is inside a guarantee, of compute or memory, and no limit of that queue or below it keeps it out."""
    queue, amounts, tree = candidate.first.queue, candidate.amounts, ledger.tree
    owners, path = owner_of(candidate, ledger=ledger), tree.path(queue)
    guaranteed = (
        (name, dim) for name in owners for dim in (COMPUTE, MEMORY) if amounts[dim] and tree.nodes[name].guarantee[dim]
    )
    owner, dimension = next(guaranteed, (ROOT, COMPUTE))
    over = ledger.over(queue, amounts)
    if owner == ROOT or (over and over[0].node.name in path[: path.index(owner) + 1]):
        return None
    beside = (
        ledger.accounts[child]
        for own, above in pairwise(path[path.index(owner) :])
        for child in tree.nodes[above].children
        if child != own
    )
    beyond = {account.node.name: _beyond(account, dimension) for account in beside}
    return Lent(owner=owner, dimension=dimension, beyond={name: much for name, much in beyond.items() if much})


def _beyond(account: Account, dimension: int) -> int:
    """What a queue uses beyond what it is due; what is kept idle below it is used up for all others."""
    return max(0, account.used[dimension] + account.idle_below[dimension] - account.node.due[dimension])


def standoff(rights: Sequence[Taking], residents: Residents) -> Standoff:
    """By each of these rights, of those who run; nobody is supposed to be gone."""
    kept = [one for one in residents.kept if any(right.may_take(one.who) for right in rights)]
    able = [one for one in residents.by_uid.values() if any(right.may_take(one) for right in rights)]
    hindered = [Kept(who=one, why=why) for one in able if (why := residents.why_kept(one))]
    everybody = [*kept, *hindered]
    until: dict[Hindrance, float] = {}
    for one in everybody:
        if one.until is not None:
            until[one.why] = min(one.until, until.get(one.why, one.until))
    by_why: dict[Hindrance, list[Resident]] = {}
    for one in sorted(everybody, key=lambda one: one.who.uid):
        by_why.setdefault(one.why, []).append(one.who)
    held = {one.who.uid for one in hindered}
    left = {gpu for one in able if one.uid not in held for gpu in one.claims}
    grouped = by_why.get(Hindrance.GROUP, ())
    names = {name for one in hindered if one.why is Hindrance.BUDGET for name in residents.budgets_over(one.who)}
    return Standoff(
        kept=by_why,
        until=until,
        group=_what_keeps(grouped[0], residents) if grouped else "",
        beside=[one for one in residents.kept if one.who.claims.keys() & left],
        able=len(able) - len(hindered),
        budgets=tuple(sorted(names)),
        covered=any(residents.budgets_over(one) for one in able),
    )


def _what_keeps(one: Resident, residents: Residents) -> str:
    """The group of one that can't go without the others."""
    waiter = one.waiter
    group = f"group {waiter.pod.metadata.namespace}/{waiter.group.name if waiter.group else ''}"
    mates = [kept.who for kept in residents.kept if kept.who.waiter.gang == waiter.gang]
    stays = [mate for mate in mates if residents.guards_all(mate)]
    return f"{group} is kept by {_first(stays)}" if stays else f"of {group} fewer than its minimum run without others"


def _first(some: Sequence[Resident]) -> str:
    """By name; of more one is enough to ask."""
    return _and_more(some[0].waiter.pod.key, len(some) - 1)


def _and_more(name: str, others: int) -> str:
    return f"{name} and {others} more" if others else name


def why_nobody_goes(found: Standoff, *, lacks: str, tried_all: bool, settings: QueueSettings) -> str:
    """In words, each with how many; `lacks` is what queues would lack though all had gone, empty if that is room.

    `tried_all` is whether all moves were tried that there are.

    Empty where nobody might go by any right.
    """
    said = [_kept(why, found, grace=settings.budget_grace) for why in Hindrance if found.kept.get(why)]
    if found.able:
        pieces = "what they leave has no room for it in one piece, nor if others were moved"
        pieces += "" if tried_all else ", as far as was looked by now"
        pieces += _stay_beside(found.beside)
        but = f"that would not do: {lacks}" if lacks else pieces
        said.append(f"{counted(found.able, 'pod')} may go, and {but}")
    return "; ".join(said)


def _stay_beside(beside: Sequence[Kept]) -> str:
    if not beside:
        return ""
    (first, why), count = (beside[0].who.waiter.pod.key, beside[0].why.value), len(beside)
    return f"; on the same GPUs {agreed(count, 'stays', 'stay')} {_and_more(f'{first} ({why})', count - 1)}"


def _told_of_budgets(names: Sequence[str], *, grace: float) -> str:
    """Who can do what: whose it is may raise it, and where the operator says so whoever waits need only wait."""
    until = f"else it is set aside {grace:.0f} s after it was first in the way ({SETTING})"
    never = f"and it is never set aside ({SETTING} is 0)"
    budget = _and_more(names[0], len(names) - 1)
    return f"PodDisruptionBudget {budget}: whose it is may raise it, {until if grace else never}"


def _kept(why: Hindrance, found: Standoff, *, grace: float) -> str:
    who, until = found.kept[why], found.until.get(why)
    count, first = len(who), _first(who)
    pods, are = counted(count, "pod"), agreed(count, "is", "are")
    when = "" if until is None else second_time(until)
    match why:
        case Hindrance.FIRM:
            may = agreed(count, "whose it is may end it", "whose they are may end them")
            return f"{pods} {are} never to be evicted (preemptible: false), {first}: {may}"
        case Hindrance.YOUNG:
            first = "it may" if count == 1 else "the first may"
            return f"{pods} {agreed(count, 'has', 'have')} not run for minRunSeconds ({first} go at {when})"
        case Hindrance.SPARED:
            kept = agreed(count, "was", "were")
            return (
                f"{pods} {kept} kept by a disruption budget or a webhook ({first}), and {are} left alone until {when}"
            )
        case Hindrance.OVERDUE:
            node = who[0].waiter.pod.spec.node_name
            gone = f"{agreed(count, 'has', 'have')} been asked to go, and {are} there still"
            return f"{pods} {gone} ({first}: the kubelet of node {node} is to end it)"
        case Hindrance.BUDGET:
            return f"{pods} {are} kept by {_told_of_budgets(found.budgets, grace=grace)}"
        case Hindrance.GROUP:
            return f"{pods} {are} of groups that can't go as a whole now ({found.group})"
