"""What was used lately: half of it is forgotten each half-life, and an admission counts at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_scheduler.queues.charged.usage import Forgetting, Usage

HOUR = 3600.0


def usage(*, penalty: float = 60.0) -> Usage[str]:
    """Usage of one thing that is half forgotten after an hour."""
    return Usage(width=1, forgetting=Forgetting(half_life=HOUR, penalty=penalty))


def test_half_is_forgotten_each_half_life() -> None:
    """Who held 300 for long has 300, and 150 an hour after it stopped."""
    used = usage()
    used.holds("a", [300], now=0.0)
    assert used.of("a", now=HOUR) == pytest.approx((150.0,))
    assert used.of("a", now=40 * HOUR) == pytest.approx((300.0,))
    used.holds("a", [0], now=40 * HOUR)
    assert used.of("a", now=41 * HOUR) == pytest.approx((150.0,))
    assert used.of("nobody", now=41 * HOUR) == (0.0,)


def test_an_admission_counts_at_once() -> None:
    """The penalty is what the pod would have used in that time, and what is held goes on counting."""
    used = usage(penalty=HOUR)
    used.holds("a", [100], now=0.0)
    used.admitted("a", [50], now=HOUR)
    assert used.of("a", now=HOUR) == pytest.approx((75.0,))
    assert used.of("a", now=100 * HOUR) == pytest.approx((100.0,))


def test_what_was_put_down_is_taken_up_again() -> None:
    """After a restart usage goes on from what the queue's status says, whatever is held by then."""
    used = usage()
    used.holds("a", [100], now=5.0)
    used.restore("a", [40.0], now=5.0)
    assert used.of("a", now=5.0) == (40.0,)
    assert used.of("a", now=5.0 + HOUR) == pytest.approx((70.0,))
    used.forget(["a", "b"])
    assert used.of("a", now=9.0) == (0.0,)


@given(st.lists(st.tuples(st.floats(-HOUR, HOUR), st.integers(0, 500)), max_size=30))
def test_usage_stays_within_what_was_held(steps: list[tuple[float, int]]) -> None:
    """However the clock jumps, without penalties usage is never more than the most that was held, nor negative."""
    used, now, most = usage(), 0.0, 0
    for step, amount in steps:
        now += step
        used.holds("a", [amount], now=now)
        most = max(most, amount)
        assert 0.0 <= used.of("a", now=now)[0] <= most + 1e-6


@given(st.lists(st.floats(0, HOUR), min_size=1, max_size=20))
def test_looking_changes_nothing(pauses: list[float]) -> None:
    """Usage is the same whether it is put down at every step or at the end alone."""
    often, once, now = usage(), usage(), 0.0
    often.holds("a", [100], now=0.0)
    once.holds("a", [100], now=0.0)
    for pause in pauses:
        now += pause
        often.holds("a", [100], now=now)
    assert often.of("a", now=now) == pytest.approx(once.of("a", now=now))
