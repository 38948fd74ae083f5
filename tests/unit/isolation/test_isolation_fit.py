"""A pod is placed only where an isolation is on offer that reaches what it asks, and that takes its class."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_agent.starting.decision import Known
from aliquot_agent.starting.misfit import misfit
from aliquot_core.grant import ContainerGrant
from aliquot_core.isolation import admits, chosen
from aliquot_core.objects import Pod
from aliquot_core.request import Quality, parse_request
from aliquot_scheduler.explaining import explain
from aliquot_scheduler.fit.demand import Demand, demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.said.tree import plant
from support.centre import NAMES, WALL, asks, bound, container, gpus, make_lease, make_node, make_pod, picture_with

RANKS = {"observe": 0, "interposer": 1, "mps": 2, "mig": 3}
CLASSES = {
    Quality.GUARANTEED: (30, {}),
    Quality.BURSTABLE: (30, {NAMES.compute_limit: "60"}),
    Quality.BEST_EFFORT: (None, {}),
}

offers = st.lists(st.sampled_from([*RANKS, "novel"]), min_size=1, max_size=3, unique=True)


def able(offered: Sequence[str], *, least: str, quality: Quality) -> set[str]:
    """The modes that would do, by the words of the table: MIG alone refuses, and takes what is guaranteed only."""
    strong = {mode for mode in offered if not least or mode == least or RANKS.get(mode, -1) >= RANKS.get(least, 9)}
    return strong if quality is Quality.GUARANTEED else strong - {"mig"}


def a_pod(quality: Quality, *, least: str = "") -> Pod:
    """A pod of that class, on one GPU."""
    compute, notes = CLASSES[quality]
    return asks("u", compute, 1_000, annotations=notes | ({NAMES.isolation: least} if least else {}))


def node_of(*offered: Sequence[str]) -> Picture:
    """A node with a GPU for each of these offers."""
    cards = [
        msgspec.structs.replace(gpu, isolation=list(one))
        for gpu, one in zip(gpus("n1", len(offered)), offered, strict=True)
    ]
    return picture_with(make_node("n1", cards))


def demand(pod: Pod) -> Demand:
    """What it asks, made ready."""
    return demand_of(parse_request(pod, names=NAMES))


def refusal(picture: Picture, pod: Pod) -> tuple[str, bool]:
    """Why the node does not take it, and whether that stays so."""
    found = Finder(picture=picture, names=NAMES).refusals(demand(pod), {"n1": picture.nodes["n1"].row})["n1"]
    return found.why, found.final


@given(offers, st.sampled_from(["", *RANKS, "novel"]), st.sampled_from(list(Quality)))
def test_the_strongest_mode_that_takes_the_class_is_chosen(offered: list[str], least: str, quality: Quality) -> None:
    """Of those that reach what is asked, the one of highest rank; none where none does."""
    good = able(offered, least=least, quality=quality)
    best = chosen(offered, least=least, quality=quality)
    assert admits(offered, least=least, quality=quality) is bool(good)
    assert best in good if good else best == ""
    assert all(RANKS.get(best, -1) >= RANKS.get(mode, -1) for mode in good)


@given(st.lists(offers, min_size=1, max_size=3), st.sampled_from(["", *RANKS, "novel"]), st.sampled_from(list(Quality)))
@settings(max_examples=150, deadline=None)
def test_filter_plan_queue_and_agent_agree_where_a_class_is_taken(
    cards: list[list[str]], least: str, quality: Quality
) -> None:
    """A node fits exactly if one of its GPUs has a mode that does, and its agent then honours the grant."""
    picture, pod = node_of(*cards), a_pod(quality, least=least)
    good = [able(one, least=least, quality=quality) for one in cards]
    finder, asked, row = Finder(picture=picture, names=NAMES), demand(pod), picture.nodes["n1"].row
    queue = Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES)
    queue.register(asked)
    plan = finder.plan(pod, asked, node="n1")
    assert [bool(finder.survey(pod, asked).fits[row]), plan is not None] == [any(good)] * 2
    assert [bool(queue.able(asked)[row]), bool(queue.roomy(asked)[row]), queue.fitting()[0]] == [any(good)] * 3
    if plan:
        granted = plan.grant.containers["main"]
        assert granted.isolation in good[int(granted.slices[0].gpu[-1])]
        known = Known(node="n1", names=NAMES, inventory=picture.nodes["n1"].inventory, pods={}, recorded=())
        assert misfit(plan.grant, known=known) == ""


@pytest.mark.parametrize(
    ("quality", "least", "why"),
    [
        (Quality.BURSTABLE, "", "by their isolation 0 of 2 GPUs take what is burstable"),
        (Quality.BEST_EFFORT, "mps", "by their isolation 0 of 2 GPUs take what is best-effort"),
        (Quality.GUARANTEED, "novel", f"none of 2 GPUs is what the pod allows (annotation {NAMES.isolation})"),
    ],
)
def test_a_refused_class_is_named(quality: Quality, least: str, why: str) -> None:
    """The reason names the class and not the pod's annotations, which the GPUs meet; evicting can't help."""
    assert refusal(node_of(["mig"], ["mig"]), a_pod(quality, least=least)) == (why, True)


def test_classes_of_one_pod_are_held_on_the_same_cards() -> None:
    """A GPU that refuses one of the pod's containers takes none; another one of the node takes both."""
    both = make_pod("u", container("held", (30, 1_000)), container("idle", (None, 1_000)))
    assert refusal(node_of(["mig"]), both) == ("by their isolation 0 of 1 GPU takes what is best-effort", True)
    mixed = node_of(["mig"], ["observe", "interposer"])
    plan = Finder(picture=mixed, names=NAMES).plan(both, demand(both), node="n1")
    assert plan is not None
    assert {part.gpu for _, part in plan.grant.slices()} == {"GPU-n1-1"}
    assert {one.isolation for one in plan.grant.containers.values()} == {"interposer"}
    either = Finder(picture=node_of(["observe", "mig"]), names=NAMES).plan(both, demand(both), node="n1")
    assert either is not None
    assert {name: one.isolation for name, one in either.grant.containers.items()} == {"held": "mig", "idle": "observe"}


@pytest.mark.parametrize(
    ("compute", "gpus_", "taken"),
    [(30, None, True), (100, "2", False), (200, None, True), (150, None, False)],
    ids=["a part", "two halves", "two whole ones", "one and a half"],
)
def test_mps_reaches_over_several_gpus_only_where_they_are_whole(
    compute: int,
    gpus_: str | None,
    taken: bool,
) -> None:
    """A daemon has one GPU: filter, queue and plan refuse what no daemon could hold, and an agent would."""
    pod = asks("u", compute, 2_000, annotations={NAMES.gpus: gpus_} if gpus_ else {})
    picture = node_of(["mps"], ["mps"])
    finder, asked, row = Finder(picture=picture, names=NAMES), demand(pod), picture.nodes["n1"].row
    queue = Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES)
    queue.register(asked)
    plan = finder.plan(pod, asked, node="n1")
    assert [bool(finder.survey(pod, asked).fits[row]), queue.fitting()[0], plan is not None] == [taken] * 3
    if plan is None:
        assert refusal(picture, pod) == (
            "by their isolation 0 of 2 GPUs take what is spread over parts of several",
            True,
        )
        plan = Finder(picture=node_of(["observe"], ["observe"]), names=NAMES).plan(pod, asked, node="n1")
    assert plan is not None
    held = {name: ContainerGrant(slices=one.slices, isolation="mps") for name, one in plan.grant.containers.items()}
    known = Known(node="n1", names=NAMES, inventory=picture.nodes["n1"].inventory, pods={}, recorded=())
    told = misfit(msgspec.structs.replace(plan.grant, containers=held), known=known)
    assert ("does not reach over parts" in told) is not taken


def test_cards_without_a_mode_in_common_promise_nothing() -> None:
    """A slice over several GPUs is held in one mode: less than was asked is never granted."""
    wide = asks("u", 100, 1_000, annotations={NAMES.gpus: "2", NAMES.isolation: "interposer"})
    apart, alike = node_of(["observe", "interposer"], ["observe", "mps"]), node_of(*[["observe", "interposer"]] * 2)
    assert Finder(picture=apart, names=NAMES).plan(wide, demand(wide), node="n1") is None
    plan = Finder(picture=alike, names=NAMES).plan(wide, demand(wide), node="n1")
    assert plan is not None
    assert plan.grant.containers["main"].isolation == "interposer"


def test_two_pods_of_different_classes_are_told_apart_by_the_queue() -> None:
    """What was found out for one that asks as much, and is of another class, is not said of the other."""
    picture = node_of(["mig"])
    queue = Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES)
    asked = [demand(a_pod(quality)) for quality in (Quality.GUARANTEED, Quality.BURSTABLE)]
    for one in asked:
        queue.register(one)
    assert queue.fitting() == [True, False]
    finder = Finder(picture=picture, names=NAMES)
    fits = [finder.survey(a_pod(quality), demand(a_pod(quality))).fits.any() for quality in Quality]
    assert [bool(one) for one in fits] == [True, False, False]


def test_explain_says_that_a_class_is_refused() -> None:
    """`aliquot explain` of a pod that waits names its class and the isolation."""
    cards = [msgspec.structs.replace(gpu, isolation=["mig"]) for gpu in gpus("n1", 1)]
    nodes, leases = [make_node("n1", cards)], [make_lease("n1")]
    told = explain(a_pod(Quality.BURSTABLE), nodes=nodes, leases=leases, pods=[], names=NAMES, wall=WALL)
    assert "by their isolation 0 of 1 GPU takes what is burstable" in told.summary


LACK = "interposer is not offered: the driver's libcuda is not there: look for it"


@pytest.mark.parametrize(
    ("least", "offered", "lack", "said"),
    [
        # Whoever asks for what is lacking is told why, of all its GPUs once; of a node that was told nothing, nothing.
        ("interposer", ["observe"], LACK, [LACK]),
        ("interposer", ["observe"], "", []),
        # It is offered, and something else of it is not as it was to be: no reason of this pod's.
        ("interposer", ["observe", "interposer"], LACK, []),
        # No room is no matter of isolation.
        ("", ["observe"], LACK, []),
    ],
)
def test_explain_says_why_a_wanted_isolation_is_not_there(
    least: str, offered: list[str], lack: str, said: list[str]
) -> None:
    """In the node's own answer, behind what refuses the pod."""
    cards = [msgspec.structs.replace(gpu, isolation=offered, isolation_lack=lack) for gpu in gpus("n1", 2)]
    others = [bound(asks(f"f{at}", 80, 70_000), node="n1", held={f"GPU-n1-{at}": (80, 70_000)}) for at in range(2)]
    wanted = a_pod(Quality.GUARANTEED, least=least)
    told = explain(
        wanted, nodes=[make_node("n1", cards)], leases=[make_lease("n1")], pods=others, names=NAMES, wall=WALL
    )
    (answer,) = told.nodes
    assert not answer.fits
    assert answer.why.split("; ")[1:] == said


def test_explain_says_of_a_placed_pod_what_its_gpu_lacks() -> None:
    """Beside the slice that is held so, of the GPU that it lies on."""
    cards = [msgspec.structs.replace(gpu, isolation_lack=f"{LACK} {gpu.index}") for gpu in gpus("n1", 2)]
    pod = bound(asks("u1", 30, 8_000), node="n1", held={"GPU-n1-1": (30, 8_000)})
    told = explain(pod, nodes=[make_node("n1", cards)], leases=[make_lease("n1")], pods=[pod], names=NAMES, wall=WALL)
    assert [one.lack for one in told.slices] == [f"{LACK} 1"]
