"""Where nothing is bound by nobody's doing: no turn is owed then, and users in doubt keep nobody else in doubt out."""

from __future__ import annotations

import random
import string

import msgspec
import pytest

from aliquot_core.objects import PodCondition
from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.lost.instants import AGAIN
from aliquot_scheduler.queues.said.settings import QueueSettings
from support.queue_stage import Stage, queue

replace = msgspec.structs.replace
STEP = 2.5
OUTAGE = 95.0
NODES = 16


# --- while all schedulers are away ------------------------------------------------------------------------------------
class Away(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of schedulers when a turn ends that nobody used; and whether it is owed."""

    # Who was asking before the turn, how long before it, and who within it.
    before: str = ""
    ago: float = 600.0
    within: str = ""
    # Another pod is placed within it.
    places: bool = False
    names: str = "default-scheduler"
    # Whether kube-scheduler has not looked at this one.
    unseen: bool = True
    # How long the turn lasts: then the pod is gone.
    lasts: float = PROMISE - 1.0
    owed: bool


AWAY = {
    "none was ever heard": Away(owed=False),
    "all are silent": Away(before="default-scheduler", owed=False),
    "it is gone soon, and they asked a moment before": Away(before="default-scheduler", ago=2.0, lasts=10.0, owed=True),
    "one asks for others": Away(before="default-scheduler", within="default-scheduler", owed=True),
    "one asks whom it does not name": Away(before="default-scheduler", within="another", owed=True),
    "one places others": Away(before="default-scheduler", places=True, owed=True),
    "it was looked at": Away(before="default-scheduler", unseen=False, owed=True),
    "its own is none that asks": Away(before="default-scheduler", names="none", owed=True),
    "it is gone soon": Away(before="default-scheduler", lasts=10.0, owed=False),
}


@pytest.mark.parametrize("case", AWAY.values(), ids=AWAY)
def test_a_turn_is_owed_unless_all_schedulers_were_away(case: Away) -> None:
    """Else an outage of kube-scheduler's brings all users who ask for anything in doubt."""
    stage = Stage({"a": queue()}, nodes=(4,))
    if case.before:
        stage.queues.asked(stage.submit("before", 1, queue="a", spec={"schedulerName": case.before}), now=stage.now)
        stage.run()
        stage.end("before")
        stage.round(after=case.ago)
    others = stage.submit("others", 1, queue="a", user="other", spec={"schedulerName": case.within or case.before})
    pod = stage.submit("pod", 100, queue="a", spec={"schedulerName": case.names})
    if case.unseen:
        gated = PodCondition(type="PodScheduled", status="False", reason="SchedulingGated")
        stage.see(replace(pod, status=replace(pod.status, conditions=[gated])))
    assert stage.round() == ["others", "pod"]
    stage.round(after=1.0)
    if case.within:
        stage.queues.asked(others, now=stage.now)
    if case.places:
        stage.bind("others")
    stage.round(after=case.lasts - 1.0)
    stage.gone("pod")
    assert bool(stage.queues.register.lost_turns.doubts) is case.owed


@pytest.mark.parametrize(("asks", "lost"), [(False, False), (True, True)])
def test_who_loses_turns_while_all_schedulers_are_away_tries_as_who_has_lost_none(asks: bool, lost: bool) -> None:
    """All who wait do, and would come back few at a time; it rests as long as any."""
    stage = Stage({"a": queue()}, nodes=(4,))
    gated = PodCondition(type="PodScheduled", status="False", reason="SchedulingGated")
    pod = stage.submit("pod", 100, queue="a")
    stage.see(replace(pod, status=replace(pod.status, conditions=[gated])))
    turns = 0
    while turns < 4:
        turns += stage.round(after=STEP) == ["pod"]
        if asks:
            stage.queues.asked(stage.pods["pod"], now=stage.now)
    assert ("pod" in stage.queues.register.lost_turns) is lost
    assert bool(stage.queues.register.lost_turns.doubts) is lost


# --- when it is over --------------------------------------------------------------------------------------------------
class Outage(Stage):
    """Each user asks for a pod every ten seconds; none is bound for a while, and then each at once."""

    def __init__(self, users: int, *, seed: int) -> None:
        self.chance, self.users = random.Random(seed), string.ascii_lowercase[:users]
        specs = {user: queue() for user in self.users} | {"z": queue()}
        super().__init__(specs, nodes=(8,) * NODES, settings=QueueSettings(patience=3600.0))
        self.made = 0

    def tick(self, *, bound: bool) -> list[str]:
        """Time passes; users of whom somebody waits who has lost none, and nobody came or is under way."""
        if self.now % 10.0 == 0.0:
            for user in self.users:
                self.made += 1
                self.submit(f"{user}{self.made}", self.chance.choice((10, 50, 100)), queue=user, user=user)
        told = self.round(after=STEP)
        inside, lost = self.queues.register.inside.coming, self.queues.register.lost_turns
        come = {one.user for one in inside.values()}
        waits = {one.user for one in self.queues.waiting() if one.uid not in lost} & set(self.users)
        if bound:
            self.bind(*told)
        return sorted(waits - come)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("users", [1, 2, 8])
def test_no_users_who_are_all_in_doubt_wait_for_each_other(users: int, seed: int) -> None:
    """Nothing idles for longer than until it is looked again, whoever of them has to pause."""
    stage = Outage(users, seed=seed)
    while stage.now < OUTAGE:
        stage.tick(bound=False)
    doubted = stage.queues.register.lost_turns.doubted
    assert len(doubted()) == users
    idles = dict.fromkeys(stage.users, 0.0)
    # Whoever has paid is waited for.
    while len(doubted()) == users:
        assert stage.now < OUTAGE + 120.0
        now = stage.tick(bound=True)
        idles = {user: idles[user] + STEP if user in now and len(doubted()) == users else 0.0 for user in idles}
        assert max(idles.values()) <= AGAIN


def test_they_wait_for_who_is_not_in_doubt() -> None:
    """As ever."""
    stage = Outage(2, seed=1)
    for node in range(NODES):
        stage.submit(f"runs{node}", 500, queue="z", user="other", notes={"gpus": "5"})
    assert len(stage.run()) == NODES
    stage.submit("all", 800, queue="z", user="other", notes={"gpus": "8"})
    while stage.now < OUTAGE:
        stage.tick(bound=False)
    assert len(stage.queues.register.lost_turns.doubted()) == 2
    assert stage.tick(bound=True) == ["a", "b"]


@pytest.mark.parametrize(("users", "at_once"), [(1, 3), (2, 1)])
def test_what_is_guaranteed_to_one_queue_none_of_its_users_in_doubt_keeps_from_another(
    users: int, at_once: int
) -> None:
    """What is of use to nobody else comes at once; to another in doubt it is of use."""
    stage = Stage({"a": queue(guarantee=300), "b": queue()}, nodes=(4,))
    names = "uv"[:users]
    for user in names:
        stage.submit(f"bad-{user}", 10, queue="a", user=user)
    stage.round()
    stage.round(after=PROMISE)
    for user in names:
        stage.gone(f"bad-{user}")
        for number in range(4):
            stage.submit(f"{user}{number}", 100, queue="a", user=user)
    told = stage.round(after=60.0)
    assert [sum(uid.startswith(user) for uid in told) for user in names] == [at_once] * users
