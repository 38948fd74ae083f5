"""Instants as Kubernetes writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.instants import micro_time, second_time, seconds_of

# Up to the year 2200, in microseconds.
INSTANTS = st.integers(min_value=0, max_value=7_258_118_400 * 10**6)


@given(INSTANTS)
def test_what_is_written_is_read_again(micros: int) -> None:
    """To the microsecond, or to the second that has begun."""
    wall = micros / 10**6
    assert seconds_of(micro_time(wall)) == pytest.approx(wall, abs=2e-6)
    assert seconds_of(second_time(wall)) == pytest.approx(micros // 10**6, abs=1.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:01:00.250000Z", 60.25),
        ("1970-01-01T02:00:00+02:00", 0.0),
        ("1970-01-01T00:00:01", 1.0),
        (None, None),
        ("", None),
        ("yesterday", None),
    ],
)
def test_a_zone_counts_and_what_is_no_instant_is_none(text: str | None, seconds: float | None) -> None:
    """What says no zone is UTC, wherever this machine stands."""
    assert seconds_of(text) == seconds
