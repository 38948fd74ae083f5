"""Turns where there are no queues: first come, first served; who waits longer, and that nobody is forgotten."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from aliquot_core.objects import Pod, PodCondition
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.deciding.missed import Said
from aliquot_scheduler.deciding.promises import PROMISE, Promise
from aliquot_scheduler.deciding.turns import FOUND, MOST_AT_ONCE, MOST_IN_VAIN, Turn
from aliquot_scheduler.fit.bounds import Bounds
from aliquot_scheduler.fit.demand import Demand
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.turns import Queues
from support.centre import (
    NAMES,
    WALL,
    asks,
    bound,
    container,
    gpus,
    make_lease,
    make_node,
    make_pod,
    picture_with,
    sick,
)

OURS, THEIRS = {"name": NAMES.gate}, {"name": "example.com/theirs"}
replace = msgspec.structs.replace


def waiting(uid: str, compute: int = 60, memory: int = 1_000, **more: Any) -> Pod:
    """A pod behind our gate."""
    return asks(uid, compute, memory, **({"spec": {"schedulingGates": [OURS]}} | more))


def ungated(pod: Pod) -> Pod:
    """The pod without its gates."""
    return replace(pod, spec=replace(pod.spec, scheduling_gates=[]))


class Line:
    """Turns with their desk, over some GPUs."""

    def __init__(self, picture: Picture | None = None, *, cards: int = 1) -> None:
        self.picture = picture or picture_with(make_node("n1", gpus("n1", cards)))
        self.turns = Queues(names=NAMES, random=lambda: 1.0, picture=self.picture)
        self.desk = Desk(picture=self.picture, names=NAMES, turns=self.turns)
        self.searches = 0

    def sees(self, *pods: Pod) -> None:
        """The watch tells of pods."""
        for pod in pods:
            self.desk.pod_seen(pod)
            self.turns.pod_seen(pod)

    def at(self, now: float) -> None:
        """It is so late, and the agent has just been heard of."""
        self.picture.tell_time(now)
        self.picture.lease_seen(make_lease("n1", renewed=f"beat {now}"), wall=WALL)
        self.desk.tell_time(now)

    def due(self, now: float = 0.0) -> list[Turn]:
        """Who is let through now."""
        return list(self.turns.turns(self, now=now))

    def promise_best(self, pod: Pod, demand: Demand, bounds: Bounds, *, now: float) -> Promise | None:
        """Pass it on, and count it."""
        self.searches += 1
        return self.desk.promise_best(pod, demand, bounds, now=now)

    def narrow(self, promise: Promise, demand: Demand) -> Promise:
        """Pass it on."""
        return self.desk.narrow(promise, demand)

    def take_back(self, uid: str) -> None:
        """Pass it on."""
        self.desk.take_back(uid)

    def uids(self, now: float = 0.0) -> list[str]:
        """The same, by UID."""
        return [turn.pod.metadata.uid for turn in self.due(now)]


def test_the_oldest_comes_first_and_one_that_does_not_fit_holds_up_nobody() -> None:
    """By creation, then by UID; each once."""
    line = Line(cards=2)
    line.sees(
        waiting("z", 60, creationTimestamp="2026-11-21T10:00:01Z"),
        waiting("y", 300, creationTimestamp="2026-11-21T10:00:00Z"),
        waiting("x", 60, creationTimestamp="2026-11-21T10:00:02Z"),
        waiting("w", 60, creationTimestamp="2026-11-21T10:00:02Z"),
    )
    assert line.uids() == ["z", "w"]
    assert line.uids() == []
    assert len(line.turns) == 2


@pytest.mark.parametrize(
    ("gates", "fits"), [([OURS], True), ([THEIRS], False), ([OURS, THEIRS], False), ([THEIRS, OURS], False)]
)
def test_a_pod_behind_another_gate_has_no_turn_yet(gates: list[dict[str, str]], fits: bool) -> None:
    """A turn is for pods that can use it; it comes when the other gate is gone."""
    line = Line()
    pod = asks("a", 60, 1_000, spec={"schedulingGates": gates})
    line.sees(pod)
    assert line.uids() == (["a"] if fits else [])
    line.sees(waiting("a"))
    assert line.uids() == ([] if fits else ["a"])


def test_a_pod_of_several_containers_is_let_through_as_one() -> None:
    """Its room is that of all of them."""
    line = Line(cards=2)
    pod = make_pod(
        "a",
        container("one", (60, 1_000)),
        container("two", (60, 1_000)),
        inits=[container("init", (100, None))],
        spec={"schedulingGates": [OURS]},
    )
    line.sees(pod)
    (turn,) = line.due()
    assert turn.promise is not None
    assert set(turn.promise.plan.grant.containers) == {"one", "two", "init"}
    assert len(line.picture.holdings.of("a")) == 2


@pytest.mark.parametrize("how", ["gone", "bound", "ended", "to go"])
@pytest.mark.parametrize("when", ["waiting", "through", "lost"])
def test_a_pod_that_needs_no_turn_any_more_leaves_nothing_behind(when: str, how: str) -> None:
    """Also if it was deleted, or bound by somebody else, in the middle of its turn."""
    line = Line()
    pod = waiting("a")
    line.sees(pod)
    if when != "waiting":
        assert line.uids() == ["a"]
        pod = ungated(pod)
        line.sees(pod)
    if when == "lost":
        line.desk.tell_time(PROMISE)
    match how:
        case "gone":
            line.desk.pod_gone(pod)
            line.turns.pod_gone("a")
        case "bound":
            line.sees(replace(pod, spec=replace(pod.spec, node_name="n1")))
        case "ended":
            line.sees(replace(pod, status=replace(pod.status, phase="Failed")))
        case _:
            line.sees(replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-11-21T10:00:00Z")))
    line.desk.tell_time(10 * PROMISE)
    if how == "bound":
        # Not by us, so it holds no room; it goes on being charged until it is gone.
        assert list(line.turns.books.ledger.charges()) == ["a"]
        line.turns.pod_gone("a")
    assert "a" not in line.turns
    assert not line.desk._places.offers
    assert not line.turns.books.ledger.charges()
    assert not line.picture.holdings.everything()
    assert line.uids(10 * PROMISE) == []


def test_a_lost_turn_comes_back_later_each_time() -> None:
    """5 s, 10 s, ..., 300 s at most; the number is another one each time, so that kube-scheduler is woken."""
    line, now, waits, numbers = Line(), 0.0, [], []
    line.sees(waiting("a"))
    assert [turn.number for turn in line.due()] == [1]
    line.sees(ungated(waiting("a")))
    for _ in range(9):
        now += PROMISE
        line.at(now)
        assert "led to no binding" in line.turns.why_not(waiting("a"))
        lost = line.turns._register.hall.rests_until("a")
        assert lost is not None
        waits.append(lost - now)
        line.at(lost)
        assert line.due(lost - 0.01) == []
        numbers += [turn.number for turn in line.due(lost)]
        assert line.turns.why_not(waiting("a")) == ""
        now = lost
    assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]
    assert numbers == list(range(2, 11))


def said(pod: Pod, reason: str) -> Pod:
    """The pod with what the API server, or kube-scheduler, says of its place."""
    condition = PodCondition(type="PodScheduled", status="False", reason=reason)
    return replace(pod, status=replace(pod.status, conditions=[condition]))


@pytest.mark.parametrize(
    ("reason", "numbers"), [("SchedulingGated", {PROMISE: [2]}), ("Unschedulable", {PROMISE: [], PROMISE + 5: [2]})]
)
def test_a_turn_that_kube_scheduler_never_saw_comes_again_at_once(reason: str, numbers: dict[float, list[int]]) -> None:
    """It may be blind for a while after the API server was away; who was looked at in vain waits, as ever."""
    line = Line()
    line.sees(said(waiting("a"), "SchedulingGated"))
    assert line.uids() == ["a"]
    line.sees(said(ungated(waiting("a")), reason))
    line.at(PROMISE)
    assert {now: [turn.number for turn in line.due(now)] for now in numbers} == numbers


@pytest.mark.parametrize(
    ("reason", "counted"),
    [
        ("SchedulingGated", Said.NOTHING),
        # It has looked, and could not ask us.
        ("SchedulerError", Said.NOTHING),
        ("Unschedulable", Said.UNSCHEDULABLE),
    ],
)
def test_lost_turns_are_counted_by_what_kube_scheduler_said(reason: str, counted: Said) -> None:
    """Whether it is there at all: of a pod that no node takes by its own business it does not ask us."""
    line = Line()
    line.sees(waiting("a"))
    assert line.uids() == ["a"]
    line.sees(said(ungated(waiting("a")), reason))
    line.at(PROMISE)
    assert line.desk.missed.counts == dict.fromkeys(Said, 0) | {counted: 1}


def test_who_is_never_looked_at_keeps_its_room_from_nobody() -> None:
    """Its scheduler may be none that runs: the second time in a row others get the room."""
    line = Line()
    line.sees(said(waiting("a"), "SchedulingGated"), waiting("b"))
    assert line.uids() == ["a"]
    line.sees(said(ungated(waiting("a")), "SchedulingGated"))
    line.at(PROMISE)
    assert line.uids(PROMISE) == ["a"]
    line.at(2 * PROMISE)
    assert line.uids(2 * PROMISE) == ["b"]


@pytest.mark.parametrize(("written", "number"), [("7", 8), ("", 1), ("x", 1), ("-3", 1), ("9" * 40, 1), ("٣", 1)])
def test_the_number_goes_on_from_what_another_leader_wrote(written: str, number: int) -> None:
    """The same number again would be no change, and wake nobody; what is no number is nobody's."""
    line = Line()
    line.sees(asks("a", 60, 1_000, annotations={NAMES.turn: written} if written else {}))
    assert line.due() == []
    line.at(FOUND)
    assert [turn.number for turn in line.due(FOUND)] == [number]


def test_a_pod_found_without_a_gate_is_woken_if_kube_scheduler_does_not_come_by_itself() -> None:
    """It was let through by the leader before us, and may have been refused since."""
    line = Line()
    line.sees(asks("a", 60, 1_000))
    assert line.turns.why_not(asks("a", 60, 1_000)) == ""
    assert line.uids(FOUND - 1) == []
    line.at(FOUND)
    assert line.uids(FOUND) == ["a"]


def test_a_pod_that_was_asked_for_has_its_turn_already() -> None:
    """Room that a filter call found counts as a turn, and ends as one."""
    line = Line()
    pod = asks("a", 60, 1_000)
    line.sees(pod)
    assert line.desk.filter(pod, ["n1"], now=0.0).nodes
    assert line.uids(FOUND - 1) == []
    line.desk.tell_time(PROMISE)
    assert line.turns.why_not(pod)


def test_a_pod_that_finds_no_room_waits_for_a_turn() -> None:
    """However it came to kube-scheduler."""
    line = Line()
    line.sees(bound(asks("x", 60, 1_000), node="n1", held={"GPU-n1-0": (60, 1_000)}))
    pod = asks("a", 60, 1_000)
    line.sees(pod)
    assert not line.desk.filter(pod, ["n1"], now=0.0).nodes
    assert line.turns.why_not(pod)
    line.desk.pod_gone(asks("x", 60, 1_000))
    assert line.uids(4.9) == []
    assert line.uids(5.0) == ["a"]


def test_one_that_can_t_be_told_lets_others_be_told() -> None:
    """The only slot is not taken by it again and again; it is tried again later each time."""
    line = Line()
    first, second = waiting("a", creationTimestamp="2026"), waiting("b", creationTimestamp="2027")
    line.sees(first, second)
    assert line.uids() == ["a"]
    line.desk.take_back("a")
    line.turns.not_told(first, now=0.0)
    assert line.uids(0.5) == ["b"]
    line.desk.pod_gone(second)
    line.turns.pod_gone("b")
    assert line.uids(0.9) == []
    assert line.uids(1.0) == ["a"]
    line.desk.take_back("a")
    line.turns.not_told(first, now=1.0)
    assert line.uids(2.9) == []
    assert line.uids(3.0) == ["a"]
    assert line.turns.why_not(first) == ""


def test_word_that_a_turn_was_not_told_comes_too_late_for_a_pod_that_has_none() -> None:
    """It is gone meanwhile, or has lost its turn."""
    line = Line()
    line.turns.not_told(waiting("a"), now=0.0)
    assert line.uids(100.0) == []


def test_a_request_that_can_t_be_read_any_more_is_not_let_through() -> None:
    """Annotations can be changed while a pod waits; mended, it goes on."""
    line = Line()
    line.sees(waiting("a"), waiting("a", annotations={NAMES.placement: "sideways"}))
    assert line.uids() == []
    line.sees(waiting("a"))
    assert line.uids() == ["a"]


def test_what_is_told_last_of_a_waiting_pod_is_what_counts() -> None:
    """A gate that somebody else lifted is not lifted again."""
    line = Line()
    line.sees(waiting("a"), ungated(waiting("a")))
    (turn,) = line.due(FOUND)
    assert not turn.pod.spec.scheduling_gates


def test_no_more_are_through_at_once_than_can_be_worked_off() -> None:
    """The next ones come as soon as some are bound."""
    line = Line(cards=MOST_AT_ONCE // 50 + 10)
    line.sees(*(waiting(f"u{number:04}", 1, 1) for number in range(MOST_AT_ONCE + 5)))
    assert len(line.due()) == MOST_AT_ONCE
    assert line.due() == []
    line.turns.pod_gone("u0000")
    assert line.uids() == [f"u{MOST_AT_ONCE:04}"]


def full() -> Picture:
    """1,000 nodes of 8 GPUs, each with room on one of them alone."""
    picture = picture_with(*(make_node(f"n{number}", gpus(f"n{number}", 8)) for number in range(1_000)))
    picture.grid.compute[:] = 0
    picture.grid.compute[:, 0] = 70
    picture.grid.version += 1
    return picture


def test_a_search_of_thousands_of_equal_pods_takes_no_time() -> None:
    """5,000 that wait and do not fit, 1,000 nodes: under 30 ms, and one search."""
    line = Line(full())
    line.sees(*(waiting(f"u{number}", 120, 2_000, annotations={NAMES.gpus: "2"}) for number in range(5_000)))
    took = []
    for _ in range(5):
        line.searches = 0
        line.picture.grid.version += 1
        began = time.thread_time()
        assert line.due() == []
        took.append(time.thread_time() - began)
        assert line.searches == 1
    assert min(took) < 0.03


def test_a_search_of_thousands_of_different_pods_is_cut_short_and_comes_to_each() -> None:
    """Nobody is answered meanwhile; the next search begins where this one ended."""
    line = Line(cards=2)
    line.sees(bound(asks("x", 100, 1_000), node="n1", held={"GPU-n1-0": (100, 1_000)}))
    # One of their two GPUs would be there.
    two = {NAMES.gpus: "2"}
    line.sees(*(waiting(f"u{n:03}", 60, 2_000 + 2 * n, annotations=two) for n in range(4 * MOST_IN_VAIN - 1)))
    line.sees(waiting("v", 1, 1))
    for _ in range(3):
        line.searches = 0
        assert line.due() == []
        assert line.searches == MOST_IN_VAIN
    assert line.uids() == ["v"]
    line.searches = 0
    assert line.due() == []
    # What had no room then has none now: only what was taken has changed.
    assert line.searches <= MOST_IN_VAIN


def test_the_room_of_a_turn_is_answered_alone_and_once() -> None:
    """kube-scheduler then weighs no other nodes; if it could not bind it there, it is told of all."""
    line = Line(picture_with(*(make_node(name, gpus(name, 2)) for name in ("n1", "n2", "n3"))))
    line.sees(waiting("a"))
    (turn,) = line.due()
    assert turn.promise is not None
    pod = ungated(turn.pod)
    assert list(line.desk.filter(pod, ["n1", "n2", "n3"], now=1.0).nodes) == [turn.promise.node]
    renewed = line.desk.promises.of("a")
    assert renewed is not None
    assert (renewed.plan, renewed.until) == (turn.promise.plan, 1.0 + PROMISE)
    assert set(line.desk.filter(pod, ["n1", "n2", "n3"], now=2.0).nodes) == {"n1", "n2", "n3"}


@pytest.mark.parametrize("why", ["prefers", "not offered", "asks for more", "cordoned"])
def test_the_room_of_a_turn_is_one_of_many_where_others_may_be_better(why: str) -> None:
    """What a pod prefers is kube-scheduler's to weigh, and room that is no more is not answered."""
    names = ["n1", "n2", "n3"]
    line = Line(picture_with(*(make_node(name, gpus(name, 2)) for name in names)))
    prefers: dict[str, Any] = {"affinity": {"nodeAffinity": {}}} if why == "prefers" else {}
    line.sees(waiting("a", spec={"schedulingGates": [OURS], **prefers}))
    (turn,) = line.due()
    assert turn.promise is not None
    promised, pod = turn.promise.node, ungated(turn.pod)
    others = [name for name in names if name != promised]
    if why == "asks for more":
        pod = ungated(waiting("a", 70))
    if why == "cordoned":
        line.picture.node_seen(make_node(promised, gpus(promised, 2), cordoned=True))
    found = line.desk.filter(pod, others if why == "not offered" else names, now=1.0)
    assert set(found.nodes) == set(others if why in {"not offered", "cordoned"} else names)


def test_the_room_of_a_turn_is_looked_at_again_before_it_is_answered() -> None:
    """A GPU that has fallen sick meanwhile is not granted."""
    cards = gpus("n1", 2)
    line = Line(picture_with(make_node("n1", cards)))
    line.sees(waiting("a"))
    (turn,) = line.due()
    assert turn.promise is not None
    (first,) = turn.promise.plan.claims
    line.picture.node_seen(make_node("n1", [sick(card) if card.uuid == first else card for card in cards]))
    assert list(line.desk.filter(ungated(turn.pod), ["n1"], now=1.0).nodes) == ["n1"]
    promise = line.desk.begin_bind(uid="a", node="n1", now=1.0)
    assert not isinstance(promise, str)
    assert set(promise.plan.claims) == {card.uuid for card in cards} - {first}
