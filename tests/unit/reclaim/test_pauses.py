"""How long a controller's pods are left alone once one of them was moved for nobody."""

from __future__ import annotations

from aliquot_scheduler.reclaim.pauses import Pauses, Rested

A_DAY = 86_400.0


def test_a_pause_doubles_from_ten_minutes_up_to_a_day() -> None:
    """Each time one is moved that has come since."""
    pauses, now, lengths = Pauses(), 0.0, []
    for number in range(10):
        pauses.moved("job", [f"p{number}"], there=[f"p{number}"], now=now)
        minutes = next(each for each in range(1, 1441) if not pauses.are_left_alone("job", now=now + 60.0 * each))
        lengths.append(minutes)
        now += 60.0 * minutes
    assert lengths == [10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440]


def test_a_pause_is_forgotten_a_day_after_it() -> None:
    """Not before; then it is ten minutes again."""
    for beyond, length in ((A_DAY - 1.0, 1_200.0), (A_DAY, 600.0)):
        pauses = Pauses()
        pauses.moved("job", ["p0"], there=["p0"], now=0.0)
        now = 600.0 + beyond
        pauses.tell_time(now)
        pauses.moved("job", ["p1"], there=["p1"], now=now)
        assert pauses.are_left_alone("job", now=now + length - 1.0)
        assert not pauses.are_left_alone("job", now=now + length)


def test_who_was_there_before_goes_at_any_time_and_that_is_one_time() -> None:
    """Batch by batch off the same GPU; who has come since is left alone."""
    pauses = Pauses()
    there = ["p0", "p1", "p2"]
    pauses.moved("job", ["p0"], there=there, now=0.0)
    assert [pauses.is_left_alone(uid, "job", now=60.0) for uid in ("p1", "p2", "s0")] == [False, False, True]
    pauses.moved("job", ["p1", "p2"], there=["p1", "p2", "s0"], now=60.0)
    assert pauses.is_left_alone("s0", "job", now=599.0)
    assert not pauses.is_left_alone("s0", "job", now=600.0)
    assert not pauses.is_left_alone("s0", "other", now=60.0)


def test_of_whom_one_came_in_vain_all_are_left_alone_from_then_on() -> None:
    """For as long as the last move was worth, and the next one for twice as long."""
    pauses = Pauses()
    pauses.moved("job", ["p0"], there=["p0", "p1"], now=0.0)
    pauses.came_in_vain({"job", "other"}, now=150.0)
    assert pauses.is_left_alone("p1", "job", now=749.0)
    assert not pauses.is_left_alone("p1", "job", now=750.0)
    assert pauses.are_left_alone("other", now=749.0)
    pauses.moved("job", ["p1"], there=["p1"], now=750.0)
    assert pauses.are_left_alone("job", now=750.0 + 1_199.0)


def test_who_went_so_that_something_stands_empty_is_left_alone_for_a_day() -> None:
    """And not an instant longer."""
    rested = Rested()
    rested.moved(["job"], now=0.0)
    for now, alone in ((A_DAY - 1.0, True), (A_DAY, False)):
        rested.tell_time(now)
        assert rested.is_left_alone("job", now=now) is alone
    assert not rested.is_left_alone("other", now=0.0)
