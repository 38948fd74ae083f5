"""The history: what lies between two looks, and no more points than were asked for."""

from __future__ import annotations

from aliquot_scheduler.page.history import History
from aliquot_scheduler.page.model import State, Totals


def state(at: float, **totals: float | None) -> State:
    """A look at an instant."""
    return State(at=at, totals=Totals(**totals))  # type: ignore[arg-type]


def test_parts_are_of_all_there_is() -> None:
    """Use that is not known has no point, and a cluster without GPUs divides by nothing."""
    history = History(points=10)
    history.add(state(1.0, compute=400, compute_granted=100, memory=1000, memory_granted=250, memory_used=100))
    history.add(state(2.0))
    first, second = history.since()
    assert (first.compute_granted, first.compute_used) == (0.25, None)
    assert (first.memory_granted, first.memory_used) == (0.25, 0.1)
    assert second.compute_granted == 0.0


def test_counts_are_of_the_time_between() -> None:
    """What was counted before the first point is not told as if it had just happened; nor after a new beginning."""
    history = History(points=10)
    for at, let_in, waited, evicted in ((1, 10, 100.0, 3), (2, 12, 130.0, 4), (3, 12, 130.0, 4), (4, 1, 5.0, 0)):
        history.add(state(at, let_in=let_in, waited=waited, evicted=evicted))
    assert [(one.wait, one.evicted) for one in history.since()] == [(None, 0), (15.0, 1), (None, 0), (None, 0)]


def test_old_points_go() -> None:
    """The ring keeps the last ones, and tells those after an instant."""
    history = History(points=3)
    for at in range(10):
        history.add(state(float(at)))
    assert [one.at for one in history.since()] == [7.0, 8.0, 9.0]
    assert [one.at for one in history.since(8.0)] == [9.0]
