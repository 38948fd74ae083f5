"""Room is made by sending others away, and the pod for which it was made is never bound: how often that is done."""

from __future__ import annotations

from itertools import pairwise

import pytest

from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.lost.claims import FIRST, QUEUES_LONGEST, Claims
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

DAY = 86_400.0
STEP = 10.0
ALL = {"gpus": "4"}


class Borrowed(ReclaimStage):
    """Four cards, guaranteed to one queue, and lent to another whose pods come again when they are sent away."""

    def __init__(self) -> None:
        super().__init__({"own": queue(guarantee=400), "lent": queue()}, nodes=(4,))
        self._number = 0
        self.refill()
        self.run()
        self.now = 60.0

    def refill(self) -> None:
        """Whoever was sent away is made anew."""
        there = sum(uid.startswith("b") for uid in self.pods)
        for _ in range(4 - there):
            self.submit(f"b{self._number}", 100, queue="lent", user="lent")
            self._number += 1

    def step(self, seconds: float = STEP, *, bound: str = "b") -> list[str]:
        """Time passes: who has to go goes, and who is let in is bound if its name begins so."""
        self.now += seconds
        self.beat()
        self.desk.tell_time(self.now)
        asked = self.reclaimed()
        self.refill()
        told = self.round()
        self.bind(*[uid for uid in told if uid.startswith(bound)])
        self.lift(*[uid for uid in told if not uid.startswith(bound)])
        return asked

    def waits(self, uid: str, *, user: str) -> Waiter:
        """One more of the owner's that waits."""
        self.submit(uid, 100, queue="own", user=user)
        (waiter,) = (one for one in self.queues.waiting() if one.uid == uid)
        return waiter

    def waves(self, seconds: float, *, step: float = STEP) -> list[float]:
        """At which times anybody had to go."""
        end, found = self.now + seconds, list[float]()
        while self.now < end:
            if self.step(step):
                found.append(self.now)
        return found


def test_one_pod_that_is_never_bound_sends_others_away_seven_times_in_a_day() -> None:
    """Each time after twice as long: its pause begins when it has the room."""
    stage = Borrowed()
    stage.submit("x", 400, queue="own", user="own", notes=ALL)
    found = stage.waves(DAY)
    assert len(found) == 7
    gaps = [after - before for before, after in pairwise(found)]
    # It may rest after a lost turn when its pause is over.
    assert all(0.0 <= gap - FIRST * 2.0**number <= 420.0 for number, gap in enumerate(gaps)), gaps


def test_it_waits_meanwhile_and_is_told_why_nobody_goes() -> None:
    """Inside its guarantee, with the minutes."""
    stage = Borrowed()
    stage.submit("x", 400, queue="own", user="own", notes=ALL)
    stage.waves(6 * PROMISE)
    while not stage.queues.is_in_line("x"):
        stage.step()
    stage.reclaim.anybody(now=stage.now)
    (waiter,) = [one for one in stage.queues.waiting() if one.uid == "x"]
    notice = stage.queues.notice(waiter)
    assert notice.reason == "NobodyGoes"
    assert "nobody goes for it: room was made for it and it was not bound, so for 1" in notice.message


def test_a_hundred_pods_of_one_user_send_away_no_more_than_that_user_may() -> None:
    """A guarantee's worth at once, and then one at a time: after a minute, two, four, and an hour at last."""
    stage = Borrowed()
    for number in range(100):
        stage.submit(f"x{number}", 100, queue="own", user="own")
    gone = 0
    for _ in range(int(DAY / 60.0)):
        gone += len(stage.step(60.0))
    assert 10 <= gone <= 4 + 30


def test_pods_that_are_deleted_before_their_turn_is_lost_send_no_more_away() -> None:
    """Others went for them all the same: after a minute, two, four, and an hour at last."""
    stage, gone, had = Borrowed(), 0, 0.0
    for number in range(int(6 * 3600.0 / STEP)):
        if not any(uid.startswith("x") for uid in stage.pods):
            stage.submit(f"x{number}", 100, queue="own", user="own")
        coming = [uid for uid in stage.queues.register.inside.coming if uid.startswith("x")]
        had = had if coming else stage.now
        if coming and stage.now - had >= PROMISE - STEP:
            stage.gone(coming[0])
        gone += len(stage.step())
    assert 5 <= gone <= 6 + 6


def test_a_hundred_users_of_one_queue_send_away_little_more_than_one_does() -> None:
    """A guarantee's worth at once, and then one after a minute, two, …, and after 15 minutes at last."""
    stage, gone = Borrowed(), 0
    for number in range(100):
        stage.submit(f"x{number}", 100, queue="own", user=f"user{number}")
    for _ in range(int(DAY / 60.0)):
        gone += len(stage.step(60.0))
    assert 50 <= gone <= 4 + 4 + int(DAY / QUEUES_LONGEST)


def test_neither_do_users_who_come_one_after_the_other() -> None:
    """Each asks once, and is gone before its turn is lost."""
    stage, gone = Borrowed(), 0
    for number in range(int(6 * 3600.0 / STEP)):
        coming = [uid for uid in stage.queues.register.inside.coming if uid.startswith("x")]
        for uid in coming:
            stage.gone(uid)
        # What it leaves is borrowed again before the next one asks.
        if not coming and not any(uid.startswith("x") for uid in stage.pods):
            stage.submit(f"x{number}", 100, queue="own", user=f"user{number}")
        gone += len(stage.step())
    assert 20 <= gone <= 3 + 4 + int(6 * 3600.0 / QUEUES_LONGEST)


def _many_lose(stage: Borrowed, count: int) -> None:
    """So many users of the queue, one after the other, have lost a turn for which others went."""
    for number in range(count):
        stage.submit(f"x{number}", 100, queue="own", user=f"user{number}")
        while f"x{number}" not in stage.queues.register.lost_turns.times:
            stage.step()
        stage.gone(f"x{number}")
        stage.step()


@pytest.mark.parametrize(("losers", "waits"), [(3, STEP), (4, 2 * STEP), (6, 200.0), (9, 860.0)])
def test_a_new_user_of_that_queue_waits_for_a_bounded_time(losers: int, waits: float) -> None:
    """Three are an accident. A pause begins with the turn that was lost, and lasts for 15 minutes at the most."""
    stage = Borrowed()
    _many_lose(stage, losers)
    stage.submit("y", 100, queue="own", user="honest")
    came = stage.now
    while not stage.pods["y"].spec.node_name:
        stage.step(bound="y")
    assert stage.now - came == waits


def test_a_user_who_has_proved_that_its_pods_are_bound_waits_for_nobody() -> None:
    """Until one of them is not."""
    stage = Borrowed()
    stage.submit("y0", 100, queue="own", user="honest")
    stage.step(bound="y")
    assert stage.pods["y0"].spec.node_name
    _many_lose(stage, 5)
    stage.submit("z", 100, queue="own", user="new")
    stage.submit("y1", 100, queue="own", user="honest")
    assert len(stage.step(bound="y")) == 1
    assert stage.pods["y1"].spec.node_name
    stage.reclaim.anybody(now=stage.now)
    (waiter,) = (one for one in stage.queues.waiting() if one.uid == "z")
    assert (
        "nobody goes for it: room was made for pods of its queue that were not bound"
        in stage.queues.notice(waiter).message
    )


def test_who_has_proved_it_proves_it_anew_once_one_of_its_pods_was_not_bound() -> None:
    """When its own pause is over, that of the queue holds for it as for everybody."""
    claims, stage = Claims(), Borrowed()
    honest, others = stage.waits("y", user="honest"), [stage.waits(f"x{at}", user=f"user{at}") for at in range(4)]
    claims.brought_in(honest, now=0.0)
    claims.bound(honest, now=0.0)
    claims.gone("y")
    for waiter in others:
        claims.brought_in(waiter, now=0.0)
        claims.lost(waiter)
    next_one = stage.waits("z", user="honest")
    assert not claims.why_not(next_one, others=(), now=59.0)
    claims.brought_in(honest, now=10.0)
    claims.lost(honest)
    assert "for pods of its queue" in claims.why_not(next_one, others=(), now=100.0)


def test_whoever_is_bound_takes_a_lost_turn_back() -> None:
    """So in a queue in which most pods are bound nobody waits for those that are not."""
    claims, stage = Claims(), Borrowed()
    waiters = [stage.waits(f"x{number}", user=f"user{number}") for number in range(6)]
    for waiter in waiters[:4]:
        claims.brought_in(waiter, now=0.0)
        claims.lost(waiter)
    assert claims.why_not(waiters[5], others=(), now=59.0)
    claims.brought_in(waiters[4], now=10.0)
    claims.bound(waiters[4], now=20.0)
    assert not claims.why_not(waiters[5], others=(), now=59.0)


@pytest.mark.parametrize(("compute", "together"), [(100, 2), (1, 1)])
def test_a_user_whose_pods_have_paid_is_as_everybody(compute: int, together: int) -> None:
    """The next of them have room made at once, and together; a little one pays too little, so it is made for one."""
    stage = Borrowed()
    stage.submit("x", 100, queue="own", user="own")
    assert len(stage.step()) == 1
    while "x" not in stage.queues.register.lost_turns.times:
        stage.step()
    stage.submit("y", compute, queue="own", user="own")
    assert not stage.step()
    waves = 0
    while not waves:
        waves = len(stage.step(bound="y"))
    assert stage.pods["y"].spec.node_name
    # As long as one card was kept for nothing.
    stage.step(PROMISE, bound="y")
    for uid in ("z0", "z1"):
        stage.submit(uid, 100, queue="own", user="own")
    assert len(stage.step(bound="z")) == together


@pytest.mark.parametrize("asked", [False, True], ids=["kube-scheduler does not ask", "kube-scheduler asks"])
def test_the_next_leader_begins_with_the_first_pause(asked: bool) -> None:
    """It finds a pod without a gate that is not bound; so a change of leaders costs one eviction at the most."""
    before = Borrowed()
    before.submit("x", 400, queue="own", user="own", notes=ALL)
    while not before.step():
        pass
    while not before.queues.register.lost_turns.times:
        before.step()
    stage = Borrowed()
    for uid in list(stage.pods):
        stage.gone(uid)
    for pod in before.pods.values():
        stage.see(pod)
    stage.run()
    if asked:
        stage.desk.filter(stage.pods["x"], ["n0"], now=stage.now)
    began, found = stage.now, list[float]()
    while not found:
        found = stage.waves(STEP)
    assert found[0] - began >= FIRST
