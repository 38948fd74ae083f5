"""The ledger: what queues use and what is held back for them, event by event as if counted anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.charged.askers import Ask, Askers
from aliquot_scheduler.queues.charged.held_back import HeldBack
from aliquot_scheduler.queues.charged.ledger import Charge, Effect, Ledger
from aliquot_scheduler.queues.charged.portions import Portions
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT, UNLIMITED, Tree, plant
from support.guarantee_oracle import Guarantees, Portion, Wish, demanding, kept_idle, wishes
from support.guarantee_search import Search

replace = msgspec.structs.replace


def queue(parent: str = "", *, memory: Quota | None = None, **compute: Any) -> QueueSpec:
    """A queue with quotas."""
    return QueueSpec(parent=parent, compute=Quota(**compute), memory=memory or Quota())


def amounts(compute: int, memory: int = 0) -> tuple[int, ...]:
    """So much of a GPU, and nothing of the host."""
    return (compute, memory, 0, 0)


def asking(compute: int, memory: int = 0) -> Ask:
    """So much is asked at once."""
    return Ask(amounts=amounts(compute, memory), least=amounts(compute, memory))


SPECS = {
    "org": queue(guarantee=300, limit=500),
    "a": queue("org", guarantee=200, memory=Quota(guarantee=50, lending_limit=20)),
    "b": queue("org", limit=250),
    "c": queue(guarantee=100, borrowing_limit=150),
}
# Compute is kept idle too, above the queue that keeps memory.
RESERVED = SPECS | {"org": queue(guarantee=300, limit=500, lending_limit=200)}


def held(ledger: Ledger) -> dict[str, int]:
    """What is held back of each queue, in compute."""
    return {name: account.held[COMPUTE] for name, account in ledger.accounts.items() if account.held[COMPUTE]}


def test_a_guarantee_is_held_back_as_far_as_it_is_asked_for() -> None:
    """Nobody's idle guarantee is held back; what is asked is, at the queue and above, until it is used."""
    ledger = Ledger(plant(SPECS))
    assert held(ledger) == {}
    ledger.ask("a", asking(150))
    assert held(ledger) == {"a": 150, "org": 150}
    ledger.ask("a", asking(50))
    ledger.ask("a", asking(100))
    # Its parent's guarantee goes further than its own.
    assert held(ledger) == {"a": 200, "org": 300}
    ledger.ask_no_more("a", asking(150))
    ledger.charge("p", Charge(queue="a", amounts=amounts(150)))
    assert held(ledger) == {"a": 50, "org": 150}
    assert ledger.held_back(COMPUTE) == 150


def test_what_is_not_lent_is_held_back_idle() -> None:
    """A lending limit keeps the rest of the guarantee, whoever asks."""
    ledger = Ledger(plant(SPECS))
    assert ledger.held_back(MEMORY) == 30
    ledger.charge("p", Charge(queue="a", amounts=amounts(0, 25)))
    assert ledger.held_back(MEMORY) == 5
    ledger.charge("p", Charge(queue="a", amounts=amounts(0, 45)))
    assert ledger.held_back(MEMORY) == 0


@pytest.mark.parametrize(
    ("waits", "portions", "name", "asked", "less"),
    [
        ("a", (150, 50, 100), "a", 150, 150),  # within its own guarantee
        ("a", (150, 50, 100), "b", 150, 100),  # 50 would be taken from what is held back for its brother
        ("c", (100,), "c", 100, 100),
        ("c", (100, 20), "c", 120, 100),  # 20 are borrowed
        ("c", (120,), "c", 120, 0),  # it does not fit in the guarantee
        ("b", (120,), "b", 120, 120),  # within its parent's
    ],
)
def test_an_admission_lessens_what_is_held_back_for_itself(
    waits: str, portions: tuple[int, ...], name: str, asked: int, less: int
) -> None:
    """What is told before an admission is what happens by it."""
    ledger = Ledger(plant(SPECS))
    for portion in portions:
        ledger.ask(waits, asking(portion))
    before = ledger.held_back(COMPUTE)
    assert ledger.effect(COMPUTE, name, amounts(asked)).lessened == less
    if waits == name:
        for portion in portions if sum(portions) == asked else (asked,):
            ledger.ask_no_more(name, asking(portion))
        ledger.charge("p", Charge(queue=name, amounts=amounts(asked)))
        assert before - ledger.held_back(COMPUTE) == less


def test_what_does_not_fit_in_a_guarantee_as_a_whole_does_not_demand_it() -> None:
    """Of 2,000 guaranteed 500 are in use: nothing is held back for a gang of 2,000, until those 500 are given back."""
    ledger = Ledger(plant({"p": queue(guarantee=4000, limit=4000), "a": queue("p", guarantee=2000), "b": queue("p")}))
    ledger.charge("running", Charge(queue="a", amounts=amounts(500)))
    ledger.ask("a", asking(2000))
    # Its parent's guarantee has room for it.
    assert held(ledger) == {"p": 2000}
    ledger.ask("a", asking(300))
    assert held(ledger) == {"a": 300, "p": 2300}
    ledger.release("running")
    assert held(ledger) == {"a": 2000, "p": 2300}
    ledger.ask_no_more("a", asking(2000))
    assert held(ledger) == {"a": 300, "p": 300}


@given(st.lists(st.integers(1, 40)), st.integers(0, 80), st.integers(0, 40))
def test_of_what_is_asked_those_count_that_are_no_larger(sizes: list[int], most: int, without: int) -> None:
    """Their sum, up to the same number; by whichever way it is counted, and after others came and went."""
    portions = Portions()
    for size in (*sizes, 17, 41):
        portions.add(size, times=1)
    for size in (17, 41):
        portions.add(size, times=-1)
    assert portions.fitting(most) == min(most, sum(size for size in sizes if size <= most))
    rest = list(sizes)
    if without in rest:
        rest.remove(without)
    assert portions.fitting(most, but=without) == min(most, sum(size for size in rest if size <= most))


def test_a_ceiling_is_kept_at_the_queue_and_above() -> None:
    """What is over is told with the queue at which it is."""
    ledger = Ledger(plant(SPECS))
    ledger.charge("p", Charge(queue="a", amounts=amounts(300)))
    over = ledger.over("b", amounts(201))
    assert ledger.over("b", amounts(200)) is None
    assert over is not None
    assert (over[0].node.name, over[1]) == ("org", COMPUTE)
    beyond = ledger.over("c", amounts(251))
    assert beyond is not None
    assert beyond[0].node.name == "c"


def test_firm_pods_stay_within_their_own_guarantee() -> None:
    """What is never taken back counts apart; a queue without a guarantee takes none of it."""
    ledger, capacity = Ledger(plant(SPECS)), (800, 400)
    ledger.charge("p", Charge(queue="c", amounts=amounts(90)))
    assert ledger.unsure("c", amounts(100), capacity=capacity) is None
    ledger.charge("q", Charge(queue="c", amounts=amounts(60), firm=True))
    assert ledger.unsure("c", amounts(41), capacity=capacity) == ("c", COMPUTE)
    assert ledger.unsure("c", amounts(40), capacity=capacity) is None
    assert ledger.unsure("b", amounts(1), capacity=capacity) == ("b", COMPUTE)


def test_a_charge_is_corrected_in_place() -> None:
    """A holder that is charged again is charged with the new amount alone, and an unknown queue counts for all."""
    ledger = Ledger(plant(SPECS))
    ledger.charge("p", Charge(queue="a", amounts=amounts(100, 80)))
    ledger.charge("p", Charge(queue="a", amounts=amounts(100, 40)))
    ledger.charge("q", Charge(queue="deleted", amounts=amounts(7, 7)))
    assert ledger.accounts["org"].used == [100, 40, 0, 0]
    assert ledger.accounts[ROOT].used == [107, 47, 0, 0]
    ledger.release("p")
    ledger.release("p")
    assert ledger.accounts["org"].used == [0, 0, 0, 0]


def counted_anew(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """From now on, how often what is held back of each queue is counted, in compute."""
    counted, count = Counter[str](), HeldBack.count

    def counting(held: HeldBack, account: Account, dimension: int) -> None:
        counted[account.node.name] += dimension == COMPUTE
        count(held, account, dimension)

    monkeypatch.setattr(HeldBack, "count", counting)
    return counted


def test_who_is_charged_with_the_same_again_is_not_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is with every pod that is bound where it was let in."""
    ledger, charge = Ledger(plant(SPECS)), Charge(queue="a", amounts=amounts(100, 80))
    ledger.charge("p", charge)
    counted = counted_anew(monkeypatch)
    ledger.charge("p", replace(charge))
    assert not counted
    ledger.charge("p", replace(charge, amounts=amounts(90, 80)))
    assert set(counted) == {"a", "org", ROOT}


def test_what_is_held_back_is_counted_once_for_all_who_count_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a limit that fills at once, a hundred who ask different amounts demand their guarantee no more."""
    ledger = Ledger(plant({"top": queue(limit=300), "a": queue("top", guarantee=200), "b": queue("top")}))
    for more in range(100):
        ledger.ask("a", asking(101 + more))
    assert held(ledger) == {"a": 200, "top": 200}
    counted = counted_anew(monkeypatch)
    ledger.charge("p", Charge(queue="b", amounts=amounts(200)))
    assert counted["a"] == 1


class Small(msgspec.Struct, frozen=True, kw_only=True):
    """A few queues at one instant, in amounts that can be counted on fingers."""

    tree: Tree
    used: dict[str, int]
    asked: dict[str, tuple[int, ...]]
    free: int

    def after(self, leaf: str, amount: int) -> Small:
        """The same with a pod let in."""
        used, asked = self.used | {leaf: self.used[leaf] + amount}, list(self.asked[leaf])
        asked.remove(amount)
        return replace(self, used=used, asked=self.asked | {leaf: tuple(asked)}, free=self.free - amount)

    def ledger(self) -> Ledger:
        """As it counts this."""
        ledger = Ledger(self.tree)
        for leaf, used in self.used.items():
            ledger.charge(leaf, Charge(queue=leaf, amounts=amounts(used)))
            for portion in self.asked[leaf]:
                ledger.ask(leaf, asking(portion))
        return ledger

    def lacking(self) -> int:
        """What of demanded guarantees can't be served."""
        asked = self._demanding()
        lacking = Search(self.tree, used=self.used, asked=asked, free=self.free).lacking()
        served = Guarantees(self.tree, dimension=COMPUTE, used=self.used, asked=asked, free=self.free)
        assert served.lacking() == lacking
        return lacking

    def _demanding(self) -> dict[str, list[Wish]]:
        used = {
            name: [sum(amount for leaf, amount in self.used.items() if name in self.tree.path(leaf)), 0, 0, 0]
            for name in self.tree.nodes
        }
        asked = [Portion(leaf, *asking(amount)) for leaf, portions in self.asked.items() for amount in portions]
        found = wishes(demanding(asked, self.tree, used=used, firm={}), COMPUTE)
        return {leaf: found.get(leaf, []) for leaf in self.asked}

    def reserved_lacking(self) -> int:
        """What of all that is kept idle is not there."""
        lacking = Search(self.tree, used=self.used, asked={}, free=self.free).lacking()
        served = Guarantees(self.tree, dimension=COMPUTE, used=self.used, asked={}, free=self.free)
        assert served.unasked().lacking() == lacking
        return lacking


@st.composite
def _small(draw: st.DrawFn) -> Small:
    quotas = st.builds(
        Quota,
        guarantee=st.sampled_from((None, None, 1, 2, 3)),
        limit=st.sampled_from((None, None, 2, 3, 4, 5)),
        lending_limit=st.sampled_from((None, None, 0, 1)),
    )
    above = st.sampled_from(("p", "q", "p", "q", ""))
    parents = {"p": "", "q": draw(st.sampled_from(("", "p")))} | {leaf: draw(above) for leaf in "abc"}
    specs = {name: QueueSpec(parent=parent, compute=draw(quotas)) for name, parent in parents.items()}
    tree = plant(specs)
    leaves = [name for name in specs if tree.leaf(name)]
    used = draw(st.fixed_dictionaries({name: st.integers(0, 3) for name in leaves}))
    # Everything that could be given is tried: one more makes that three times as much.
    asked = draw(st.fixed_dictionaries({name: st.sampled_from(((), (1,), (2,), (1, 1))) for name in leaves}))
    return Small(tree=tree, used=used, asked=asked, free=draw(st.integers(0, 7)))


@given(_small())
@settings(max_examples=100, deadline=None)
def test_exactly_those_are_refused_who_would_take_what_others_keep_idle(small: Small) -> None:
    """Tried out as if nobody asked: whether all that is kept idle is there still; whatever anybody is guaranteed."""
    ledger, lacked = small.ledger(), small.reserved_lacking()
    for leaf, asked in small.asked.items():
        for amount in set(asked):
            if amount > small.free or ledger.over(leaf, amounts(amount)):
                continue
            lacks = small.after(leaf, amount).reserved_lacking()
            if ledger.taken_of_idle(COMPUTE, leaf, amounts(amount), free=small.free) is None:
                assert lacks <= lacked
            else:
                # Where something lacks already, one reservation may be robbed and another need no more.
                assert lacks > lacked or lacked


def _is_just(ledger: Ledger, leaf: str, amount: int, *, free: int) -> bool:
    effect = ledger.effect(COMPUTE, leaf, amounts(amount))
    own = effect.lessened >= amount
    return not effect.injured and (own or free - amount >= ledger.held_back(COMPUTE) - effect.lessened)


@given(_small())
@settings(max_examples=100, deadline=None)
def test_exactly_those_are_refused_who_would_take_what_serves_a_guarantee(small: Small) -> None:
    """Tried out: whether all that is guaranteed and demanded could still be served, under the ceilings of all above."""
    ledger, lacked = small.ledger(), small.lacking()
    for leaf, asked in small.asked.items():
        for amount in set(asked):
            if amount > small.free or ledger.over(leaf, amounts(amount)):
                continue
            lacks = small.after(leaf, amount).lacking()
            if _is_just(ledger, leaf, amount, free=small.free):
                assert lacks <= lacked
            else:
                # Where something lacks already, one guarantee may be robbed and another need no more.
                assert lacks > lacked or lacked


def test_who_borrows_under_a_limit_does_not_take_what_it_leaves_to_a_guarantee() -> None:
    """Of a limit of 400, 100 are borrowed and 300 are guaranteed to another: nothing is left to borrow."""
    ledger = Ledger(plant({"p": queue(limit=400), "a": queue("p", guarantee=300), "b": queue("p")}))
    ledger.charge("borrowed", Charge(queue="b", amounts=amounts(100)))
    ledger.ask("a", asking(300))
    assert ledger.effect(COMPUTE, "b", amounts(50)).injured == "p"
    assert ledger.effect(COMPUTE, "a", amounts(300)) == Effect(lessened=300, injured="")


def test_what_others_have_taken_under_a_limit_is_held_back_from_nobody_elsewhere() -> None:
    """Only they can give it back; and whose guarantee it is takes of it what is left."""
    ledger = Ledger(plant({"p": queue(limit=400), "a": queue("p", guarantee=300), "b": queue("p")}))
    ledger.charge("borrowed", Charge(queue="b", amounts=amounts(300)))
    ledger.ask("a", asking(300))
    assert held(ledger) == {"a": 300, "p": 100}
    assert ledger.held_back(COMPUTE) == 100
    assert ledger.effect(COMPUTE, "a", amounts(100)) == Effect(lessened=100, injured="")


def test_who_takes_more_than_its_own_reservation_leaves_others_theirs() -> None:
    """Half of it is kept for itself: the other half may not be what another keeps."""
    half = queue(guarantee=100, lending_limit=50)
    ledger = Ledger(plant({"k": half, "l": half}))
    for free, taken in ((150, None), (149, ROOT)):
        assert ledger.taken_of_idle(COMPUTE, "k", amounts(100), free=free) == taken
    assert ledger.taken_of_idle(COMPUTE, "k", amounts(50), free=50) is None


def test_what_others_use_under_a_limit_is_kept_idle_from_nobody_elsewhere() -> None:
    """Only they can give it back; of what is left of it as much is kept as there is."""
    kept = queue("p", guarantee=100, lending_limit=0)
    ledger = Ledger(plant({"p": queue(limit=400), "k": kept, "b": queue("p"), "c": queue()}))
    ledger.charge("borrowed", Charge(queue="b", amounts=amounts(340)))
    assert (ledger.accounts["k"].idle[COMPUTE], ledger.accounts[ROOT].idle[COMPUTE]) == (100, 60)
    for amount, taken in ((40, None), (41, ROOT)):
        assert ledger.taken_of_idle(COMPUTE, "c", amounts(amount), free=100) == taken
    # Of the 60 that it leaves all who borrow there are kept out, and its owner is not.
    assert ledger.taken_of_idle(COMPUTE, "b", amounts(10), free=100) == "p"
    assert ledger.taken_of_idle(COMPUTE, "k", amounts(60), free=60) is None


def test_what_a_limit_keeps_from_use_is_not_held_back() -> None:
    """A guarantee is demanded as far as limits below let it be used: the rest is lent."""
    ledger = Ledger(plant({"p": queue(guarantee=300), "a": queue("p", limit=100), "b": queue("p")}))
    for _ in range(3):
        ledger.ask("a", asking(100))
    assert held(ledger) == {"p": 100}
    ledger.charge("x", Charge(queue="a", amounts=amounts(100)))
    assert held(ledger) == {}


def test_who_is_kept_out_by_a_limit_of_one_thing_demands_no_guarantee_of_another() -> None:
    """Nor what is larger than the limit leaves; who fits besides does, and once the limit leaves enough all do."""
    specs = {"c": queue(memory=Quota(guarantee=160)), "x": queue("c", limit=100), "y": queue("c")}
    ledger = Ledger(plant(specs))
    ledger.ask("x", asking(60, 80))
    ledger.ask("x", asking(0, 10))
    assert ledger.held_back(MEMORY) == 90
    ledger.charge("running", Charge(queue="x", amounts=amounts(50, 5)))
    assert ledger.held_back(MEMORY) == 10
    ledger.charge("running", Charge(queue="x", amounts=amounts(40, 5)))
    assert ledger.held_back(MEMORY) == 90
    ledger.charge("other", Charge(queue="y", amounts=amounts(300)))
    assert ledger.held_back(MEMORY) == 90


def test_who_is_kept_out_by_what_others_borrowed_under_a_limit_demands_all_that_it_is_guaranteed() -> None:
    """They have to give it back; who is guaranteed nothing of what the limit is about waits until it leaves enough."""
    specs = {
        "p": queue(limit=400),
        "a": queue("p", guarantee=300, memory=Quota(guarantee=80)),
        "b": queue("p", memory=Quota(guarantee=80)),
    }
    ledger = Ledger(plant(specs))
    ledger.charge("borrowed", Charge(queue="b", amounts=amounts(350)))
    ledger.ask("b", asking(100, 80))
    assert ledger.held_back(MEMORY) == 0
    ledger.ask("a", asking(100, 80))
    assert (held(ledger), ledger.held_back(MEMORY)) == ({"a": 100, "p": 50}, 80)
    ledger.charge("borrowed", Charge(queue="b", amounts=amounts(300)))
    assert ledger.held_back(MEMORY) == 160


def test_who_waits_below_a_full_limit_demands_no_guarantee_of_who_has_that_limit() -> None:
    """It uses all that it may, whoever of those below it has borrowed that; once they give it back it may use more."""
    specs = {
        "p": queue(limit=100, memory=Quota(guarantee=160)),
        "a": queue("p", guarantee=100),
        "b": queue("p"),
    }
    ledger = Ledger(plant(specs))
    ledger.charge("borrowed", Charge(queue="b", amounts=amounts(100, 80)))
    ledger.ask("a", asking(100, 80))
    assert (held(ledger), ledger.held_back(MEMORY)) == ({"a": 100}, 0)
    ledger.release("borrowed")
    assert (held(ledger), ledger.held_back(MEMORY)) == ({"a": 100, "p": 100}, 80)


def test_who_may_not_be_given_so_much_for_good_demands_no_guarantee() -> None:
    """Its queue is due a card; the guarantee above is for those below it who may come in."""
    specs = {"p": queue(guarantee=300), "a": queue("p", guarantee=100), "b": queue("p")}
    ledger = Ledger(plant(specs))
    for name in "ab":
        ledger.ask(name, Ask(amounts=amounts(100), least=amounts(100), firm=amounts(100)))
    assert held(ledger) == {"a": 100, "p": 100}
    ledger.charge("x", Charge(queue="a", amounts=amounts(10), firm=True))
    assert held(ledger) == {}
    ledger.release("x")
    assert held(ledger) == {"a": 100, "p": 100}


def test_what_is_kept_idle_below_is_no_part_of_what_others_there_ask() -> None:
    """A queue's guarantee covers both, as far as it goes."""
    idle = queue("p", guarantee=100, lending_limit=0)
    ledger = Ledger(plant({"p": queue(guarantee=300), "a": idle, "b": queue("p")}))
    ledger.ask("b", asking(150))
    assert held(ledger) == {"a": 100, "p": 250}
    ledger.ask("b", asking(150))
    assert held(ledger) == {"a": 100, "p": 300}


@pytest.mark.parametrize(
    ("asked", "charges", "takes"),
    [
        pytest.param({}, {"b": 250}, True, id="under all ceilings"),
        pytest.param({}, {"b": 251}, False, id="over its own"),
        pytest.param({}, {"b": 250, "a": 251}, False, id="together over the one above"),
        pytest.param({"a": 200}, {"b": 50}, False, id="something is missing under the one above"),
        pytest.param({"c": 100}, {"b": 250}, True, id="what is missing elsewhere is no matter"),
    ],
)
def test_all_together_are_taken_where_nothing_is_missing_under_a_ceiling(
    asked: dict[str, int], charges: dict[str, int], *, takes: bool
) -> None:
    """Else each is to be asked by itself."""
    ledger = Ledger(plant(SPECS))
    for name, amount in asked.items():
        ledger.ask(name, asking(amount))
    assert takes == ledger.takes_all(Charge(queue=name, amounts=amounts(part)) for name, part in charges.items())


def test_nor_are_they_taken_where_something_is_kept_idle_under_one() -> None:
    """`org` keeps compute idle, and has a limit."""
    assert not Ledger(plant(RESERVED)).takes_all([Charge(queue="b", amounts=amounts(10))])


QUEUES = st.sampled_from(["a", "b", "c", "gone"])
AMOUNTS = st.tuples(st.integers(0, 300), st.integers(0, 60), st.just(0), st.just(0))


# Each limits in one thing what others are guaranteed in the other.
CROSSED = {
    "org": queue(limit=400, memory=Quota(guarantee=100)),
    "a": queue("org", guarantee=200, memory=Quota(limit=50)),
    "b": queue("org", limit=150),
    "c": queue(limit=200, memory=Quota(guarantee=60)),
}


class Counting(RuleBasedStateMachine):
    """Random events; after each the numbers are those of a ledger that was told the outcome alone."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Ask]] = []

    @initialize(specs=st.sampled_from((RESERVED, CROSSED)))
    def plant(self, specs: dict[str, QueueSpec]) -> None:
        """It is one of these trees."""
        self.tree = plant(specs)
        self.ledger = Ledger(self.tree)

    @rule(holder=st.sampled_from("pqr"), queue=QUEUES, amount=AMOUNTS, firm=st.booleans())
    def charge(self, holder: str, queue: str, amount: tuple[int, ...], *, firm: bool) -> None:
        """A pod is admitted, bound, or moved."""
        self.ledger.charge(holder, Charge(queue=queue, amounts=amount, firm=firm))

    @rule(holder=st.sampled_from("pqr"))
    def release(self, holder: str) -> None:
        """A pod is gone."""
        self.ledger.release(holder)

    @rule(queue=QUEUES, amount=AMOUNTS, firm=st.booleans(), awaits=st.booleans())
    def ask(self, queue: str, amount: tuple[int, ...], *, firm: bool, awaits: bool) -> None:
        """A pod waits, maybe for a node that is yet to come."""
        ask = Ask(amounts=amount, least=amount, firm=amount if firm else (), quiet=awaits, awaits_node=awaits)
        self.ledger.ask(queue, ask)
        # In a queue that there is no more it is asked of all together.
        self.asked.append((self.tree.path(queue)[0], ask))

    @rule(data=st.data())
    def ask_no_more(self, data: st.DataObject) -> None:
        """One of those that wait does so no more."""
        if self.asked:
            queue, ask = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
            self.ledger.ask_no_more(queue, ask)

    def _some(self, data: st.DataObject) -> list[tuple[str, Ask]]:
        """Some of those that wait, and may be sent away once they are in."""
        lendable = [(queue, ask) for queue, ask in self.asked if not ask.firm]
        return data.draw(st.permutations(lendable))[: data.draw(st.integers(0, len(lendable)))]

    @rule(data=st.data())
    def set_apart(self, data: st.DataObject) -> None:
        """Some are charged all at once: as if one by one, and nothing is left of it once they are back."""
        some, asked = self._some(data), list(self.asked)
        charges = [Charge(queue=queue, amounts=ask.amounts) for queue, ask in some]
        self.ledger.set_apart(charges, some)
        for one in some:
            self.asked.remove(one)
        self._is_as_counted_anew(apart=charges)
        self.ledger.set_apart(charges, some, back=True)
        self.asked = asked

    @rule(data=st.data())
    def what_all_take_together_each_may_take(self, data: st.DataObject) -> None:
        """Of those for whom there is quota together nobody is refused one by one, were there no end of cards."""
        some = self._some(data)
        if not self.ledger.takes_all(Charge(queue=queue, amounts=ask.amounts) for queue, ask in some):
            return
        for number, (queue, ask) in enumerate(some):
            assert self.ledger.over(queue, ask.amounts) is None
            for dimension in (COMPUTE, MEMORY):
                if ask.amounts[dimension]:
                    assert not self.ledger.effect(dimension, queue, ask.amounts).injured
                    assert self.ledger.taken_of_idle(dimension, queue, ask.amounts, free=UNLIMITED) is None
            self.ledger.ask_no_more(queue, ask)
            self.ledger.charge(f"new {number}", Charge(queue=queue, amounts=ask.amounts))
        for number, (queue, ask) in enumerate(some):
            self.ledger.release(f"new {number}")
            self.ledger.ask(queue, ask)

    @invariant()
    def counted_anew_it_is_the_same(self) -> None:
        """No number depends on how it came about."""
        self._is_as_counted_anew()

    def _is_as_counted_anew(self, *, apart: Sequence[Charge] = ()) -> None:
        fresh = Ledger(self.tree)
        for queue, ask in reversed(self.asked):
            fresh.ask(queue, ask)
        for number, charge in enumerate(apart):
            fresh.charge(f"apart {number}", charge)
        for holder, charge in sorted(self.ledger.charges().items(), reverse=True):
            fresh.charge(holder, charge)
        for name, account in fresh.accounts.items():
            live = self.ledger.accounts[name]
            assert (live.used, live.firm, live.asked) == (account.used, account.firm, account.asked)
            assert (live.sure, live.sure_below) == (account.sure, account.sure_below)
            assert (live.held, live.held_below) == (account.held, account.held_below)
            assert (live.wanted, live.demanded) == (account.wanted, account.demanded)
            assert (live.awaiting, live.tied) == (account.awaiting, account.tied)
            assert (live.idle, live.idle_below) == (account.idle, account.idle_below)

    @invariant()
    def what_is_kept_idle_is_what_is_not_used(self) -> None:
        """At each queue, by a plain sum over all below it."""
        for dimension in (COMPUTE, MEMORY):
            used = {name: account.used[dimension] for name, account in self.ledger.accounts.items()}
            for name, account in self.ledger.accounts.items():
                assert account.idle[dimension] == kept_idle(self.tree, dimension=dimension, used=used, name=name)

    def _demanding(self) -> list[tuple[Portion, frozenset[str]]]:
        used = {name: account.used for name, account in self.ledger.accounts.items()}
        firm = {name: account.firm for name, account in self.ledger.accounts.items()}
        asked = [Portion(queue, *ask) for queue, ask in self.asked if not ask.quiet]
        return demanding(asked, self.tree, used=used, firm=firm)

    @invariant()
    def those_demand_whom_limits_let_in(self) -> None:
        """Of each queue that is guaranteed anything; of others it makes no difference."""
        found = self._demanding()
        for name, account in self.ledger.accounts.items():
            node = account.node
            if not node.children and any(any(self.tree.nodes[above].guarantee) for above in node.path[:-1]):
                for dimension in (COMPUTE, MEMORY):
                    assert account.wanted[dimension] == sum(
                        one.amounts[dimension] for one, _ in found if one.queue == name
                    )

    @invariant()
    def what_is_told_of_an_admission_comes_true(self) -> None:
        """An admission lessens what is held back as it was told; and by more where it keeps others out."""
        if not (asking := self._demanding()):
            return
        portion, of = asking[-1]
        queue, ask = portion.queue, Ask(portion.amounts, portion.least, portion.firm)
        if ROOT not in of:
            # A limit keeps it out.
            return
        told = [self.ledger.effect(dimension, queue, ask.amounts).lessened for dimension in (COMPUTE, MEMORY)]
        before = [self.ledger.held_back(dimension) for dimension in (COMPUTE, MEMORY)]
        self.asked.remove((queue, ask))
        self.ledger.ask_no_more(queue, ask)
        self.ledger.charge("new", Charge(queue=queue, amounts=ask.amounts))
        lessened = [was - self.ledger.held_back(d) for d, was in enumerate(before)]
        if self._demanding() == asking[:-1]:
            assert told == lessened
        else:
            assert all(now >= said for now, said in zip(lessened, told, strict=True))
        self.ledger.release("new")
        self.ledger.ask(queue, ask)
        self.asked.append((queue, ask))


TestCounting = Counting.TestCase
TestCounting.settings = settings(max_examples=60, stateful_step_count=25)


def test_of_those_who_ask_only_they_are_asked_anew_whom_a_limit_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a limit that hundreds share: nothing changes for who asks less than is left still, or more than was."""
    ledger = Ledger(plant({"o": queue(limit=1_000), "a": queue("o", guarantee=500), "b": queue("o", guarantee=500)}))
    width = ledger.width
    for size in range(10, 1_000, 10):
        amounts = (size, *(0,) * (width - 1))
        ledger.ask("a", Ask(amounts=amounts, least=amounts))
    looked_at = list[int]()
    counts_for = Askers._counts_for

    def noted(askers: Askers, name: str, ask: Ask) -> int:
        looked_at.append(ask.amounts[COMPUTE])
        return counts_for(askers, name, ask)

    monkeypatch.setattr(Askers, "_counts_for", noted)
    ledger.charge("x", Charge(queue="b", amounts=(25, *(0,) * (width - 1))))
    assert sorted(looked_at) == [980, 990]
