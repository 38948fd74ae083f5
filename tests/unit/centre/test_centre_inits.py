"""Init containers and sidecars where it is said that a pod fits nowhere: what is held at one time counts, no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aliquot_core.inventory import Gpu
from aliquot_core.objects import Pod
from aliquot_core.quantities import WHOLE
from aliquot_core.request import parse_request
from aliquot_scheduler.admission.places import judge_place
from aliquot_scheduler.fit.demand import Piece, demand_of, pieces_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.tree import plant
from support.centre import MEMORY, NAMES, Asked, container, gpus, make_node, make_pod, picture_with
from support.queue_stage import GATED, Stage, queue

# What init containers ask in their order, those that stay marked, and what app containers ask.
Starts = Sequence[tuple[Asked, bool]]
INIT, SIDECAR = False, True


def pod_of(starts: Starts, apps: Sequence[Asked], **more: Any) -> Pod:
    """A pod of init containers i0, i1, ... and app containers a0, a1, ..."""
    stays: dict[bool, Mapping[str, Any]] = {SIDECAR: {"restartPolicy": "Always"}, INIT: {}}
    return make_pod(
        "p",
        *(container(f"a{at}", asked) for at, asked in enumerate(apps)),
        inits=[container(f"i{at}", asked, **stays[kind]) for at, (asked, kind) in enumerate(starts)],
        **more,
    )


def cards_of(memories: Sequence[int]) -> list[Gpu]:
    """GPUs of these sizes."""
    return [gpus("n", at + 1, memory=memory)[at] for at, memory in enumerate(memories)]


def is_able(pod: Pod, memories: Sequence[int]) -> bool:
    """Whether a node of such GPUs is said to take the pod, were it empty."""
    picture = picture_with(make_node("n", cards_of(memories)))
    cards = Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES)
    return bool(cards.able(demand_of(parse_request(pod, names=NAMES)))[picture.nodes["n"].row])


def lie_at_once(containers: Sequence[Sequence[Piece]], memories: Sequence[int]) -> bool:
    """Whether there is a way: each container's pieces on GPUs of its own, and none over-drawn."""
    ways = product(*(permutations(range(len(memories)), len(pieces)) for pieces in containers))
    return any(_holds(list(zip(containers, way, strict=True)), memories) for way in ways)


def _holds(laid: Sequence[tuple[Sequence[Piece], Sequence[int]]], memories: Sequence[int]) -> bool:
    for at, memory in enumerate(memories):
        here = [piece for pieces, places in laid for piece, place in zip(pieces, places, strict=True) if place == at]
        whole = any(piece.whole for piece in here) and len(here) > 1
        over = sum(piece.compute for piece in here) > WHOLE.value or sum(p.memory_on(memory) for p in here) > memory
        if whole or over:
            return False
    return True


one = st.tuples(st.sampled_from([None, 20, 50, 60, 100, 150]), st.sampled_from([1_000, 30_000, 50_000]))


@given(
    st.lists(st.tuples(one, st.booleans()), min_size=1, max_size=3),
    st.lists(one, min_size=1, max_size=2),
    st.lists(st.sampled_from([40_000, MEMORY]), min_size=1, max_size=2),
)
@example([((60, 1_000), SIDECAR), ((60, 1_000), INIT)], [(30, 1_000)], [MEMORY])
@example([((60, 1_000), INIT), ((60, 1_000), SIDECAR)], [(30, 1_000)], [MEMORY])
@example([((100, 1_000), INIT)], [(50, 1_000), (50, 1_000)], [MEMORY])
@settings(max_examples=200, deadline=None)
def test_an_empty_node_takes_what_is_held_at_any_one_time(
    starts: Starts, apps: list[Asked], memories: list[int]
) -> None:
    """Each init container with the sidecars before it, and all that stay: by trying all ways. No plan is denied."""
    pod = pod_of(starts, apps)
    request = parse_request(pod, names=NAMES)
    asked = {one.name: pieces_of(one) for one in request.containers}
    sidecars: list[Sequence[Piece]] = []
    at_once: list[Sequence[Sequence[Piece]]] = []
    for at, (_, stays) in enumerate(starts):
        held = [*sidecars, asked[f"i{at}"]]
        sidecars, at_once = (held, at_once) if stays else (sidecars, [*at_once, held])
    at_once.append([*sidecars, *(asked[f"a{at}"] for at in range(len(apps)))])
    able = is_able(pod, memories)
    demand = demand_of(request)
    if demand.pieces is None:
        assert able is all(lie_at_once(held, memories) for held in at_once)
    picture = picture_with(make_node("n", cards_of(memories)))
    if Finder(picture=picture, names=NAMES).plan(pod, demand, node="n"):
        assert able


@given(
    st.lists(st.tuples(one, st.booleans()), max_size=3),
    st.lists(one, min_size=1, max_size=3),
    st.lists(st.sampled_from([40_000, MEMORY]), min_size=1, max_size=3),
)
@example([((10, 1_000), INIT)], [(50, 1_000), (50, 1_000)], [MEMORY])
@example([((150, 30_000), INIT)], [(20, 1_000), (20, 1_000)], [MEMORY, MEMORY])
@settings(max_examples=200, deadline=None)
def test_nobody_is_granted_more_than_was_charged(starts: Starts, apps: list[Asked], memories: list[int]) -> None:
    """What a pod may come to is never less than what it comes to on whatever node."""
    pod = pod_of(starts, apps)
    demand = demand_of(parse_request(pod, names=NAMES))
    picture = picture_with(make_node("n", cards_of(memories)))
    plan = Finder(picture=picture, names=NAMES).plan(pod, demand, node="n")
    if plan is None:
        return
    compute, memory = Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES).amounts(demand)
    sizes = {gpu.uuid: gpu.usable.value for gpu in cards_of(memories)}
    assert compute >= sum(claim.compute.value for claim in plan.claims.values())
    assert memory >= sum(sizes[gpu] if claim.closes else claim.memory.value for gpu, claim in plan.claims.items())


# What a pod with several containers comes to: init containers, apps, percent.
COMES_TO: dict[str, tuple[Starts, list[Asked], int]] = {
    "an init container within its apps": ([((50, 1_000), INIT)], [(50, 1_000), (50, 1_000)], 100),
    "one that is larger than the smaller app": ([((80, 1_000), INIT)], [(50, 1_000), (30, 1_000)], 130),
    "one on more GPUs than its apps": ([((150, 2_000), INIT)], [(30, 1_000), (30, 1_000)], 180),
    "beside a sidecar": ([((20, 1_000), SIDECAR), ((50, 1_000), INIT)], [(50, 1_000)], 70),
    "where no app asks": ([((20, 1_000), SIDECAR), ((50, 1_000), INIT)], [], 70),
}


@pytest.mark.parametrize("row", COMES_TO)
def test_an_init_container_counts_beyond_what_its_apps_hold(row: str) -> None:
    """It runs on their GPUs and before them: a pod that would stay inside a limit is not told that it never could."""
    starts, apps, most = COMES_TO[row]
    plain = [{"name": "plain"}] if not apps else []
    pod = pod_of(starts, apps, spec={"containers": plain} if plain else None)
    picture = picture_with(make_node("n", gpus("n", 4)))
    cards = Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES)
    assert cards.amounts(demand_of(parse_request(pod, names=NAMES)))[0] == most


EMPTY = "no node could take it, even if it were empty: "
# On nodes of one GPU: init containers, apps, what its queue says, and what a filter.
NEVER: dict[str, tuple[Starts, list[Asked], str, str]] = {
    "an init container beside a sidecar": (
        [((60, 1_000), SIDECAR), ((60, 1_000), INIT)],
        [(30, 1_000)],
        "on no node its init container i1 finds room beside the sidecars before it",
        "its init container i1 finds no room beside the sidecars before it, even on an empty node",
    ),
    "one that takes a GPU whole": (
        [((5, 1_000), INIT), ((10, 1_000), SIDECAR), ((100, 1_000), INIT)],
        [(30, 1_000)],
        "on no node its init container i2 finds room beside the sidecars before it",
        "its init container i2 finds no room beside the sidecars before it, even on an empty node",
    ),
    "beside a sidecar where no app asks": (
        [((10, 50_000), SIDECAR), ((10, 50_000), INIT)],
        [],
        "on no node its init container i1 finds room beside the sidecars before it",
        "its init container i1 finds no room beside the sidecars before it, even on an empty node",
    ),
    "one larger than any GPU": (
        [((5, 90_000), INIT)],
        [(30, 1_000), (30, 1_000)],
        "it asks 90000 MiB of one GPU, and the largest that it may have has 80000 MiB",
        "0 of 1 GPU is large enough for 90000 MiB",
    ),
    "one larger than any GPU, of one app": (
        [((5, 90_000), INIT)],
        [(30, 1_000)],
        "it asks 90000 MiB of one GPU, and the largest that it may have has 80000 MiB",
        "0 of 1 GPU is large enough for 90000 MiB",
    ),
    "those that stay, though each starts": (
        [((60, 1_000), SIDECAR), ((30, 1_000), INIT)],
        [(60, 1_000)],
        "on no node more than 1 of its 2 containers find room",
        "1 of its 2 containers finds room even on an empty node",
    ),
}


@pytest.mark.parametrize("row", NEVER)
def test_who_can_never_start_is_told_so(row: str) -> None:
    """By its queue, where it stands in no line, and by filter, for good; a larger node that comes lets it in."""
    starts, apps, said, refused = NEVER[row]
    spec = GATED if apps else {**GATED, "containers": [{"name": "plain"}]}
    pod = pod_of(starts, apps, spec=spec, labels={NAMES.queue: "a"})
    stage = Stage({"a": queue()}, nodes=(1,))
    demand = demand_of(parse_request(pod, names=NAMES))
    refusal = stage.desk.finder.refusals(demand, {"n0": stage.picture.nodes["n0"].row})["n0"]
    assert (refusal.why, refusal.final) == (refused, True)
    stage.see(pod)
    assert stage.round() == []
    notice = stage.queues.notice(stage.queues.waiting()[0])
    assert (notice.reason, notice.message) == ("NeverFits", EMPTY + said)
    stage.picture.node_seen(make_node("large", gpus("large", 2, memory=100_000)))
    assert stage.round() != []


# On nodes of one GPU, in a queue that may have so many percent.
FITS: dict[str, tuple[Starts, list[Asked], int]] = {
    "what comes after an init container": ([((60, 1_000), INIT), ((60, 1_000), SIDECAR)], [(30, 1_000)], 150),
    "one init container after the other": (
        [((90, 1_000), INIT), ((80, 1_000), INIT)],
        [(50, 1_000), (50, 1_000)],
        170,
    ),
    "a queue of just what runs": ([((50, 1_000), INIT)], [(50, 1_000), (50, 1_000)], 100),
}


@pytest.mark.parametrize("row", FITS)
def test_who_can_start_is_let_in(row: str) -> None:
    """What ends before others begin is not added to them."""
    starts, apps, limit = FITS[row]
    stage = Stage({"a": queue(limit=limit)}, nodes=(1,))
    stage.see(pod_of(starts, apps, spec=GATED, labels={NAMES.queue: "a"}))
    assert stage.round() == ["p"]


def test_a_gang_counts_what_its_pods_start_with() -> None:
    """Each holds on its GPUs the most that it ever needs there: two that start with 90 % need two GPUs."""
    stage = Stage({"a": queue()}, nodes=(1, 1))
    notes = {NAMES.group_size: "2", NAMES.group_topology: "node"}
    labels = {NAMES.queue: "a", NAMES.group: "g"}
    for uid in ("p0", "p1"):
        pod = pod_of([((90, 500), INIT)], [(10, 500), (10, 500)], spec=GATED, labels=labels, annotations=notes)
        stage.see(replace(pod, metadata=replace(pod.metadata, uid=uid, name=uid)))
    assert stage.round() == []
    told = {stage.queues.notice(waiter).message for waiter in stage.queues.waiting()}
    assert told == {
        "its group starts with 2 pods, which ask on one node 180 % of compute, of which at most 100 % are there"
    }


def test_at_creation_it_is_counted_alike() -> None:
    """The webhook warns of a limit only who is beyond it at one time."""
    starts: Starts = [((60, 1_000), SIDECAR), ((60, 1_000), INIT)]
    specs = {"a": queue(limit=100)}
    plan = Plan(specs=specs, tree=plant(specs), homes={"team": "a"})
    beyond = judge_place(pod_of(starts, [(30, 1_000)]), namespace="team", plan=plan, names=NAMES)
    assert ["it asks 120 % of compute" in one for one in beyond.warnings] == [True]
    inside = judge_place(pod_of(starts[::-1], [(30, 1_000)]), namespace="team", plan=plan, names=NAMES)
    assert inside.warnings == ()
