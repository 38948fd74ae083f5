"""What a moment of work in flight took of a GPU that serves in turns and tells no use."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.isolation.pacing import Pace, Seen, Share, next_beat
from aliquot_agent.isolation.turns import PLACES, WINDOW_NS, Lately, Told, met, told_of, windows_between

SPAN = 100_000_000
NOW = 10**12
WINDOWS = windows_between(NOW - SPAN, NOW)
COUNT = len(WINDOWS)


def processes(*numbers: float) -> list[float]:
    """So many have work in flight in the first window, the second and so on, again and again."""
    return [WINDOW_NS * numbers[at % len(numbers)] for at in range(COUNT)]


def weights(told: dict[str, Told], *, beats: int = 12) -> dict[str, float]:
    """What a moment takes when that went on for long."""
    lately = dict.fromkeys(told, Lately())
    for _ in range(beats):
        lately, found = met(lately, told, WINDOWS)
    return found


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"one": [1]}, {"one": 1.0}),
        ({"one": [1], "two": [1]}, {"one": 1 / 2, "two": 1 / 2}),
        ({"one": [1], "three": [3]}, {"one": 1 / 4, "three": 1 / 4}),
        # Two that make room for each other: by chance, the first would meet neither of them in a quarter of the time.
        ({"all": [1], "odd": [1, 0], "even": [0, 1]}, {"all": 1 / 2, "odd": 1 / 2, "even": 1 / 2}),
        # And two that always come together.
        ({"all": [1], "with": [2, 0], "too": [1, 0]}, {"all": 5 / 8, "with": 1 / 4, "too": 1 / 4}),
        # A part of a window, which nobody else was in.
        ({"half": [0.5], "rest": [0.5]}, {"half": 1.0, "rest": 1.0}),
    ],
)
def test_a_moment_takes_one_part_of_those_who_were_there(
    told: dict[str, list[float]], expected: dict[str, float]
) -> None:
    """Who met whom is what counts, not how many there are on the average."""
    found = weights({name: processes(*numbers) for name, numbers in told.items()})
    assert found == pytest.approx(expected, rel=0.01)


def words(numbers: range, ns: Sequence[int]) -> list[int]:
    """An account's places, where these windows say so much."""
    places = [0] * PLACES
    for number, one in zip(numbers, ns, strict=True):
        places[number % PLACES] = (number & 0xFFFFFFFF) << 32 | one
    return places


def test_windows_are_read_by_their_numbers() -> None:
    """A place still says what was in a window long past, or says already what is in one to come: that is nobody's."""
    now = words(WINDOWS, range(1, COUNT + 1))
    assert told_of(now, WINDOWS, in_flight=SPAN) == list(range(1, COUNT + 1))
    then = range(WINDOWS.start + PLACES, WINDOWS.stop + PLACES)
    assert told_of(now, then, in_flight=SPAN) == [0] * COUNT


def test_a_container_that_does_not_tell_when_has_the_same_at_all_times() -> None:
    """Those that run while the node is upgraded have the library that they started with."""
    told = told_of([0] * PLACES, WINDOWS, in_flight=3 * SPAN)
    assert told == pytest.approx(processes(3), rel=0.01)


@pytest.mark.parametrize("beat", [SPAN, SPAN + 7, SPAN // 3])
def test_beat_by_beat_each_window_is_read_once(beat: int) -> None:
    """Whatever beats a look is late by, until places are used again."""
    read = [number for at in range(8) for number in windows_between(NOW + at * beat, NOW + (at + 1) * beat)]
    assert read == list(range(read[0], read[-1] + 1))
    assert read[-1] * WINDOW_NS < NOW + 8 * beat - WINDOW_NS


@pytest.mark.parametrize("late", [1, 2, 1000])
def test_a_late_beat_reads_what_is_still_there(late: int) -> None:
    """Containers write on meanwhile: no place may be read that is another window's by now."""
    windows = windows_between(NOW - late * SPAN, NOW)
    assert 0 < len(windows) < PLACES
    assert windows.start > NOW // WINDOW_NS - PLACES


def test_who_was_not_there_is_weighed_as_one_more() -> None:
    """A slice that did nothing lately takes its turn among those that did, and takes none of theirs before."""
    found = weights({"new": (), "one": processes(1), "two": processes(1)})
    assert found == pytest.approx({"new": 1 / 3, "one": 1 / 2, "two": 1 / 2}, rel=0.01)
    assert met({}, {}, WINDOWS) == ({}, {})


def test_who_idles_for_long_was_not_there() -> None:
    """After seconds what a slice had at its moments is forgotten, and it is weighed by who is there now."""
    lately, _ = met({"was": Lately(), "is": Lately()}, {"was": processes(8), "is": processes(1)}, WINDOWS)
    for _ in range(40):
        lately, found = met(lately, {"was": (), "is": processes(1)}, WINDOWS)
    assert found == pytest.approx({"was": 1 / 2, "is": 1.0}, rel=0.01)


def test_two_that_begin_at_once_are_weighed_as_two() -> None:
    """Neither is in what the other saw lately, and neither pays for the whole of what they share."""
    shares = dict.fromkeys("ab", Share(guarantee=0.5, limit=0.5))
    still = Seen(in_flight=0, charged=0, held=0, wanted=0)
    began = Seen(in_flight=1, busy=1, charged=0, held=1, wanted=SPAN)
    before = {name: Pace(rate=0.5, seen=still) for name in shares}
    found = next_beat(shares, before, dict.fromkeys(shares, began), now=SPAN, since=0)
    assert {pace.weight for pace in found.values()} == {0.5}


FIGURES = st.integers(0, 2**64 - 1)
CLAIMS = st.tuples(st.integers(-(2**64), 2**64), st.lists(FIGURES, min_size=PLACES, max_size=PLACES))


@given(
    steps=st.lists(st.tuples(CLAIMS, CLAIMS), min_size=1, max_size=5),
    since=st.integers(0, 2**63),
    span=st.integers(1, 10**12),
)
def test_no_claim_leads_out_of_bounds(
    steps: list[tuple[tuple[int, list[int]], tuple[int, list[int]]]], since: int, span: int
) -> None:
    """Whatever a tenant writes into its account, everybody's weight is a part of a moment."""
    lately = dict.fromkeys(("one", "two", "quiet"), Lately())
    windows = windows_between(since, since + span)
    for one, two in steps:
        told = {
            "one": told_of(one[1], windows, in_flight=one[0]),
            "two": told_of(two[1], windows, in_flight=two[0]),
            "quiet": (),
        }
        lately, found = met(lately, told, windows)
        assert all(0 < weight <= 1 for weight in found.values())
        assert all(0 <= each.took <= each.in_flight for each in lately.values())


def test_no_moment_is_free_however_crowded_a_gpu_is() -> None:
    """Where a thousand containers claim two thousand processes each, a moment still costs what limits can say."""
    most = [float(2**32 - 1)] * COUNT
    found = weights({str(at): most for at in range(1000)}, beats=1)
    assert min(found.values()) >= 1e-6
