"""What a moment of work in flight took of a GPU that serves in turns and tells no use."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.isolation.pacing import Pace, Seen, Share, next_beat
from aliquot_agent.isolation.turns import Lately, weights
from support.virtual_gpu import contending

SPAN = 100_000_000


def lately(chance: float, processes: float = 1.0) -> Lately:
    """A slice that had work in flight for that part of the time, of so many processes."""
    busy = round(chance * SPAN)
    return Lately(span=SPAN, busy=busy, in_flight=busy * processes)


def expected(one: tuple[float, int], others: list[tuple[float, int]]) -> float:
    """The mean, by going through all there is: who of the others is there at some moment."""
    total = 0.0
    for there in itertools.product((False, True), repeat=len(others)):
        chances = [chance if is_there else 1 - chance for is_there, (chance, _) in zip(there, others, strict=True)]
        crowd = sum(count for is_there, (_, count) in zip(there, others, strict=True) if is_there)
        total += math.prod(chances) / (one[1] + crowd)
    return total


CONTAINERS = st.lists(st.tuples(st.floats(0.01, 1.0), st.integers(1, 40)), min_size=1, max_size=6)


@given(containers=CONTAINERS)
def test_weights_are_the_mean_over_all_that_may_be_there_at_once(containers: list[tuple[float, int]]) -> None:
    """Within 1.5 percent of what going through every case gives, for what a GPU may have at once."""
    found = weights({str(at): lately(*one) for at, one in enumerate(containers)})
    for at, one in enumerate(containers):
        # What the slice says it had is whole nanoseconds.
        assert found[str(at)] == pytest.approx(expected(one, containers[:at] + containers[at + 1 :]), rel=0.015)


def test_who_was_not_there_is_weighed_as_one_more() -> None:
    """A slice that did nothing lately takes its turn among those that did, and takes none of theirs before."""
    found = weights({"new": Lately(), "one": lately(1.0), "two": lately(1.0)})
    assert found == pytest.approx({"new": 1 / 3, "one": 1 / 2, "two": 1 / 2}, rel=0.01)
    assert weights({}) == {}


def test_a_container_that_does_not_tell_when_it_was_busy_is_one_process() -> None:
    """Those that run while the node is upgraded have the library that they started with."""
    old = Lately().then(span=SPAN, busy=0, in_flight=SPAN // 4)
    assert (old.chance, old.processes) == (0.25, 1.0)


def test_two_that_begin_at_once_are_weighed_as_two() -> None:
    """Neither is in what the other saw lately, and neither pays for the whole of what they share."""
    shares = dict.fromkeys("ab", Share(guarantee=0.5, limit=0.5))
    still = Seen(in_flight=0, charged=0, held=0, wanted=0, used=None)
    began = Seen(in_flight=1, busy=1, charged=0, held=1, wanted=SPAN, used=None)
    before = {name: Pace(rate=0.5, seen=still) for name in shares}
    found = next_beat(shares, before, dict.fromkeys(shares, began), now=SPAN, since=0)
    assert {pace.weight for pace in found.values()} == {0.5}


FIGURES = st.integers(-(2**63), 2**64)


@given(steps=st.lists(st.tuples(FIGURES, FIGURES), min_size=1, max_size=5), other=st.tuples(FIGURES, FIGURES))
def test_no_claim_leads_out_of_bounds(steps: list[tuple[int, int]], other: tuple[int, int]) -> None:
    """Whatever a tenant writes into its account, everybody's weight is a part of a moment."""
    one = two = Lately()
    for busy, in_flight in steps:
        one = one.then(span=SPAN, busy=busy, in_flight=in_flight)
        two = two.then(span=SPAN, busy=other[0], in_flight=other[1])
    assert 0 <= one.chance <= 1
    assert 1 <= one.processes <= 1024
    for weight in weights({"one": one, "two": two, "quiet": Lately()}).values():
        assert 0 < weight <= 1


@pytest.mark.parametrize(
    ("shares", "processes", "batch"),
    [
        ((10, 20, 30, 40), (1, 1, 1, 1), 100),
        ((10, 20, 30, 40), (1, 1, 1, 1), 500),
        ((30, 70), (1, 8), 100),
        ((70, 30), (1, 8), 100),
        ((10, 90), (1, 1), 100),
        ((50, 30, 20), (4, 4, 4), 100),
    ],
)
def test_contending_slices_have_their_shares_without_a_driver_that_tells_use(
    shares: tuple[int, ...], processes: tuple[int, ...], batch: int
) -> None:
    """Within two points over ten seconds, however many processes a slice has: more of them win nothing."""
    gpu = contending(shares, processes=processes, batch=batch)
    gpu.run(4)
    assert gpu.run(10) == pytest.approx(list(shares), abs=2.0)
