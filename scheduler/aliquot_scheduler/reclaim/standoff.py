"""Why nobody goes for an owner: who has borrowed, and what keeps each of those by whom its guarantee could come back.

Told are those who might go by the owner's rights, whatever keeps them: never to be evicted, running for too short a
time, a disruption budget, a group that can't go as a whole. So that it is known whom to ask, it is told of which queues
they are; and to whoever may see all pods the first of each by name: who waits need not know of others' pods.
Of those whom nothing keeps it is told why their going would not do: what queues would still lack once they had gone, or
that what they leave has no room for it in one piece, and who stays beside them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from aliquot_core.counting import agreed, counted
from aliquot_core.instants import second_time
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.room.refuges import Refuge
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


class KeptFor(msgspec.Struct, frozen=True, kw_only=True):
    """Room that is kept for who comes in the place of one that was moved; until when, by the clock on the wall."""

    queue: str
    until: float


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
    there = [one for one in residents.by_uid.values() if not one.instead_of]
    able = [one for one in there if any(right.may_take(one) for right in rights)]
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


class FoundStandoffs:
    """Of one look."""

    def __init__(self, *, residents: Residents, refuges: Collection[Refuge], picture: Picture, later: float) -> None:
        """The clock on the wall is so much later than the one by which refuges end."""
        self._residents = residents
        self._refuges = refuges
        self._picture = picture
        self._later = later
        self._found: dict[tuple[object, ...], Standoff] = {}

    def by(self, rights: Sequence[Taking]) -> Standoff:
        """By each of these rights."""
        key = tuple(one.key for one in rights)
        if key not in self._found:
            self._found[key] = standoff(rights, self._residents)
        return self._found[key]

    def kept_for_moved(self, rights: Sequence[Taking], *, able: Bools) -> list[KeptFor]:
        """What is kept for those who are moved, on nodes that are able, and is not to be given up by these rights."""
        awaited = (one for one in self._residents.by_uid.values() if one.instead_of)
        given = {one.instead_of for one in awaited if any(right.may_take(one) for right in rights)}
        there = ((one, self._picture.nodes.get(one.node)) for one in self._refuges if one.uid not in given)
        kept = (one for one, known in there if known is not None and able[known.row])
        return [KeptFor(queue=one.moved.queue, until=one.until + self._later) for one in kept]


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


def why_nobody_goes(
    found: Standoff,
    *,
    refuges: Sequence[KeptFor],
    lacks: str,
    tried_all: bool,
    settings: QueueSettings,
    named: bool,
) -> str:
    """In words, each with how many; `lacks` is what queues would lack though all had gone, empty if that is room.

    `tried_all` is whether all moves were tried that there are; of `refuges` nobody may take the room for it;
    `named` is whether names of pods and budgets may be told.

    Empty where nobody might go by any right.
    """
    said = [_kept(why, found, grace=settings.budget_grace, named=named) for why in Hindrance if found.kept.get(why)]
    if found.able:
        pieces = "what they leave has no room for it in one piece, nor if others were moved"
        pieces += "" if tried_all else ", as far as was looked by now"
        pieces += _stay_beside(found.beside, named=named)
        but = f"that would not do: {lacks}" if lacks else pieces
        said.append(f"{counted(found.able, 'pod')} may go, and {but}")
    if refuges:
        said.append(_kept_for_moved(refuges))
    return "; ".join(said)


def _kept_for_moved(refuges: Sequence[KeptFor]) -> str:
    pods, were = counted(len(refuges), "pod"), agreed(len(refuges), "was", "were")
    until = second_time(max(one.until for one in refuges))
    whose = _of_queues(one.queue for one in refuges)
    return f"room is kept until {until} at the latest for the next of {pods} {whose} that {were} moved"


def _stay_beside(beside: Sequence[Kept], *, named: bool) -> str:
    if not beside:
        return ""
    (first, why), count = (beside[0].who.waiter.pod.key, beside[0].why.value), len(beside)
    if not named:
        whys = ", ".join(sorted({one.why.value for one in beside}))
        whose = _of_queues(one.who.queue for one in beside)
        return f"; on the same GPUs {agreed(count, 'stays', 'stay')} {counted(count, 'pod')} {whose} ({whys})"
    return f"; on the same GPUs {agreed(count, 'stays', 'stay')} {_and_more(f'{first} ({why})', count - 1)}"


def _of_queues(queues: Iterable[str]) -> str:
    first, *others = sorted(set(queues))
    return f"of {'queues' if others else 'queue'} {_and_more(first, len(others))}"


def _told_of_budgets(budgets: str, *, grace: float) -> str:
    """Who can do what: whose it is may raise it, and where the operator says so whoever waits need only wait."""
    until = f"else it is set aside {grace:.0f} s after it was first in the way ({SETTING})"
    never = f"and it is never set aside ({SETTING} is 0)"
    return f"{budgets}: whose it is may raise it, {until if grace else never}"


def _kept(why: Hindrance, found: Standoff, *, grace: float, named: bool) -> str:
    who, until = found.kept[why], found.until.get(why)
    count, whose = len(who), _of_queues(one.queue for one in who)
    first = _first(who) if named else whose
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
            by_name = f"PodDisruptionBudget {_and_more(found.budgets[0], len(found.budgets) - 1)}"
            budgets = by_name if named else f"a PodDisruptionBudget {whose}"
            return f"{pods} {are} kept by {_told_of_budgets(budgets, grace=grace)}"
        case Hindrance.GROUP:
            return f"{pods} {are} of groups that can't go as a whole now ({found.group if named else whose})"
