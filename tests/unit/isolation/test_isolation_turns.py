"""What a moment of work in flight took of a GPU that serves in turns and tells no use."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_agent.isolation.pacing import Pace, Seen, Share, next_beat
from aliquot_agent.isolation.turns import SIZES, Lately, weights

SPAN = 100_000_000
# For which part of the time how many processes had work in flight.
Crowd = dict[int, float]


def lately(crowd: Crowd) -> Lately:
    """A slice that had work in flight so."""
    times = [round(crowd.get(size, 0.0) * SPAN) for size in SIZES]
    in_flight = sum(time * size for time, size in zip(times, SIZES, strict=True))
    return Lately().then(span=SPAN, busy=sum(times), in_flight=in_flight, crowd=times)


def expected(one: Crowd, others: list[Crowd]) -> float:
    """The mean over its processes' moments, by going through all there is: how many others are there at each."""
    total = 0.0
    states = [[(0, 1 - sum(other.values())), *other.items()] for other in others]
    for own, part in one.items():
        for there in itertools.product(*states):
            chance = math.prod(chance for _, chance in there)
            total += part * own * chance / (own + sum(count for count, _ in there))
    return total / sum(own * part for own, part in one.items())


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    """Some numbers of processes, and at times none."""
    sizes = draw(st.lists(st.sampled_from(SIZES[:-2]), min_size=1, max_size=3, unique=True))
    parts = draw(st.lists(st.floats(0.01, 1.0), min_size=len(sizes), max_size=len(sizes)))
    scale = max(1.0, sum(parts))
    return {size: part / scale for size, part in zip(sizes, parts, strict=True)}


@given(containers=st.lists(crowds(), min_size=1, max_size=5))
def test_weights_are_the_mean_over_all_that_may_be_there_at_once(containers: list[Crowd]) -> None:
    """Within 1.5 percent of what going through every case gives, for what a GPU may have at once."""
    found = weights({str(at): lately(one) for at, one in enumerate(containers)})
    for at, one in enumerate(containers):
        # What the slice says it had is whole nanoseconds.
        assert found[str(at)] == pytest.approx(expected(one, containers[:at] + containers[at + 1 :]), rel=0.015)


def test_where_only_the_mean_is_told_each_moment_has_it() -> None:
    """An older library says how long any was in flight and all together; between two sizes it is some of both."""
    told = Lately().then(span=SPAN, busy=SPAN // 2, in_flight=5 * SPAN)
    assert told.crowd == pytest.approx(lately({8: 0.25, 12: 0.25}).crowd)
    assert Lately().then(span=SPAN, busy=SPAN // 2, in_flight=4 * SPAN, crowd=[0] * len(SIZES)).crowd[7] == SPAN // 2


def test_what_a_container_says_of_its_numbers_is_as_long_as_it_was_busy() -> None:
    """It counts them every few milliseconds: what it has not counted yet is taken to be like the rest."""
    counted = [SPAN // 10, *[0] * 6, SPAN // 10, *[0] * 5]
    assert Lately().then(span=SPAN, busy=SPAN, in_flight=4 * SPAN, crowd=counted).crowd == pytest.approx(
        lately({1: 0.5, 8: 0.5}).crowd
    )


def test_who_was_not_there_is_weighed_as_one_more() -> None:
    """A slice that did nothing lately takes its turn among those that did, and takes none of theirs before."""
    found = weights({"new": Lately(), "one": lately({1: 1.0}), "two": lately({1: 1.0})})
    assert found == pytest.approx({"new": 1 / 3, "one": 1 / 2, "two": 1 / 2}, rel=0.01)
    assert weights({}) == {}


def test_a_container_that_does_not_tell_when_it_was_busy_is_one_process() -> None:
    """Those that run while the node is upgraded have the library that they started with."""
    old = Lately().then(span=SPAN, busy=0, in_flight=SPAN // 4)
    assert old.crowd == lately({1: 0.25}).crowd


def test_two_that_begin_at_once_are_weighed_as_two() -> None:
    """Neither is in what the other saw lately, and neither pays for the whole of what they share."""
    shares = dict.fromkeys("ab", Share(guarantee=0.5, limit=0.5))
    still = Seen(in_flight=0, charged=0, held=0, wanted=0, used=None)
    began = Seen(in_flight=1, busy=1, charged=0, held=1, wanted=SPAN, used=None)
    before = {name: Pace(rate=0.5, seen=still) for name in shares}
    found = next_beat(shares, before, dict.fromkeys(shares, began), now=SPAN, since=0)
    assert {pace.weight for pace in found.values()} == {0.5}


FIGURES = st.integers(-(2**63), 2**64)
CLAIMS = st.tuples(FIGURES, FIGURES, st.one_of(st.just([]), st.lists(FIGURES, min_size=13, max_size=13)))


@given(steps=st.lists(CLAIMS, min_size=1, max_size=5), other=CLAIMS)
def test_no_claim_leads_out_of_bounds(
    steps: list[tuple[int, int, list[int]]], other: tuple[int, int, list[int]]
) -> None:
    """Whatever a tenant writes into its account, everybody's weight is a part of a moment."""
    one = two = Lately()
    for busy, in_flight, crowd in steps:
        one = one.then(span=SPAN, busy=busy, in_flight=in_flight, crowd=crowd)
        two = two.then(span=SPAN, busy=other[0], in_flight=other[1], crowd=other[2])
    assert 0 <= one.busy <= one.span * (1 + 1e-9)
    assert min(one.crowd) >= 0
    for weight in weights({"one": one, "two": two, "quiet": Lately()}).values():
        assert 0 < weight <= 1


@given(
    crowd=st.lists(st.integers(0, SPAN), min_size=13, max_size=13),
    busy=st.integers(0, SPAN),
    beats=st.integers(1, 4000),
)
@example(crowd=[SPAN, *[0] * 12], busy=SPAN, beats=1468)
@settings(max_examples=20, deadline=None)
def test_who_idles_for_long_was_not_there(crowd: list[int], busy: int, beats: int) -> None:
    """After minutes without work what a slice did before is forgotten, and on the way there each beat has weights."""
    one = Lately().then(span=SPAN, busy=busy, in_flight=8 * busy, crowd=crowd)
    two = lately({1: 1.0})
    for _ in range(beats):
        one = one.then(span=SPAN, busy=0, in_flight=0, crowd=[0] * len(SIZES))
        if one.busy:
            assert all(0 < weight <= 1 for weight in weights({"one": one, "two": two}).values())
    assert all(part == 0 or part >= 1 for part in one.crowd)
    found = weights({"one": one, "two": two})
    assert all(0 < weight <= 1 for weight in found.values())
    if beats > 60:
        assert one.busy == 0
        assert found == pytest.approx({"one": 0.5, "two": 1.0}, rel=0.01)


def test_no_moment_is_free_however_crowded_a_gpu_is() -> None:
    """Where a thousand containers claim a thousand processes each, a moment still costs what limits can say."""
    found = weights({str(at): lately({1024: 1.0}) for at in range(1000)})
    assert min(found.values()) >= 1e-6
