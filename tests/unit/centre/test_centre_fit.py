"""Where a pod fits: the arrays against a plain search, the layouts against the agent's own rules, and the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_core.claims import check_grant, overdrawn
from aliquot_core.grant import Grant, decode_grant, encode_grant
from aliquot_core.inventory import Gpu
from aliquot_core.objects import Pod
from aliquot_core.quantities import WHOLE
from aliquot_core.request import parse_request
from aliquot_scheduler.fit.demand import Demand, Piece, demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.picture.picture import Picture
from support.centre import (
    MEMORY,
    NAMES,
    Asked,
    asks,
    bound,
    container,
    gpus,
    make_node,
    make_pod,
    picture_with,
    sick,
    with_grant,
)

Held = list[tuple[int, int]]


def demand(pod: Pod) -> Demand:
    """What the pod asks, made ready."""
    return demand_of(parse_request(pod, names=NAMES))


def fill(picture: Picture, node: str, held: Sequence[tuple[int, int]]) -> None:
    """Give the node's GPUs to pods in their order; nothing where compute and memory are 0."""
    for index, (compute, memory) in enumerate(held):
        if compute or memory:
            uid = f"filler-{node}-{index}"
            asked = asks(uid, compute or None, memory or 1)
            picture.pod_seen(bound(asked, node=node, held={f"GPU-{node}-{index}": (compute, memory or 1)}))


def plan(picture: Picture, pod: Pod, node: str) -> Grant | None:
    """The grant that the pod would get on a node."""
    found = Finder(picture=picture, names=NAMES).plan(pod, demand(pod), node=node)
    return found.grant if found else None


def gpu_numbers(grant: Grant | None, name: str = "main") -> list[int]:
    """The GPUs of a container, by their index."""
    assert grant is not None
    return [int(part.gpu.rsplit("-", 1)[1]) for part in grant.containers[name].slices]


def fits_by_search(pieces: Sequence[Piece], held: Held) -> bool:
    """Try every way to put the pieces on different GPUs."""

    def takes(piece: Piece, compute: int, memory: int) -> bool:
        if compute == WHOLE.value or (piece.whole and (compute or memory)):
            return False
        return compute + piece.compute <= WHOLE.value and memory + piece.memory_on(MEMORY) <= MEMORY

    return any(
        all(takes(piece, *held[index]) for piece, index in zip(pieces, order, strict=True))
        for order in permutations(range(len(held)), len(pieces))
    )


asked = st.tuples(
    st.one_of(st.none(), st.integers(1, 100), st.integers(101, 350), st.just(100)),
    st.one_of(st.none(), st.integers(1, MEMORY), st.integers(1, 3 * MEMORY)),
)
held = st.lists(st.tuples(st.sampled_from([0, 0, 30, 50, 100]), st.integers(0, MEMORY)), min_size=1, max_size=4)


def as_there(held: Held) -> Held:
    """What `fill` really makes of it."""
    return [(compute, memory or 1) if compute or memory else (0, 0) for compute, memory in held]


@given(asked, st.one_of(st.none(), asked), held)
@settings(max_examples=300, deadline=None)
def test_all_nodes_at_once_say_what_a_search_says(main: Asked, init: Asked | None, held: Held) -> None:
    """The arrays find room exactly where there is some, and the plan then lies inside it.

    Of pods that need no trying out: `test_centre_causes` has the others.
    """
    for one in (main, init):
        if one == (None, None):
            return
    inits = [container("init", init)] if init else []
    pod = make_pod("u", container("main", main), inits=inits)
    asks_for = demand(pod)
    if asks_for.pieces is None:
        assert len(asks_for.request.containers) > 1
        return
    picture = picture_with(make_node("n1", gpus("n1", len(held))))
    fill(picture, "n1", held)
    finder = Finder(picture=picture, names=NAMES)
    expected = fits_by_search(asks_for.pieces, as_there(held))
    assert bool(finder.survey(pod, asks_for).fits[picture.nodes["n1"].row]) is expected
    assert (finder.plan(pod, asks_for, node="n1") is not None) is expected


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40_000)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 100), st.integers(1, 60_000)), max_size=2),
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30_000)), max_size=2),
    held,
)
@settings(max_examples=200, deadline=None)
def test_a_plan_is_always_one_that_the_agent_takes(apps: Held, inits: Held, sidecars: Held, held: Held) -> None:
    """However many containers: the grant is the pod's, can be read, and over-draws no GPU."""
    picture = picture_with(make_node("n1", gpus("n1", len(held))))
    fill(picture, "n1", held)
    pod = make_pod(
        "u",
        *(container(f"app{number}", one) for number, one in enumerate(apps)),
        inits=[
            *(container(f"side{number}", one, restartPolicy="Always") for number, one in enumerate(sidecars)),
            *(container(f"init{number}", one) for number, one in enumerate(inits)),
        ],
    )
    found = Finder(picture=picture, names=NAMES).plan(pod, demand(pod), node="n1")
    if found is None:
        return
    assert decode_grant(encode_grant(found.grant)) == found.grant
    check_grant(found.grant, pod=with_grant(pod, found.grant), names=NAMES)
    for uuid, claim in found.claims.items():
        total, holders = picture.holdings.total(("n1", uuid))
        card = picture.nodes["n1"].inventory.gpu(uuid)
        assert card is not None
        assert overdrawn(total.beside(claim), memory=card.usable, holders=holders + 1) is None


@pytest.mark.parametrize(
    ("asked", "held", "expected"),
    [
        ((30, 8_000), [(0, 0), (50, 40_000), (60, 50_000)], [2]),
        ((30, 8_000), [(0, 0), (50, 40_000), (70, 10_000)], [1]),
        ((30, 8_000), [(0, 0), (50, 79_000), (0, 0)], [0]),
        ((100, None), [(10, 10), (0, 0), (0, 0)], [1]),
        ((250, 30_000), [(10, 10), (0, 0), (0, 0), (0, 0)], [1, 2, 0]),
        ((None, 8_000), [(100, 10), (20, 70_000), (0, 0)], [1]),
    ],
    ids=[
        "fullest that fits",
        "no memory is stranded",
        "room on both axes",
        "whole is empty",
        "whole first, rest beside others",
        "best effort",
    ],
)
def test_the_gpu_is_the_one_that_is_used_up_best(asked: Asked, held: Held, expected: list[int]) -> None:
    """Best fit on both axes; a whole GPU is nobody else's."""
    picture = picture_with(make_node("n1", gpus("n1", len(held))))
    fill(picture, "n1", held)
    pod = asks("u", *asked)
    assert sorted(gpu_numbers(plan(picture, pod, "n1"))) == sorted(expected)


def test_spread_takes_the_emptiest() -> None:
    """It is the pod's choice."""
    picture = picture_with(make_node("n1", gpus("n1", 3)))
    fill(picture, "n1", [(50, 40_000), (0, 0), (20, 8_000)])
    assert gpu_numbers(plan(picture, asks("u", 30, 8_000, annotations={NAMES.placement: "spread"}), "n1")) == [1]
    assert gpu_numbers(plan(picture, asks("u", 30, 8_000), "n1")) == [0]


def test_several_gpus_are_those_that_reach_each_other_best() -> None:
    """NVLink before the same socket before the other one."""
    names = [f"GPU-n1-{index}" for index in range(4)]
    near = {(0, 2): "NV4", (1, 3): "NV12"}
    cards = tuple(
        Gpu(
            uuid=name,
            index=index,
            model="NVIDIA A100-SXM4-80GB",
            memory=MEMORY,
            links={
                other: near.get((min(index, at), max(index, at)), "SYS")
                for at, other in enumerate(names)
                if at != index
            },
        )
        for index, name in enumerate(names)
    )
    picture = picture_with(make_node("n1", cards))
    assert sorted(gpu_numbers(plan(picture, asks("u", 200, 10_000), "n1"))) == [1, 3]


@pytest.mark.parametrize("numas", [(0, 1, 0, 1), (0, 0, 1, 1), (1, None, 0, 0), (None, None, 0, 0)])
@pytest.mark.parametrize("taken", [0, 1, 2, 3, None])
def test_where_no_links_are_told_those_of_one_numa_node_are_chosen(
    numas: tuple[int | None, ...], taken: int | None
) -> None:
    """Of all pairs that are free it is one of one NUMA node, if there is any."""
    cards = [msgspec.structs.replace(gpu, numa=numa) for gpu, numa in zip(gpus("n1", 4), numas, strict=True)]
    picture = picture_with(make_node("n1", cards))
    fill(picture, "n1", [(100, 1_000) if at == taken else (0, 0) for at in range(4)])
    near = {
        pair
        for pair in permutations(sorted({0, 1, 2, 3} - {taken}), 2)
        if numas[pair[0]] is not None and numas[pair[0]] == numas[pair[1]]
    }
    found = gpu_numbers(plan(picture, asks("u", 200, 2_000), "n1"))
    assert not near or tuple(found) in near


def test_an_init_container_that_asks_more_gets_its_app_container_s_gpu_and_another() -> None:
    """The kubelet hands the ids on: the GPUs must be the same, and some more."""
    picture = picture_with(make_node("n1", gpus("n1", 3)))
    pod = make_pod("u", container("main", (50, 8_000)), inits=[container("init", (200, 20_000))])
    grant = plan(picture, pod, "n1")
    assert set(gpu_numbers(grant)) < set(gpu_numbers(grant, "init"))


def test_the_larger_piece_of_an_init_container_lies_where_there_is_room_for_it() -> None:
    """Its app container has room on a GPU that others share, where only the smaller one has."""
    shared, empty = gpus("n1", 2)
    picture = picture_with(make_node("n1", [shared, msgspec.structs.replace(empty, memory=40_000)]))
    fill(picture, "n1", [(50, 20_000), (0, 0)])
    pod = make_pod("u", container("main", (10, 55_000)), inits=[container("init", (150, 3_000))])
    grant = plan(picture, pod, "n1")
    assert (gpu_numbers(grant), gpu_numbers(grant, "init")) == ([0], [1, 0])


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 50_000)), min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 70_000)), max_size=2),
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30_000)), max_size=1),
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 70_000)), min_size=1, max_size=3),
)
@example([(25, 2_289)], [(25, 62_522)], [(5, 24_378)], [(20, 30_000), (0, 0)])
@settings(deadline=None)
def test_a_pod_that_one_gpu_could_take_finds_room(apps: Held, inits: Held, sidecars: Held, held: Held) -> None:
    """Wherever its largest container would lie best: or it would wait for ever beside an empty GPU."""
    picture = picture_with(make_node("n1", gpus("n1", len(held))))
    fill(picture, "n1", held)
    pod = make_pod(
        "a",
        *(container(f"app{index}", one) for index, one in enumerate(apps)),
        inits=[
            *(container(f"init{index}", one) for index, one in enumerate(inits)),
            *(container(f"side{index}", one, restartPolicy="Always") for index, one in enumerate(sidecars)),
        ],
    )
    steady = [*apps, *sidecars]
    most = [max(sum(one[axis] for one in steady), *(one[axis] for one in inits), 0) for axis in (0, 1)]
    if any(compute + most[0] <= WHOLE.value and memory + most[1] <= MEMORY for compute, memory in held):
        assert plan(picture, pod, "n1") is not None


def test_a_model_and_a_uuid_that_are_forbidden_are_left_alone() -> None:
    """Whatever room they have."""
    mixed = (*gpus("n1", 1), *gpus("m", 2, model="NVIDIA L40S"))
    picture = picture_with(make_node("n1", mixed))
    only = asks("u", 30, 1_000, annotations={NAMES.gpu_model: "L40S", NAMES.gpu_uuid: "!GPU-m-0"})
    grant = plan(picture, only, "n1")
    assert grant is not None
    assert [part.gpu for _, part in grant.slices()] == ["GPU-m-1"]
    assert Finder(picture=picture, names=NAMES).survey(only, demand(only)).fits[picture.nodes["n1"].row]


def why(picture: Picture, pod: Pod, node: str = "n1") -> tuple[str, bool]:
    """Why a node does not take a pod, and whether evicting can't help."""
    refusal = Finder(picture=picture, names=NAMES).refusals(demand(pod), {node: picture.nodes[node].row})[node]
    return refusal.why, refusal.final


@pytest.mark.parametrize(
    ("asked", "notes", "sentence", "final"),
    [
        ((30, 20_000), {}, "2 of 3 GPUs have 30 % free, none has also 20000 MiB", False),
        ((30, 2_000), {NAMES.gpu_model: "H100"}, "none of 3 GPUs is what the pod allows", True),
        ((30, 90_000), {}, "0 of 3 GPUs are large enough for 90000 MiB", True),
        ((100, None), {}, "0 of 3 GPUs have nobody on them", False),
        ((500, None), {}, "3 of 3 GPUs can be given, 5 are needed", True),
        ((30, 2_000), {NAMES.isolation: "mps"}, "none of 3 GPUs is what the pod allows", True),
        (
            (30, 2_000),
            {NAMES.gpu_uuid: "GPU-x"},
            f"none of 3 GPUs is what the pod allows (annotation {NAMES.gpu_uuid})",
            True,
        ),
        ((30, 2_000), {NAMES.gpu_uuid: "GPU-n1-0"}, "0 of 1 GPU that it may have has 30 % free, 1 has 2000 MiB", False),
        (
            (30, 6_000),
            {NAMES.gpu_uuid: "!GPU-n1-1"},
            "1 of 2 GPUs that it may have has 30 % free, but not 6000 MiB",
            False,
        ),
    ],
)
def test_a_refusal_has_numbers_and_says_whether_evicting_helps(
    asked: Asked,
    notes: dict[str, Any],
    sentence: str,
    final: bool,
) -> None:
    """What a person reads under `kubectl describe`."""
    picture = picture_with(make_node("n1", gpus("n1", 3)))
    fill(picture, "n1", [(80, 1_000), (50, 70_000), (70, 75_000)])
    said, stays = why(picture, asks("u", *asked, annotations=notes))
    assert sentence in said
    assert stays is final


def test_a_node_that_is_out_says_why_and_takes_nobody() -> None:
    """Eviction would not help."""
    picture = picture_with(make_node("n1", gpus("n1", 3), cordoned=True))
    assert why(picture, asks("u", 30, 1_000)) == ("the node is cordoned", True)
    assert plan(picture, asks("u", 30, 1_000), "n1") is None


def test_a_sick_gpu_is_no_place() -> None:
    """Neither for the arrays nor for a plan."""
    cards = gpus("n1", 1)
    picture = picture_with(make_node("n1", (sick(cards[0]),)))
    pod = asks("u", 30, 1_000)
    assert not Finder(picture=picture, names=NAMES).survey(pod, demand(pod)).fits.any()
    assert plan(picture, pod, "n1") is None
