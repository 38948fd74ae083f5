"""Why nobody goes for an owner: who has borrowed, and what keeps each of those by whom its guarantee could come back.

Told are those who might go by the owner's rights, whatever keeps them: never to be evicted, running for too short a
time, a disruption budget, a group that can't go as a whole. Of those whom nothing keeps it is told why their going
would not do: what queues would still lack once they had gone, or that what they leave has no room for it in one piece.
"""

from __future__ import annotations

from collections import Counter
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
from aliquot_scheduler.reclaim.residents import Hindrance, Kept, Residents
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

    kept: Mapping[Hindrance, int]
    until: Mapping[Hindrance, float]
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
    counts = Counter(one.why for one in everybody)
    names = {name for one in hindered if one.why is Hindrance.BUDGET for name in residents.budgets_over(one.who)}
    return Standoff(
        kept=counts,
        until=until,
        able=len(able) - len(hindered),
        budgets=tuple(sorted(names)),
        covered=any(residents.budgets_over(one) for one in able),
    )


def why_nobody_goes(found: Standoff, *, lacks: str, tried_all: bool, settings: QueueSettings) -> str:
    """In words, each with how many; `lacks` is what queues would lack though all had gone, empty if that is room.

    `tried_all` is whether all moves were tried that there are.

    Empty where nobody might go by any right.
    """
    said = [_kept(why, found, grace=settings.budget_grace) for why in Hindrance if found.kept.get(why)]
    if found.able:
        pieces = "what they leave has no room for it in one piece, nor if others were moved"
        pieces += "" if tried_all else ", as far as was looked by now"
        but = f"that would not do: {lacks}" if lacks else pieces
        said.append(f"{counted(found.able, 'pod')} may go, and {but}")
    return "; ".join(said)


def _told_of_budgets(names: Sequence[str], *, grace: float) -> str:
    """Who can do what: whose it is may raise it, and where the operator says so whoever waits need only wait."""
    one, others = names[0], len(names) - 1
    more = f" and {others} more" if others else ""
    until = f"else it is set aside {grace:.0f} s after it was first in the way ({SETTING})"
    never = f"and it is never set aside ({SETTING} is 0)"
    return f"PodDisruptionBudget {one}{more}: whose it is may raise it, {until if grace else never}"


def _kept(why: Hindrance, found: Standoff, *, grace: float) -> str:
    count, until = found.kept[why], found.until.get(why)
    pods, are = counted(count, "pod"), agreed(count, "is", "are")
    when = "" if until is None else second_time(until)
    match why:
        case Hindrance.FIRM:
            return f"{pods} {are} never to be evicted (preemptible: false)"
        case Hindrance.YOUNG:
            first = "it may" if count == 1 else "the first may"
            return f"{pods} {agreed(count, 'has', 'have')} not run for minRunSeconds ({first} go at {when})"
        case Hindrance.SPARED:
            kept = agreed(count, "was", "were")
            return f"{pods} {kept} kept by a disruption budget or a webhook, and {are} left alone until {when}"
        case Hindrance.OVERDUE:
            return f"{pods} {agreed(count, 'has', 'have')} been asked to go, and {are} there still"
        case Hindrance.BUDGET:
            return f"{pods} {are} kept by {_told_of_budgets(found.budgets, grace=grace)}"
        case Hindrance.GROUP:
            return f"{pods} {are} of groups that can't go as a whole now"
