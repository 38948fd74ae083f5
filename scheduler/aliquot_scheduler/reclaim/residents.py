"""Who lies on the cards, what harm it would do to send them away, and who may be sent at all.

Harm is counted in percent-seconds: what a pod has done that is lost with it, and what it takes to start again. So the
young go before the old and the small before the large. Priority weighs within limits that nobody gains by: see `harm`.

Nobody is sent away who says so (`preemptible: "false"`), who has not run as long as its queue grants it, whose
disruption budget is used up, or who is on the way out already: whoever leaves anyway is counted as gone, without harm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from enum import StrEnum

import msgspec

from aliquot_core.claims import Claim
from aliquot_core.disruptions import PodDisruptionBudget, goes_uncounted, is_ready
from aliquot_core.instants import seconds_of
from aliquot_core.objects import Pod
from aliquot_scheduler.queues.said.tree import COMPUTE, Vector
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter

GpuKey = tuple[str, str]

# What starting again costs at least: pulling an image and loading a model take minutes.
_RESTART = 300
# Of pods that ask for memory alone, and of long runs: else one number could drown all others, or count for nothing.
_MEMORY_ALONE = 10
_LONGEST = 10**9
# No sum of harms comes near these: a higher priority is never sent before a lower one, nor a stray before a borrower.
_PRIORITY = 10**15
_STRAY = 10**15


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget: of these pods so many may go now. Its name is that with its namespace."""

    pods: frozenset[str]
    allowed: int
    name: str = ""


def budgets_of(found: Iterable[PodDisruptionBudget], *, bound: Collection[Waiter]) -> list[Budget]:
    """What disruption budgets allow, of those who run, and of those alone whose eviction the API server counts.

    Two budgets over one pod let it go in no case, ready or not.
    """
    running = [one for one in bound if not goes_uncounted(one.pod)]
    covered = [(budget, [one for one in running if budget.covers(one.pod)]) for budget in found]
    times = Counter(one.uid for _, ones in covered for one in ones)
    return [
        Budget(
            pods=frozenset(
                one.uid for one in ones if times[one.uid] > 1 or is_ready(one.pod) or not budget.lets_unready_go()
            ),
            allowed=max(0, budget.status.disruptions_allowed),
            name=f"{budget.metadata.namespace}/{budget.metadata.name}",
        )
        for budget, ones in covered
    ]


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on its cards."""

    waiter: Waiter
    # What its queue is charged with, and which one that is.
    queue: str
    amounts: Vector
    claims: Mapping[GpuKey, Claim]
    # Percent-seconds that would be lost.
    lost: int
    # Among its user's pods of that queue: how many lower priorities there are.
    rank: int = 0
    # Whether its queue is gone.
    stray: bool = False
    # Who was moved (its UID), where this is not there yet: it is who comes in its place, to room that is kept for it.
    instead_of: str = ""

    @property
    def uid(self) -> str:
        """Its pod's."""
        return self.waiter.uid

    def harm(self, *, by_priority: bool) -> int:
        """What sending it away costs.

        Among one user's pods the lower priority goes first, whatever is lost. Between queues priority weighs fourfold
        at the most: else whoever marked all pods high would be spared at the cost of those who don't. Who borrows goes
        before one whose queue is gone, whatever is lost.
        """
        if by_priority:
            return self.rank * _PRIORITY + self.lost
        return self.stray * _STRAY + self.lost * (1 + min(self.rank, 3))


class Hindrance(StrEnum):
    """What keeps one who runs from being sent away."""

    FIRM = "never evicted"
    YOUNG = "minRunSeconds"
    SPARED = "left alone"
    OVERDUE = "on the way out"
    BUDGET = "budget"
    GROUP = "group"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One who may not be sent away now, and until when by the clock on the wall; for ever if that is not known."""

    who: Resident
    why: Hindrance
    until: float | None = None


def runs_since(pod: Pod) -> float:
    """When it was bound, as Kubernetes says; without that word it may be as old as the pod."""
    scheduled = next((one for one in pod.status.conditions if one.type == "PodScheduled"), None)
    told = seconds_of(scheduled.last_transition_time) if scheduled else None
    return told or seconds_of(pod.metadata.creation_timestamp) or 0.0


def lost_with(amounts: Sequence[int], *, ran: float, grace: int) -> int:
    """What a pod that has run so long has done, what ending and starting again take, in percent-seconds."""
    return min(_LONGEST, (amounts[COMPUTE] or _MEMORY_ALONE) * (int(max(0.0, ran)) + grace + _RESTART))


class Residents:
    """All who may be sent away for somebody, by the numbers of one instant; and who of them goes already."""

    def __init__(
        self,
        there: Iterable[Resident],
        *,
        gangs: Mapping[GangKey, Collection[str]],
        leaving: Iterable[Resident] = (),
        kept: Iterable[Kept] = (),
        firm: Collection[str] = (),
        coming: Collection[str] = (),
        unasked: Collection[str] = (),
        budgets: Sequence[Budget] = (),
    ) -> None:
        """`gangs` is everybody of each gang who is in; of a gang that is not here as a whole nobody need be.

        Of these their gang goes without those (UIDs) who would guard all of it: `firm` are never sent away; the young
        may not go yet; and `coming`, who are not bound, matter to a gang only until it has its minimum without them.
        `unasked` are those who leave and were not asked yet: budgets do not count them yet.
        """
        self.by_uid = {one.uid: one for one in ranked(there)}
        self.leaving = {one.uid: one for one in leaving}
        self.kept = tuple(kept)
        # Whether any of those who may go, or are kept from it now, lies in a queue that is gone.
        self.strays = any(one.stray for one in (*self.by_uid.values(), *(each.who for each in self.kept)))
        self.on: dict[GpuKey, list[Resident]] = {}
        for one in self.by_uid.values():
            for gpu in one.claims:
                self.on.setdefault(gpu, []).append(one)
        self.gangs = {gang: frozenset(uids) - self.leaving.keys() for gang, uids in gangs.items()}
        self._coming = frozenset(coming)
        young = (one.who.uid for one in self.kept if one.why is Hindrance.YOUNG)
        self._guarding_nobody = frozenset((*firm, *young))
        self._allowed = [budget.allowed for budget in budgets]
        self._names = [budget.name for budget in budgets]
        # By number, the budgets over each.
        self.guarded: dict[str, list[int]] = {}
        # Who goes though a budget forbids it (UIDs).
        self._by_no_budget = set[str]()
        for number, budget in enumerate(budgets):
            for uid in budget.pods:
                self.guarded.setdefault(uid, []).append(number)
        # By number, how many will be gone beyond what each says.
        self._spent = Counter(number for uid in unasked for number in self.guarded.get(uid, ()))

    def past_budgets(self) -> Residents:
        """The same as if there were no disruption budgets."""
        found = copy(self)
        found.guarded = {}
        return found

    def budgets_over(self, one: Resident) -> list[str]:
        """The disruption budgets that cover it, by name."""
        return [self._names[number] for number in self.guarded.get(one.uid, ())]

    def set_budgets_aside(self, going: Sequence[Resident], *, gone: Collection[str]) -> frozenset[str]:
        """Whom of these, in their order, budgets keep beside who is gone (UIDs): they go all the same."""
        let = {*gone} - {one.uid for one in going}
        for one in going:
            if self.let_go({*let, one.uid}):
                let.add(one.uid)
        kept = frozenset(one.uid for one in going if one.uid not in let)
        self._by_no_budget |= kept
        return kept

    def covered(self, going: Iterable[Resident], *, aside: Collection[str] = ()) -> frozenset[str]:
        """Whom of these a budget may keep by the time they are asked (UIDs): not those whose budget is set aside."""
        return frozenset(one.uid for one in going if one.uid in self.guarded and one.uid not in aside)

    def in_turn(self, going: Sequence[Resident]) -> list[Resident]:
        """In which order they are asked: those first whom a budget may keep by then."""
        covered = self.covered(going)
        return sorted(going, key=lambda one: one.uid not in covered)

    def with_it(self, one: Resident, *, gone: Collection[str]) -> list[Resident] | None:
        """Who goes if this one does: of a gang that has none to spare, all who may; None if one is kept for now."""
        gang, group = one.waiter.gang, one.waiter.group
        if gang is None or group is None:
            return [one]
        everybody = self.gangs.get(gang, frozenset())
        left = [uid for uid in sorted(everybody) if uid not in gone]
        if len(left) > group.minimum:
            return [one]
        coming = self._coming if len(everybody - self._coming) >= group.minimum else frozenset[str]()
        go = [uid for uid in left if uid not in self._guarding_nobody and uid not in coming]
        mates = [self.by_uid[uid] for uid in go if uid in self.by_uid]
        return mates if len(mates) == len(go) else None

    def guards_all(self, one: Resident) -> bool:
        """Whether one who may not go keeps all of its group, and not itself alone."""
        return one.uid not in self._guarding_nobody

    def why_kept(self, one: Resident) -> Hindrance | None:
        """What keeps one who may be sent away, were nobody else to go but who goes with it."""
        if (unit := self.with_it(one, gone=())) is None:
            return Hindrance.GROUP
        return None if self.let_go({each.uid for each in unit}) else Hindrance.BUDGET

    def let_go(self, gone: Collection[str]) -> bool:
        """Whether disruption budgets let all of these go; who leaves anyway is counted there, or among the spent.

        Of two budgets over one pod the API server says itself that it evicts no such pod.
        """
        if not self.guarded:
            return True
        over = [self.guarded.get(uid, ()) for uid in gone if uid not in self.leaving and uid not in self._by_no_budget]
        if any(len(numbers) > 1 for numbers in over):
            return False
        used = Counter(number for numbers in over for number in numbers)
        return all(count + self._spent[number] <= self._allowed[number] for number, count in used.items())


def ranked(there: Iterable[Resident]) -> list[Resident]:
    """Everybody with the rank of their priority among those of the same user in the same queue."""
    everybody = sorted(there, key=lambda one: one.uid)
    seen: dict[tuple[str, str], set[int]] = {}
    for one in everybody:
        seen.setdefault((one.queue, one.waiter.user), set()).add(one.waiter.priority)
    ranks = {whose: {each: rank for rank, each in enumerate(sorted(found))} for whose, found in seen.items()}
    found = ((one, ranks[one.queue, one.waiter.user][one.waiter.priority]) for one in everybody)
    return [msgspec.structs.replace(one, rank=rank) if rank != one.rank else one for one, rank in found]
