"""Pods that no empty node could take as a whole: said so, against a plain search, and by queues in the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_core.inventory import Gpu
from aliquot_core.objects import Pod
from aliquot_core.quantities import WHOLE
from aliquot_core.request import parse_request
from aliquot_scheduler.fit.demand import Piece, demand_of, in_order, pieces_of
from aliquot_scheduler.fit.emptied import Emptied
from aliquot_scheduler.fit.finder import Finder
from support.centre import MEMORY, NAMES, Asked, asks, bound, container, gpus, make_node, make_pod, picture_with
from support.queue_stage import GATED, Stage, queue


def pod_of(*containers: Asked, notes: Mapping[str, str] | None = None) -> Pod:
    """A pod of so many that stay."""
    return make_pod("u", *(container(f"c{at}", one) for at, one in enumerate(containers)), annotations=notes)


def counted_on(cards: Sequence[Gpu], pod: Pod) -> int:
    """For how many of its containers that node is said to have room, were it empty."""
    picture = picture_with(make_node("n", cards))
    request = parse_request(pod, names=NAMES)
    rows = np.array([picture.nodes["n"].row])
    (fill,) = Emptied().fills(request, rows, grid=picture.grid, allowed=picture.grid.open)
    return fill.staying


def lies_somehow(containers: Sequence[Sequence[Piece]], memories: Sequence[int]) -> bool:
    """Every way to put each container's pieces on GPUs of its own."""
    ways = [permutations(range(len(memories)), len(pieces)) for pieces in containers]
    return any(_holds(containers, way, memories) for way in product(*ways))


def _holds(containers: Sequence[Sequence[Piece]], way: Sequence[Sequence[int]], memories: Sequence[int]) -> bool:
    on: dict[int, list[Piece]] = {}
    for pieces, places in zip(containers, way, strict=True):
        for piece, at in zip(pieces, places, strict=True):
            on.setdefault(at, []).append(piece)
    return all(
        sum(piece.compute for piece in pieces) <= WHOLE.value
        and sum(piece.memory_on(memories[at]) for piece in pieces) <= memories[at]
        and (len(pieces) == 1 or not any(piece.whole for piece in pieces))
        for at, pieces in on.items()
    )


one_container = st.tuples(
    st.sampled_from([None, 20, 34, 50, 51, 60, 100, 130, 150, 200]), st.sampled_from([None, 1_000, 30_000, 40_000])
).filter(lambda asked: asked != (None, None))


@given(
    st.lists(one_container, min_size=2, max_size=4),
    st.lists(st.sampled_from([40_000, MEMORY]), min_size=1, max_size=3),
    st.booleans(),
)
@example([(50, 1_000), (50, 1_000), (50, 1_000)], [MEMORY], False)
@example([(60, 1_000), (60, 1_000), (40, 1_000)], [MEMORY, MEMORY], False)
@example([(20, 40_000), (20, 40_000)], [40_000], False)
@example([(20, 1_000), (20, 1_000)], [MEMORY], True)
@settings(max_examples=300, deadline=None)
def test_room_on_an_empty_node_is_what_a_search_finds(
    containers: list[Asked],
    memories: list[int],
    in_two: bool,
) -> None:
    """All of them find some exactly where there is a way; else fewer do, and as many as are said."""
    cards = [gpus("n", at + 1, memory=memory)[at] for at, memory in enumerate(memories)]
    # Nobody without compute is divided.
    two = {NAMES.gpus: "2"} if in_two and any(compute for compute, _ in containers) else {}
    pod = pod_of(*containers, notes=two)
    laid = [pieces_of(one) for one in in_order(parse_request(pod, names=NAMES))]
    count = counted_on(cards, pod)
    assert (count == len(laid)) is lies_somehow(laid, memories)
    if count < len(laid):
        subsets = (some for some in product((False, True), repeat=len(laid)) if sum(some) == count)
        kept = ([one for one, is_in in zip(laid, some, strict=True) if is_in] for some in subsets)
        assert any(lies_somehow(some, memories) for some in kept)


CARDS = gpus("n", 8)
# What its containers ask, and for how many an empty node of eight GPUs has room.
TOO_MANY: dict[str, tuple[list[Asked], int]] = {
    "nine that no two of which share a GPU": ([(60, 1_000)] * 9, 8),
    "nine whole ones": ([(100, 1_000)] * 9, 8),
    "three of three": ([(300, 3_000)] * 3, 2),
    "thirty": ([(60, 1_000)] * 30, 8),
    "by memory": ([(10, 50_000)] * 9, 8),
    "of different sizes": ([(100, 1_000)] * 8 + [(None, 1_000)], 8),
}


@pytest.mark.parametrize("row", TOO_MANY)
@pytest.mark.parametrize("held", [(), (50,) * 8], ids=["empty", "in use"])
def test_who_fits_no_empty_node_is_refused_for_good(row: str, held: Sequence[int]) -> None:
    """Evicting somebody could not help; the queue says never, by the same count."""
    asked, room = TOO_MANY[row]
    pod, node = pod_of(*asked), make_node("n", CARDS)
    picture = picture_with(node)
    for card, compute in zip(CARDS, held, strict=False):
        picture.pod_seen(bound(asks(card.uuid, compute, 1_000), node="n", held={card.uuid: (compute, 1_000)}))
    demand = demand_of(parse_request(pod, names=NAMES))
    refusal = Finder(picture=picture, names=NAMES).refusals(demand, {"n": picture.nodes["n"].row})["n"]
    assert refusal.final
    assert refusal.why == f"{room} of its {len(asked)} containers find room even on an empty node"


@pytest.mark.parametrize("row", TOO_MANY)
def test_who_fits_no_empty_node_is_told_so_by_its_queue(row: str) -> None:
    """It stands in no line; a larger node that comes lets it in."""
    asked, room = TOO_MANY[row]
    stage = Stage({"a": queue()}, nodes=(8,))
    containers = [container(f"c{at}", one) for at, one in enumerate(asked)]
    stage.see(make_pod("p", *containers, spec=GATED, labels={NAMES.queue: "a"}))
    assert stage.round() == []
    (waiter,) = stage.queues.waiting()
    notice = stage.queues.notice(waiter)
    said = f"on no node more than {room} of its {len(asked)} containers find room"
    assert (notice.reason, notice.message) == ("NeverFits", f"no node could take it, even if it were empty: {said}")
    stage.picture.node_seen(make_node("large", gpus("large", 32)))
    assert stage.round() != []


def test_who_would_fit_an_empty_node_is_not_refused_for_good() -> None:
    """Seven of eight GPUs are taken: what is there has room for one of two."""
    picture = picture_with(make_node("n", CARDS))
    for card in CARDS[1:]:
        picture.pod_seen(bound(asks(card.uuid, 100, 1_000), node="n", held={card.uuid: (100, 1_000)}))
    demand = demand_of(parse_request(pod_of((60, 1_000), (60, 1_000)), names=NAMES))
    refusal = Finder(picture=picture, names=NAMES).refusals(demand, {"n": picture.nodes["n"].row})["n"]
    assert not refusal.final
    assert refusal.why == "its GPUs have room for one container, not for all 2 of the pod together"


# Each three fill a GPU, and to find that out takes more than a few steps.
THREES = [
    (39, 32, 29),
    (38, 40, 22),
    (32, 26, 42),
    (30, 34, 36),
    (33, 32, 35),
    (40, 38, 22),
    (39, 30, 31),
    (33, 31, 36),
]


def test_too_many_ways_are_not_said_to_be_none() -> None:
    """There is one, and who can't try all says that one may be."""
    computes = [compute for three in THREES for compute in three]
    pod = pod_of(*((compute, 1_000 + at) for at, compute in enumerate(computes)))
    assert counted_on(CARDS, pod) == len(computes)
