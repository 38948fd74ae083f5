"""An instance of MIG goes whole to one container, the smallest that would do, and is charged as what it is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_agent.starting.decision import Known
from aliquot_agent.starting.misfit import misfit
from aliquot_core.claims import Claim, check_grant
from aliquot_core.grant import ContainerGrant, Grant, GrantError, Slice
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_core.request import parse_request
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.fit.demand import Demand, demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.fit.layout import Plan
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.hardware import hardware_of
from aliquot_scheduler.queues.said.tree import plant
from support.centre import NAMES, asks, container, gpus, make_node, make_pod, picture_with, sick, with_grant
from support.mig import KINDS, instances

MIXED = ("3g.40gb", "1g.20gb", "1g.10gb", "2g.20gb")


def demand(pod: Pod) -> Demand:
    """What it asks, made ready."""
    return demand_of(parse_request(pod, names=NAMES))


def finder_of(picture: Picture, *, valued: bool = False) -> Finder:
    """One that chooses by best fit, or by what a place is worth."""
    look = Appraiser(picture=picture, names=NAMES).look if valued else None
    return Finder(picture=picture, names=NAMES, look=look)


def taken(plan: Plan | None) -> list[tuple[int, int]]:
    """What each container holds, in percent and MiB."""
    assert plan is not None
    return [(part.compute.value, part.memory.value) for _, part in plan.grant.slices()]


def held(picture: Picture, *pods: Pod) -> None:
    """Let these be granted what is best for each, one after the other."""
    for pod in pods:
        plan = finder_of(picture).plan(pod, demand(pod), node="n1")
        assert plan is not None
        picture.pod_seen(with_grant(pod, plan.grant))


@pytest.mark.parametrize("valued", [False, True], ids=["best fit", "by worth"])
@pytest.mark.parametrize(
    ("compute", "memory", "kind"),
    [
        (10, 5_000, "1g.10gb"),
        (14, 9_728, "1g.10gb"),
        (10, 9_729, "1g.20gb"),
        (15, 5_000, "2g.20gb"),
        (28, 19_968, "2g.20gb"),
        (1, 20_000, "3g.40gb"),
        (42, None, "3g.40gb"),
        (10, None, "1g.10gb"),
        (43, 1_000, None),
        (10, 40_193, None),
        (100, None, None),
    ],
)
def test_the_smallest_that_would_do_is_taken(
    compute: int,
    memory: int | None,
    kind: str | None,
    valued: bool,
) -> None:
    """By compute and by memory, wherever it stands in the list; nothing that is smaller than asked."""
    picture = picture_with(make_node("n1", instances("n1", *MIXED)))
    pod = asks("u", compute, memory)
    finder = finder_of(picture, valued=valued)
    fits = bool(finder.survey(pod, demand(pod)).fits[picture.nodes["n1"].row])
    plan = finder.plan(pod, demand(pod), node="n1")
    assert [fits, plan is not None] == [kind is not None] * 2
    if kind is not None:
        assert taken(plan) == [KINDS[kind]]


@pytest.mark.parametrize("valued", [False, True], ids=["best fit", "by worth"])
@pytest.mark.parametrize("placement", ["", "pack", "spread"])
def test_of_all_nodes_that_with_the_smallest_is_best(
    placement: str,
    valued: bool,
) -> None:
    """Whichever node comes first, and however the pod wants to lie: an instance is shared with nobody anyhow."""
    kinds = ["3g.40gb", "1g.20gb", "1g.10gb", "7g.80gb"]
    picture = picture_with(*(make_node(f"n{n}", instances(f"n{n}", kind)) for n, kind in enumerate(kinds)))
    pod = asks("u", 10, 5_000, annotations={NAMES.placement: placement} if placement else {})
    found = finder_of(picture, valued=valued).survey(pod, demand(pod))
    costs = {kind: found.cost[picture.nodes[f"n{n}"].row] for n, kind in enumerate(kinds)}
    assert sorted(costs, key=lambda kind: costs[kind]) == ["1g.10gb", "1g.20gb", "3g.40gb", "7g.80gb"]


@pytest.mark.parametrize("limit", [None, "40"], ids=["guaranteed", "burstable"])
def test_nodes_that_have_changed_are_asked_as_all_are(limit: str | None) -> None:
    """Few are asked by themselves, in another way than all together: cards beside instances count alike in both."""
    nodes = {f"n{n}": (*gpus(f"n{n}", 2), *instances(f"n{n}", *MIXED, card=2)) for n in range(8)}
    picture = picture_with(*(make_node(name, cards) for name, cards in nodes.items()))
    appraiser = Appraiser(picture=picture, names=NAMES)
    finder = Finder(picture=picture, names=NAMES, look=appraiser.look)
    pod = asks("u", 10, 5_000, annotations={NAMES.compute_limit: limit} if limit else {})
    for number, gpu in enumerate(("GPU-n1-0", "MIG-n1-2-2", "GPU-n1-1", "MIG-n1-2-1")):
        finder.survey(pod, demand(pod))
        instance = gpu.startswith("MIG")
        claim = Claim(compute=Percent(14 if instance else 70), memory=MiB(9_728))
        picture.hold(f"h{number}", {("n1", gpu): claim})
        fresh = Finder(picture=picture, names=NAMES, look=appraiser.look).survey(pod, demand(pod))
        now = finder.survey(pod, demand(pod))
        assert now.fits.tolist() == fresh.fits.tolist()
        assert now.cost.tolist() == fresh.cost.tolist()


amounts = st.tuples(st.integers(1, 100), st.one_of(st.none(), st.integers(1, 90_000)))


@given(
    st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=7),
    st.lists(amounts, min_size=1, max_size=5),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_filter_plan_queue_and_agent_agree(
    kinds: list[str],
    wishes: Sequence[tuple[int, int | None]],
    valued: bool,
) -> None:
    """Pod after pod: each fits exactly where an instance is free that is no smaller, and gets the smallest, whole."""
    cards = instances("n1", *kinds)
    picture = picture_with(make_node("n1", cards))
    row, free = picture.nodes["n1"].row, {card.uuid: KINDS[kind] for card, kind in zip(cards, kinds, strict=True)}
    finder, queue = (
        finder_of(picture, valued=valued),
        Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES),
    )
    for number, (compute, memory) in enumerate(wishes):
        pod = asks(f"u{number}", compute, memory)
        asked = demand(pod)
        able = {uuid: one for uuid, one in free.items() if one[0] >= compute and one[1] >= (memory or 1)}
        register = queue.register(asked)
        plan = finder.plan(pod, asked, node="n1")
        answers = [bool(finder.survey(pod, asked).fits[row]), bool(queue.roomy(asked)[row]), plan is not None]
        assert answers == [bool(able)] * 3
        # It may say yes of what does not fit: never the other way round.
        assert queue.fitting()[register] or not able
        if plan is None:
            continue
        (part,) = plan.grant.containers["main"].slices
        assert (part.compute.value, part.memory.value) == free.pop(part.gpu) == min(able.values())
        bound = with_grant(pod, plan.grant)
        check_grant(plan.grant, pod=bound, names=NAMES)
        known = Known(node="n1", names=NAMES, inventory=picture.nodes["n1"].inventory, pods={}, recorded=())
        assert misfit(plan.grant, known=known) == ""
        picture.pod_seen(bound)
        assert queue.granted(bound) == (part.compute.value, part.memory.value)


@pytest.mark.parametrize(
    ("pod", "kinds", "why", "final"),
    [
        (
            asks("u", 50, 1_000),
            MIXED,
            "0 of 4 GPUs are large enough for 50 % and 1000 MiB",
            True,
        ),
        (
            asks("u", 200, None),
            ["7g.80gb"] * 2,
            "by their isolation 0 of 2 GPUs take what is spread over several",
            True,
        ),
        (
            asks("u", 20, 1_000, annotations={NAMES.gpus: "2"}),
            ["1g.10gb"] * 2,
            "by their isolation 0 of 2 GPUs take what is spread over parts of several",
            True,
        ),
        (
            asks("u", 20, 1_000, annotations={NAMES.compute_limit: "30"}),
            MIXED,
            "by their isolation 0 of 4 GPUs take what is burstable",
            True,
        ),
        (asks("u", None, 1_000), MIXED, "by their isolation 0 of 4 GPUs take what is best-effort", True),
        (
            asks("u", 10, 1_000, annotations={NAMES.gpu_model: "!*MIG*"}),
            MIXED,
            f"none of 4 GPUs is what the pod allows (annotation {NAMES.gpu_model})",
            True,
        ),
        (
            make_pod("u", *(container(name, (10, 1_000)) for name in ("a", "b"))),
            ["1g.10gb"],
            "1 of its 2 containers finds room even on an empty node",
            True,
        ),
        (
            make_pod("u", *(container(name, (5, 1_000)) for name in ("a", "b", "c"))),
            ["1g.10gb"] * 2,
            "2 of its 3 containers find room even on an empty node",
            True,
        ),
    ],
    ids=[
        "too large",
        "two cards",
        "two parts",
        "burstable",
        "best effort",
        "who forbids it",
        "two containers",
        "three small ones",
    ],
)
def test_what_instances_do_not_take_is_said(pod: Pod, kinds: Sequence[str], why: str, final: bool) -> None:
    """In words that a pod's author can act on."""
    picture = picture_with(make_node("n1", instances("n1", *kinds)))
    finder, asked = finder_of(picture), demand(pod)
    assert finder.plan(pod, asked, node="n1") is None
    found = finder.refusals(asked, {"n1": picture.nodes["n1"].row})["n1"]
    assert (found.why, found.final) == (why, final)


def test_an_init_container_s_need_counts_for_the_one_that_follows() -> None:
    """The kubelet hands its ids on: both run on an instance that is large enough for either."""
    picture = picture_with(make_node("n1", instances("n1", *MIXED)))
    pod = make_pod("u", container("main", (10, 5_000)), inits=[container("init", (20, 5_000))])
    plan = finder_of(picture).plan(pod, demand(pod), node="n1")
    assert taken(plan) == [KINDS["2g.20gb"]] * 2
    assert plan is not None
    assert len(plan.claims) == 1
    check_grant(plan.grant, pod=with_grant(pod, plan.grant), names=NAMES)


def test_an_instance_that_is_held_has_no_room_left() -> None:
    """However little its holder asked for."""
    picture = picture_with(make_node("n1", instances("n1", "1g.10gb", "1g.10gb")))
    held(picture, asks("a", 1, 1), asks("b", 1, 1))
    pod = asks("c", 1, 1)
    assert finder_of(picture).plan(pod, demand(pod), node="n1") is None
    assert finder_of(picture).refusals(demand(pod), {"n1": picture.nodes["n1"].row})["n1"].why.startswith("0 of 2 GPUs")


def test_containers_that_run_at_the_same_time_have_one_each() -> None:
    """And an init container that of one of them."""
    picture = picture_with(make_node("n1", instances("n1", *MIXED)))
    pod = make_pod("u", container("a", (10, 5_000)), container("b", (10, 5_000)), inits=[container("init", (5, 5_000))])
    plan = finder_of(picture).plan(pod, demand(pod), node="n1")
    assert plan is not None
    of = {name: part.gpu for name, part in plan.grant.slices()}
    assert of["a"] != of["b"]
    assert of["init"] in {of["a"], of["b"]}
    assert len(plan.claims) == 2
    check_grant(plan.grant, pod=with_grant(pod, plan.grant), names=NAMES)


@pytest.mark.parametrize("valued", [False, True], ids=["best fit", "by worth"])
def test_an_instance_has_room_for_one_container_however_small(valued: bool) -> None:
    """Where the sums of two would lie on it, or of three on two."""
    for kinds in (["3g.40gb"], ["3g.40gb", "2g.20gb"]):
        picture = picture_with(make_node("n1", instances("n1", *kinds)))
        pod = make_pod("u", *(container(f"c{number}", (5, 1_000)) for number in range(len(kinds) + 1)))
        finder = finder_of(picture, valued=valued)
        assert not finder.survey(pod, demand(pod)).fits.any()
        assert finder.plan(pod, demand(pod), node="n1") is None


def test_who_asks_for_hardware_gets_instances_alone_and_others_both() -> None:
    """`mig` is the strongest mode: it is an axis of fit as the others are."""
    cards = (*gpus("n1", 1), *instances("n1", "1g.10gb", card=1))
    picture = picture_with(make_node("n1", cards))
    strict = asks("s", 10, 1_000, annotations={NAMES.isolation: "mig"})
    plan = finder_of(picture).plan(strict, demand(strict), node="n1")
    assert taken(plan) == [KINDS["1g.10gb"]]
    assert plan is not None
    assert plan.grant.containers["main"].isolation == "mig"
    held(picture, strict)
    again = asks("t", 10, 1_000, annotations={NAMES.isolation: "mig"})
    assert finder_of(picture).plan(again, demand(again), node="n1") is None
    anyone = asks("v", 10, 1_000)
    assert taken(finder_of(picture).plan(anyone, demand(anyone), node="n1")) == [(10, 1_000)]


def test_a_sick_instance_takes_nothing_and_its_neighbour_does() -> None:
    """Each is judged by itself."""
    first, second = instances("n1", "1g.10gb", "1g.10gb")
    picture = picture_with(make_node("n1", (sick(first), second)))
    pod = asks("u", 1, 1)
    plan = finder_of(picture).plan(pod, demand(pod), node="n1")
    assert plan is not None
    assert {part.gpu for _, part in plan.grant.slices()} == {second.uuid}


@pytest.mark.parametrize(
    ("compute", "memory", "charged"),
    [(10, 1_000, KINDS["1g.10gb"]), (20, None, KINDS["2g.20gb"]), (50, 1_000, (50, 1_000))],
    ids=["smallest", "memory left out", "none would do"],
)
def test_the_queue_is_charged_what_is_taken(compute: int, memory: int | None, charged: tuple[int, int]) -> None:
    """Before it is bound as the smallest that would do."""
    picture = picture_with(make_node("n1", instances("n1", *MIXED)))
    queue = Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES)
    assert queue.amounts(demand(asks("u", compute, memory))) == charged


def test_beside_cards_it_is_charged_what_it_asks_until_it_is_bound() -> None:
    """It may come to a part of a card."""
    picture = picture_with(make_node("n1", (*gpus("n1", 1), *instances("n1", *MIXED, card=1))))
    queue = Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES)
    assert queue.amounts(demand(asks("u", 10, 1_000))) == (10, 1_000)


def test_queues_count_what_there_is() -> None:
    """Seven instances of 14 % are 98 %; and what goes with a guarantee is reckoned by cards, not by parts of one."""
    picture = picture_with(make_node("n1", instances("n1", *["1g.10gb"] * 7)))
    queue = Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES)
    assert queue.stock().capacity == queue.stock().free == (98, 7 * 9_728)
    held(picture, asks("a", 5, 1_000))
    assert queue.stock().free == (84, 6 * 9_728)
    found = hardware_of(picture, ())
    assert (found.there[""], found.largest[""]) == ((98, 7 * 9_728), 9_728 * 100 // 14)


@pytest.mark.parametrize(
    ("compute", "limit", "memory", "mode", "good"),
    [
        (14, 14, 9_728, "mig", True),
        (14, 14, 9_728, "interposer", False),
        (9, 9, 9_728, "mig", False),
        (14, 14, 4_999, "mig", False),
        (14, 28, 9_728, "mig", False),
    ],
    ids=["an instance", "another mode", "too little compute", "too little memory", "bursts"],
)
def test_a_grant_of_more_than_was_asked_is_good_in_hardware_alone(
    compute: int,
    limit: int,
    memory: int,
    mode: str,
    good: bool,
) -> None:
    """Nobody gets more than he asked for by any other mode, and nobody less by this one."""
    part = Slice(gpu="MIG-1", compute=Percent(compute), limit=Percent(limit), memory=MiB(memory))
    grant = Grant(node="n1", pod="u", containers={"main": ContainerGrant(slices=(part,), isolation=mode)})
    pod = with_grant(asks("u", 10, 5_000), grant)
    try:
        check_grant(grant, pod=pod, names=NAMES)
    except GrantError:
        assert not good
    else:
        assert good


def test_the_agent_refuses_a_part_of_an_instance() -> None:
    """An instance is given whole: a smaller slice of it would leave a rest that somebody else could be given."""
    (card,) = instances("n1", "2g.20gb")
    part = Slice(gpu=card.uuid, compute=Percent(10), limit=Percent(10), memory=MiB(5_000))
    grant = Grant(node="n1", pod="u", containers={"main": ContainerGrant(slices=(part,), isolation="mig")})
    picture = picture_with(make_node("n1", [card]))
    known = Known(node="n1", names=NAMES, inventory=picture.nodes["n1"].inventory, pods={}, recorded=())
    assert misfit(grant, known=known) == (
        f"container main: GPU {card.uuid} is an instance of MIG and given whole: 28 % and 19968 MiB"
    )
