"""Groups of one name at the same time: of several Jobs, of several users, and those that come while others go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.waiting.runs import Runs
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.centre import gpus, make_node
from support.queue_stage import Stage, queue

ONE = {"a": queue(), "b": queue()}
STALE = 60.0


def submit(
    stage: Stage,
    *uids: str,
    made_by: str = "",
    size: int = 2,
    least: int = 0,
    topology: str = "",
    who: str = "",
    where: str = "a",
) -> None:
    """Pods of one group, each of which asks a GPU."""
    notes = {"group-size": str(size), "group-min": str(least or size)} | (
        {"group-topology": topology} if topology else {}
    )
    for uid in uids:
        labels = {"who": who} if who else {}
        stage.submit(uid, 100, queue=where, group="train", notes=notes, made_by=made_by, labels=labels)


def goes(stage: Stage, *uids: str) -> None:
    """These are asked to go, and have their grace."""
    for uid in uids:
        pod = stage.pods[uid]
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-11-21T00:00:00Z")
        stage.see(msgspec.structs.replace(pod, metadata=meta))


def told(stage: Stage, uid: str) -> str:
    """The word and the sentence of one that waits."""
    (notice,) = [stage.queues.notice(waiter) for waiter in stage.queues.waiting() if waiter.uid == uid]
    return f"{notice.reason}: {notice.message}"


def led_anew(old: Stage, *, cards: Sequence[int], order: Iterable[str] = ()) -> Stage:
    """Another leader, that knows what is written on the pods."""
    new = Stage(ONE, nodes=cards)
    for uid in order or sorted(old.pods):
        new.see(old.pods[uid])
    new.now = old.now
    return new


class Both(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of several makers wait for one name while all cards are taken; then two are free at a time."""

    # Who comes in which order, and who makes each.
    comes: Sequence[tuple[str, str]]
    size: int = 2
    least: int = 0
    deleted: Sequence[str] = ()
    # Who is in first, and who next.
    first: Sequence[str]
    then: Sequence[str]


B1, B2, B3, C1, C2, C3 = (("b1", "j"), ("b2", "j"), ("b3", "j"), ("c1", "k"), ("c2", "k"), ("c3", "k"))
BOTH = {
    "in order": Both(comes=(B1, B2, C1, C2), first=("b1", "b2"), then=("c1", "c2")),
    "in turns": Both(comes=(B1, C1, B2, C2), first=("b1", "b2"), then=("c1", "c2")),
    "one made anew": Both(comes=(B2, C1, C2, B1), first=("b1", "b2"), then=("c1", "c2")),
    "one is not all there": Both(comes=(B1, C1, C2), first=("c1", "c2"), then=()),
    "nor any more": Both(comes=(B1, C1, B2, C2), deleted=("b2",), first=("c1", "c2"), then=()),
    "a launcher and its worker": Both(comes=(("l", "jl"), ("w", "jw")), first=("l", "w"), then=()),
    "of nobody": Both(comes=(("p", ""), ("q", ""), ("r", ""), ("s", "")), first=("p", "q"), then=("r", "s")),
    "smaller than all": Both(comes=(B1, C1, B2, C2, B3, C3), size=3, least=2, first=("b1", "b2"), then=("b3",)),
}


@pytest.mark.parametrize("anew", [False, True], ids=["", "another leader"])
@pytest.mark.parametrize("row", BOTH)
def test_two_that_make_one_name_at_once_start_each_as_a_whole(row: str, *, anew: bool) -> None:
    """Whatever order their pods came in, and whoever leads by then."""
    case = BOTH[row]
    stage = Stage(ONE, nodes=(2,))
    for blocker in "xy":
        stage.submit(blocker, 100, queue="b", user="other")
    assert stage.run() == ["x", "y"]
    for uid, maker in case.comes:
        submit(stage, uid, made_by=maker, size=case.size, least=case.least)
    for uid in case.deleted:
        stage.gone(uid)
    assert stage.run(after=1.0) == []
    if anew:
        stage = led_anew(stage, cards=(2,))
        assert stage.run() == []
    stage.end("x", "y")
    assert sorted(stage.run(after=1.0)) == sorted(case.first)
    assert stage.run(after=1.0) == []
    if anew:
        stage = led_anew(stage, cards=(2,))
    stage.end(*case.first[: len(case.then) or None])
    assert sorted(stage.run(after=1.0)) == sorted(case.then)


def test_one_name_of_two_queues_starts_in_each_with_its_own() -> None:
    """Who has as many as the group only in two queues needs another's in either."""
    stage = Stage(ONE, nodes=(2,))
    submit(stage, "b1", made_by="j")
    submit(stage, "b2", made_by="j", where="b")
    submit(stage, "c1", made_by="k", where="b")
    assert stage.run() == ["b2", "c1"]


def torn(stage: Stage) -> None:
    """Of each of two Jobs one pod is in, and one has come since."""
    submit(stage, "b1", made_by="j")
    submit(stage, "c1", made_by="k")
    assert stage.run() == ["b1", "c1"]
    submit(stage, "b2", made_by="j")
    submit(stage, "c2", made_by="k")
    assert stage.run(after=1.0) == []


@pytest.mark.parametrize("anew", [False, True], ids=["", "another leader"])
def test_a_run_of_two_halves_lets_go_of_one(*, anew: bool) -> None:
    """Each would wait for the other's card for ever; after a minute the one starts whole, and the other waits whole."""
    stage = Stage(ONE, nodes=(2,))
    torn(stage)
    if anew:
        stage = led_anew(stage, cards=(2,))
    assert stage.queues.stale_gangs(now=stage.now) == []
    assert stage.queues.stale_gangs(now=stage.now + STALE - 1.0) == []
    stage.now += STALE
    assert [pod.metadata.uid for pod in stage.queues.stale_gangs(now=stage.now)] == ["c1"]
    goes(stage, "c1")
    submit(stage, "c3", made_by="k")
    stage.gone("c1")
    assert stage.run(after=1.0) == ["b2"]
    stage.now += STALE
    assert stage.queues.stale_gangs(now=stage.now) == []
    stage.end("b1")
    assert stage.run(after=1.0) == []
    stage.end("b2")
    assert sorted(stage.run(after=1.0)) == ["c2", "c3"]


def test_a_run_of_two_halves_goes_on_where_there_is_room_for_all() -> None:
    """Nobody waits for the others any more before the minute is over."""
    stage = Stage(ONE, nodes=(2, 2), settings=QueueSettings(stale_gang=STALE))
    stage.submit("x", 200, queue="b", user="other", notes={"gpus": "2"})
    assert stage.run() == ["x"]
    torn(stage)
    assert stage.queues.stale_gangs(now=stage.now) == []
    stage.end("x")
    assert stage.run(after=1.0) == ["b2", "c2"]
    stage.now += 2 * STALE
    assert stage.queues.stale_gangs(now=stage.now) == []


def test_a_launcher_whose_worker_is_made_anew_is_not_torn() -> None:
    """Its Job never has as many as the group."""
    stage = Stage(ONE, nodes=(2, 1), settings=QueueSettings(stale_gang=STALE))
    submit(stage, "l", made_by="jl", size=3)
    submit(stage, "w1", "w2", made_by="jw", size=3)
    assert stage.run() == ["l", "w1", "w2"]
    goes(stage, "w1")
    submit(stage, "w3", made_by="jw", size=3)
    assert stage.run(after=1.0) == []
    for _ in range(3):
        stage.now += STALE
        assert stage.queues.stale_gangs(now=stage.now) == []


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """Four run; some are on their way out, and others come in their place while so many cards are free."""

    made_by: str = "j"
    least: int = 4
    going: int = 4
    comes: int = 4
    free: int = 1
    # How many of those come in at once.
    at_once: int


REPLACED = {
    "all by one Job": Replaced(at_once=0),
    "all, which nobody makes": Replaced(made_by="", at_once=0),
    "all, where three do": Replaced(least=3, free=2, at_once=0),
    "all, and there is room for all": Replaced(free=4, at_once=4),
    "two of them start together": Replaced(going=2, comes=2, at_once=0),
    "and do with two cards": Replaced(going=2, comes=2, free=2, at_once=2),
    "one comes alone": Replaced(going=1, comes=1, at_once=1),
    "two, where two are to spare": Replaced(going=2, comes=2, least=2, at_once=1),
}


@pytest.mark.parametrize("anew", [False, True], ids=["", "another leader"])
@pytest.mark.parametrize("row", REPLACED)
def test_who_comes_for_those_that_go_starts_with_as_many_as_are_needed(row: str, *, anew: bool) -> None:
    """Who is on the way out is nobody's mate, though it has its card until it is gone."""
    case = REPLACED[row]
    cards = (4 + case.free,)
    stage = Stage(ONE, nodes=cards)
    old = [f"p{number}" for number in range(4)]
    submit(stage, *old, made_by=case.made_by, size=4, least=case.least)
    ran = [*stage.run(), *stage.run(after=1.0)]
    assert sorted(ran) == old
    goes(stage, *old[: case.going])
    if anew:
        stage = led_anew(stage, cards=cards)
    new = [f"q{number}" for number in range(case.comes)]
    submit(stage, *new, made_by=case.made_by, size=4, least=case.least)
    assert stage.run(after=1.0) == new[: case.at_once]
    for uid in old[: case.going]:
        stage.gone(uid)
    assert [*stage.run(after=1.0), *stage.run(after=1.0)] == new[case.at_once :]


def test_who_is_made_anew_lies_where_those_lie_that_stay() -> None:
    """A group of one node whose pods are all on the way out binds those that come to no node."""
    stage = Stage(ONE, nodes=(2,))
    submit(stage, "p0", "p1", topology="node")
    assert stage.run() == ["p0", "p1"]
    stage.picture.node_seen(make_node("n1", gpus("n1", 2)))
    goes(stage, "p0", "p1")
    submit(stage, "q0", "q1", topology="node")
    assert stage.run(after=1.0) == ["q0", "q1"]
    assert {node for uid in ("q0", "q1") for node, _ in stage.picture.holdings.of(uid)} == {"n1"}


def test_pods_of_another_user_are_not_of_the_group() -> None:
    """They neither make it whole, nor start beside it, nor keep it from starting."""
    stage = Stage(ONE, nodes=(5,), settings=QueueSettings(user_label="who"))
    submit(stage, "ann1", who="ann", made_by="j")
    submit(stage, "mal1", who="mal", made_by="m")
    assert stage.run() == []
    submit(stage, "ann2", who="ann", made_by="j")
    assert stage.run(after=1.0) == ["ann1", "ann2"]
    submit(stage, "ann3", who="ann", size=3, least=2)
    submit(stage, "mal3", "mal4", who="mal", size=3, least=2)
    assert stage.run(after=1.0) == ["mal3", "mal4"]
    submit(stage, "ann4", who="ann", size=3, least=2)
    assert stage.run(after=1.0) == []
    stage.end("ann1", "ann2")
    assert stage.run(after=1.0) == ["ann3", "ann4"]


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What one is told that waits, by who else has the name."""

    going: bool = False
    mine: Mapping[str, str] = {}
    others: Sequence[str] = ()
    size: int = 3
    said: str


SAID = {
    "on the way out": Said(
        going=True,
        said="GangIncomplete: group train starts with 3 pods, and 1 is there (not counted: 3 on the way out): 2 more "
        "have to come, or lower aliquot.dev/group-min",
    ),
    "of an earlier run": Said(
        said="GangIncomplete: group train starts with 3 pods, and 1 is there (not counted: 3 of an earlier run): "
        "create 2 more, or lower aliquot.dev/group-min",
    ),
    "with another run": Said(
        mine={"p8": "j", "p9": "j"},
        said="GangIncomplete: group train starts with 3 pods, and 1 is there (not counted: 3 of an earlier run, 2 "
        "waiting with another run): create 2 more, or lower aliquot.dev/group-min",
    ),
    "of another user, too few": Said(
        others=["m1"],
        said="GangIncomplete: group train starts with 3 pods, and 1 is there (not counted: 3 of an earlier run, 1 of "
        "another user): create 2 more, or lower aliquot.dev/group-min",
    ),
    "of another user, enough": Said(
        others=["m1", "m2"],
        said="GangSplit: group train starts with 3 pods of one user, and 1 is of ann, 2 are of mal: create all of them "
        "as one user",
    ),
}


@pytest.mark.parametrize("row", SAID)
def test_who_waits_for_others_is_told_who_does_not_count(row: str) -> None:
    """With how many, and what is to be done."""
    case = SAID[row]
    stage = Stage(ONE, nodes=(3,), settings=QueueSettings(user_label="who"))
    submit(stage, "p0", "p1", "p2", made_by="j", size=3, who="ann")
    assert stage.run() == ["p0", "p1", "p2"]
    if case.going:
        goes(stage, "p0", "p1", "p2")
    submit(stage, "q0", made_by="k", size=3, who="ann")
    for uid, maker in case.mine.items():
        submit(stage, uid, made_by=maker, size=3, who="ann")
    submit(stage, *case.others, size=3, who="mal")
    assert stage.run(after=1.0) == []
    assert told(stage, "q0") == case.said


def test_who_is_edited_while_its_group_waits_whole_moves_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write of a condition tells of a pod: of a large group all would be sorted anew twice for it."""
    sorted_in, asked = Runs.sorted_in, list[str]()

    def counted(self: Runs, waiter: Waiter, *, alone: str = "") -> Waiter:
        asked.append(waiter.uid)
        return sorted_in(self, waiter, alone=alone)

    stage = Stage(ONE, nodes=(1, 1))
    stage.submit("x", 100, queue="b")
    assert stage.run() == ["x"]
    submit(stage, "b1", "b2", made_by="j")
    monkeypatch.setattr(Runs, "sorted_in", counted)
    pod = stage.pods["b1"]
    stage.see(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Pending")))
    assert asked == ["b1"]


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """Of a group of four whose maker is `j`: who finishes, who fails, who is made then and by whom; who comes in."""

    finish: Sequence[str]
    fail: Sequence[str]
    made: Sequence[str]
    by: str = "j"
    cards: int = 4
    come: Sequence[str]


FINISHED = {
    "another fails": Finished(finish=("p0",), fail=("p1",), made=("n1",), come=("n1",)),
    "all others fail": Finished(
        finish=("p0",), fail=("p1", "p2", "p3"), made=("n1", "n2", "n3"), come=("n1", "n2", "n3")
    ),
    "and one is not made yet": Finished(finish=("p0",), fail=("p1", "p2", "p3"), made=("n1", "n2"), come=()),
    "and there is no room for all": Finished(
        finish=("p0",), fail=("p1", "p2", "p3"), made=("n1", "n2", "n3"), cards=2, come=()
    ),
    "of another maker they count for nobody": Finished(
        finish=("p0", "p1"), fail=("p2", "p3"), made=("n1", "n2"), by="k", come=()
    ),
    "all, and it begins anew": Finished(finish=("p0", "p1", "p2", "p3"), fail=(), made=("n1", "n2"), come=()),
}


@pytest.mark.parametrize("led", ["on", "anew"])
@pytest.mark.parametrize("case", FINISHED.values(), ids=FINISHED.keys())
def test_whoever_has_finished_counts_for_those_of_the_same_maker(case: Finished, led: str) -> None:
    """A Job makes no other in its place: the rest of its group would wait for that one for ever."""
    stage = Stage(ONE, nodes=(4,))
    submit(stage, "p0", "p1", "p2", "p3", made_by="j", size=4)
    assert len(stage.run()) == 4
    for number in range(4 - case.cards):
        stage.submit(f"x{number}", 100, queue="b")
    for uid in (*case.finish, *case.fail):
        phase = "Succeeded" if uid in case.finish else "Failed"
        pod = stage.pods[uid]
        stage.see(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase=phase)))
    stage.run()
    submit(stage, *case.made, made_by=case.by, size=4)
    if led == "anew":
        stage = led_anew(stage, cards=(4,))
    assert stage.run(after=1.0) == list(case.come)
    assert stage.queues.stale_gangs(now=stage.now + 1_000.0) == [] or not case.come


def test_whoever_has_finished_counts_until_there_is_no_such_pod() -> None:
    """Whoever leads next could not know of it."""
    stage = Stage(ONE, nodes=(4,))
    submit(stage, "p0", "p1", made_by="j")
    assert len(stage.run()) == 2
    for uid, phase in (("p0", "Succeeded"), ("p1", "Failed")):
        pod = stage.pods[uid]
        stage.see(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase=phase)))
    stage.gone("p0")
    submit(stage, "n1", made_by="j")
    assert stage.run(after=1.0) == []
    submit(stage, "n2", made_by="j")
    assert stage.run(after=1.0) == ["n1", "n2"]


def test_whoever_has_finished_takes_nobody_s_patience() -> None:
    """Its place is empty and it counts as there at one instant: in between its group would lack two, and be no head."""
    stage = Stage(ONE, nodes=(3,))
    submit(stage, "p0", "p1", "p2", made_by="j", size=3)
    assert len(stage.run()) == 3
    stage.gone("p0")
    stage.submit("x", 100, queue="b")
    assert stage.run() == ["x"]
    submit(stage, "n0", made_by="j", size=3)
    assert stage.run(after=1.0) == []
    since = stage.queues.register.memory.patience.since["n0"]
    stage.run(after=10.0)
    pod = stage.pods["p1"]
    stage.see(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Succeeded")))
    assert stage.queues.register.memory.patience.since["n0"] == since
