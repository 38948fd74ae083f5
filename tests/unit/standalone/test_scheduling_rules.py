"""The rules of placing, each against a plain reading of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from aliquot_core.node_rules import tolerated
from aliquot_core.objects import Taint, Toleration
from aliquot_standalone.scheduling.amounts import asked_by
from aliquot_standalone.scheduling.attempt import Answer, Ask, Chosen, Unfit, attempt
from aliquot_standalone.scheduling.demands import demand_of
from aliquot_standalone.scheduling.fitting import idleness, liking, obstacle
from aliquot_standalone.scheduling.picture import Picture, Seat
from aliquot_standalone.scheduling.queue import LONGEST_PARKED, Queue
from support.scheduling import OURS, demand, place, placed_pod

Json = dict[str, Any]


def seat(name: str = "one", **parts: Any) -> Seat:
    """A node, as the picture has it."""
    picture = Picture()
    picture.node(place(name, **parts))
    return picture.seats[name]


# --- what a node says to a pod ---------------------------------------------------------------------------------------
KEYS, VALUES, EFFECTS = ["a", "b"], ["", "x", "y"], ["NoSchedule", "NoExecute", "PreferNoSchedule"]
TAINTS = st.builds(Taint, key=st.sampled_from(KEYS), value=st.sampled_from(VALUES), effect=st.sampled_from(EFFECTS))
TOLERATIONS = st.builds(
    Toleration,
    key=st.sampled_from(["", *KEYS]),
    operator=st.sampled_from(["Equal", "Exists"]),
    value=st.sampled_from(VALUES),
    effect=st.sampled_from(["", *EFFECTS]),
)


@given(TAINTS, st.lists(TOLERATIONS, max_size=3))
def test_a_taint_is_tolerated_as_the_documentation_says(taint: Taint, tolerations: list[Toleration]) -> None:
    """Keys are the same, or there is none with Exists; effects are the same, or there is none; values with Equal."""

    def covers(one: Toleration) -> bool:
        if one.effect not in {"", taint.effect}:
            return False
        if one.key == "":
            return one.operator == "Exists"
        return one.key == taint.key and (one.operator == "Exists" or one.value == taint.value)

    assert tolerated(taint, tolerations) is any(covers(one) for one in tolerations)


def expressions(key: str, operator: str, *values: str) -> Json:
    """A required node affinity with one test."""
    test = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [test]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        ({"nodeSelector": {"rack": "1"}}, False),
        (expressions("zone", "In", "a", "b"), True),
        (expressions("zone", "In", "b"), False),
        (expressions("zone", "NotIn", "b"), True),
        (expressions("rack", "NotIn", "1"), True),
        (expressions("zone", "Exists"), True),
        (expressions("rack", "Exists"), False),
        (expressions("rack", "DoesNotExist"), True),
        (expressions("size", "Gt", "7"), True),
        (expressions("size", "Gt", "8"), False),
        (expressions("size", "Lt", "9"), True),
        (expressions("zone", "Gt", "1"), False),
        (expressions("zone", "Sideways", "a"), False),
    ],
)
def test_selectors_and_affinity_choose_nodes(spec: Json, fits: bool) -> None:
    """Each operator, with the label there and not there."""
    here = seat(labels={"zone": "a", "size": "8"})
    assert (obstacle(demand(spec=spec, cpu="1"), here) == "") is fits


def test_one_term_is_enough_and_all_its_tests_must_hold() -> None:
    """Terms are alternatives; the tests of one are not; a term without tests holds of no node."""
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    rack = {"key": "rack", "operator": "Exists"}

    def why(*terms: Json) -> str:
        required = {"nodeSelectorTerms": list(terms)}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        return obstacle(demand(spec={"affinity": affinity}, cpu="1"), seat(labels={"zone": "a"}))

    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["one"]}]}
    assert why({"matchExpressions": [rack]}, {"matchExpressions": [zone]}) == ""
    assert why({"matchExpressions": [rack, zone]}) == "not what the pod's node affinity requires"
    assert why({}) == "not what the pod's node affinity requires"
    assert why(by_name) == ""


@pytest.mark.parametrize(
    ("node", "pod", "why"),
    [
        ({}, {"cpu": "8"}, ""),
        ({}, {"cpu": "8001m"}, "too little cpu"),
        ({"pods": "0"}, {"cpu": "1"}, "full of pods"),
        ({}, {OURS: "801"}, f"too little {OURS}"),
        ({}, {"example.org/thing": "1"}, "too little example.org/thing"),
        ({}, {"memory": "33Gi"}, "too little memory"),
        ({"spec": {"unschedulable": True}}, {"cpu": "1"}, "cordoned"),
        ({"ready": "False"}, {"cpu": "1"}, "not ready"),
        (
            {"spec": {"taints": [{"key": "a", "value": "x", "effect": "NoSchedule"}]}},
            {"cpu": "1"},
            "tainted a=x, which the pod does not tolerate",
        ),
        ({"spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}}, {"cpu": "1"}, ""),
        (
            {"spec": {"unschedulable": True}},
            {"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}},
            "",
        ),
    ],
)
def test_why_a_node_will_not_do(node: Json, pod: Json, why: str) -> None:
    """One phrase for each obstacle, none where there is none."""
    assert obstacle(demand(**pod), seat(**node)) == why


@pytest.mark.parametrize(
    "spec",
    [
        {"topologySpreadConstraints": [{"topologyKey": "zone"}]},
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
        {"resourceClaims": [{"name": "gpu"}]},
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    ],
)
def test_what_is_beyond_one_machine_is_never_passed_over(spec: Json) -> None:
    """A pod that asks for it goes nowhere, and is told which field it is."""
    outcome = outcome_of(attempt(demand(spec=spec, cpu="1"), seats={"one": seat()}), lambda _: Answer())
    assert isinstance(outcome, Unfit)
    assert "needs a cluster" in outcome.why


def test_a_pod_counts_for_what_its_containers_ask_at_one_time() -> None:
    """Init containers run one by one beside the sidecars before them; limits stand in for requests.

    What it asks for all of them together counts too.
    """

    def container(name: str, cpu: str, **more: Any) -> Json:
        return {"name": name, "image": "none", "resources": {"limits": {"cpu": cpu}}, **more}

    pod = placed_pod(
        "one",
        spec={
            "initContainers": [
                container("first", "5"),
                container("side", "1", restartPolicy="Always"),
                container("second", "3"),
            ],
            "containers": [container("main", "1"), container("other", "500m")],
            "overhead": {"cpu": "250m"},
            "resources": {"requests": {"memory": "1Gi"}},
        },
    )
    assert asked_by(pod) == {"cpu": 5250, "memory": 1000 * 2**30, "pods": 1000}


# --- which node is best ----------------------------------------------------------------------------------------------
def outcome_of(trying: Any, answer: Callable[[Ask], Answer]) -> Chosen | Unfit:
    """Drive an attempt."""
    try:
        ask = next(trying)
        while True:
            ask = trying.send(answer(ask))
    except StopIteration as end:
        outcome: Chosen | Unfit = end.value
        return outcome


def prefer(key: str, weight: int) -> Json:
    """A preferred node affinity."""
    term = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "preference": term}]}
    return {"affinity": {"nodeAffinity": wish}}


def test_what_a_pod_prefers_outweighs_the_extender_s_grade() -> None:
    """100 times 100 points against ten times 900, as Aliquot's profile has it."""
    seats = {"liked": seat("liked", labels={"ssd": ""}), "graded": seat("graded")}
    grades = {"graded": 900, "liked": 0}

    def chosen(spec: Json) -> Chosen | Unfit:
        trying = attempt(demand(spec=spec, **{OURS: "30"}), seats=seats)
        return outcome_of(trying, lambda ask: Answer(nodes=ask.nodes, grades=grades))

    assert chosen(prefer("ssd", 1)) == Chosen(node="liked")
    assert chosen({}) == Chosen(node="graded")


def test_plain_pods_keep_out_of_each_other_s_way() -> None:
    """Of equals the emptiest node is taken, and one with a soft taint last."""
    busy, idle = seat("busy"), seat("idle")
    busy.used.update({"cpu": 4000})
    assert idleness(demand(cpu="1"), idle) > idleness(demand(cpu="1"), busy)
    trying = attempt(demand(cpu="1"), seats={"busy": busy, "idle": idle})
    assert outcome_of(trying, lambda _: Answer()) == Chosen(node="idle")
    minded = seat("minded", spec={"taints": [{"key": "a", "effect": "PreferNoSchedule"}]})
    assert liking(demand(cpu="1"), [minded, idle]) == [0, 100]


def test_an_extender_can_t_bring_in_a_node_that_was_not_offered() -> None:
    """Whatever it answers, only nodes that can take the pod are chosen."""
    seats = {"full": seat("full", cpu="0"), "one": seat()}
    pod = demand(cpu="1", **{OURS: "30"})
    assert outcome_of(attempt(pod, seats=seats), lambda _: Answer(nodes=["full", "elsewhere", "one"])) == Chosen(
        node="one"
    )
    refused = outcome_of(attempt(pod, seats=seats), lambda _: Answer(nodes=[], failed={"one": "no card"}))
    assert refused == Unfit(why="0 of 2 nodes can take the pod; 1: too little cpu; 1: no card")


def test_a_nominated_node_that_will_not_do_any_more_is_no_end() -> None:
    """The others are offered when the extender refuses it, or when it has filled up meanwhile."""
    seats = {"one": seat("one"), "two": seat("two")}
    asked: list[list[str]] = []

    def answer(ask: Ask) -> Answer:
        asked.append(ask.nodes)
        return Answer(nodes=[name for name in ask.nodes if name != "one"], failed={"one": "no room"})

    trying = attempt(demand(**{OURS: "30"}), seats=seats, nominated="one")
    assert outcome_of(trying, answer) == Chosen(node="two")
    assert asked == [["one"], ["one", "two"]]


# --- the picture -----------------------------------------------------------------------------------------------------
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["bind", "assume", "give up", "end", "delete", "node", "node gone"]),
        st.integers(0, 3),
        st.sampled_from(["n0", "n1"]),
    ),
    max_size=30,
)


@given(STEPS)
@example([("node", 0, "n0"), ("assume", 0, "n0"), ("bind", 0, "n1")])
def test_what_is_used_is_what_lies_there(steps: list[tuple[str, int, str]]) -> None:
    """In whatever order things are told, a node's use is the sum over the pods that lie there or are on their way."""
    picture, lies, on_their_way = Picture(), dict[str, str](), set[str]()
    asked = {f"uid-p{number}": (number + 1) * 1000 for number in range(4)}
    for what, number, node in steps:
        uid = f"uid-p{number}"
        # One that is on its way may be bound elsewhere, by somebody else.
        where = node if uid in on_their_way else lies.get(uid, node)
        pod = placed_pod(f"p{number}", spec={"nodeName": where}, cpu=str(number + 1))
        if what == "bind":
            picture.pod(pod)
            lies[uid] = where
            on_their_way.discard(uid)
        elif what == "assume" and uid not in lies:
            picture.assume(uid, node=node, amounts=demand_of(pod, managed=[]).amounts)
            lies[uid] = node
            on_their_way.add(uid)
        elif what == "give up":
            picture.give_up(uid)
            if uid in on_their_way:
                on_their_way.discard(uid)
                del lies[uid]
        elif what in {"end", "delete"}:
            picture.pod_gone(uid)
            lies.pop(uid, None)
            on_their_way.discard(uid)
        elif what == "node":
            picture.node(place(node))
        elif what == "node gone":
            picture.node_gone(node)
        for name, here in picture.seats.items():
            assert here.used.get("cpu", 0) == sum(asked[uid] for uid, where in lies.items() if where == name)


# --- the queue -------------------------------------------------------------------------------------------------------
MOVES = st.lists(
    st.tuples(st.sampled_from(["put", "drop", "erred", "unfit", "wake", "wait"]), st.integers(0, 4)), max_size=60
)


@given(MOVES)
def test_nobody_is_lost_and_nobody_waits_longer_than_they_must(moves: list[tuple[str, int]]) -> None:
    """Every pod that was put in and not dropped comes out again, once at a time, within five minutes."""
    queue, now, there, out = Queue(), 0.0, set[str](), list[str]()
    for what, number in moves:
        uid = str(number)
        if what == "put":
            queue.put(uid, priority=number % 2, now=now)
            there.add(uid)
        elif what == "drop":
            queue.drop(uid)
            there.discard(uid)
            out = [one for one in out if one != uid]
        elif what == "wake":
            queue.woken(now=now)
        elif what == "wait":
            now += float(number)
        elif out:
            getattr(queue, what)(out.pop(0), now=now)
        if (found := queue.next(now=now)) is not None:
            assert found in there
            assert found not in out
            out.append(found)
    for uid in out:
        queue.unfit(uid, now=now)
    now += LONGEST_PARKED
    seen: set[str] = set()
    while (found := queue.next(now=now)) is not None:
        assert found not in seen
        seen.add(found)
    assert seen == there


def test_who_has_the_higher_priority_goes_first_and_among_equals_who_came_first() -> None:
    """The order in which pods are looked at."""
    queue = Queue()
    for uid, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5)):
        queue.put(uid, priority=priority, now=0.0)
    assert [queue.next(now=0.0) for _ in range(5)] == ["b", "d", "a", "c", None]


def test_who_was_changed_while_it_was_tried_is_not_parked() -> None:
    """It is looked at again soon: what was decided may hold no more."""
    queue = Queue()
    queue.put("a", priority=0, now=0.0)
    assert queue.next(now=0.0) == "a"
    queue.put("a", priority=0, now=0.1)
    queue.unfit("a", now=0.2)
    assert queue.next(now=1.3) == "a"


def test_back_off_grows_and_is_not_cut_short_by_changes() -> None:
    """1, 2, 4, 8, then 10 s, also for who is woken at once."""
    queue, now = Queue(), 0.0
    queue.put("a", priority=0, now=now)
    for rest in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        assert queue.next(now=now) == "a"
        queue.unfit("a", now=now)
        queue.woken(now=now)
        assert queue.next(now=now + rest - 0.01) is None
        now += rest
