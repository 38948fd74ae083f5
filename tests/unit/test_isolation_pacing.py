"""How a GPU's time is paced: guarantees always, what is left over to who wants it, charges that follow use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.isolation.pacing import Pace, Seen, Share, divide, next_beat

SECOND = 1_000_000_000
BEAT = SECOND // 10


def seen(*, at: int, used: int | None, in_flight: int = 0, charged: int = 0, held: int = 0) -> Seen:
    """Counters of a slice that has just asked for a launch."""
    return Seen(in_flight=in_flight, charged=charged, held=held, wanted=at, used=used)


@given(
    shares=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=6),
    wants=st.lists(st.floats(0, 1), min_size=6, max_size=6),
)
def test_rates_stay_between_guarantee_and_limit(shares: list[tuple[int, int]], wants: list[float]) -> None:
    """Whatever is wanted, nobody gets less than his guarantee or more than his limit, and the GPU is given once."""
    total = max(100, sum(guarantee for guarantee, _ in shares))
    granted = {
        str(index): Share(guarantee=guarantee / total, limit=max(guarantee / total, limit / 100))
        for index, (guarantee, limit) in enumerate(shares)
    }
    want = {str(index): wants[index] for index in range(len(shares))}
    rates = divide(granted, want)
    for name, share in granted.items():
        assert share.guarantee - 1e-9 <= rates[name] <= share.limit + 1e-9
    used = sum(min(rates[name], want[name]) for name in granted)
    assert used <= 1 + 1e-6


@pytest.mark.parametrize(
    ("wants", "expected"),
    [
        ({"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 0.5}),
        ({"a": 1.0, "b": 1.0}, {"a": 0.2, "b": 0.5}),
        ({"a": 1.0, "b": 0.3}, {"a": 0.7, "b": 0.5}),
        ({"a": 0.1, "b": 1.0}, {"a": 0.2, "b": 0.9}),
    ],
    ids=["alone", "contending", "neighbour-half-idle", "least-wants-little"],
)
def test_what_is_left_over_goes_to_who_wants_it(wants: dict[str, float], expected: dict[str, float]) -> None:
    """A burstable slice rises into idle time and not above it; who wants little keeps his guarantee."""
    shares = {"a": Share(guarantee=0.2, limit=1.0), "b": Share(guarantee=0.5, limit=1.0)}
    contending = wants["a"] == wants["b"] == 1.0
    rates = divide(shares, wants)
    if contending:
        assert rates["a"] + rates["b"] == pytest.approx(1.0)
        assert rates["a"] >= expected["a"]
        assert rates["b"] >= expected["b"]
    else:
        assert rates == pytest.approx(expected)


def test_a_slice_that_wants_again_is_served_with_the_next_beat() -> None:
    """A burst into a neighbour's idle time ends one beat after the neighbour launches again."""
    shares = {"burst": Share(guarantee=0.1, limit=1.0), "quiet": Share(guarantee=0.9, limit=0.9)}
    idle = Seen(in_flight=0, charged=0, held=0, wanted=0, used=0)
    now = 10 * SECOND
    one = next_beat(shares, {}, {"burst": seen(at=now, used=0), "quiet": idle}, now=now, since=now - BEAT)
    assert one["burst"].rate == 1.0
    later = now + BEAT
    both = {"burst": seen(at=later, used=BEAT, in_flight=BEAT), "quiet": seen(at=later, used=0, held=1)}
    two = next_beat(shares, one, both, now=later, since=now)
    assert two["burst"].rate == pytest.approx(0.1)
    assert two["quiet"].rate == pytest.approx(0.9)


def test_charges_follow_use_however_much_a_moment_in_flight_takes() -> None:
    """With neighbours that make every moment worth 40 %, charges are within 2 % of use after three seconds."""
    shares = {"a": Share(guarantee=0.3, limit=0.3)}
    paces: dict[str, Pace] = {}
    in_flight = used = charged = 0.0
    for beat in range(30):
        now = (beat + 1) * BEAT
        weight = paces["a"].weight if paces else 1.0
        in_flight, used, charged = in_flight + 0.6 * BEAT, used + 0.24 * BEAT, charged + 0.6 * BEAT * weight
        counters = seen(at=now, used=round(used), in_flight=round(in_flight), charged=round(charged))
        paces = next_beat(shares, paces, {"a": counters}, now=now, since=now - BEAT)
    assert charged == pytest.approx(used, rel=0.02)


def test_unknown_use_is_taken_to_be_turns() -> None:
    """Where the driver tells nobody's use, four slices that want the GPU are charged a quarter of each moment."""
    shares = {name: Share(guarantee=0.25, limit=0.25) for name in "abcd"}
    counters = {name: seen(at=SECOND, used=None) for name in shares}
    paces = next_beat(shares, {}, counters, now=SECOND, since=0)
    assert {pace.weight for pace in paces.values()} == {0.25}
