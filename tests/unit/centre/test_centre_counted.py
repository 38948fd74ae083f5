"""What kube-scheduler counts of our resources on every node, the centre counts too: no turn is lost, nobody evicted."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.claims import Claim
from aliquot_core.quantities import MiB, Percent
from aliquot_core.request import parse_request
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.fit.finding import NodeCause
from aliquot_scheduler.picture.holdings import GpuKey, Holdings
from aliquot_scheduler.queues.said.spec import QueueSpec
from support.centre import NAMES, Asked, asks, counting, gpus, make_node, picture_with
from support.counting_stage import counted, falls_sick, said, staged
from support.queue_stage import Stage, queue
from support.reclaim_stage import ReclaimStage

replace = msgspec.structs.replace
OWNED: dict[str, QueueSpec] = {"owner": queue(guarantee=200), "other": queue()}


def with_places(stage: Stage, places: int) -> None:
    """The kubelet of n0 has so many for best effort."""
    node = counting(stage.picture.nodes["n0"].node)
    told = {**node.status.allocatable, NAMES.best_effort: str(places)}
    stage.picture.node_seen(replace(node, status=replace(node.status, allocatable=told)))
    stage.beat()


# --- a GPU that falls sick while it is in use ------------------------------------------------------------------------
SICK: list[tuple[Asked, Asked, str]] = [
    ((100, 1_000), (100, 1_000), "0 % of compute left of 100 asked: 100 % of compute are held"),
    ((50, 60_000), (30, 30_000), "20000 MiB of GPU memory left of 30000 asked: 60000 MiB of GPU memory are held"),
    ((80, 1_000), (30, 1_000), "20 % of compute left of 30 asked: 80 % of compute are held"),
]


@pytest.mark.parametrize(("held", "asked", "_"), SICK)
def test_the_neighbour_of_a_sick_gpu_in_use_is_used(held: Asked, asked: Asked, _: str) -> None:
    """Its agent tells of what is held there beside the healthy ones, and so kube-scheduler has room for the next."""
    stage = staged(2)
    stage.submit("h", *held)
    assert stage.run() == ["h"]
    falls_sick(stage, "h", cards=2, told=True)
    stage.submit("q", *asked)
    assert stage.round() == ["q"]


@pytest.mark.parametrize(("held", "asked", "words"), SICK)
@pytest.mark.parametrize("away", [False, True])
def test_nobody_gets_a_turn_where_kube_scheduler_has_nothing_left(
    held: Asked, asked: Asked, words: str, *, away: bool
) -> None:
    """Before the agent has told of it; who waits is told what it is, and comes in as soon as it is over."""
    stage = staged(2)
    stage.submit("h", *held)
    assert stage.run() == ["h"]
    falls_sick(stage, "h", cards=2, told=False, away=away)
    stage.submit("q", *asked)
    assert stage.round() == []
    assert said(stage, "q") == (
        "NoNode",
        f"1 node has room on its GPUs: {words} on a GPU that is sick, cordoned or gone",
    )
    stage.end("h")
    assert stage.round() == ["q"]


@pytest.mark.parametrize(("told", "victims"), [(False, []), (True, ["low"])])
def test_nobody_is_evicted_where_that_frees_nothing(told: bool, victims: list[str]) -> None:
    """Whoever goes, kube-scheduler counts the pod on the sick GPU: it is of use once the agent has told of that."""
    stage = ReclaimStage(OWNED, nodes=(2,))
    counted(stage)
    stage.submit("h", 100, queue="owner")
    stage.submit("low", 100, queue="other")
    assert sorted(stage.run()) == ["h", "low"]
    falls_sick(stage, "h", cards=2, told=told)
    stage.submit("q", 100, queue="owner")
    assert stage.round() == []
    assert stage.victims() == victims


# --- places for best effort ------------------------------------------------------------------------------------------
def test_places_for_best_effort_are_as_many_as_the_kubelet_has() -> None:
    """The next one waits behind its gate, and is told why."""
    stage = staged(1)
    with_places(stage, 2)
    for uid in ("a", "b", "c"):
        stage.submit(uid, None, 600)
    assert stage.run() == ["a", "b"]
    assert stage.round() == []
    assert said(stage, "c") == (
        "NoNode",
        "1 node has room on its GPUs: 2 of 2 places for best effort are taken",
    )
    stage.end("a")
    assert stage.round() == ["c"]


def test_who_asks_for_no_place_needs_none() -> None:
    """Fewer than none may be left: of a setting that was lowered, say."""
    stage = staged(1)
    for uid in ("a", "b"):
        stage.submit(uid, None, 600)
    assert stage.run() == ["a", "b"]
    with_places(stage, 1)
    stage.submit("p", 10, 600)
    assert stage.round() == ["p"]


def test_a_node_that_does_not_say_what_it_has_is_left_to_kube_scheduler() -> None:
    """Whatever lies there already."""
    stage = Stage(nodes=(1,))
    for number in range(40):
        stage.submit(f"b{number}", None, 600)
    assert sum(len(stage.run(after=1.0)) for _ in range(3)) == 40


def test_only_nodes_that_lack_it_are_told_of() -> None:
    """Of one that lacks memory it is not said how much compute it has left."""
    stage = staged(2, 2)
    for name, less in (("n0", {NAMES.compute: "20"}), ("n1", {NAMES.memory: "500"})):
        node = stage.picture.nodes[name].node
        stage.picture.node_seen(
            replace(node, status=replace(node.status, allocatable={**node.status.allocatable, **less}))
        )
    stage.beat()
    stage.submit("q", 30, 1_000)
    assert stage.round() == []
    why = "20 % of compute left of 30 asked: the kubelet offers 20 % of compute"
    assert said(stage, "q") == ("NoNode", f"2 nodes have room on their GPUs: {why}")


# How many nodes there are, what is asked, and what is told where kubelets offer 20 % and no places.
OFFERED: list[tuple[int, Asked, str]] = [
    (1, (50, 5_000), "10 % of compute left of 50 asked: the kubelet offers 20 % of compute"),
    (2, (50, 5_000), "20 % of compute left of 50 asked: their kubelets offer 20 % of compute"),
    (1, (None, 600), "0 places for best effort left of 1 asked: the kubelet offers 0 places for best effort"),
]


@pytest.mark.parametrize(("nodes", "asked", "why"), OFFERED)
def test_who_waits_since_a_kubelet_offers_less_than_its_gpus_have_is_told_so(
    nodes: int, asked: Asked, why: str
) -> None:
    """Nobody's end would help: a pod without a grant that has its part of it is not to be blamed."""
    stage = staged(*[2] * nodes)
    stray = asks("stray", 10, None, namespace="kube-system")
    stage.see(replace(stray, spec=replace(stray.spec, node_name="n0")))
    for known in list(stage.picture.nodes.values()):
        status = known.node.status
        told = {**status.allocatable, NAMES.compute: "20", NAMES.best_effort: "0"}
        stage.picture.node_seen(replace(known.node, status=replace(status, allocatable=told)))
    stage.beat()
    stage.submit("q", *asked)
    assert stage.round() == []
    assert said(stage, "q")[1].partition(": ")[2] == why


# --- decisions beside words ------------------------------------------------------------------------------------------
def test_a_decision_works_out_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hundreds of short nodes the sentences take longer than all else, and who is let in hears none."""
    picture = picture_with(*(counting(make_node(name, gpus(name, 1))) for name in ("n1", "n2", "n3")))
    picture.pod_lies(asks("stray", 80, 1_000, spec={"nodeName": "n1"}))
    itself = asks("p", 60, 1_000)
    finder, demand = Finder(picture=picture, names=NAMES), demand_of(parse_request(itself, names=NAMES))
    rows = {name: known.row for name, known in picture.nodes.items()}
    # It has asked before: what it is promised itself on n2 is not in its way.
    picture.lies(itself, node="n2", granted=True)
    with monkeypatch.context() as patched:
        patched.setattr("aliquot_scheduler.fit.counted.why_short", silent)
        found = finder.survey(itself, demand)
        fits = {name for name, row in rows.items() if found.fits[row]}
        assert fits == {name for name in rows if finder.plan(itself, demand, node=name)} == {"n2", "n3"}
        assert {name for name in rows if finder.counted.is_short(itself, node=name)} == {"n1"}
    told = finder.refusals(demand, {"n1": rows["n1"]}, short=found.short)
    assert {name: (one.cause, one.why[:32]) for name, one in told.items()} == {
        "n1": (NodeCause.COUNTED, "20 % of compute left of 60 asked")
    }


def silent(*_: object, **__: object) -> str:
    """No sentence, and so no word on which anything could hang."""
    return ""


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.tuples(st.sampled_from("mno"), st.sampled_from("12"))))))
def test_what_is_held_of_a_node_is_what_its_gpus_hold(puts: list[tuple[str, set[GpuKey]]]) -> None:
    """Whoever takes, moves and leaves."""
    holdings, held = Holdings(), dict[str, set[GpuKey]]()
    for holder, keys in puts:
        holdings.put(holder, dict.fromkeys(keys, Claim(compute=Percent(1), memory=MiB(1))))
        held[holder] = keys
        everything = set().union(*held.values())
        assert {gpu for node in "mno" for gpu in holdings.gpus(node)} == everything
        assert all(gpu[0] == node for node in "mno" for gpu in holdings.gpus(node))
