"""The order of a queue's users, put right as shares change, beside sorting everybody anew."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_scheduler.queues.charged.usage import Forgetting
from aliquot_scheduler.queues.waiting.user_order import EQUAL, Course, UserOrder, stays_before
from aliquot_scheduler.queues.waiting.users import Users

HOUR = 3_600.0
HALF_LIVES = (10.0, HOUR, 24 * HOUR)


class Plain:
    """What each user held and when, and the share that comes to: added up anew from all that ever happened."""

    def __init__(self, *, forgetting: Forgetting) -> None:
        self._forgetting = forgetting
        # By user: the average and what is held at an instant.
        self.known: dict[str, tuple[list[float], list[int], float]] = {}

    def hold(self, user: str, amounts: Sequence[int], *, now: float) -> None:
        """It holds so much more."""
        held = self.known.get(user, ([0.0, 0.0], [0, 0], now))[1]
        self.known[user] = self.lately(user, now=now), [a + b for a, b in zip(held, amounts, strict=True)], now

    def admitted(self, user: str, amounts: Sequence[int], *, now: float) -> None:
        """The penalty."""
        part = 1.0 - 0.5 ** (self._forgetting.penalty / self._forgetting.half_life)
        held = self.known.get(user, ([0.0, 0.0], [0, 0], now))[1]
        lately = [a + part * b for a, b in zip(self.lately(user, now=now), amounts, strict=True)]
        self.known[user] = lately, held, now

    def lately(self, user: str, *, now: float) -> list[float]:
        """The average."""
        average, held, at = self.known.get(user, ([0.0, 0.0], [0, 0], now))
        kept = 0.5 ** (max(0.0, now - at) / self._forgetting.half_life)
        return [kept * old + (1 - kept) * new for old, new in zip(average, held, strict=True)]

    def prune(self, *, now: float, least: float) -> None:
        """Who holds nothing and has used next to nothing is not known any more."""
        small = [user for user, (_, held, _) in self.known.items() if not any(held)]
        for user in [user for user in small if max(self.lately(user, now=now)) < least]:
            del self.known[user]

    def share(self, user: str, *, capacity: Sequence[int], now: float) -> float:
        """Held and lately, the larger part."""
        held = self.known.get(user, ([0.0, 0.0], [0, 0], now))[1]
        lately = self.lately(user, now=now)
        return max((held[dim] + lately[dim]) / capacity[dim] for dim in (0, 1))


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_the_order_that_is_kept_is_the_one_that_sorting_gives(seed: int) -> None:
    """Users are charged, come and go, time passes and jumps back, and there is more or less of everything."""
    chance = Random(seed)
    forgetting = Forgetting(half_life=chance.choice(HALF_LIVES), penalty=60.0)
    users, plain, now = Users(forgetting=forgetting), Plain(forgetting=forgetting), 0.0
    names = [f"u{number:02}" for number in range(chance.randint(1, 12))]
    waiting, capacity = set(names[: len(names) // 2 + 1]), [1_600, 640_000]
    for _ in range(40):
        now += chance.choice((0.0, 0.001, 1.0, 30.0, forgetting.half_life, -5.0))
        user, amounts = chance.choice(names), [chance.choice((0, 50, 100)), chance.choice((0, 10_000, 80_000))]
        match chance.randrange(7):
            case 0 | 1:
                users.hold(("q", user), amounts)
                users.admitted(("q", user), amounts, now=now)
                plain.admitted(user, amounts, now=now)
                plain.hold(user, amounts, now=now)
            case 2:
                less = [-amount for amount in users.held_in("q").get(user, (0, 0))]
                users.hold(("q", user), less)
                plain.hold(user, less, now=now)
            case 3:
                waiting ^= {user}
            case 4:
                capacity = [chance.choice((800, 1_600)), 640_000]
            case 5:
                users.prune(now=now, least=50.0)
                plain.prune(now=now, least=50.0)
            case _:
                pass
        users.settle(now)
        order = users.in_order("q", waiting, capacity=capacity, now=now)
        assert sorted(order) == sorted(waiting)
        shares = [plain.share(one, capacity=capacity, now=now) for one in order]
        assert all(before <= after + 4 * EQUAL for before, after in pairwise(shares)), (now, list(order), shares)
        for one in waiting:
            assert users.share(("q", one), capacity=capacity, now=now) == pytest.approx(
                plain.share(one, capacity=capacity, now=now), abs=2 * EQUAL
            )


def test_time_alone_puts_another_user_first() -> None:
    """Who has held much for a moment comes before who holds little and has used much, and not for long."""
    users = Users(forgetting=Forgetting(half_life=HOUR))
    users.hold(("q", "past"), [400, 0])
    users.settle(0.0)
    users.hold(("q", "past"), [-380, 0])
    users.hold(("q", "new"), [150, 0])
    users.settle(4 * HOUR)
    orders = [
        list(users.in_order("q", {"past", "new"}, capacity=[800, 800], now=hour * HOUR)) for hour in (4, 4.5, 5, 6)
    ]
    # 395 and 150 percent at first; an hour later 218 and 225, and in the end 40 and 300.
    assert orders == [["new", "past"], ["new", "past"], ["past", "new"], ["past", "new"]]


def test_equal_users_stand_by_name_whatever_was_added_up_in_which_order() -> None:
    """The same amounts in another order come to the same share, but for the last digits of a float."""
    users = Users(forgetting=Forgetting(half_life=HOUR))
    for amount in (10, 30, 60):
        users.admitted(("q", "b"), [amount, 0], now=0.0)
    for amount in (60, 30, 10):
        users.admitted(("q", "a"), [amount, 0], now=0.0)
    for now in (0.0, 1.0, HOUR):
        assert list(users.in_order("q", {"b", "a"}, capacity=[800, 800], now=now)) == ["a", "b"]


def test_an_event_looks_at_whom_it_charged_and_at_nobody_else() -> None:
    """Of 500 users the shares of two are worked out anew where one is charged and another comes."""
    looked: list[str] = []
    order, names = UserOrder(forgetting=Forgetting(half_life=HOUR)), [f"u{number:03}" for number in range(500)]

    def course(user: str) -> Course:
        looked.append(user)
        return Course(ends=(int(user[1:]) / 500, 0.0), fades=(0.0, 0.0), at=0.0)

    order.of(set(names), touched=set(), course=course, now=0.0)
    assert sorted(looked) == names
    looked.clear()
    assert list(order.of({*names, "u777"}, touched={"u300"}, course=course, now=5.0)) == [*names, "u777"]
    assert looked == ["u300", "u777"]
    looked.clear()
    order.of({*names, "u777"}, touched=set(), course=course, now=10.0)
    assert looked == []


@given(
    st.lists(st.floats(0, 2), min_size=8, max_size=8),
    st.lists(st.floats(0, 3 * HOUR), min_size=2, max_size=2),
    st.floats(0, 50 * HOUR),
)
@settings(max_examples=300, deadline=None)
def test_nobody_is_passed_before_the_moment_that_is_told(parts: list[float], since: list[float], later: float) -> None:
    """Whatever both hold and held: until then the one that is ahead is so, give or take what counts as equal."""
    forgetting, now = Forgetting(half_life=HOUR), 3 * HOUR

    def share(course: Course, *, at: float) -> float:
        return course.share(kept=forgetting.kept(at - course.at))

    both = [
        Course(ends=(a, b), fades=(c - a, d - b), at=at)
        for (a, b, c, d), at in zip((parts[:4], parts[4:]), since, strict=True)
    ]
    one, other = sorted(both, key=lambda course: share(course, at=now))
    until = stays_before(one, other, forgetting=forgetting, now=now)
    # A millisecond is the least that is told.
    at = min(now + later, until - 1e-3)
    assert share(one, at=at) <= share(other, at=at) + 4 * EQUAL
