"""The loss of a place: the same for one node as for many, and what each of its parts is there for."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.patterns import Patterns
from aliquot_scheduler.worth.learning import MixBook, expected_mix, next_look
from aliquot_scheduler.worth.loss import CROWDING, LARGE, RESTS, STRANDING, TIGHTNESS, Loss, Part, loss
from aliquot_scheduler.worth.mix import Mix, Shape
from aliquot_scheduler.worth.page import decode_page, encode_page
from aliquot_scheduler.worth.room import Room
from aliquot_scheduler.worth.scarcity import scarcity
from aliquot_scheduler.worth.slots import sizes_of, slot_values
from aliquot_scheduler.worth.stranding import Stranding, stranding
from aliquot_scheduler.worth.tables import tables

KINDS = [("t4",), ("g2",)]
SEEN = Mix.of(
    {
        Shape(cores=8.0, compute=100, memory=100, gpus=1): 50,
        Shape(cores=4.0, compute=46, memory=46, gpus=1): 30,
        Shape(cores=4.0, compute=54, memory=54, gpus=1): 30,
        Shape(cores=2.0, compute=20, memory=40, gpus=1): 10,
        Shape(cores=8.0, compute=100, memory=100, gpus=4): 2,
        Shape(cores=4.0, compute=100, memory=100, gpus=1, models=Patterns(allowed=("t4",))): 20,
        Shape(cores=16.0): 10,
    }
)
TABLES = tables(SEEN, kinds=KINDS, gpus=4, cores=64.0)

nodes = st.lists(
    st.tuples(
        st.sampled_from([0.0, 3.0, 8.0, 64.0]),
        st.integers(0, 1),
        st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=4, max_size=4),
    ),
    min_size=1,
    max_size=6,
)
Node = tuple[float, int, list[tuple[int, int]]]


def room(*some: Node) -> Room:
    """Cores, kind, and percent of compute and memory free of four GPUs each."""
    return Room(
        cores=np.array([cores for cores, _, _ in some]),
        compute=np.array([[gpu[0] for gpu in gpus] for _, _, gpus in some]).T.copy(),
        memory=np.array([[gpu[1] for gpu in gpus] for _, _, gpus in some]).T.copy(),
        kinds=np.array([[kind] * 4 for _, kind, _ in some]).T.copy(),
    )


def lost(some: Room, *, compute: int, memory: int, count: int = 1, like: Room | None = None) -> Loss:
    """What a pod loses; `like` is the room by which scarcity is judged."""
    fits = (some.compute >= compute) & (some.memory >= memory)
    part = Part(compute=compute, memory=memory, fits=fits, count=count)
    return loss(some, cores=4.0, parts=[part], tables=TABLES, scarcity=scarcity(like or some, TABLES))


FULL = [(100, 100)] * 4
EMPTY = (64.0, 1, FULL)


@given(nodes, st.sampled_from([(46, 46), (20, 40), (100, 100)]), st.integers(1, 2))
@settings(max_examples=80, deadline=None)
def test_a_node_among_others_loses_what_it_loses_alone(some: list[Node], asked: tuple[int, int], count: int) -> None:
    """Also where the pod does not fit, nothing is read that is not there."""
    whole = room(*some)
    together = lost(whole, compute=asked[0], memory=asked[1], count=count)
    for number, node in enumerate(some):
        alone = lost(room(node), compute=asked[0], memory=asked[1], count=count, like=whole)
        places = [gpu for gpu in range(4) if min(np.subtract(node[2][gpu], asked)) >= 0]
        if len(places) >= count:
            assert alone.nodes[0] == pytest.approx(together.nodes[number])
            assert count > 1 or alone.gpu[0] == together.gpu[number]
            assert count > 1 or alone.gpu[0] in places


@given(nodes)
@settings(max_examples=40, deadline=None)
def test_the_short_way_gives_what_the_long_way_gives(some: list[Node]) -> None:
    """As much memory as compute, said once or of each card."""
    whole = room(*some)
    fits = whole.free >= 46
    prices = scarcity(whole, TABLES)
    short, long = (
        loss(whole, cores=1.0, parts=[Part(compute=46, memory=memory, fits=fits)], tables=TABLES, scarcity=prices)
        for memory in (46, np.full_like(whole.memory, 46))
    )
    able = fits.any(axis=0)
    assert short.nodes[able] == pytest.approx(long.nodes[able])
    assert (short.gpu[able] == long.gpu[able]).all()


@given(nodes, st.sampled_from([5, 46, 100]), st.integers(1, 2))
@settings(max_examples=20, deadline=None)
def test_many_nodes_are_valued_as_few_are(some: list[Node], compute: int, count: int) -> None:
    """To the last bit: whoever is asked again by himself must not seem better for that."""
    few, many = room(*some), room(*some * 300)
    one, all_of_them = (lost(each, compute=compute, memory=compute, count=count, like=few) for each in (few, many))
    fits = ((few.free >= compute).sum(axis=0) >= count).tolist()
    assert np.array_equal(all_of_them.nodes[fits * 300], np.tile(one.nodes[fits], 300))
    assert count > 1 or np.array_equal(all_of_them.gpu[fits * 300], np.tile(one.gpu[fits], 300))


def test_rests_that_add_up_are_used_up() -> None:
    """46 goes beside 54, not where 10 would be left that nobody asks for."""
    node = (64.0, 1, [(100, 100), (56, 56), (46, 46), (0, 0)])
    assert lost(room(node), compute=46, memory=46).gpu[0] == 2


def test_memory_counts_as_compute_does() -> None:
    """The rest that has room on one axis alone is no room."""
    node = (64.0, 1, [(46, 90), (46, 46), (0, 0), (0, 0)])
    assert lost(room(node), compute=46, memory=46).gpu[0] == 1


def test_a_card_is_filled_on_both_axes_at_once() -> None:
    """A pod that asks for more memory than compute goes where memory is left over; else its own rest would be."""
    node = (64.0, 1, [(100, 100), (80, 100), (100, 80), (0, 0)])
    assert lost(room(node), compute=20, memory=40).gpu[0] == 1
    uneven = slot_values(sizes_of(SEEN)) - TABLES.slots
    assert uneven[30, 30] == uneven[100, 100] == 0.0
    assert uneven[100, 0] == pytest.approx(uneven[0, 100]) == pytest.approx(0.1)
    assert uneven[60, 20] == pytest.approx(uneven[50, 90]) == pytest.approx(0.04)


def test_a_scarce_model_is_left_to_those_who_need_it() -> None:
    """T4 is asked for by name, G2 is not; each at what it is crowded."""
    some = room((64.0, 0, FULL), EMPTY, EMPTY)
    prices = scarcity(some, TABLES)
    none = msgspec.structs.replace(prices, crowding=0 * prices.crowding)
    part = Part(compute=46, memory=46, fits=some.free >= 46)
    with_it, without = (
        loss(some, cores=4.0, parts=[part], tables=TABLES, scarcity=one).nodes for one in (prices, none)
    )
    assert prices.crowding[0] > prices.crowding[1] > 0.0
    assert (with_it - without)[:2] == pytest.approx(CROWDING * 0.46 * prices.crowding)


def test_cores_are_left_to_the_gpus_beside_them() -> None:
    """A pod without GPU goes where its cores are not the last ones beside idle GPUs."""
    some = room((36.0, 1, FULL), (36.0, 1, [(0, 0)] * 4))
    at = loss(some, cores=20.0, parts=[], tables=TABLES, scarcity=scarcity(some, TABLES)).nodes
    assert at[0] > at[1]
    bare = msgspec.structs.replace(TABLES, stranding=Stranding(table=np.zeros((1, 1)), step=1.0))
    without = loss(some, cores=20.0, parts=[], tables=bare, scarcity=scarcity(some, TABLES)).nodes
    of = TABLES.stranding.of
    stranded = of(some.total, some.cores - 20.0) - of(some.total, some.cores)
    assert stranded[0] > 0.5
    assert at - without == pytest.approx(STRANDING * stranded)


def test_a_node_for_large_pods_is_not_broken_up() -> None:
    """At the price of its GPUs, where as many such pods are expected as there are places."""
    often = Mix.of({Shape(compute=100, memory=100, gpus=1): 1, Shape(compute=100, memory=100, gpus=4): 1})
    known = tables(often, kinds=KINDS, gpus=4, cores=64.0)
    some = room(EMPTY, (64.0, 1, [(100, 100), (100, 100), (100, 100), (0, 0)]))
    part = Part(compute=100, memory=100, fits=some.free == 100)
    at = loss(some, cores=4.0, parts=[part], tables=known, scarcity=scarcity(some, known)).nodes
    assert at[0] - at[1] == pytest.approx(LARGE * 4, abs=0.01)


def test_room_that_most_can_use_is_left_for_them() -> None:
    """Of rests that are worth the same now the one goes that fewer could use."""
    some = room((64.0, 1, [(99, 99), (66, 66), (0, 0), (0, 0)]), (64.0, 1, [(66, 66), (99, 99), (0, 0), (0, 0)]))
    rests = TABLES.rests[1, int(TABLES.level(np.array([60.0]))[0])]
    flat = msgspec.structs.replace(TABLES, slots=0 * TABLES.slots, slots_after=0 * TABLES.slots)
    part = Part(compute=20, memory=20, fits=some.free >= 20)
    found = loss(some, cores=4.0, parts=[part], tables=flat, scarcity=scarcity(some, flat))
    grown = [rests[left] - rests[was] for was, left in ((99, 79), (66, 46))]
    assert abs(grown[0] - grown[1]) > 0.05
    best = int(np.argmin(grown))
    assert found.gpu.tolist() == [best, 1 - best]


def test_cores_that_go_take_the_room_beside_them_from_those_who_need_both() -> None:
    """Also where nothing of a GPU is taken."""
    some = room((9.0, 1, FULL), (18.0, 1, FULL))
    bare = Stranding(table=np.zeros((1, 1)), step=1.0)
    flat = msgspec.structs.replace(TABLES, stranding=bare, larges=())
    at = loss(some, cores=6.0, parts=[], tables=flat, scarcity=scarcity(some, flat)).nodes
    rests = TABLES.rests[1, :, 100]
    before, after = (rests[TABLES.level(np.array([cores]))[0]] for cores in (9.0, 3.0))
    assert at[0] - at[1] == pytest.approx(RESTS * 4 * (after - before) - TIGHTNESS * 9 / 128)


def test_more_cores_never_strand_more() -> None:
    """And cores without end strand nothing."""
    table = stranding(SEEN, gpus=4, cores=64.0).table
    assert (np.diff(table, axis=1) <= 1e-9).all()
    assert table[:, -1].max() < 0.3
    assert table[20, 0] > 1.0


def test_a_request_counts_once_whoever_tells_of_it_again() -> None:
    """Also a centre that is started anew with what the one before it stored."""
    shape = Shape(cores=1.0, compute=50, memory=50, gpus=1)
    book = MixBook()
    assert book.seen(shape, uid="a", created="2026-11-21T10:00:00Z")
    assert not book.seen(shape, uid="a", created="2026-11-21T10:00:00Z")
    again = MixBook(decode_page(encode_page(book.page()), now=1e10))
    assert not again.seen(shape, uid="a", created="2026-11-21T10:00:00Z")
    assert again.seen(shape, uid="b", created="2026-11-21T10:00:01Z")
    assert again.requests == 2
    nothing = Mix()
    assert again.mix(expected=nothing).shares == (1.0,)


def test_what_is_long_ago_counts_less() -> None:
    """After one half-life half."""
    old, new = (Shape(compute=size, memory=size, gpus=1) for size in (30, 60))
    book = MixBook(half_life=100.0)
    for shape in [old] * 1_000 + [new] * 100:
        book.count(shape)
    mix = book.mix(expected=Mix())
    assert mix.shares[mix.shapes.index(new)] == pytest.approx(0.5, abs=0.01)


def test_what_is_expected_fades_and_what_was_not_seen_may_still_come() -> None:
    """A kind that nobody has asked for by name yet is not given away at once."""
    book, expected = MixBook(), expected_mix(cores_per_gpu=8.0)
    assert book.mix(expected=expected).shapes == expected.shapes
    for _ in range(2_000):
        book.count(Shape(cores=1.0, compute=50, memory=50, gpus=1))
    mix = book.mix(expected=expected)
    assert mix.shares[0] > 0.98
    crowding = [
        scarcity(room((64.0, 0, FULL), EMPTY, EMPTY), tables(one, kinds=KINDS, gpus=4, cores=64.0)).crowding
        for one in (mix, Mix.of({mix.shapes[0]: 1}, requests=20.0))
    ]
    scarce = [kinds[0] - kinds[1] for kinds in crowding]
    assert 0.0 < scarce[0] < scarce[1]
    assert next_look(0) < next_look(100) - 100 < next_look(10_000) - 10_000 <= 1_000
