"""The worth of room on one GPU: an optimum that must hold against every other price."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_scheduler.worth.mix import Mix, Shape
from aliquot_scheduler.worth.slots import MOST_SIZES, Reals, Size, _filled, sizes_of, slot_prices, slot_values

alike = st.lists(st.integers(1, 100), min_size=1, max_size=8, unique=True).flatmap(
    lambda sizes: st.tuples(*(st.tuples(st.just(size), st.just(size), st.integers(1, 50)) for size in sizes))
)
apart = st.lists(st.tuples(st.integers(20, 100), st.integers(20, 100), st.integers(1, 50)), min_size=1, max_size=4)


def mix(*counts: tuple[int, int, int]) -> Mix:
    """Requests of one GPU: compute, memory, how often."""
    return Mix.of({Shape(compute=compute, memory=memory, gpus=1): count for compute, memory, count in counts})


def cost_of(prices: Reals, sizes: list[Size]) -> float:
    """What the programme's dual says of prices: no others may be cheaper than the best packing's."""
    unserved: float = sum(
        one.demand * max(0.0, one.gain - price) for one, price in zip(sizes, prices.tolist(), strict=True)
    )
    return unserved + float(_filled(sizes, prices)[100, 100])


@given(st.one_of(alike, apart), st.lists(st.floats(0, 1), min_size=8, max_size=8))
@settings(max_examples=60, deadline=None)
def test_no_other_prices_are_better(counts: list[tuple[int, int, int]], others: list[float]) -> None:
    """So they are the optimum's: the problem is convex, and any prices bound the best packing from above."""
    sizes = sizes_of(mix(*counts))
    best = cost_of(slot_prices(sizes), sizes)
    for prices in (np.array(others)[: len(sizes)], np.array([one.gain for one in sizes]), np.zeros(len(sizes))):
        assert best <= cost_of(prices, sizes) + 1e-4


@given(st.one_of(alike, apart))
@settings(max_examples=40, deadline=None)
def test_more_room_is_never_worth_less_and_nothing_more_than_what_it_fills(counts: list[tuple[int, int, int]]) -> None:
    """On both axes."""
    values = slot_values(sizes_of(mix(*counts)))
    assert (np.diff(values, axis=0) >= -1e-9).all()
    assert (np.diff(values, axis=1) >= -1e-9).all()
    assert values.min() >= 0.0
    assert values.max() <= 2.0
    room = np.minimum(*np.indices(values.shape)) / 100
    if all(compute == memory for compute, memory, _ in counts):
        assert (values <= room + 1e-6).all()


@pytest.mark.parametrize(
    ("counts", "free", "worth"),
    [
        # One of 60 a GPU: the rest of 40 is nobody's.
        ([(60, 60, 1)], 40, 0.0),
        ([(60, 60, 1)], 99, 0.6),
        # 46 is scarcer than 54: one more GPU would take a 54 alone.
        ([(54, 54, 2), (46, 46, 1)], 100, 0.54),
        ([(54, 54, 2), (46, 46, 1)], 46, 0.0),
    ],
)
def test_a_rest_is_worth_what_can_lie_there(counts: list[tuple[int, int, int]], free: int, worth: float) -> None:
    """Cases that can be worked out by hand."""
    assert slot_values(sizes_of(mix(*counts)))[free, free] == pytest.approx(worth, abs=1e-5)


def test_memory_that_nobody_can_use_is_worth_nothing() -> None:
    """A card whose compute is gone has none, however much memory is left, and the other way round."""
    values = slot_values(sizes_of(mix((60, 20, 2), (20, 70, 1))))
    assert values[0, 100] == values[100, 0] == 0.0
    assert values[60, 20] > 0.0


def test_where_everybody_asks_for_another_size_the_common_ones_stand_for_all() -> None:
    """A programme of 1,000 sizes would take a minute; what is asked for in all stays the same."""
    many = mix((46, 46, 10_000), *((c, m, 1) for c in range(10, 60) for m in range(30, 50) if (c, m) != (46, 46)))
    sizes = sizes_of(many)
    assert len(sizes) == MOST_SIZES
    assert max(sum(one.demand * part(one) for one in sizes) for part in (_compute, _memory)) == pytest.approx(1.02)
    (common,) = (one for one in sizes if (one.compute, one.memory) == (46, 46))
    assert common.demand == max(one.demand for one in sizes) > 2.0


def _compute(size: Size) -> float:
    return size.compute / 100


def _memory(size: Size) -> float:
    return size.memory / 100
