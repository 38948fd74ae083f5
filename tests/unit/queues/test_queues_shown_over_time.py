"""Who is shown to a cluster autoscaler, over time: a gate that is lifted stays so, whoever comes first later."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.centre import NAMES, gpus, make_node
from support.growing import MINUTE, full, go, led_anew, lifted, shown
from support.queue_stage import Stage, queue

replace = msgspec.structs.replace


def test_a_higher_priority_lifts_no_gate_by_quota_that_another_is_shown_by() -> None:
    """Quota is for one: the one that was shown first."""
    stage = full({"a": queue(limit=100, autoscale=True)})
    for priority in range(6):
        stage.submit(f"p{priority}", 100, queue="a", priority=priority)
        go(stage, after=2.0)
    assert (lifted(stage), shown(stage)) == (["p0"], ["p0"])


def test_nor_does_another_user_whose_share_is_smaller_by_now() -> None:
    """Small pods of three users run by turns, and with each another user comes first."""
    stage = full({"a": queue(limit=150, autoscale=True)}, taken=50)
    users = ("u1", "u2", "u3")
    for user in users:
        stage.submit(f"p-{user}", 100, queue="a", user=user)
    for number in range(20):
        stage.submit(f"s{number}", 50, queue="a", user=users[number % 3])
        assert f"s{number}" in go(stage, after=10.0)
        go(stage, after=10.0)
        stage.end(f"s{number}")
        go(stage)
    # By the time at which room was gone the first user had had some.
    assert lifted(stage) == ["p-u2"]


def test_its_time_runs_on_while_others_have_its_quota() -> None:
    """Quota that comes and goes begins no time anew, and is worth no write; nor does it shorten the pause after it."""
    stage = full({"a": queue(limit=150, autoscale=True, autoscale_minutes=15)}, taken=40)
    stage.submit("p", 100, queue="a", user="u1")
    told, minutes = go(stage), []
    for minute in range(120):
        if minute % 5 == 2:
            stage.submit(f"s{minute}", 60, queue="a", user="u2")
            told += go(stage, after=1.0)
            assert shown(stage) == []
            stage.end(f"s{minute}")
            told += go(stage, after=MINUTE - 1.0)
        else:
            told += go(stage, after=MINUTE)
        minutes += [minute] if shown(stage) else []
    # For 15 minutes, and again after as long a pause, and after one of 30.
    assert told.count("p") == 3
    assert set(minutes) <= {*range(14), *range(29, 44), *range(74, 90)}


def test_no_other_gate_is_lifted_beside_one_that_is_put_out() -> None:
    """There would be quota for it alone; once the other one's time is over it has it."""
    stage = full({"a": queue(limit=150, autoscale=True)}, taken=40)
    stage.submit("p", 100, queue="a")
    assert go(stage) == ["p"]
    stage.submit("s", 60, queue="a")
    assert go(stage) == ["s"]
    stage.submit("q", 90, queue="a")
    assert go(stage, after=10 * MINUTE) == []
    assert (lifted(stage), shown(stage)) == (["p"], [])
    found = stage.queues.register.hall.find("p")
    assert found is not None
    assert stage.queues.notice(found).reason == "OverLimit"
    assert go(stage, after=5 * MINUTE) == ["q"]
    assert shown(stage) == ["q"]


def test_a_pod_that_has_room_goes_before_who_is_shown() -> None:
    """Their quota keeps no GPU idle, neither under the queue's own limit nor under one above."""
    specs = {"o": queue(limit=100), "a": queue("o", limit=100, autoscale=True), "b": queue("o")}
    stage = full(specs, taken=60)
    stage.submit("p", 100, queue="a")
    assert go(stage) == ["p"]
    for where in ("a", "b"):
        stage.submit(f"s-{where}", 20, queue=where)
        assert go(stage) == [f"s-{where}"]
        assert shown(stage) == []
        stage.end(f"s-{where}")
        assert go(stage) == []
        assert shown(stage) == ["p"]


def test_nobody_is_shown_soon_who_asks_what_no_node_came_for() -> None:
    """Its place is for who asks something else; then for the first of its like, later with each time."""
    stage = full({"a": queue(limit=100, autoscale=True, autoscale_minutes=1)})
    for number, user in enumerate(("u1", "u2", "u1")):
        stage.submit(f"p{number}", 100, queue="a", user=user)
    stage.submit("q", 90, queue="a", user="u1")
    told = [(minute, uid) for minute in range(12) for uid in go(stage, after=MINUTE if minute else 0.0)]
    # What p0 asks pauses for a minute, then for two and for four; what q asks as well. Users take turns.
    assert told == [(0, "p0"), (1, "q"), (2, "p1"), (3, "q"), (5, "p1"), (6, "q"), (10, "p1"), (11, "q")]
    assert (stage.turns["p1"].shown, stage.turns["q"].shown) == (4, 4)


def test_a_pause_outlives_the_pod() -> None:
    """Who deletes what was shown in vain, and submits the same again, waits as long as with the pod itself."""
    stage = full({"a": queue(limit=100, autoscale=True, autoscale_minutes=1)})
    told = []
    for minute in range(12):
        stage.submit(f"p{minute}", 100, queue="a")
        told += [(minute, uid) for uid in go(stage, after=MINUTE)]
        for uid in sorted(stage.pods):
            if (showing := stage.queues.register.showings.of(uid)) and showing.over:
                stage.gone(uid)
    # As of one that stays: a minute shown and one of pause, another and two, another and four.
    assert [minute for minute, _ in told] == [0, 2, 5, 10]
    assert len({uid for _, uid in told}) == len(told)


BELOW_ONE = {"o": queue(limit=100), **{name: queue("o", autoscale=True) for name in "abc"}}
# The queues, and in which of them the hog and two others are, of which users.
NEVER_LAST = {
    "among queues": ({"o": queue(limit=100), **{name: queue("o", autoscale=True) for name in "abc"}}, "abc", "u"),
    "whatever their names": (
        {"o": queue(limit=100), **{name: queue("o", autoscale=True) for name in "abc"}},
        "cba",
        "u",
    ),
    "among users of one": ({"a": queue(limit=100, autoscale=True)}, "aaa", "uvw"),
}


@pytest.mark.parametrize("row", NEVER_LAST)
def test_nobody_is_kept_from_being_shown_by_bulk(row: str) -> None:
    """Of three that ask all there is each is shown within three times the minutes, however many shapes one brings."""
    specs, queues, users = NEVER_LAST[row]
    stage = full(specs)
    for number in range(30):
        stage.submit(f"p{number}", 100, 1000 + number, queue=queues[0], user=users[0])
    assert len(go(stage)) == 1
    for name, where, user in zip("st", queues[1:], (users * 3)[1:3], strict=True):
        stage.submit(name, 100, 500 + ord(name), queue=where, user=user)
    found = {uid: minute for minute in range(1, 46) for uid in go(stage, after=MINUTE)}
    assert sorted(found[uid] for uid in "st") == [15, 30]
    # Edits of other queues give nobody another lap.
    stage.queues.queues_seen({**specs, "other": queue(), "elsewhere": queue(limit=1)})
    again = [uid[0] for _ in range(75) for uid in go(stage, after=MINUTE)]
    assert {"s", "t"} <= set(again[:5])


def test_by_weight_one_is_shown_more_than_another() -> None:
    """Of weights of three and one three times as long, over hours."""
    weights = {"a": 1, "b": 3}
    own = {
        name: queue("o", autoscale=True, weight=weight, memory=Quota(weight=weight)) for name, weight in weights.items()
    }
    stage = full({"o": queue(limit=100), **own})
    for name in "ab":
        for number in range(60):
            stage.submit(f"{name}{number}", 100, 1000 + number, queue=name)
    told = "".join(uid[0] for _ in range(15 * 40) for uid in go(stage, after=MINUTE))
    assert len(told) == 40
    assert 28 <= told.count("b") <= 31


def test_who_was_shown_in_vain_is_shown_anew_with_growing_pauses() -> None:
    """Each is twice as long as the one before; whatever else there is meanwhile."""
    stage = Stage({"a": queue(autoscale=True, autoscale_minutes=1), "other": queue()}, nodes=(2,))
    stage.submit("x", 50, queue="other")
    assert go(stage) == ["x"]
    # Two GPUs of one node.
    stage.submit("p", 200, queue="a")
    assert go(stage) == ["p"]
    told = []
    for minute in range(1, 20):
        stage.picture.node_seen(make_node(f"n{minute}", gpus(f"n{minute}", 1)))
        told += [minute] if go(stage, after=MINUTE) else []
    # A minute shown and one of pause, another and two, another and four, another and eight.
    assert told == [2, 5, 10, 19]
    assert (stage.turns["p"].promise, stage.turns["p"].shown) == (None, 5)


def test_another_leader_shows_the_same_pods_for_the_rest_of_their_time() -> None:
    """Since when is written on them; nothing is written again, and nobody else is shown beside them."""
    specs = {"a": queue(limit=100, autoscale=True, autoscale_minutes=15)}
    stage = full(specs)
    stage.submit("p", 100, queue="a")
    assert go(stage) == ["p"]
    for after in (10 * MINUTE, 4 * MINUTE):
        stage.submit(f"q{after}", 100, queue="a", priority=9)
        assert go(stage, after=after) == []
        stage = led_anew(stage, specs)
        assert go(stage) == []
        assert (lifted(stage), shown(stage)) == (["p"], ["p"])
    assert go(stage, after=1 * MINUTE) == []
    assert shown(stage) == []
    stage = led_anew(stage, specs)
    assert go(stage) == []
    assert (lifted(stage), shown(stage)) == (["p"], [])
    waiter = stage.queues.register.hall.find("p")
    assert waiter is not None
    assert "for 15 minutes (1 time); " in stage.queues.notice(waiter).message
    assert "shown again at 2026-11-21T10:30:00Z at the earliest; " in stage.queues.notice(waiter).message


def test_who_can_t_be_told_that_it_is_shown_is_not() -> None:
    """It is told later; the quota is for others until then."""
    stage = full({"a": queue(limit=100, autoscale=True)})
    stage.submit("p", 100, queue="a")
    stage.submit("q", 100, queue="a")
    assert stage.round() == ["p"]
    stage.queues.not_told(stage.pods["p"], now=stage.now)
    assert go(stage) == ["q"]
    assert go(stage, after=30.0) == []
    assert (lifted(stage), shown(stage)) == (["q"], ["q"])


def test_who_has_lost_a_turn_is_shown_before_any_gate_is_lifted() -> None:
    """Its own is lifted already, and an autoscaler sees it."""
    stage = full({"a": queue(limit=100, autoscale=True)}, taken=1)
    stage.submit("lost", 90, queue="a")
    found = stage.round()
    assert stage.promised(found) == ["lost"]
    stage.lift("lost")
    stage.now += 31.0
    stage.desk.tell_time(stage.now)
    stage.submit("y", 99, queue="other")
    stage.submit("p", 100, queue="a", priority=9)
    assert "y" in go(stage)
    go(stage, after=10 * MINUTE)
    assert (shown(stage), [uid for uid in lifted(stage) if uid != "lost"]) == (["lost"], [])


@pytest.mark.parametrize("priority", [0, 1000])
@pytest.mark.parametrize(
    "specs",
    [
        {"a": queue(limit=100, autoscale=True)},
        {"o": queue(limit=100), "a": queue("o", autoscale=True), "b": queue("o", autoscale=True)},
    ],
    ids=["one queue", "two queues"],
)
def test_who_loses_turns_is_shown_no_sooner_than_others_for_that(specs: Mapping[str, QueueSpec], priority: int) -> None:
    """Twelve of one user's pods have lost theirs, of whatever priority: after one of them another user's is shown."""
    stage = Stage({**specs, "other": queue()}, nodes=(1,))
    for number in range(12):
        stage.submit(f"hog{number}", 100, 1_000 + number, queue="a", user="hog", priority=priority)
    while len(stage.queues.register.lost_turns.times) < 12:
        stage.lift(*stage.round(after=5.0))
    stage.submit("x", 100, queue="other", user="x")
    while not stage.pods["x"].spec.node_name:
        found = stage.round(after=5.0)
        stage.bind(*[uid for uid in found if uid == "x"])
    stage.submit("mine", 100, queue="b" if "b" in specs else "a", user="me")
    began = stage.now
    while "mine" not in shown(stage):
        go(stage, after=30.0)
        assert stage.now - began <= 16 * MINUTE


def test_who_has_lost_a_turn_is_not_shown_as_long_as_the_same_was_shown_in_vain() -> None:
    """It waits for the pause, as whoever has a gate does."""
    stage = full({"a": queue(limit=100, autoscale=True)}, taken=1)
    for uid in ("lost", "lost-too"):
        stage.submit(uid, 90, queue="a")
    stage.lift(*stage.promised(stage.round()))
    while len(stage.queues.register.lost_turns.times) < 2:
        stage.lift(*stage.round(after=5.0))
    stage.submit("y", 99, queue="other")
    while "y" not in go(stage, after=5.0):
        pass
    while not shown(stage):
        go(stage, after=30.0)
    began = stage.now
    while shown(stage):
        go(stage, after=30.0)
    over = stage.now
    while not shown(stage):
        go(stage, after=30.0)
    assert stage.now - over == over - began == 15 * MINUTE


def test_a_group_is_shown_whole_or_not_at_all() -> None:
    """By quota for one of two none is shown; and none any more once others have a part of their quota."""
    stage = full({"a": queue(limit=250, autoscale=True)}, taken=40)
    for name in ("g0", "g1"):
        stage.submit(name, 100, queue="a", group="g", notes={"group-size": "2"})
    stage.submit("s", 60, queue="a", user="other", priority=9)
    assert go(stage) == ["s"]
    assert (lifted(stage), shown(stage)) == ([], [])
    stage.end("s")
    assert go(stage) == ["g0", "g1"]
    stage.submit("t", 60, queue="a", user="other")
    assert go(stage) == ["t"]
    assert shown(stage) == []
    stage.end("t")
    assert go(stage) == []
    assert shown(stage) == ["g0", "g1"]


def noted(stage: Stage, uid: str, *, labels: Mapping[str, str] | None = None, **notes: str) -> None:
    """Its user changes what is written on a pod."""
    pod = stage.pods[uid]
    said = pod.metadata.annotations | {NAMES.of(key.replace("_", "-")): text for key, text in notes.items()}
    meta = replace(pod.metadata, labels={**pod.metadata.labels, **(labels or {})}, annotations=said)
    stage.see(replace(pod, metadata=meta))


def test_who_asks_something_else_by_now_is_shown_for_that() -> None:
    """No node came for what it asked; in all that queues count the other is the same."""
    stage = full({"a": queue(limit=100, autoscale=True)})
    stage.submit("p", 100, queue="a")
    assert [go(stage), go(stage, after=16 * MINUTE)] == [["p"], []]
    noted(stage, "p", placement="spread")
    assert go(stage, after=1.0) == ["p"]


# What a tenant does to a pod as soon as it is shown.
TRICKS: dict[str, Callable[[Stage, str], None]] = {
    "it is put into a queue that grows too": lambda stage, uid: noted(stage, uid, labels={NAMES.queue: "b"}),
    "it is put into one that does not": lambda stage, uid: noted(stage, uid, labels={NAMES.queue: "c"}),
    "it is put into none that there is": lambda stage, uid: noted(stage, uid, labels={NAMES.queue: "gone"}),
    "it asks for what no node has": lambda stage, uid: noted(stage, uid, gpu_model="Nothing*"),
    "it asks for nonsense": lambda stage, uid: noted(stage, uid, gpus="many"),
    "it becomes one of a group that can't start": lambda stage, uid: noted(
        stage, uid, labels={NAMES.group: "g"}, group_size="9"
    ),
}


@pytest.mark.parametrize(
    ("row", "anew"),
    # What can't be read no leader takes over: the webhook refuses to write it.
    [(row, anew) for row in TRICKS for anew in (False, True) if not (anew and "nonsense" in row)],
)
def test_one_quota_lifts_one_gate_whatever_becomes_of_the_pod(row: str, *, anew: bool) -> None:
    """Until its time is over the queue that showed it is charged, wherever and however it waits by then."""
    specs = {name: queue(limit=100, autoscale=name != "c") for name in "abc"}
    stage = full(specs)
    for number in range(4):
        stage.submit(f"p{number}", 100, 1000 + number, queue="a")
        for uid in go(stage, after=1.0):
            TRICKS[row](stage, uid)
        if anew:
            stage = led_anew(stage, specs)
    assert go(stage, after=14 * MINUTE) == []
    assert lifted(stage) == ["p0"]
    # Then it is for others; and of itself only what it asks now.
    assert set(go(stage, after=MINUTE)) & {"p0", "p1"}


@pytest.mark.parametrize("anew", [False, True], ids=["", "another leader"])
def test_what_is_left_of_a_group_that_was_shown_holds_its_quota(*, anew: bool) -> None:
    """Groups of which one is deleted as soon as they are shown: the other's gate is lifted."""
    specs = {"a": queue(limit=200, autoscale=True)}
    stage = full(specs)
    for name in "ghi":
        for number in range(2):
            stage.submit(f"{name}{number}", 100, ord(name), queue="a", group=name, notes={"group-size": "2"})
    assert go(stage) == ["g0", "g1"]
    stage.gone("g1")
    if anew:
        stage = led_anew(stage, specs)
    assert go(stage, after=14 * MINUTE) == []
    assert (lifted(stage), shown(stage)) == (["g0"], [])
    assert go(stage, after=MINUTE) == ["h0", "h1"]


def test_one_that_comes_into_a_group_that_is_shown_is_shown_with_it() -> None:
    """In place of one that is gone: until it came the group was not shown, since it could not start."""
    stage = full({"a": queue(limit=200, autoscale=True)})
    notes = {"group-size": "2"}
    for name in ("g0", "g1"):
        stage.submit(name, 100, queue="a", group="g", notes=notes)
    assert go(stage) == ["g0", "g1"]
    stage.gone("g1")
    assert go(stage) == []
    assert shown(stage) == []
    stage.submit("g2", 100, queue="a", group="g", notes=notes)
    assert go(stage) == ["g2"]
    assert shown(stage) == ["g0", "g2"]


def test_two_queues_that_grow_share_the_limit_above_them() -> None:
    """Who come at once by turns; who comes late and asks something else, when the others' time is over."""
    specs = {
        "o": queue(limit=400),
        "a": queue("o", autoscale=True, autoscale_minutes=10),
        "b": queue("o", autoscale=True, autoscale_minutes=10),
    }
    stage = full(specs)
    for where in ("a", "b"):
        for number in range(4):
            stage.submit(f"{where}{number}", 100, queue=where)
    assert sorted(go(stage)) == ["a0", "a1", "b0", "b1"]
    stage = full(specs)
    for number in range(8):
        stage.submit(f"a{number}", 100, queue="a")
    assert go(stage) == ["a0", "a1", "a2", "a3"]
    for number in range(4):
        stage.submit(f"b{number}", 90, queue="b")
    assert go(stage, after=9 * MINUTE) == []
    assert go(stage, after=1 * MINUTE) == ["b0", "b1", "b2", "b3"]
    assert shown(stage) == ["b0", "b1", "b2", "b3"]


def test_nobody_is_kept_waiting_for_who_is_shown() -> None:
    """It stands first in line for hours, and a node is to come for it: small pods go on using the ones there are."""
    settings = QueueSettings(patience=100.0, hold=10_000.0)
    stage = full({"a": queue(autoscale=True, autoscale_minutes=600)}, settings=settings, taken=40)
    stage.submit("p", 100, queue="a")
    assert go(stage) == ["p"]
    for number in range(20):
        stage.submit(f"s{number}", 60, queue="other")
        assert go(stage, after=50.0) == [f"s{number}"]
        stage.end(f"s{number}")


def test_who_is_shown_elsewhere_once_its_time_is_over_is_shown_there() -> None:
    """Whatever the last look below the queue that showed it first has found."""
    specs = {
        "o": queue(limit=100),
        "a": queue("o", autoscale=True, autoscale_minutes=1),
        "b": queue(autoscale=True, autoscale_minutes=1),
    }
    stage = full(specs)
    stage.submit("q", 100, 1000, queue="b")
    stage.submit("p", 100, 2000, queue="a")
    assert sorted(go(stage)) == ["p", "q"]
    stage.submit("r", 100, 3000, queue="a")
    noted(stage, "p", labels={NAMES.queue: "b"})
    assert sorted(go(stage, after=MINUTE)) == ["p", "r"]
    assert shown(stage) == ["p", "r"]


def test_a_user_in_doubt_is_shown_once_that_is_over() -> None:
    """None of its pods may come for some seconds; nothing else need happen when those are over."""
    stage = full({"a": queue(autoscale=True)})
    register = stage.queues.register
    stage.submit("p", 100, queue="a")
    line = register.hall.lines["a"]
    line.closed = {"team": (0, 0)}
    assert register.growth.look(now=0.0) == []
    line.closed = {}
    assert [waiter.uid for waiter, _ in register.growth.look(now=6.0)] == ["p"]


def test_who_is_shown_at_one_instant_is_shown_on_in_the_same_order() -> None:
    """The first one made place for the second: of what its queue is guaranteed no other pod of it can have the rest."""
    specs = {
        "o": queue(limit=150),
        "a": queue("o", autoscale=True),
        "b": queue("o", guarantee=100, limit=100, autoscale=True, autoscale_minutes=1),
    }
    stage = full(specs)
    stage.submit("vain", 90, queue="b")
    assert go(stage) == ["vain"]
    go(stage, after=MINUTE)
    stage.submit("z-first", 30, queue="b")
    stage.submit("second", 90, queue="a")
    assert go(stage, after=1.0) == ["z-first", "second"]
    stage.queues.register.growth.look_anew()
    assert go(stage, after=1.0) == []
    assert shown(stage) == ["second", "z-first"]
