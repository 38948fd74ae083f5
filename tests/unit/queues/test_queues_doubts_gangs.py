"""A doubt costs no group that runs its place: who comes in a failed member's place comes in, and mates have time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.said.settings import QueueSettings
from support.queue_stage import Stage, queue

replace = msgspec.structs.replace
HE, JOB = "team", "job"
STALE = 60.0
STEP = 2.5


class Paused(Stage):
    """A node of eight cards; a group of his runs on four, somebody waits for all cards, and he has to pause."""

    def __init__(self, *, least: int = 4, runs: int = 4, large: str = "") -> None:
        super().__init__({"a": queue(), "b": queue()}, nodes=(8,))
        self.notes = {"group-size": "4", "group-min": str(least)}
        self.submit("runs", 100, queue="b", user="other")
        for uid in [f"t{number}" for number in range(runs)]:
            self.member(uid, compute=200 if uid == large else 100)
        assert len(self.run()) == 1 + runs
        self.submit("waits", 800, queue="b", user="other", notes={"gpus": "8"})
        for number in range(2):
            self.submit(f"bad{number}", 10, queue="a")
            assert self.round(after=PROMISE) == [f"bad{number}"]
            self.round(after=PROMISE)
            self.gone(f"bad{number}")
        self.submit("other", 10, queue="a")
        assert self.round() == []
        self.gone("other")

    def member(self, *uids: str, compute: int = 100) -> None:
        """Pods of the group."""
        for uid in uids:
            notes = self.notes | ({"gpus": str(compute // 100)} if compute > 100 else {})
            self.submit(uid, compute, queue="a", group="train", made_by=JOB, notes=notes)

    def fails(self, *uids: str) -> None:
        """They stop, and their pods are there still."""
        for uid in uids:
            pod = self.pods[uid]
            self.see(replace(pod, status=replace(pod.status, phase="Failed")))

    def sent_back(self) -> list[str]:
        """Who has to go since its group lacks others."""
        return sorted(pod.metadata.uid for pod in self.queues.stale_gangs(now=self.now))

    def word(self, uid: str) -> str:
        """Why one waits."""
        return next(self.queues.word(one) for one in self.queues.waiting() if one.uid == uid)


class Comes(msgspec.Struct, frozen=True, kw_only=True):
    """Of a group of four, who fails and who is made in that place; and whether those come in while he pauses."""

    least: int = 4
    runs: int = 4
    # Who of those asks for two cards.
    large: str = ""
    fails: Sequence[str] = ("t3",)
    comes: Mapping[str, int] = msgspec.field(default_factory=lambda: {"new": 100})
    let_in: bool = True


COMES = {
    "one of four": Comes(),
    "two of four": Comes(fails=("t2", "t3"), comes={"new": 100, "new2": 100}),
    "one that it can do without": Comes(least=3),
    "one that asks more": Comes(comes={"new": 200}, let_in=False),
    "one more for one of two": Comes(least=3, fails=("t3",), comes={"new": 100, "new2": 100, "new3": 100}),
    "two who ask as one of two": Comes(large="t2", fails=("t2", "t3"), comes={"new": 100, "new2": 100}, let_in=False),
    "one who was never there": Comes(least=3, runs=3, fails=(), let_in=False),
    "all of them": Comes(
        fails=("t0", "t1", "t2", "t3"), comes={"new": 100, "new2": 100, "new3": 100, "new4": 100}, let_in=False
    ),
}


@pytest.mark.parametrize("case", COMES.values(), ids=COMES)
def test_who_comes_in_the_place_of_one_that_failed_takes_what_its_group_held(case: Comes) -> None:
    """So no pause keeps it out; who asks more, or comes beside those that were there, waits as all of that user's."""
    stage = Paused(least=case.least, runs=case.runs, large=case.large)
    stage.fails(*case.fails)
    for uid, compute in case.comes.items():
        stage.member(uid, compute=compute)
    expected = list(case.comes)[: max(1, len(case.fails))] if case.let_in else []
    assert stage.round(after=STEP) == expected


@pytest.mark.parametrize(("filled", "word"), [(True, "NoRoom"), (False, "")])
def test_it_is_told_of_no_doubt(filled: bool, word: str) -> None:
    """What it waits for is room."""
    stage = Paused()
    stage.fails("t3")
    if filled:
        for number in range(4):
            stage.submit(f"fills{number}", 100, queue="b", user="third")
        stage.run()
    stage.member("new")
    came = stage.round(after=STEP)
    assert (stage.word("new") if word else came) == (word or ["new"])


def test_a_turn_in_such_a_place_that_led_to_nothing_leaves_none() -> None:
    """Else members that are deleted just before their turn is over, and made anew, would keep a card for nothing."""
    stage = Paused()
    stage.fails("t3")
    stage.member("new")
    assert stage.round(after=STEP) == ["new"]
    owed = stage.queues.register.lost_turns.debt(("a", HE), now=stage.now).owes[0]
    stage.round(after=PROMISE - STEP)
    stage.gone("new")
    debt = stage.queues.register.lost_turns.debt(("a", HE), now=stage.now)
    assert debt.owes[0] == owed + 100 * (PROMISE - STEP)
    stage.member("again")
    assert stage.round(after=STEP) == []
    assert stage.word("again") == "InDoubt"
    assert stage.round(after=debt.pauses - stage.now - STEP) == []
    assert "again" in stage.round(after=2 * STEP)


def test_who_could_not_be_told_of_its_turn_has_its_place_still() -> None:
    """It had none."""
    stage = Paused()
    stage.fails("t3")
    stage.member("new")
    assert stage.round(after=STEP) == ["new"]
    stage.desk.take_back("new")
    stage.queues.not_told(stage.pods["new"], now=stage.now)
    assert stage.round(after=STEP) == ["new"]


def test_a_group_that_begins_anew_has_nothing_left_of_the_one_before() -> None:
    """All of it failed, one after the other, when three of its places had been left."""
    stage = Paused(least=1, runs=3)
    stage.fails("t2", "t1")
    stage.end("t0")
    stage.now += 3600.0
    stage.member("n0")
    assert "n0" in stage.run()
    assert not stage.queues.books.runs.vacancies.has_for([stage.queues.register.inside.bound["n0"]])


# --- for how long its mates wait --------------------------------------------------------------------------------------
def spent(stage: Paused, *, after: float = 0.0) -> None:
    """One has failed, the turn in its place led to nothing; so long after that another is there that has to pause."""
    stage.fails("t3")
    stage.member("new")
    assert stage.round(after=STEP) == ["new"]
    stage.round(after=PROMISE - STEP)
    stage.gone("new")
    assert stage.sent_back() == []
    stage.round(after=after)
    assert stage.sent_back() == []
    stage.member("again")
    assert stage.round() == []


def test_mates_stay_while_the_pause_of_their_user_keeps_others_out() -> None:
    """Longer than a group that lacks somebody has."""
    stage = Paused()
    spent(stage)
    told = next(stage.queues.notice(one) for one in stage.queues.waiting() if one.uid == "again")
    assert told.reason == "InDoubt"
    assert told.message.endswith("; those of its group that run stay meanwhile")
    since = stage.now
    while "again" not in stage.round(after=STEP):
        assert stage.sent_back() == []
    assert stage.now - since > STALE


def test_mates_go_once_nothing_but_room_has_kept_others_out_for_a_minute() -> None:
    """Time counts in which nobody was made in that place, and that is after the pause."""
    stage, before = Paused(), 20.0
    spent(stage, after=before)
    pauses = stage.queues.register.lost_turns.debt(("a", HE), now=stage.now).pauses
    for number in range(4):
        stage.submit(f"fills{number}", 100, queue="b", user="third")
    stage.run()
    while stage.now < pauses + STALE - before - 2 * STEP:
        stage.round(after=STEP)
        assert stage.sent_back() == []
    stage.round(after=2 * STEP)
    assert stage.sent_back() == ["t0", "t1", "t2"]


def test_mates_stay_while_others_try_who_have_lost_turns() -> None:
    """Its volume is let go late, so its first turn is lost; and a pod of another namespace tries when it has rested."""
    stage = Stage({"a": queue(), "b": queue(), "c": queue()}, nodes=(8,), settings=QueueSettings(patience=3600.0))
    notes = {"group-size": "2"}
    for number in range(2):
        stage.submit(f"t{number}", 100, queue="a", group="train", made_by=JOB, notes=notes)
    assert len(stage.run()) == 2
    stage.submit("waits", 800, queue="b", user="other", notes={"gpus": "8"})
    stage.submit("bad", 10, queue="c", user="careless")
    while stage.round(after=STEP) != ["bad"] or stage.queues.register.lost_turns.times.get("bad", 0) < 3:
        assert stage.now < 600.0
    pod = stage.pods["t1"]
    stage.see(replace(pod, status=replace(pod.status, phase="Failed")))
    stage.submit("new", 100, queue="a", group="train", made_by=JOB, notes=notes)
    began, turns = stage.now, 0
    while turns < 2:
        turns += "new" in stage.round(after=STEP)
        assert stage.queues.stale_gangs(now=stage.now) == []
    assert stage.now - began > PROMISE + STALE
