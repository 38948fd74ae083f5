"""Pods that nobody can bind: each turn of theirs keeps room for nothing, and others find room all the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf

import msgspec
import pytest

from aliquot_core.objects import PodCondition
from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.deciding.turns import MOST_AT_ONCE
from aliquot_scheduler.queues.lost.doubts import FADES
from aliquot_scheduler.queues.lost.instants import PART, TRIES, at_the_next
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from support.centre import NAMES
from support.queue_stage import Stage, queue
from support.queue_world import STEPS, QueueWorld

replace = msgspec.structs.replace

ALL = {"no queues": {}, "one queue": {"a": queue()}}
STEP = 5.0


class Careless(Stage):
    """A cluster in which pods of one user are never bound, who comes first by shares: the other one had much lately."""

    def __init__(self, specs: dict[str, QueueSpec], *, cards: int = 4, pods: int = 100, compute: int = 100) -> None:
        super().__init__(specs, nodes=(cards,))
        self.where = next(iter(specs), "")
        self.good("before", 100 * cards)
        self.run()
        self.now += 7200.0
        self.end("before")
        for number in range(pods):
            notes = {"gpus": str(compute // 100)} if compute > 100 else {}
            self.submit(f"c{number}", compute, queue=self.where, user="careless", notes=notes)

    def goes_on(self, seconds: float, *, until: str = "") -> float:
        """Turns are given out for so long, or until this one is let in; how long that was."""
        began = self.now
        while self.now - began < seconds:
            told = self.round(after=STEP)
            self.bind(*[uid for uid in told if not uid.startswith("c")])
            if until in told:
                break
        return self.now - began

    def good(self, uid: str, compute: int) -> None:
        """Somebody else asks for what can be bound."""
        notes = {"gpus": str(compute // 100)} if compute > 100 else {}
        self.submit(uid, compute, queue=self.where, user="good", notes=notes)

    def tried(self) -> list[str]:
        """Who of the careless has the room of a turn."""
        return [uid for uid in self.queues.register.inside.coming if uid.startswith("c")]


@pytest.mark.parametrize("specs", ALL.values(), ids=ALL)
@pytest.mark.parametrize("size", [100, 400])
def test_a_hundred_that_nobody_can_bind_keep_a_cluster_for_one_turn(specs: dict[str, QueueSpec], size: int) -> None:
    """Who comes after their first turns have begun is in when these are over, whoever has the smaller share."""
    stage = Careless(specs, compute=size)
    stage.goes_on(STEP)
    stage.good("g", 10)
    assert stage.goes_on(600.0, until="g") <= PROMISE + STEP


@pytest.mark.parametrize("specs", ALL.values(), ids=ALL)
def test_once_they_have_lost_their_turns_others_come_in_at_once(specs: dict[str, QueueSpec]) -> None:
    """They have a quarter of the cards at the most, whether anybody waits or not."""
    stage = Careless(specs, pods=24)
    stage.goes_on(900.0)
    lost = stage.queues.register.lost_turns.times
    assert len(lost) == 24
    for _ in range(60):
        stage.goes_on(STEP)
        assert len(stage.tried()) <= 1
    assert max(lost.values()) > 1
    stage.good("g", 300)
    assert stage.goes_on(600.0, until="g") == STEP


@pytest.mark.parametrize("specs", ALL.values(), ids=ALL)
@pytest.mark.parametrize("size", [100, 400])
def test_who_asks_for_all_cards_comes_in_after_one_turn_too(specs: dict[str, QueueSpec], size: int) -> None:
    """While it waits those who lost a turn do not try again for three turns."""
    stage = Careless(specs, pods=24, compute=size)
    stage.goes_on(1800.0)
    for number in range(3):
        stage.good(f"g{number}", 400)
        assert stage.goes_on(900.0, until=f"g{number}") <= PROMISE + STEP
        stage.end(f"g{number}")


def test_a_user_in_doubt_keeps_no_card_for_who_may_not_come_yet() -> None:
    """One of its pods has waited for longer than patience when others lose their turns, and has none for a while."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=(4,), settings=QueueSettings(patience=STEP))
    for number in range(8):
        stage.submit(f"c{number}", 100, queue="a", user="careless")
    assert len(stage.round(after=STEP)) == 4
    for number in range(4):
        stage.submit(f"g{number}", 100, queue="b", user="good")
    let_in: list[str] = []
    while stage.now < PROMISE + 3 * STEP:
        let_in += stage.round(after=STEP)
    assert sorted(let_in) == ["g0", "g1", "g2", "g3"]


def test_those_who_lost_turns_have_a_quarter_of_all_turns_at_a_time() -> None:
    """Small ones would fill all slots otherwise."""
    stage = Careless({}, cards=16, pods=504, compute=1)
    while len(stage.queues.register.lost_turns.times) < 504:
        stage.goes_on(STEP)
    most = 0
    for _ in range(80):
        stage.goes_on(STEP)
        most = max(most, len(stage.tried()))
    assert most == MOST_AT_ONCE // PART


def test_nobody_who_lost_a_turn_is_forgotten() -> None:
    """Each of them gets turns again and again, also while others come and go."""
    stage = Careless({"a": queue()}, pods=8)
    for number in range(80):
        stage.good(f"g{number}", 100)
        stage.goes_on(60.0)
        stage.end(*[uid for uid in stage.pods if uid.startswith("g") and stage.pods[uid].spec.node_name])
    assert sorted(stage.queues.register.lost_turns.times) == sorted(f"c{number}" for number in range(8))
    assert min(stage.queues.register.lost_turns.times.values()) > 2


def test_one_that_stands_in_line_without_room_keeps_no_other_from_trying() -> None:
    """The first to try again asks for all cards, and somebody has one of them for good."""
    stage = Careless({"a": queue()}, pods=1, compute=400)
    stage.submit("c9", 10, queue="a", user="careless")
    stage.goes_on(3 * PROMISE)
    stage.good("g", 100)
    assert stage.goes_on(600.0, until="g") <= PROMISE + STEP
    before = stage.queues.register.lost_turns.times["c9"]
    stage.goes_on(900.0)
    assert stage.queues.register.lost_turns.times["c9"] > before


def test_a_pod_that_lost_a_turn_stands_behind_its_user_s_others() -> None:
    """However much older it is, or higher its priority; and before those who have lost more."""
    stage = Stage({"a": queue()}, nodes=(1,))
    stage.submit("old", 100, queue="a", priority=1000)
    assert stage.round() == ["old"]
    stage.submit("young", 100, queue="a")
    stage.submit("younger", 100, queue="a")
    assert stage.run(after=PROMISE) == ["young"]
    assert stage.round(after=60.0) == []
    assert stage.queues.is_in_line("old")
    stage.end("young")
    assert stage.run() == ["younger"]
    stage.end("younger")
    assert stage.run() == ["old"]


def test_a_user_s_pods_come_one_by_one_after_a_lost_turn() -> None:
    """Though one is bound meanwhile; not inside a guarantee, since nobody else may have that."""
    for specs, at_once in (({"a": queue()}, 1), ({"a": queue(guarantee=400)}, 4)):
        stage = Stage(specs, nodes=(4,))
        stage.submit("bad", 100, queue="a")
        assert stage.round() == ["bad"]
        for number in range(6):
            stage.submit(f"p{number}", 100, queue="a")
        held = stage.round()
        assert len(held) == 3
        for uid in held:
            stage.gone(uid)
        told = stage.round(after=PROMISE)
        assert len(told) == min(3, at_once)
        stage.bind(told[0])
        assert len(stage.round()) == min(at_once, 3 - len(told))


def test_a_gang_that_lost_its_turn_comes_again_as_a_whole() -> None:
    """Though it asks more than a quarter, and its pods rest for different times."""
    stage = Stage({"a": queue()}, nodes=(4,))
    for number in range(4):
        stage.submit(f"m{number}", 100, queue="a", group="g", notes={"group-size": "4"})
    assert len(stage.round()) == 4
    found: list[str] = []
    while not found:
        found = stage.round(after=STEP)
        assert stage.now < 3 * PROMISE
    assert sorted(found) == ["m0", "m1", "m2", "m3"]


def test_who_is_gone_leaves_its_user_in_doubt_and_nothing_else() -> None:
    """For an hour: else who deletes what has lost its turn, and makes it anew, would come as everybody does."""
    stage = Careless({"a": queue()}, pods=1)
    stage.goes_on(2 * PROMISE)
    stage.gone("c0")
    assert "c0" not in stage.queues.register.lost_turns
    lost = stage.now
    for number in range(8):
        stage.submit(f"c1{number}", 100, queue="a", user="careless")
    assert len(stage.round()) == 1
    stage.gone(*stage.tried())
    stage.now = lost + FADES
    assert len(stage.round()) == 4


# --- whom it concerns -------------------------------------------------------------------------------------------------
class Hog(msgspec.Struct, frozen=True):
    """Somebody whose pods nobody can bind: so many at a time, made anew when they are so old or have lost so often."""

    compute: int = 1
    pods: int = 2
    priority: int = 0
    age: float = inf
    losses: int = 99
    guarantee: int | None = None
    users: int = 1


HOGS = {
    "a Job with a deadline": Hog(age=35.0),
    "one that ends as its turn does": Hog(age=PROMISE),
    "what lost a turn is deleted": Hog(pods=6, losses=1),
    "a guarantee of one percent": Hog(pods=6, losses=1, guarantee=1),
    "a high priority": Hog(pods=95, compute=4, priority=1000),
    "a high priority, and whole cards made anew": Hog(pods=6, compute=100, priority=1000, losses=2),
    "all cards, of four users": Hog(pods=2, compute=400, users=4),
    "small and large ones": Hog(pods=40, compute=30, users=2),
}


def plays(stage: Stage, hog: Hog, *, until: Callable[[], bool], hours: float = 6.0) -> float:
    """Rounds go on, and those of the hog lose turns; after how long the others have what they want."""
    born: dict[str, float] = {}
    made, began = 0, stage.now
    while not until():
        lost = stage.queues.register.lost_turns.times
        for uid in [uid for uid in born if stage.now - born[uid] >= hog.age or lost.get(uid, 0) >= hog.losses]:
            del born[uid]
            stage.gone(uid)
        notes = {"gpus": str(hog.compute // 100)} if hog.compute > 100 else {}
        while len(born) < hog.pods * hog.users:
            user = f"hog{made % hog.users}"
            uid = f"{user}-{made}"
            stage.submit(uid, hog.compute, queue="a", user=user, priority=hog.priority, notes=notes)
            born[uid] = stage.now
            made += 1
        stage.round(after=STEP)
        assert stage.now - began < hours * 3600.0
    return stage.now - began


@pytest.mark.parametrize("hog", HOGS.values(), ids=HOGS)
@pytest.mark.parametrize("compute", [1, 50, 100])
@pytest.mark.parametrize("waits", [False, True], ids=["nobody waits", "somebody waits"])
def test_who_lost_a_turn_has_another_whatever_becomes_of_others_pods(hog: Hog, compute: int, waits: bool) -> None:
    """Again and again, and each time within the bound: its own rest, and a try of each user's who has lost turns."""
    stage = Stage({"a": queue(guarantee=hog.guarantee), "b": queue(), "c": queue(limit=10)}, nodes=(4,))
    stage.submit("runs", 10, 1000, queue="c", user="third")
    stage.run()
    if waits:
        # For its limit, as somebody always does.
        stage.submit("waits", 10, 1000, queue="c", user="third")
    stage.submit("mine", compute, queue="b", user="me")
    lost = stage.queues.register.lost_turns.times
    plays(stage, hog, until=lambda: lost.get("mine", 0) == 1)
    for before in (1, 2):
        rest = at_the_next(5.0 * 2.0 ** (before - 1))
        took = plays(stage, hog, until=lambda before=before: lost["mine"] > before)  # type: ignore[misc]
        assert took <= rest + (hog.users + 1) * TRIES + PROMISE + 2 * STEP


def test_pods_that_lost_turns_of_eight_users_leave_all_cards_to_others() -> None:
    """All of them try at one instant, and for three turns after that nobody does."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=(4,))
    for number in range(64):
        stage.submit(f"c{number}", 5, queue="a", user=f"u{number % 8}")
        stage.round(after=STEP)
    while len(stage.queues.register.lost_turns.times) < 64:
        stage.round(after=STEP)
    for number in range(12):
        stage.submit(f"g{number}", 400, queue="b", user="good", notes={"gpus": "4"})
        began = stage.now
        while f"g{number}" not in stage.round(after=STEP):
            assert stage.now - began < 2 * PROMISE
        stage.bind(f"g{number}")
        stage.end(f"g{number}")
        while stage.now < began + 70.0 * (number + 1):
            stage.round(after=STEP)


class Remade(QueueWorld):
    """A world in which every other pod can't be bound by anybody, and some of those are made anew."""

    def __init__(self) -> None:
        self.bindable = False
        super().__init__()

    def with_room(self) -> list[str]:
        """Who can be bound, by the last letter of the name."""
        return [uid for uid in super().with_room() if self.bindable or not ord(uid[-1]) % 2]

    def lose(self) -> None:
        """Turns end, and rests."""
        self.now += self.chance.choice((5.0, 31.0, 31.0, 125.0))
        self.desk.tell_time(self.now)

    def remake(self) -> None:
        """One that has lost a turn is deleted, or all are of a user, and as many made anew."""
        lost = self.queues.register.lost_turns
        for uid in [uid for uid in sorted(self.pods) if uid in lost and self.chance.random() < 0.5]:
            self.gone(uid)
            self.create()

    def relabel(self) -> None:
        """One that has lost a turn names another queue."""
        if lost := sorted(self.queues.register.lost_turns.times):
            pod = self.pods[self.chance.choice(lost)]
            labels = pod.metadata.labels | {NAMES.queue: self.chance.choice("abc")}
            self.see(replace(pod, metadata=replace(pod.metadata, labels=labels)))

    def check(self) -> None:
        """Who is bound or gone has lost no turn."""
        super().check()
        lost = self.queues.register.lost_turns.times
        assert lost.keys() <= {uid for uid, pod in self.pods.items() if not pod.spec.node_name}


@pytest.mark.parametrize(("first", "more"), [(0, []), (8, []), (16, []), (64, ["let_in_badly"] * 6)])
def test_walks_with_pods_that_are_made_anew_leave_nothing_behind(first: int, more: list[str]) -> None:
    """Nothing else breaks by them; once they can be bound all are, and after an hour nothing is known of anybody."""
    steps = [step.__name__ for step, times in STEPS.items() for _ in range(times)]
    steps += ["create"] * 8 + ["lose"] * 12 + ["let_in"] * 8 + ["remake", "relabel"] * 3 + more
    for seed in range(first, first + 8):
        world = Remade()
        world.chance = random.Random(seed)
        for name in world.chance.choices(steps, k=80):
            getattr(world, name)()
            world.check()
            assert all(world.queues.notice(waiter).message for waiter in world.queues.waiting())
        world.bindable = True
        world.check_to_the_end()
        for uid in list(world.pods):
            world.gone(uid)
        world.now += FADES
        world.round()
        lost = world.queues.register.lost_turns
        known = [vars(part) for part in (lost.rests, lost.tries, lost.doubts, lost.claims)]
        assert not any(value for part in known for value in part.values() if isinstance(value, dict | set)), known


# --- whose scheduler asks for nothing ---------------------------------------------------------------------------------
def lets_in(stage: Stage, uid: str, *, scheduler: str, unseen: bool = True) -> None:
    """A pod comes, and has its first turn."""
    pod = stage.submit(uid, 60, spec={"schedulerName": scheduler})
    if unseen:
        gated = PodCondition(type="PodScheduled", status="False", reason="SchedulingGated")
        stage.see(replace(pod, status=replace(pod.status, conditions=[gated])))
    assert stage.round() == [uid]


@pytest.mark.parametrize(
    ("asks", "unseen", "again"),
    [
        # kube-scheduler was asking once, and has asked for nobody for a while.
        ([-100], "unseen", PROMISE),
        # It began again while the turn lasted.
        ([-100, 25], "unseen", PROMISE),
        # It asks for others, so it has passed this one over.
        ([-60, -50, -40, -30, -20, -10, 0, 10, 20], "unseen", PROMISE + STEP),
        # It has looked at this one.
        ([-100], "seen", PROMISE + STEP),
    ],
)
def test_a_first_turn_comes_back_at_once_only_if_kube_scheduler_was_silent(
    asks: list[int], unseen: str, again: float
) -> None:
    """Else it is lost as any other."""
    stage = Stage({}, nodes=(1,))
    stage.now = 1000.0
    asked = stage.submit("other", 10, spec={"schedulerName": "aliquot"})
    stage.gone("other")
    for at in asks:
        stage.queues.asked(asked, now=stage.now + at)
    lets_in(stage, "p", scheduler="aliquot", unseen=unseen == "unseen")
    began, found = stage.now, list[str]()
    while not found:
        found = stage.round(after=STEP)
    assert stage.now - began == again


def test_a_scheduler_that_was_never_heard_gets_a_second_turn_late_and_others_come_first() -> None:
    """The pod is told so; and once its scheduler asks for any pod, it need not wait any longer."""
    stage = Stage({}, nodes=(1,))
    lets_in(stage, "p", scheduler="other")
    good = stage.submit("good", 60, user="good", spec={"schedulerName": "aliquot"})
    assert stage.run(after=PROMISE) == ["good"]
    stage.end("good")
    waiter = next(one for one in stage.queues.waiting() if one.uid == "p")
    assert stage.queues.notice(waiter).reason == "TurnLost"
    assert "no scheduler by its spec.schedulerName other has asked for any pod" in stage.queues.notice(waiter).message
    assert stage.queues.register.lost_turns.unheard_pods() == 1
    stage.queues.asked(good, now=stage.now)
    assert stage.round(after=120.0) == []
    assert stage.queues.register.lost_turns.unheard_pods() == 1
    stage.queues.asked(stage.pods["p"], now=stage.now)
    assert stage.queues.register.lost_turns.unheard_pods() == 0
    assert stage.round() == ["p"]


def test_a_scheduler_that_asks_during_the_second_turn_is_heard() -> None:
    """Whoever then waits for other reasons does not wait for somebody to ask."""
    stage = Stage({}, nodes=(1,))
    lets_in(stage, "p", scheduler="other")
    while not stage.round(after=STEP):
        pass
    stage.queues.asked(stage.pods["p"], now=stage.now)
    stage.run(after=PROMISE)
    assert [one.uid for one in stage.queues.waiting()] == ["p"]
    assert stage.queues.register.lost_turns.unheard_pods() == 0


def test_a_scheduler_that_was_never_heard_is_tried_again_all_the_same() -> None:
    """It may have had nothing to ask."""
    stage = Stage({}, nodes=(1,))
    lets_in(stage, "p", scheduler="other")
    began = stage.now
    while not stage.round(after=STEP):
        pass
    assert 150.0 <= stage.now - began - PROMISE <= 300.0 + STEP
