"""The world of queues in which pods are sent away for others, too; what is decided is checked by counting anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aliquot_core.claims import NOTHING, Claim, overdrawn
from aliquot_core.instants import second_time
from aliquot_core.inventory import Health
from aliquot_core.patterns import Patterns
from aliquot_core.quantities import WHOLE, MiB
from aliquot_scheduler.queues.charged.ledger import Charge
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.room.graces import OVERDUE
from aliquot_scheduler.queues.said.spec import ModelQuota, Preemption, QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter, asked_by, summed
from aliquot_scheduler.reclaim.reclaim import Reclaim
from aliquot_scheduler.reclaim.residents import Budget
from support.centre import NAMES, WALL
from support.guarantee_oracle import Guarantees, Portion, demanding, kept_idle, wishes
from support.queue_actors import MEMORY, SCARCE
from support.queue_count import Count
from support.queue_world import STEPS, QueueWorld

replace = msgspec.structs.replace
_Gpu = tuple[str, str]
Charged = tuple[str, tuple[int, ...]]


class ReclaimWorld(QueueWorld):
    """Decisions about who has to go, each followed to its end or left in the middle."""

    def __init__(self) -> None:
        self._deciders: list[tuple[object, Reclaim]] = []
        self.asked: list[str] = []
        super().__init__()

    @property
    def reclaim(self) -> Reclaim:
        """Of the leader that there is now."""
        if not self._deciders or self._deciders[-1][0] is not self.queues:
            self._deciders = [(self.queues, Reclaim(queues=self.queues, picture=self.picture))]
        return self._deciders[-1][1]

    @property
    def wall(self) -> float:
        """What the clock on the wall says."""
        return WALL + self.now

    def _spec(self, name: str) -> QueueSpec:
        within = self.chance.choice(("SameUser", "AnyUser", ""))
        runs = self.chance.choice((None, None, None, 36_000 * 2))
        limit, lent = self.chance.choice((None, None, None, 300)), self.chance.choice((None, None, None, 0, 50))
        return replace(
            super()._spec(name),
            stop="",
            compute=Quota(guarantee=self.chance.choice((None, 100, 200, 300)), limit=limit, lending_limit=lent),
            preemption=Preemption(within_queue=within, min_run_seconds=runs),  # type: ignore[arg-type]  # drawn
        )

    def borrow(self) -> None:
        """One queue's pods take what is there."""
        where = self.chance.choice("abc")
        for _ in range(8):
            self._made += 1
            self._create(f"y{self._made}", where=where)
        self.let_in()

    # --- steps -------------------------------------------------------------------------------------------------------
    def decide(self) -> None:
        """Who has to go is decided, and some of them are asked."""
        self.decided(self.budgets())
        if self.chance.random() < 0.7:
            self.ask()

    def ask(self) -> None:
        """Some or all of the victims are asked to go, or a budget keeps one."""
        clearings, bound = self.queues.register.clearings, self.queues.register.inside.bound
        for clearing in clearings:
            for victim in clearings.unasked(clearing, bound=bound):
                if self.chance.random() < 0.1:
                    self.reclaim.refused(victim, now=self.now)
                    break
                clearings.asked(victim.uid)
                assert victim.uid not in self.asked, "nobody is asked twice"
                self.asked.append(victim.uid)
                self.on_the_way_out(victim.uid)

    def on_the_way_out(self, uid: str) -> None:
        """A pod is asked to go."""
        meta = replace(self.pods[uid].metadata, deletion_timestamp=second_time(self.wall + 30.0))
        self.see(replace(self.pods[uid], metadata=meta))

    def victims_go(self) -> None:
        """Who was asked to go is gone, or most of them."""
        for uid in [uid for uid in self.asked if uid in self.pods]:
            if self.chance.random() < 0.8:
                self.gone(uid)

    def budgets(self) -> list[Budget]:
        """One disruption budget over some pods."""
        pods = frozenset(uid for uid in sorted(self.pods) if self.chance.random() < 0.3)
        return [Budget(pods=pods, allowed=self.chance.choice((0, 1, 9)))]

    # --- what must hold ----------------------------------------------------------------------------------------------
    def decided(self, budgets: Sequence[Budget] = ()) -> list[Clearing]:
        """Decide, and look at each decision as it is made."""
        self.beat()
        # As it does itself: who was to go for what is over by now may be chosen anew.
        self.queues.register.making_room.call_off_void(now=self.now)
        before = {uid: charge.amounts for uid, charge in self.queues.books.ledger.charges().items()}
        asking, waiting = Count(self).asking, {waiter.uid: waiter for waiter in self.queues.waiting()}
        leaving = self._leaving()
        found = self.reclaim.decide(now=self.now, wall=self.wall, budgets=budgets)
        for clearing in found:
            assert not {one.uid for one in clearing.victims} & leaving, "who leaves already is not asked"
            for victim in clearing.victims:
                self._check_victim(victim, clearing)
        after = {uid: charge.amounts for uid, charge in self.queues.books.ledger.charges().items()}
        assert before == after, "the ledger is given back as it was"
        going = self.queues.register.clearings.victims()
        for budget in budgets:
            asked = {victim.uid for clearing in found for victim in clearing.victims}
            assert len(asked & budget.pods) <= budget.allowed
        standing = [one for one in self.queues.register.clearings if one not in found]
        gone = leaving
        for clearing in found:
            gone = gone | {victim.uid for victim in clearing.victims}
            left = without(asking, self._as_it_asked(clearing, waiting))
            self._check_needed(clearing, gone, standing=standing, asking=asking, left=left)
            standing.append(clearing)
            asking = left
        self._check_fits(going | leaving)
        self._check_gangs(found, going | leaving)
        return found

    @staticmethod
    def _as_it_asked(clearing: Clearing, waiting: Mapping[str, Waiter]) -> Candidate:
        """Before it was kept off models on which it will not lie."""
        members = tuple(waiting[member.uid] for member in clearing.candidate.members)
        return Candidate(members=members, amounts=summed(members))

    def _leaving(self) -> set[str]:
        stamps = {uid: pod.metadata.deletion_timestamp for uid, pod in self.pods.items()}
        soon = {uid for uid, stamp in stamps.items() if stamp and second_time(self.wall - OVERDUE) < stamp}
        return soon | self.queues.register.clearings.victims()

    def _check_victim(self, victim: Waiter, clearing: Clearing) -> None:
        pod = self.pods[victim.uid]
        assert pod.spec.node_name, "only who runs is sent away"
        assert not pod.metadata.deletion_timestamp
        assert not self._is_firm(victim.uid)
        first, moved = clearing.candidate.first, {place.waiter.uid for place in clearing.moves}
        if self._charge_of(victim).queue == first.queue and victim.uid not in moved:
            assert victim.priority < min(one.priority for one in clearing.candidate.members)

    def _on_cards(self, gone: set[str], *, standing: Iterable[Clearing]) -> dict[_Gpu, list[Claim]]:
        on: dict[_Gpu, list[Claim]] = defaultdict(list)
        holdings = self.picture.holdings
        for uid, held in holdings.everything().items():
            for gpu, claim in held.items() if uid not in gone else ():
                on[gpu].append(claim)
        for clearing in standing:
            for place in clearing.places:
                for gpu, claim in place.room.items():
                    on[gpu].append(claim)
        return on

    def _check_fits(self, gone: set[str]) -> None:
        """All for whom room is made have it once those are gone."""
        for gpu, parts in self._on_cards(gone, standing=self.queues.register.clearings).items():
            assert not _too_much(parts), gpu

    def _check_needed(
        self,
        clearing: Clearing,
        gone: set[str],
        *,
        standing: Sequence[Clearing],
        asking: Sequence[Portion],
        left: Sequence[Portion],
    ) -> None:
        """Nobody goes who could stay by what was decided so far; a gang that goes as a whole, as a whole."""
        for victim in clearing.victims:
            together = self._stays_with(victim, clearing, gone)
            stay, all_in = gone - together, [*standing, clearing]
            cards = self._on_cards(stay, standing=all_in)
            on_a_card = any(_too_much(cards[gpu]) for uid in together for gpu in self.picture.holdings.of(uid))
            assert (
                on_a_card
                or self._is_over_a_limit(stay, standing=all_in)
                or self._takes_what_is_others(clearing, stay, standing=standing, asking=asking, left=left)
            ), victim.uid

    def _stays_with(self, victim: Waiter, clearing: Clearing, gone: set[str]) -> set[str]:
        """Who would have to stay for it to run."""
        left = len(self.queues.books.let_in.get(victim.gang, set()) - gone) if victim.gang else 0
        if victim.group is None or left + 1 >= victim.group.minimum:
            return {victim.uid}
        return {one.uid for one in clearing.victims if one.gang == victim.gang}

    def _takes_what_is_others(
        self,
        clearing: Clearing,
        gone: set[str],
        *,
        standing: Sequence[Clearing],
        asking: Sequence[Portion],
        left: Sequence[Portion],
    ) -> bool:
        """Whether less could be served of what is kept idle, or demanded, once it is in; or not all can be anyway."""
        tree = self.queues.books.ledger.tree
        for dimension in range(tree.dimensions.cards):
            lacks = []
            for some, asks in ((standing, asking), ([*standing, clearing], left)):
                instant = self._instant(dimension, gone, standing=some, asking=asks)
                lacks.append((instant.lacking(), instant.unasked().lacking()))
            if any(lacks[0]) or any(now > was for was, now in zip(*lacks, strict=True)):
                return True
        return False

    def _instant(
        self, dimension: int, gone: set[str], *, standing: Iterable[Clearing], asking: Iterable[Portion]
    ) -> Guarantees:
        standing = list(standing)
        tree, in_use = self.queues.books.ledger.tree, self._used_without(gone, standing=standing)
        firm = self._firm_without(gone, standing=standing)
        asked = wishes(demanding(asking, tree, used=in_use, firm=firm), dimension)
        used: dict[str, int] = defaultdict(int)
        for queue, amounts in self._charged_without(gone, standing=standing):
            used[queue] += amounts[dimension]
        free = self._free(dimension, gone, standing=standing)
        return Guarantees(tree, dimension=dimension, used=used, asked=asked, free=free)

    def _free(self, dimension: int, gone: set[str], *, standing: Iterable[Clearing]) -> int:
        """What is left of all cards that count in this dimension."""
        on, dimensions = self._on_cards(gone, standing=standing), self.queues.books.ledger.tree.dimensions
        model, whole = dimensions.model_of(dimension).casefold(), WHOLE.value
        named = Patterns(allowed=(model,) if model else ())
        found = 0
        for name, known in self.picture.nodes.items():
            for gpu in known.inventory.gpus if self.picture.grid.bindable[known.row] else ():
                parts = on[name, gpu.uuid]
                if gpu.health is Health.SICK or not named.admits(*gpu.model_names) or any(one.closes for one in parts):
                    continue
                left = gpu.usable.value - sum(one.memory.value for one in parts)
                found += max(0, left if dimension % 2 else whole - sum(one.compute.value for one in parts))
        return found

    def _is_over_a_limit(self, gone: set[str], *, standing: Iterable[Clearing]) -> bool:
        used, nodes = self._used_without(gone, standing=standing), self.queues.books.ledger.tree.nodes
        return any(
            amount > most for name, node in nodes.items() for amount, most in zip(used[name], node.ceiling, strict=True)
        )

    def _check_gangs(self, found: Sequence[Clearing], gone: set[str]) -> None:
        """A gang that loses anybody keeps its minimum, or goes as a whole but for those who are never evicted."""
        for gang in {victim.gang for clearing in found for victim in clearing.victims if victim.gang}:
            left = self.queues.books.let_in[gang] - gone
            groups = {pod.metadata.annotations[NAMES.group_min] for uid, pod in self.pods.items() if uid in left}
            # Who is never evicted stays, and waits for the others.
            assert all(map(self._is_firm, left)) or all(len(left) >= int(least) for least in groups), gang

    def _is_firm(self, uid: str) -> bool:
        return self.pods[uid].metadata.annotations.get(NAMES.preemptible) == "false"

    def _used_without(self, gone: set[str], *, standing: Iterable[Clearing]) -> dict[str, list[int]]:
        """What each queue uses once those are gone, and all are in for whom room is made."""
        ledger = self.queues.books.ledger
        used: dict[str, list[int]] = {name: [0] * ledger.width for name in ledger.tree.nodes}
        for queue, amounts in self._charged_without(gone, standing=standing):
            for name in ledger.tree.path(queue):
                used[name] = [a + b for a, b in zip(used[name], amounts, strict=True)]
        return used

    def _charged_without(self, gone: set[str], *, standing: Iterable[Clearing]) -> list[Charged]:
        charges = self.queues.books.ledger.charges()
        there = [(charge.queue, charge.amounts) for uid, charge in charges.items() if uid not in gone]
        places = [place.waiter for clearing in standing for place in clearing.places]
        return [*there, *((waiter.queue, waiter.amounts) for waiter in places)]

    def _firm_without(self, gone: set[str], *, standing: Iterable[Clearing]) -> dict[str, list[int]]:
        """What each queue has given for good then."""
        charges = self.queues.books.ledger.charges()
        given = [(one.queue, one.amounts) for uid, one in charges.items() if one.firm and uid not in gone]
        places = [place.waiter for clearing in standing for place in clearing.places]
        given += [(one.queue, one.amounts) for one in places if one.shape.firm]
        found: dict[str, list[int]] = {}
        for queue, amounts in given:
            so_far = found.get(queue, [0] * self.queues.books.ledger.width)
            found[queue] = [a + b for a, b in zip(so_far, amounts, strict=True)]
        return found

    def below_guarantee(self, found: Sequence[Clearing]) -> None:
        """No queue from which others took had less than it is guaranteed then in all that was taken.

        But where who went was partly inside: for one that is due all that it asks, and it would be beyond again.
        """
        nodes = self.queues.books.ledger.tree.nodes
        gone, standing = self._leaving(), list(self.queues.register.clearings)
        decided = []
        for clearing in reversed(found):
            decided.append((clearing, self._used_without(gone, standing=standing)))
            gone = gone - {victim.uid for victim in clearing.victims}
            standing = [one for one in standing if one.uid != clearing.uid]
        for clearing, used in decided:
            moved = {place.waiter.uid for place in clearing.moves}
            for victim in (one for one in clearing.victims if one.uid not in moved):
                amounts, again = self._charge_of(victim).amounts, self._asks_again(victim, clearing)
                for name in self._lenders(victim, clearing):
                    guaranteed, due = nodes[name].guarantee, nodes[name].due
                    has = self._has(name, victim, used=used)
                    taken = [dim for dim, amount in enumerate(amounts) if amount and guaranteed[dim]]
                    wanted = [dim for dim, amount in enumerate(clearing.candidate.amounts) if amount and amounts[dim]]
                    is_whole = not taken or any(has[dim] >= guaranteed[dim] for dim in taken)
                    assert is_whole or any(has[dim] + again[dim] > due[dim] for dim in wanted), (name, victim.uid)
                    assert is_whole or self._is_due(clearing, used=used), (name, victim.uid)

    def _lenders(self, victim: Waiter, clearing: Clearing) -> list[str]:
        """The queues on its way up that are not above those for whom it goes."""
        tree = self.queues.books.ledger.tree
        mine = tree.path(clearing.candidate.first.queue)
        return [name for name in tree.path(self._charge_of(victim).queue) if name not in mine]

    def _has(self, name: str, victim: Waiter, *, used: Mapping[str, Sequence[int]]) -> list[int]:
        """What a queue uses, and what is kept idle below it where the victim was not."""
        tree = self.queues.books.ledger.tree
        path = tree.path(self._charge_of(victim).queue)
        way = path[: path.index(name) + 1]
        beside = [child for above in way for child in tree.nodes[above].children if child not in way]
        found = list(used[name])
        for dim in range(tree.dimensions.cards):
            in_use = {queue: amounts[dim] for queue, amounts in used.items()}
            found[dim] += sum(kept_idle(tree, dimension=dim, used=in_use, name=child) for child in beside)
        return found

    def _asks_again(self, victim: Waiter, clearing: Clearing) -> list[int]:
        """What it asks once it is gone, with as many of its group that went too as start together."""
        amounts = list(self._charge_of(victim).amounts)
        mates = [one for one in clearing.victims if victim.gang and one.gang == victim.gang and one != victim]
        for dim in range(len(amounts)) if victim.group else ():
            others = sorted(self._charge_of(mate).amounts[dim] for mate in mates)
            amounts[dim] += sum(others[: victim.group.minimum - 1] if victim.group else ())
        return amounts

    def _is_due(self, clearing: Clearing, *, used: Mapping[str, Sequence[int]]) -> bool:
        """Whether any queue on its way is due all that it asks of cards, once it is in."""
        tree, candidate = self.queues.books.ledger.tree, clearing.candidate
        asked = [dim for dim in range(tree.dimensions.cards) if candidate.amounts[dim]]
        path = [name for name in tree.path(candidate.first.queue) if name != ROOT]
        return any(all(used[name][dim] <= tree.nodes[name].due[dim] for dim in asked) for name in path)

    def _charge_of(self, victim: Waiter) -> Charge:
        charge = self.queues.books.ledger.of(victim.uid)
        assert charge is not None
        return charge


class NarrowWorld(ReclaimWorld):
    """With fewer queues and one model, as walks were drawn that found faults: else seeds say nothing."""

    queue_names = ("o", "p", "a", "b", "c")

    def _of_models(self) -> dict[str, ModelQuota]:
        if self.chance.random() < 0.6:
            return {}
        quota = Quota(
            guarantee=self.chance.choice((None, None, 100, 200)),
            limit=self.chance.choice((None, 0, 100, 200)),
            lending_limit=self.chance.choice((None, None, 0)),
        )
        return {SCARCE: ModelQuota(compute=quota)}


def without(asking: Sequence[Portion], candidate: Candidate) -> list[Portion]:
    """What is asked by all but one who has come in: at once, or by each of a gang that had more than it needs."""
    left = list(asking)
    at_once, one_by_one = asked_by(candidate.members), [asked_by((one,)) for one in candidate.members]
    portions = [Portion(candidate.first.queue, *ask) for ask in (at_once, *one_by_one)]
    for portion in portions[:1] if portions[0] in left else portions[1:]:
        if portion in left:
            left.remove(portion)
    return left


def _too_much(parts: Sequence[Claim]) -> bool:
    total = NOTHING
    for part in parts:
        total = total.beside(part)
    return overdrawn(total, memory=MiB(MEMORY), holders=len(parts)) is not None


RECLAIM_STEPS: dict[str, int] = {
    **{step.__name__: times for step, times in STEPS.items()},
    "borrow": 3,
    "decide": 6,
    "ask": 3,
    "victims_go": 5,
}
