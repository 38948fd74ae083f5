"""What is kept for a head that waits, from whom and for how long: shares of unequal jobs, and how long a head waits."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from aliquot_scheduler.queues.letting_in.siblings import Dues
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import Tree, plant
from support.queue_replay import Job, Replay
from support.queue_stage import Stage, queue

EVERYBODY = ("*",)
HOUR = 3600.0
OPEN = QueueSpec(namespaces=EVERYBODY)
NINE = QueueSpec(namespaces=EVERYBODY, compute=Quota(weight=9), memory=Quota(weight=9))
URGENT = QueueSpec(namespaces=EVERYBODY, priority=1)
NODES, CARDS = 2, 4


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks without end: few and large jobs, many and small ones; and what part small ones are due."""

    large: int
    runs: float
    short: float
    due: float
    small: QueueSpec = OPEN
    gang: bool = False
    one_queue: bool = False
    hours: float = 6.0
    half_life: float = 24 * HOUR


CASES = {
    "equal queues, whole nodes for half an hour": Case(large=400, runs=1800.0, short=240.0, due=0.5),
    "whole nodes for an hour, minutes": Case(large=400, runs=HOUR, short=120.0, due=0.5),
    "half nodes for an hour": Case(large=200, runs=HOUR, short=600.0, due=0.5),
    "small has weight 9": Case(
        large=400, runs=1000.0, short=890.0, due=0.9, small=NINE, hours=24.0, half_life=2 * HOUR
    ),
    "small has priority": Case(large=400, runs=1800.0, short=240.0, due=1.0, small=URGENT),
    "gangs of the whole cluster": Case(large=800, runs=1000.0, short=480.0, due=0.5, gang=True, hours=12.0),
    # Whole nodes would come by halves even if nothing were kept from another user: a node empties by itself.
    "the same of two users of one queue": Case(
        large=800, runs=1000.0, short=480.0, due=0.5, gang=True, hours=12.0, one_queue=True
    ),
}


def jobs_of(case: Case) -> list[Job]:
    """More than can run in that time."""
    work = case.hours * HOUR * NODES * CARDS * 100
    few, many = int(work / case.large / case.runs) + 5, int(work / 100 / case.short) + 20
    pods = case.large // 100 if case.gang else 1
    return [
        Job(
            name=f"l{number:04}",
            queue="small" if case.one_queue else "large",
            user="large",
            kind="large",
            at=0.0,
            runs=case.runs,
            compute=case.large // pods,
            pods=pods,
            gpus=0 if case.gang else case.large // 100,
        )
        for number in range(few)
    ] + [
        Job(name=f"s{number:04}", queue="small", user="small", kind="small", at=0.0, runs=case.short + number % 17)
        for number in range(many)
    ]


def part_of(kind: str, jobs: list[Job], *, until: float) -> float:
    """How much of the cluster these held."""
    ran = [(job, job.admitted) for job in jobs if job.kind == kind and job.admitted is not None]
    held = sum(job.compute * job.pods * min(job.runs, until - since) for job, since in ran)
    return held / (100 * NODES * CARDS * until)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_nobody_gets_more_than_its_share_by_running_long(case: Case) -> None:
    """Pods that run for longer than heads may hold others up are due what short ones are."""
    specs = {"large": OPEN, "small": case.small}
    replay = Replay(specs, nodes=NODES, cards=CARDS, settings=QueueSettings(half_life=case.half_life))
    jobs, until = jobs_of(case), case.hours * HOUR
    replay.run(jobs, until=until)
    parts = {kind: part_of(kind, jobs, until=until) for kind in ("small", "large")}
    assert parts["small"] == pytest.approx(case.due, abs=0.05), parts
    assert parts["large"] == pytest.approx(1 - case.due, abs=0.05), parts


@pytest.mark.parametrize("runs", [140.0, 160.0, 300.0, 550.0, 1200.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_head_within_its_share_comes_in_however_long_others_run(seed: int, runs: float) -> None:
    """A stream without end of pods that run for up to eight times `hold`, at all moments; it needs a whole node."""
    patience, chance = 50.0, Random(seed)
    settings = QueueSettings(patience=patience, hold=150.0)
    replay = Replay({"a": OPEN, "b": OPEN}, nodes=NODES, cards=CARDS, settings=settings)
    gap = runs / (1.3 * NODES * CARDS)
    bound = 6 * runs + 4 * patience
    stream = [
        Job(
            name=f"s{number:04}", queue="b", user="b", kind="small", at=number * gap, runs=runs * chance.uniform(0.9, 1)
        )
        for number in range(int((2 * runs + bound) / gap))
    ]
    large = Job(name="large", queue="a", user="a", kind="large", at=2 * runs, runs=1.0, compute=400, gpus=4)
    replay.run([*stream, large], until=2 * runs + bound)
    assert large.admitted is not None, "it waits too long"


@pytest.mark.parametrize(("spec", "due"), [(OPEN, 0.5), (NINE, 0.85), (URGENT, 0.95)])
def test_who_lets_the_cluster_idle_has_used_it(spec: QueueSpec, due: float) -> None:
    """A gang of all there is that runs for a second, again and again: it waits its turn as if it ran all that time."""
    chance, until = Random(5), 12 * HOUR
    gangs = [
        Job(name=f"g{number:02}", queue="large", user="g", kind="large", at=0.0, runs=1.0, pods=8)
        for number in range(60)
    ]
    small = [
        Job(name=f"s{number:04}", queue="small", user="s", kind="small", at=0.0, runs=chance.uniform(300.0, 890.0))
        for number in range(680)
    ]
    Replay({"large": OPEN, "small": spec}, nodes=NODES, cards=CARDS).run([*gangs, *small], until=until)
    assert part_of("small", small, until=until) >= due


def test_what_stands_idle_for_a_head_counts_as_used_until_it_is_in() -> None:
    """Of its queue and its user, as much as is free on the node that is kept, and no more than it asks."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=(2,), settings=QueueSettings(patience=10.0, hold=1_000.0))
    for number in range(2):
        stage.submit(f"b{number}", 100, queue="b")
    assert stage.run() == ["b0", "b1"]
    stage.submit("large", 200, queue="a", notes={"gpus": "2"})
    assert stage.run() == []
    stage.end("b0")
    assert stage.run(after=20.0) == []
    books, before = stage.queues.books, stage.now
    assert books.usage.of("a", now=before) == (0.0, 0.0)
    part = 1.0 - stage.queues.register.forgetting.kept(500.0)
    assert books.usage.of("a", now=before + 500.0)[0] == pytest.approx(100 * part)
    assert books.users.of(("a", "team"), now=before + 500.0)[0] == pytest.approx(100 * part)
    stage.gone("large")
    stage.run(after=1.0)
    since = books.usage.of("a", now=stage.now)[0]
    assert 0.0 < since < 1.0
    assert books.usage.of("a", now=stage.now + 500.0)[0] < since


LAW: dict[str, tuple[dict[str, QueueSpec], int, list[str]]] = {
    "within its share": ({}, 0, []),
    "beyond its share": ({}, 4, ["other"]),
    "beyond it, and it used less so far": ({}, 2, []),
    "the other has the higher priority": ({"b": queue(priority=1)}, 0, ["other"]),
    "the other has the lower priority": ({"a": queue(priority=1)}, 6, []),
}


@pytest.mark.parametrize(("changed", "used", "let_in"), LAW.values(), ids=LAW)
def test_whom_a_node_is_kept_from(changed: dict[str, QueueSpec], used: int, let_in: list[str]) -> None:
    """Only as far as the share of the head's queue reaches, and never from a sibling that comes before it."""
    specs = {"a": queue(), "b": queue(), "c": queue()} | changed
    stage = Stage(specs, nodes=(4, 4), settings=QueueSettings(patience=10.0, hold=1_000.0))
    for number in range(8):
        only = {"gpu-uuid": f"GPU-n{number % 2}-{number // 2}"}
        stage.submit(f"p{number}", 100, queue="a" if number < used else "c", notes=only)
    assert len(stage.run()) == 8
    stage.submit("large", 400, queue="a", notes={"gpus": "4"})
    assert stage.run() == []
    assert stage.run(after=20.0) == []
    stage.submit("other", 100, queue="b")
    assert stage.run() == []
    (node,) = stage.queues.register.memory.kept(now=stage.now)["large"]
    stage.end("p6" if node == "n0" else "p7")
    assert stage.run() == let_in


@pytest.mark.parametrize("how", ["its queue is gone", "its namespace moves"])
def test_a_head_that_waits_elsewhere_by_now_keeps_what_its_new_queue_is_due(how: str) -> None:
    """What was kept for it as one of another queue is no reason to fall over, nor to stand back."""
    specs = {"a": queue(), "b": queue(), "c": queue(), "d": queue(priority=1)}
    stage = Stage(specs, nodes=(2,), settings=QueueSettings(patience=10.0, hold=1_000.0))
    stage.queues.namespace_seen("team", queue="a")
    for number in range(2):
        stage.submit(f"c{number}", 100, queue="c")
    assert stage.run() == ["c0", "c1"]
    stage.submit("large", 200, notes={"gpus": "2"})
    assert stage.run() == []
    assert stage.run(after=20.0) == []
    if how == "its queue is gone":
        stage.queues.queues_seen({name: spec for name, spec in specs.items() if name != "a"})
    stage.queues.namespace_seen("team", queue="b")
    stage.submit("small", 100, queue="d", user="other")
    stage.end("c0")
    # It may take a round until its share is looked at anew.
    assert stage.run(after=1.0) + stage.run(after=1.0) == ["small"]
    stage.end("c1", "small")
    assert stage.run(after=1.0) == ["large"]


def test_what_is_due_is_worked_out_once_a_second_at_most() -> None:
    """And anew at once for another tree, or where everybody is put down anew."""
    memory, tree, other = SweepMemory(patience=0.0, hold=0.0, owed=0.0), plant({}), plant({})
    asked: list[float] = []

    def due(now: float, of: Tree = tree) -> int:
        def work_out() -> Dues:
            asked.append(now)
            return []

        memory.dues.due(of, now=now, work_out=work_out)
        return len(asked)

    assert [due(0.0), due(0.9), due(1.0), due(1.5), due(1.5, other)] == [1, 1, 2, 2, 3]
    memory.everything_changed(now=1.5)
    assert due(1.5, other) == 4


@pytest.mark.parametrize("replanted", [False, True])
@pytest.mark.parametrize(("now", "kept"), [(20.0, ("n0",)), (7.0, ())])
def test_who_is_owed_no_guarantee_any_more_keeps_a_node_by_its_patience_alone(
    now: float, kept: tuple[str, ...], *, replanted: bool
) -> None:
    """Whoever has none left keeps the same node; whoever has some keeps none, then or later. So of another tree."""
    memory = SweepMemory(patience=10.0, hold=1_000.0, owed=5.0)
    memory.head_refused("head", now=0.0)
    memory.owe("head", now=6.0)
    memory.keep("head", ("n0",))
    assert memory.kept(now=6.0) == {"head": ("n0",)}
    if replanted:
        memory.everything_changed(now=now)
    else:
        memory.owe_no_more("head", now=now)
    assert memory.kept(now=now).get("head", ()) == kept
    assert memory.kept(now=30.0).get("head", ()) == kept


def test_a_node_stays_of_who_has_lost_patience_when_another_is_owed_a_guarantee() -> None:
    """The one before keeps it by its patience, until it is a head no more."""
    memory = SweepMemory(patience=10.0, hold=1_000.0, owed=5.0)
    for uid in ("first", "second"):
        memory.head_refused(uid, now=0.0)
        memory.owe(uid, now=20.0)
        memory.keep(uid, (f"of-{uid}",))
    assert memory.kept(now=20.0) == {"first": ("of-first",), "second": ("of-second",)}
    memory.forget("second")
    assert memory.kept(now=20.0) == {"first": ("of-first",)}
    memory.forget("first")
    assert memory.kept(now=20.0) == {}
