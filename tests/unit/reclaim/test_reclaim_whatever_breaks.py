"""A guarantee that is asked for is met in time, whatever is in the way: budgets, minimum run times, firm pods, groups.

Webhooks keep whoever is asked, borrowers are more urgent or less than the owner, and the owner has less urgent pods of
its own. A node is lost meanwhile, leaders die at any step, and whoever was sent away is made again and asks for the
same. GPUs fail, and borrowers are moved off them before the owner comes and meanwhile.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_core.instants import second_time, seconds_of
from aliquot_core.inventory import Gpu
from aliquot_core.objects import PodCondition
from aliquot_scheduler.queues.room.recalling import words_for, words_of_drained
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import Preemption
from aliquot_scheduler.reclaim.residents import Budget
from support.centre import NAMES, failing, gpus, make_node
from support.queue_stage import A100, H100, queue
from support.reclaim_stage import ReclaimStage

replace = msgspec.structs.replace

LOOK = 10.0
MAX_GRACE, BUDGET_GRACE = 60, 120
# Whom a webhook keeps is left alone for so long.
ALONE = 60.0
# A victim is given up a minute after its time; and a look or two until the next is asked, and until room is seen.
ROUND = MAX_GRACE + 60.0 + 3 * LOOK
MODELS = {0: A100, 1: H100, 2: A100}


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the way, and what happens in which look."""

    # Of how many cards a node is, by its number; the last one may be lost.
    nodes: tuple[int, int, int]
    size: int
    borrowers: tuple[tuple[int, bool], ...]
    min_run: int
    # How many each budget lets go, and which of the borrowers it covers: each so manieth.
    budgets: tuple[tuple[int, int], ...]
    graces: tuple[int, ...]
    deaths: frozenset[int]
    lost: int
    # Of the borrowers, one after the other; the owner's own is 5.
    priorities: tuple[int, ...] = (0,)
    # So many less urgent pods of the owner run before, and for whom such have to go in its queue.
    own: int = 0
    within: Literal["Never", "SameUser", "AnyUser"] = "Never"
    # In which looks a webhook keeps the first who is asked.
    webhooks: frozenset[int] = frozenset()
    # Which of all cards fail an hour before the owner comes, as the number of each counts on.
    fails: frozenset[int] = frozenset()


URGENT = 5
TROUBLES = st.builds(
    Trouble,
    nodes=st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
    size=st.sampled_from((25, 50, 100)),
    borrowers=st.lists(st.tuples(st.sampled_from((10, 25, 50, 100)), st.booleans()), min_size=3, max_size=20).map(
        tuple
    ),
    min_run=st.sampled_from((0, 60, 300)),
    budgets=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=2).map(tuple),
    graces=st.lists(st.integers(0, MAX_GRACE), min_size=1, max_size=3).map(tuple),
    deaths=st.frozensets(st.integers(1, 20), max_size=4),
    lost=st.sampled_from((0, 2, 4, 9)),
    priorities=st.lists(st.sampled_from((0, URGENT, 9)), min_size=1, max_size=3).map(tuple),
    own=st.integers(0, 2),
    within=st.sampled_from(("Never", "SameUser", "AnyUser")),
    webhooks=st.frozensets(st.integers(1, 12), max_size=4),
    fails=st.frozensets(st.integers(0, 6), max_size=4),
)


# Everything at once: no budget lets anybody go, a leader dies before it has asked and one after, and a node is lost.
ALL = Trouble(
    nodes=(2, 1, 2),
    size=50,
    borrowers=((50, False), (100, False), (25, True), (50, True)) * 3,
    min_run=60,
    budgets=((0, 1), (1, 2)),
    graces=(30, 60),
    deaths=frozenset({7, 9, 14}),
    lost=11,
    priorities=(9, 0, 5),
    own=2,
    within="AnyUser",
    webhooks=frozenset({1, 8, 10}),
)
# Of the owner's model all are in use, and of the other one there is room to move to.
MOVES = Trouble(
    nodes=(2, 2, 1),
    size=50,
    borrowers=((50, False), (25, False), (10, False)) * 3,
    min_run=0,
    budgets=(),
    graces=(30, 60),
    deaths=frozenset({2, 5}),
    lost=0,
    fails=frozenset({0, 2, 3}),
)

# One card of three is of the owner's model and well, and a half of it is kept for who was moved there.
KEPT = Trouble(
    nodes=(1, 1, 1),
    size=25,
    borrowers=((50, False), (10, False)),
    min_run=0,
    budgets=(),
    graces=(56,),
    deaths=frozenset(),
    lost=0,
    fails=frozenset({0}),
)


class Tale:
    """Borrowers have all there is; then the owner asks for all that it is guaranteed."""

    def __init__(self, told: Trouble, *, look: float = LOOK) -> None:
        self.told = told
        self.each = look
        self.went = Counter[str]()
        # Who was moved off a card that fails.
        self.moved = Counter[str]()
        self.asked: dict[str, int] = {}
        # When a webhook last kept somebody, as far as who leads knows.
        self.kept: dict[str, float] = {}
        promised = 100 * told.nodes[0] // told.size
        own = min(told.own, promised - 1)
        # Whose own pods never go for each other gets no more than what those leave of its guarantee.
        self.owned = promised - (own if told.within == "Never" else 0)
        lends, takes = Preemption(min_run_seconds=told.min_run), Preemption(within_queue=told.within)
        self.specs = {
            "red": queue(guarantee=100 * told.nodes[0], preemption=takes),
            "firm": queue(guarantee=100),
            "blue": queue(preemption=lends),
        }
        self.shuns = self._shunned()
        self.stage = self._leader(told.nodes)
        self.stage.submit("f0", 50, queue="firm", notes={"preemptible": "false", "gpu-model": H100})
        for number in range(own):
            self.asked[f"l{number}"] = told.size
            self.stage.submit(f"l{number}", told.size, queue="red", notes={"gpu-model": A100})
        for number, (compute, pair) in enumerate(told.borrowers):
            self._borrow(f"b{number}", compute, pair=pair)
        while self.stage.run(after=1.0):
            pass
        self._have_begun()
        if told.fails:
            self._drain()
        for number in range(self.owned):
            self._own(f"o{number}")
        if told.within == "Never" and not told.lost:
            # Beyond what is promised, and as urgent: it waits for the less urgent ones of its own queue.
            self._own("x0")
        self.began = self.stage.now

    def _leader(self, nodes: tuple[int, ...]) -> ReclaimStage:
        limits = QueueSettings(max_grace=MAX_GRACE, budget_grace=BUDGET_GRACE, owed=0)
        return ReclaimStage(self.specs, nodes=nodes, models=MODELS, settings=limits)

    def _cards(self) -> list[Gpu]:
        return [card for at, model in MODELS.items() for card in gpus(f"n{at}", self.told.nodes[at], model=model)]

    def _shunned(self) -> str:
        """Which cards the owner will not have: those that fail, where there are enough others.

        Not where its own are to go: what these have on such a card is of no use to it, and not beyond its guarantee.
        """
        own = [(number, card) for number, card in enumerate(self._cards()) if card.model == A100]
        bad = [f"!{card.uuid}" for number, card in own if number in self.told.fails]
        enough = len(own) - len(bad) >= self.told.nodes[0] and not (self.told.lost or self.told.own)
        return ",".join(bad) if enough else ""

    def _drain(self) -> None:
        """Cards fail, of which nobody has been told; all have run for long enough to be moved."""
        # Nobody is moved to where the owner's guarantee is idle: it is promised later.
        self.stage.queues.queues_seen({**self.specs, "red": queue()})
        self.stage.consolidation.anybody(now=self.stage.now)
        self._wear()
        self.stage.run(after=3600.0)
        self.stage.consolidate(budgets=self._budgets())
        self._ask(0)
        self.stage.queues.queues_seen(self.specs)

    def _wear(self) -> None:
        cards = [failing(card) if number in self.told.fails else card for number, card in enumerate(self._cards())]
        for at in MODELS if self.told.fails else ():
            own = [card for card in cards if card.uuid.startswith(f"GPU-n{at}-")]
            self.stage.picture.node_seen(make_node(f"n{at}", own))

    def _ask(self, number: int) -> None:
        movers = self.stage.queues.register.refuges.movers()
        for uid in self.stage.evict(grace=self.told.graces[number % len(self.told.graces)]):
            (self.moved if uid in movers else self.went)[uid] += 1
            assert uid[0] == "l" or self._has_run(uid) >= self.told.min_run, uid
            assert self.stage.now - self.kept.get(uid, -ALONE) >= ALONE, "it is left alone"

    def _own(self, uid: str) -> None:
        notes = {"gpu-model": A100} | ({"gpu-uuid": self.shuns} if self.shuns else {})
        self.stage.submit(uid, self.told.size, queue="red", priority=URGENT, notes=notes)

    def _borrow(self, uid: str, compute: int, *, pair: bool) -> None:
        self.asked[uid] = compute
        notes = {"group-size": "2", "group-min": "1"} if pair else {}
        for twin in range(1 + pair):
            more: dict[str, Any] = {"group": uid if pair else "", "notes": notes, "priority": self._priority(uid)}
            more |= {"made_by": uid}
            self.stage.submit(f"{uid}.{twin}", compute, queue="blue", **more)

    def _priority(self, uid: str) -> int:
        return self.told.priorities[int(uid[1:]) % len(self.told.priorities)]

    def _have_begun(self) -> None:
        """Kubernetes says so of whoever is bound and of whom it did not yet."""
        at = second_time(self.stage.wall)
        scheduled = PodCondition(type="PodScheduled", status="True", last_transition_time=at)
        for pod in list(self.stage.pods.values()):
            if pod.spec.node_name and not pod.status.conditions:
                self.stage.see(replace(pod, status=replace(pod.status, conditions=[scheduled])))

    def look(self, number: int) -> None:
        """Time passes, and whoever is to go is asked; then what is to happen does."""
        stage = self.stage
        # Turns are given out more often than anybody is looked for.
        for _ in range(2):
            stage.run(after=self.each / 2)
        self._end()
        stage.run()
        # As the API server writes it with each binding.
        self._have_begun()
        for clearing in stage.decide(budgets=self._budgets()):
            for place in clearing.places:
                words = words_for(clearing, place, refuges=stage.queues.register.refuges.of(clearing.uid))
                pod = stage.pods[place.waiter.uid]
                notes = {**pod.metadata.annotations, NAMES.room: words}
                stage.see(replace(pod, metadata=replace(pod.metadata, annotations=notes)))
        if number in self.told.deaths and number % 2:
            # After it was written, and before anybody is asked.
            stage = self._next_leader()
        if number in self.told.webhooks:
            self._keep_one()
        self.stage.consolidate(budgets=self._budgets())
        self._ask(number)
        if number == self.told.lost:
            self._lose()
        if number in self.told.deaths:
            self._next_leader()

    def _keep_one(self) -> None:
        """Whoever would be asked first is kept: others go, or nobody, and it may be asked again after a while."""
        register = self.stage.queues.register
        for clearing in register.clearings:
            for victim in register.clearings.unasked(clearing, bound=register.inside.bound):
                self.stage.reclaim.refused(victim, now=self.stage.now)
                self.kept[victim.uid] = self.stage.now
                return

    def _budgets(self) -> list[Budget]:
        there = sorted(uid for uid, pod in self.stage.pods.items() if uid[0] == "b" and pod.spec.node_name)
        return [
            Budget(pods=frozenset(there[:: 1 + every]), allowed=allowed, name=f"team/{number}")
            for number, (allowed, every) in enumerate(self.told.budgets)
        ]

    def _end(self) -> None:
        """Those whose time is over are gone, and are made again."""
        for uid, pod in list(self.stage.pods.items()):
            at = seconds_of(pod.metadata.deletion_timestamp)
            if at is not None and at <= self.stage.wall:
                self.stage.gone(uid)
                self._again(uid)

    def _again(self, uid: str) -> None:
        job = uid.partition(".")[0].partition("-")[0]
        if uid[0] == "l":
            self.stage.submit(f"{uid}-r", self.asked[job], queue="red", notes={"gpu-model": A100})
        else:
            self.stage.submit(f"{uid}-r", self.asked[job], queue="blue", priority=self._priority(job), made_by=job)

    def _lose(self) -> None:
        self.stage.picture.node_gone("n2")
        for uid, pod in list(self.stage.pods.items()):
            if pod.spec.node_name == "n2":
                self.stage.gone(uid)
        for number in range(self.owned):
            if not any(uid.partition("-")[0] == f"o{number}" for uid in self.stage.pods):
                self._own(f"o{number}-r")

    def _has_run(self, uid: str) -> float:
        """For how many seconds, by the API server."""
        (scheduled,) = self.stage.pods[uid].status.conditions
        return self.stage.wall - (seconds_of(scheduled.last_transition_time) or 0.0)

    def _next_leader(self) -> ReclaimStage:
        before, is_lost = self.stage, "n2" not in self.stage.picture.nodes
        self.kept.clear()
        self.stage = self._leader(self.told.nodes)
        self._wear()
        words = words_of_drained(before.queues.register.refuges.draining())
        self.stage.queues.register.making_room.drained_before = words
        if is_lost:
            self.stage.picture.node_gone("n2")
        self.stage.now, self.stage._born = before.now, before._born
        self.stage.beat()
        for pod in before.pods.values():
            self.stage.see(pod)
        return self.stage

    def waiting(self) -> list[str]:
        """Pods of the owner that do not run."""
        return [uid for uid, pod in self.stage.pods.items() if uid[0] == "o" and not pod.spec.node_name]

    def longest(self) -> float:
        """In how many seconds it is met: what is borrowed has run for long enough, budgets are set aside, and all go.

        What begins anew with a leader, and where one is lost, is had once for each.
        """
        upsets = len(self.told.deaths) * 2 + 2 + len(self.told.webhooks)
        return self.told.min_run + (BUDGET_GRACE + LOOK) * upsets + ROUND * upsets


@given(TROUBLES)
@example(ALL)
@example(replace(ALL, budgets=(), lost=0, deaths=frozenset(), min_run=300))
@example(replace(ALL, budgets=(), lost=0, deaths=frozenset(), min_run=0, within="Never"))
@example(MOVES)
@settings(max_examples=15, deadline=None)
def test_a_guarantee_is_met_in_time_whatever_is_in_the_way(told: Trouble) -> None:
    """All pods of the owner run; nobody was asked twice, nobody who is never to be, and nobody more once it is met."""
    tale, number = Tale(told), 0
    last = max([told.lost, *told.deaths])
    while number <= last or tale.waiting():
        number += 1
        tale.look(number)
        assert tale.stage.now - tale.began <= tale.longest() + last * LOOK, (tale.waiting(), tale.went)
    assert {*tale.went.values(), *tale.moved.values()} <= {1}
    # Its own less urgent ones, where its queue says so; else none but borrowers.
    assert {uid[0] for uid in tale.went} <= ({"b"} if told.within == "Never" else {"b", "l"})
    before = tale.went.total()
    for _ in range(10):
        number += 1
        tale.look(number + 100)
    assert tale.went.total() == before


# As often as the centre looks.
A_LOOK = 1.0
# Who has room on a card that fails waits so long at most, for others to leave one that does not.
FOR_SOUND = 5.0


@given(TROUBLES, st.integers(1, MAX_GRACE))
@example(KEPT, 56)
@settings(max_examples=25, deadline=None)
def test_where_nothing_is_broken_it_is_met_within_the_grace_and_a_look(told: Trouble, grace: int) -> None:
    """Whoever goes is chosen and asked in the first look, and those come in with the look that finds them gone."""
    quiet = replace(told, min_run=0, budgets=(), graces=(grace,), deaths=frozenset(), lost=0, webhooks=frozenset())
    tale, number = Tale(quiet, look=A_LOOK), 0
    while tale.waiting():
        number += 1
        tale.look(number)
        longest = grace + A_LOOK + (FOR_SOUND if told.fails else 0.0)
        assert tale.stage.now - tale.began <= longest, (tale.waiting(), tale.went)
    assert {*tale.went.values(), *tale.moved.values()} <= {1}
