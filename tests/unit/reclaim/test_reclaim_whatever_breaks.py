"""A guarantee that is asked for is met in time, whatever is in the way: budgets, minimum run times, firm pods, groups.

A node is lost meanwhile, leaders die at any step, and whoever was sent away is made again and asks for the same.
"""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_core.instants import second_time, seconds_of
from aliquot_core.objects import PodCondition
from aliquot_scheduler.queues.room.recalling import words_for
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import Preemption
from aliquot_scheduler.reclaim.residents import Budget
from support.centre import NAMES
from support.queue_stage import A100, H100, queue
from support.reclaim_stage import ReclaimStage

replace = msgspec.structs.replace

LOOK = 10.0
MAX_GRACE, BUDGET_GRACE = 60, 120
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


TROUBLES = st.builds(
    Trouble,
    nodes=st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
    size=st.sampled_from((25, 50, 100)),
    borrowers=st.lists(st.tuples(st.sampled_from((10, 25, 50, 100)), st.booleans()), min_size=6, max_size=20).map(
        tuple
    ),
    min_run=st.sampled_from((0, 60, 300)),
    budgets=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=2).map(tuple),
    graces=st.lists(st.integers(0, MAX_GRACE), min_size=1, max_size=3).map(tuple),
    deaths=st.frozensets(st.integers(1, 20), max_size=4),
    lost=st.sampled_from((0, 2, 4, 9)),
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
)


class Tale:
    """Borrowers have all there is; then the owner asks for all that it is guaranteed."""

    def __init__(self, told: Trouble) -> None:
        self.told = told
        self.went = Counter[str]()
        self.asked: dict[str, int] = {}
        self.owned = 100 * told.nodes[0] // told.size
        lends = Preemption(min_run_seconds=told.min_run)
        self.specs = {
            "red": queue(guarantee=100 * told.nodes[0]),
            "firm": queue(guarantee=100),
            "blue": queue(preemption=lends),
        }
        self.stage = self._leader(told.nodes)
        self.stage.submit("f0", 50, queue="firm", notes={"preemptible": "false", "gpu-model": H100})
        for number, (compute, pair) in enumerate(told.borrowers):
            self._borrow(f"b{number}", compute, pair=pair)
        while self.stage.run(after=1.0):
            pass
        self._have_begun()
        for number in range(self.owned):
            self.stage.submit(f"o{number}", told.size, queue="red", notes={"gpu-model": A100})
        self.began = self.stage.now

    def _leader(self, nodes: tuple[int, ...]) -> ReclaimStage:
        limits = QueueSettings(max_grace=MAX_GRACE, budget_grace=BUDGET_GRACE, owed=0)
        return ReclaimStage(self.specs, nodes=nodes, models=MODELS, settings=limits)

    def _borrow(self, uid: str, compute: int, *, pair: bool) -> None:
        self.asked[uid] = compute
        notes = {"group-size": "2", "group-min": "1"} if pair else {}
        for twin in range(1 + pair):
            self.stage.submit(f"{uid}.{twin}", compute, queue="blue", group=uid if pair else "", notes=notes)

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
        stage.run(after=LOOK)
        self._have_begun()
        self._end()
        stage.run()
        for clearing in stage.decide(budgets=self._budgets()):
            for place in clearing.places:
                words = words_for(clearing, place, refuges=stage.queues.register.refuges.of(clearing.uid))
                pod = stage.pods[place.waiter.uid]
                notes = {**pod.metadata.annotations, NAMES.room: words}
                stage.see(replace(pod, metadata=replace(pod.metadata, annotations=notes)))
        if number in self.told.deaths and number % 2:
            # After it was written, and before anybody is asked.
            stage = self._next_leader()
        for uid in stage.evict(grace=self.told.graces[number % len(self.told.graces)]):
            self.went[uid] += 1
            assert self._has_run(uid) >= self.told.min_run, uid
        if number == self.told.lost:
            self._lose()
        if number in self.told.deaths:
            self._next_leader()

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
        self.stage.submit(f"{uid}-r", self.asked[uid.partition(".")[0]], queue="blue")

    def _lose(self) -> None:
        self.stage.picture.node_gone("n2")
        for uid, pod in list(self.stage.pods.items()):
            if pod.spec.node_name == "n2":
                self.stage.gone(uid)
        for number in range(self.owned):
            if not any(uid.partition("-")[0] == f"o{number}" for uid in self.stage.pods):
                self.stage.submit(f"o{number}-r", self.told.size, queue="red", notes={"gpu-model": A100})

    def _has_run(self, uid: str) -> float:
        """For how many seconds, by the API server."""
        (scheduled,) = self.stage.pods[uid].status.conditions
        return self.stage.wall - (seconds_of(scheduled.last_transition_time) or 0.0)

    def _next_leader(self) -> ReclaimStage:
        before, is_lost = self.stage, "n2" not in self.stage.picture.nodes
        self.stage = self._leader(self.told.nodes)
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
        upsets = len(self.told.deaths) * 2 + 2
        return self.told.min_run + (BUDGET_GRACE + LOOK) * upsets + ROUND * upsets


@given(TROUBLES)
@example(ALL)
@example(replace(ALL, budgets=(), lost=0, deaths=frozenset(), min_run=300))
@settings(max_examples=15, deadline=None)
def test_a_guarantee_is_met_in_time_whatever_is_in_the_way(told: Trouble) -> None:
    """All pods of the owner run; nobody was asked twice, nobody who is never to be, and nobody more once it is met."""
    tale, number = Tale(told), 0
    last = max([told.lost, *told.deaths])
    while number <= last or tale.waiting():
        number += 1
        tale.look(number)
        assert tale.stage.now - tale.began <= tale.longest() + last * LOOK, (tale.waiting(), tale.went)
    assert set(tale.went.values()) <= {1}
    assert all(uid[0] == "b" for uid in tale.went)
    before = tale.went.total()
    for _ in range(10):
        number += 1
        tale.look(number + 100)
    assert tale.went.total() == before
