"""How a GPU's time is paced: guarantees always, what is left over to who wants it, charges that follow use."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_agent.isolation.pacing import Pace, Seen, Share, begun_anew, divide, next_beat

SECOND = 1_000_000_000
BEAT = SECOND // 10


def seen(*, at: int, in_flight: int = 0, charged: int = 0, held: int = 0) -> Seen:
    """Counters of a slice that has just asked for a launch."""
    return Seen(in_flight=in_flight, charged=charged, held=held, wanted=at)


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
    idle = Seen(in_flight=0, charged=0, held=0, wanted=0)
    now = 10 * SECOND
    one = next_beat(shares, {}, {"burst": seen(at=now), "quiet": idle}, now=now, since=now - BEAT)
    assert one["burst"].rate == 1.0
    later = now + BEAT
    both = {"burst": seen(at=later, in_flight=BEAT), "quiet": seen(at=later, held=1)}
    two = next_beat(shares, one, both, now=later, since=now)
    assert two["burst"].rate == pytest.approx(0.1)
    assert two["quiet"].rate == pytest.approx(0.9)


def test_use_is_taken_to_be_turns() -> None:
    """Four slices that want the GPU are charged a quarter of each moment."""
    shares = {name: Share(guarantee=0.25, limit=0.25) for name in "abcd"}
    counters = {name: seen(at=SECOND) for name in shares}
    paces = next_beat(shares, {}, counters, now=SECOND, since=0)
    assert {pace.weight for pace in paces.values()} == {0.25}


def rates_beside(quiet: Share, eager: Share, *, before: Seen, now: Seen, charged: int = 0) -> tuple[float, float]:
    """The rates of a slice with these counters, and of one beside it that asks for all it can get."""
    other = seen(at=10 * BEAT, held=1, charged=charged)
    paces = {
        "quiet": Pace(rate=quiet.guarantee, seen=before),
        "eager": Pace(rate=eager.guarantee, seen=seen(at=9 * BEAT)),
    }
    found = next_beat(
        {"quiet": quiet, "eager": eager}, paces, {"quiet": now, "eager": other}, now=10 * BEAT, since=9 * BEAT
    )
    return found["quiet"].rate, found["eager"].rate


@pytest.mark.parametrize(("ago", "rate"), [(100, 0.5), (200, 0.5), (201, 1.0), (900, 1.0)])
def test_who_asked_for_nothing_lately_wants_nothing(ago: int, rate: float) -> None:
    """A fifth of a second after the last launch what is its own is lent to others."""
    half, whole = Share(guarantee=0.5, limit=0.5), Share(guarantee=0.5, limit=1.0)
    last = 10 * BEAT - ago * SECOND // 1000
    before, now = seen(at=last), seen(at=last, held=1)
    assert rates_beside(half, whole, before=before, now=now)[1] == pytest.approx(rate)


@pytest.mark.parametrize(("charged", "rate"), [(40, 0.45), (20, 0.7), (0, 0.95)], ids=["much", "less", "idle"])
def test_who_is_not_held_back_keeps_a_quarter_more_than_it_uses(charged: int, rate: float) -> None:
    """And a twentieth of the GPU; the rest is lent."""
    most, least = Share(guarantee=0.8, limit=0.8), Share(guarantee=0.2, limit=1.0)
    millisecond = SECOND // 1000
    before = seen(at=9 * BEAT)
    now = seen(at=10 * BEAT, charged=charged * millisecond)
    assert rates_beside(most, least, before=before, now=now)[1] == pytest.approx(min(rate, 1.0))


@pytest.mark.parametrize(("busy", "rate"), [(0.0, 0.825), (0.2, 0.8), (0.6, 0.4), (1.0, 0.1), (3.0, 0.1)])
def test_who_has_work_in_flight_all_the_time_would_have_more(busy: float, rate: float) -> None:
    """A tenth of the GPU beside eight processes of another is no tenth that is wanted: less is left for those."""
    shares = {"burst": Share(guarantee=0.1, limit=1.0), "quiet": Share(guarantee=0.9, limit=0.9)}
    now, early = 10 * SECOND, Seen(in_flight=0, charged=0, held=0, wanted=10 * SECOND)
    before = {name: Pace(rate=share.guarantee, seen=early) for name, share in shares.items()}
    part = round(busy * BEAT)
    told = {
        "burst": Seen(in_flight=8 * BEAT, busy=BEAT, charged=BEAT, held=0, wanted=now + BEAT),
        "quiet": Seen(in_flight=part, busy=part, charged=BEAT // 10, held=0, wanted=now + BEAT),
    }
    assert next_beat(shares, before, told, now=now + BEAT, since=now)["burst"].rate == pytest.approx(rate)


def test_what_is_left_goes_round_until_nobody_can_take_more() -> None:
    """What one can't take for its limit is divided among the others, by guarantees; best effort counts a hundredth."""
    shares = {
        "full": Share(guarantee=0.1, limit=0.3),
        "b": Share(guarantee=0.1, limit=1.0),
        "c": Share(guarantee=0.1, limit=1.0),
    }
    assert divide(shares, dict.fromkeys(shares, 1.0)) == pytest.approx({"full": 0.3, "b": 0.35, "c": 0.35})
    beside = {"best": Share(guarantee=0.0, limit=1.0), "half": Share(guarantee=0.5, limit=1.0)}
    found = divide(beside, dict.fromkeys(beside, 1.0))
    assert found == pytest.approx({"best": 0.5 / 51, "half": 0.5 + 0.5 * 50 / 51})


FIGURES = st.sampled_from([0, BEAT, 2**63]) | st.integers(0, 2**64 - 1)
COUNTERS = st.builds(
    Seen,
    in_flight=FIGURES,
    busy=FIGURES,
    charged=FIGURES,
    held=st.sampled_from([0, 1]),
    wanted=st.sampled_from([10 * BEAT, 0]),
)
LIMITS = st.sampled_from([100, 50, 0])
SLICES = st.lists(st.tuples(st.integers(0, 60), LIMITS, COUNTERS, COUNTERS), min_size=3, max_size=5)


def drawn(one: tuple[int, int, Seen, Seen]) -> tuple[Share, Pace, Seen]:
    """What it was granted, how it stood, and what its account says now."""
    guarantee, limit, before, now = one
    own = Share(guarantee=guarantee / 100, limit=max(guarantee, limit) / 100)
    return own, Pace(rate=own.guarantee, seen=before), now


@given(slices=SLICES, span=st.sampled_from([BEAT, 0, 1, 3600 * SECOND]))
@settings(max_examples=500, deadline=None)
def test_no_figures_make_compute_of_nothing(slices: list[tuple[int, int, Seen, Seen]], span: int) -> None:
    """Who is held back has its guarantee, and all that anybody rises above his is at most what these leave of a GPU."""
    found = {str(at): drawn(one) for at, one in enumerate(slices)}
    shares = {name: share for name, (share, _, _) in found.items()}
    paces = {name: pace for name, (_, pace, _) in found.items()}
    seen_now = {name: now for name, (_, _, now) in found.items()}
    rates = {
        name: pace.rate
        for name, pace in next_beat(shares, paces, seen_now, now=10 * BEAT, since=10 * BEAT - span).items()
    }
    for name, share in shares.items():
        assert share.guarantee - 1e-6 <= rates[name] <= share.limit + 1e-6
    held = {name for name, (_, pace, now) in found.items() if now.wanted and pace.seen and now.held > pace.seen.held}
    kept = sum(shares[name].guarantee for name in held)
    rises = sum(rates[name] - share.guarantee for name, share in shares.items())
    assert kept + rises <= max(1.0, kept) + 1e-6


@pytest.mark.parametrize("back", [BEAT, 2**63])
def test_counters_that_run_backwards_are_no_compute_for_others(back: int) -> None:
    """A slice at work all the time keeps its part of the GPU beside one that says it gave some back."""
    shares = {
        "victim": Share(guarantee=0.7, limit=0.7),
        "liar": Share(guarantee=0.1, limit=0.1),
        "friend": Share(guarantee=0.2, limit=1.0),
    }
    early = seen(at=9 * BEAT)
    paces = {name: Pace(rate=share.guarantee, seen=early) for name, share in shares.items()}
    paces["liar"] = Pace(rate=0.1, seen=msgspec.structs.replace(early, in_flight=back, busy=back, charged=back))
    late = seen(at=10 * BEAT, held=1)
    told = {"victim": late, "liar": seen(at=10 * BEAT), "friend": late}
    found = next_beat(shares, paces, told, now=10 * BEAT, since=9 * BEAT)
    assert found["friend"].rate <= 0.3 + 1e-6


def test_after_a_fault_guarantees_alone_are_in_force() -> None:
    """Moments cost what they did, and what was seen before is not gone by again."""
    shares = dict.fromkeys(("old", "new"), Share(guarantee=0.3, limit=1.0))
    before = {"old": Pace(rate=0.7, weight=0.5, seen=seen(at=0))}
    assert begun_anew(shares, before) == {"old": Pace(rate=0.3, weight=0.5), "new": Pace(rate=0.3)}


def test_who_begins_is_weighed_as_the_gpu_will_serve_it() -> None:
    """In turns with the others, and not by what it was alone."""
    shares = dict.fromkeys("ab", Share(guarantee=0.5, limit=0.5))
    before = {name: Pace(rate=0.5, weight=1.0, seen=seen(at=0)) for name in shares}
    now = {name: seen(at=BEAT, held=1) for name in shares}
    found = next_beat(shares, before, now, now=BEAT, since=0)
    assert {name: pace.weight for name, pace in found.items()} == {"a": 0.5, "b": 0.5}
