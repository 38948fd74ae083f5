"""What the leader writes about queues: statuses that the next leader takes up, conditions, and evictions of gangs."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from unittest.mock import PropertyMock

import msgspec
import pytest

from aliquot_core.objects import ObjectMeta, PodCondition, Queue
from aliquot_kube.changes import Added, Deleted, Modified
from aliquot_kube.errors import ForbiddenError, ServerTroubleError
from aliquot_kube.patches import STRATEGIC_MERGE_PATCH
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.centre.gatekeeper import Gatekeeper
from aliquot_scheduler.centre.pod_patches import FEW_NODES, status_of
from aliquot_scheduler.centre.queue_writer import QueueWriter
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import Quota
from aliquot_scheduler.queues.telling.status import read_status
from aliquot_scheduler.queues.turns import Queues
from support.centre import NAMES
from support.queue_stage import Stage, queue
from support.telling_desk import TWO, Desk

replace = msgspec.structs.replace


async def test_a_status_is_written_whole_and_only_when_it_changes() -> None:
    """Every queue's once, then that of the one that changed, and usage alone once a minute."""
    desk = Desk()
    desk.stage.submit("p", 150, queue="a")
    desk.stage.run()
    await desk.lives(desk.queues, seconds=30)
    (first, second) = desk.sink.bodies("/status")
    assert [one["path"] for one in first] == ["/status"]
    told = first[0]["value"]
    assert (told["used"]["compute"], told["borrowed"]["compute"], told["fairShare"]["compute"]) == (150, 50, 150)
    assert second[0]["value"]["used"] == {"compute": 0, "memory": 0}
    desk.stage.end("p")
    await desk.lives(desk.queues, seconds=20)
    assert len(desk.sink.bodies("/status")) == 3
    assert {one.path.split("/")[-2] for one in desk.sink.asked} == {"a", "b"}
    await desk.lives(desk.queues, seconds=120)
    assert len(desk.sink.bodies("/status")) <= 3 + 4


async def test_a_look_that_fails_as_a_whole_ends_nobodys_reign(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect of ours: it is logged, and once it is over pods are told as before."""
    desk = Desk()
    desk.stage.submit("p", 900, queue="a")
    desk.stage.round()
    running = asyncio.ensure_future(desk.notices.run())
    with monkeypatch.context() as broken:
        broken.setattr(Queues, "register", PropertyMock(side_effect=KeyError))
        for _ in range(10):
            await desk.clock.advance(1.0)
    assert {type(one.exc_info[1]) for one in caplog.records if one.exc_info} == {KeyError}
    assert not desk.sink.asked
    for _ in range(10):
        await desk.clock.advance(1.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(desk.sink.bodies("/status")) == 1


async def test_a_queue_that_is_made_anew_is_told_of_anew() -> None:
    """Within one look, and as all was before: nobody sees it without a status until its usage is due."""
    desk = Desk()
    await desk.lives(desk.queues, seconds=20)
    assert len(desk.sink.bodies("/a/status")) == 1
    desk.there = {**desk.there, "a": Queue(metadata=ObjectMeta(name="a", uid="another"))}
    await desk.lives(desk.queues, seconds=20)
    assert (len(desk.sink.bodies("/a/status")), len(desk.sink.bodies("/b/status"))) == (2, 1)


async def test_a_leader_whose_clock_is_set_back_lets_no_usage_be_forgotten() -> None:
    """The next one lets it age since the time of the status: which is no earlier than what the API server told last."""
    desk, told = Desk(), "2031-05-06T07:08:09Z"
    for newest, expected in (("", "1970-01-12T13:46:45Z"), (told, told)):
        writer = QueueWriter(
            turns=desk.stage.queues, means=desk.means, there=lambda: desk.there, not_before=partial(str, newest)
        )
        desk.sink.asked.clear()
        await desk.lives(writer, seconds=6)
        assert {one[0]["value"]["at"] for one in desk.sink.bodies("/status")} == {expected}


async def test_what_is_wrong_with_a_queue_stands_in_its_status_until_it_is_mended() -> None:
    """Also of one that hangs on nothing and is counted nowhere; a queue with which nothing is wrong says nothing."""
    desk = Desk()
    there = {name: Queue(metadata=ObjectMeta(name=name), spec={"namespaces": ["*"]}) for name in ("a", "b", "c")}
    there["b"] = replace(there["b"], spec={"compute": {"guarantee": 9, "limit": 8}})
    there["c"] = replace(there["c"], spec={"parent": "gone"})
    desk.there = there
    await desk.lives(desk.queues, seconds=10)
    said = {one.path.split("/")[-2]: json.loads(one.body or b"")[0]["value"]["problems"] for one in desk.sink.asked}
    assert [problem.partition(";")[0] for problem in said["b"]] == [
        "queue b, spec.compute: guarantee 9 is more than its own limit of 8"
    ]
    assert "there is no queue 'gone'" in said["c"][0]
    assert said["a"] == []
    desk.there = {**there, "b": replace(there["b"], spec={})}
    await desk.lives(desk.queues, seconds=10)
    assert desk.sink.bodies("/b/status")[-1][0]["value"]["problems"] == []


async def test_nothing_is_written_while_nothing_may_be_decided() -> None:
    """What is known may be old, or another one leads."""
    desk = Desk()
    desk.silent = "another leads"
    desk.stage.submit("p", 150, queue="a")
    await desk.lives(desk.queues, seconds=20)
    await desk.lives(desk.notices, seconds=20)
    assert desk.sink.asked == []


@pytest.mark.parametrize("away", [0.0, 86_400.0, -3_600.0])
async def test_usage_survives_a_change_of_leaders(away: float) -> None:
    """What was used counts on, decayed by the time between; a clock that was wrong makes nothing of it grow."""
    settings = QueueSettings(half_life=86_400.0)
    old = Desk(settings=settings)
    old.stage.submit("p", 300, queue="b", user="u")
    old.stage.run()
    old.stage.now = 86_400.0
    statuses = old.stage.queues.statuses(now=old.stage.now, at="2026-11-21T10:00:00Z")
    raw = json.loads(msgspec.json.encode(statuses["b"]))
    assert raw["lately"]["compute"] == pytest.approx(150, abs=2)
    new = Stage(TWO, settings=settings)
    status = read_status(raw)
    assert status is not None
    new.queues.recall({"b": status, "gone": status}, wall=1_795_255_200.0 + away, now=0.0)
    kept = 0.5 ** (max(0.0, away) / 86_400.0)
    assert new.queues.books.usage.of("b", now=0.0)[0] == pytest.approx(150 * kept, abs=2)
    assert new.queues.books.users.of(("b", "u"), now=0.0)[0] == pytest.approx(150 * kept, abs=2)


async def test_a_condition_is_written_when_its_reason_changes_and_not_before() -> None:
    """Once for the first reason, again for another one, whatever else is told of the pod meanwhile."""
    desk = Desk({"a": queue(limit=100), "b": queue()}, nodes=(1,))
    desk.stage.submit("x", 100, queue="b")
    desk.stage.run()
    desk.stage.submit("p", 100, queue="a")
    desk.stage.run()
    await desk.lives(desk.notices, seconds=10)
    (said,) = desk.sink.bodies("/status")
    (condition,) = said["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (NAMES.admitted, "False", "NoRoom")
    assert said["metadata"]["uid"] == "p"
    desk.stage.see(desk.stage.pods["p"])
    await desk.lives(desk.notices, seconds=10)
    assert len(desk.sink.bodies("/status")) == 1
    desk.stage.queues.queues_seen({"a": queue(limit=100, stop="hold"), "b": queue()})
    desk.stage.run()
    await desk.lives(desk.notices, seconds=10)
    assert [one["status"]["conditions"][0]["reason"] for one in desk.sink.bodies("/status")] == ["NoRoom", "QueueHeld"]


async def test_a_condition_says_that_its_pod_is_shown_and_then_that_it_is_no_more() -> None:
    """For the same word: once as it is shown, not while it is put out and back, and once as its queue grows no more."""
    grows, desk = queue(limit=300, autoscale=True), Desk({"a": queue(limit=300)}, nodes=(1,))
    for uid in ("x", "p", "q"):
        desk.stage.submit(uid, 100, queue="a")
        desk.stage.run()
    told = {uid: [("NoRoom", False)] for uid in "pq"}
    for spec, more in (
        # `q` is put out, and comes back.
        (grows, {"p": [("NoRoom", True)], "q": [("NoRoom", True)]}),
        (replace(grows, compute=Quota(limit=250)), {}),
        (grows, {}),
        (queue(limit=300), {"p": [("NoRoom", False)], "q": [("NoRoom", False)]}),
    ):
        await desk.lives(desk.notices, seconds=10)
        assert messages(desk) == told
        desk.stage.queues.queues_seen({"a": spec})
        desk.stage.round(after=1.0)
        told = {uid: said + more.get(uid, []) for uid, said in told.items()}
    await desk.lives(desk.notices, seconds=10)
    assert messages(desk) == told


def messages(desk: Desk) -> dict[str, list[tuple[str, bool]]]:
    """For each pod what it was told, one after the other: the word, and whether it says that it is shown."""
    found: dict[str, list[tuple[str, bool]]] = {}
    for one in desk.sink.bodies("/status"):
        (said,) = one["status"]["conditions"]
        shown = said["message"].startswith("it is shown to a cluster autoscaler")
        found.setdefault(one["metadata"]["uid"], []).append((said["reason"], shown))
    return found


async def test_a_pod_whose_turn_comes_at_once_is_told_nothing() -> None:
    """A reason that lasts for a moment is nobody's business; nor is one that the pod has from the leader before."""
    desk = Desk(nodes=(1,))
    desk.stage.submit("x", 100, queue="b")
    desk.stage.run()
    pod = desk.stage.submit("p", 100, queue="a")
    said = PodCondition(type=NAMES.admitted, status="False", reason="NoRoom")
    desk.stage.see(replace(pod, status=replace(pod.status, conditions=[said])))
    desk.stage.run()
    await desk.lives(desk.notices, seconds=20)
    assert desk.sink.asked == []


async def test_conditions_of_thousands_are_written_at_a_bounded_pace() -> None:
    """No more than 20 a second."""
    desk = Desk(nodes=(1,))
    desk.stage.submit("x", 100, queue="b")
    for number in range(300):
        desk.stage.submit(f"p{number:03}", 100, queue="a")
    desk.stage.run()
    await desk.lives(desk.notices, seconds=9)
    assert 60 <= len(desk.sink.asked) <= 180
    await desk.lives(desk.notices, seconds=40)
    assert len(desk.sink.asked) == len({one.path for one in desk.sink.asked}) == 300


def conditions(desk: Desk) -> list[tuple[str, str, str]]:
    """What pods were told, one after the other: whom, whether it is let in, and why not."""
    said = [(one["metadata"]["uid"], one["status"]["conditions"][0]) for one in desk.sink.bodies("/status")]
    return [(uid, one["status"], one["reason"]) for uid, one in said]


async def test_nobody_is_told_to_wait_who_was_let_in_while_others_were_told() -> None:
    """A look takes two seconds to write down, and a turn may come in any of them."""
    desk = Desk({"a": queue(), "b": queue()}, nodes=(1,))
    desk.stage.submit("x", 100, queue="b")
    desk.stage.run()
    for number in range(20):
        desk.stage.submit(f"p{number:02}", 5, queue="a")
    desk.stage.run()
    answer, let_in = desk.sink.request, list[str]()

    async def meanwhile(question: Question) -> Response:
        if len(desk.sink.asked) == 3 and not let_in:
            desk.stage.end("x")
            let_in.extend(desk.stage.round(after=1.0))
        return await answer(question)

    desk.sink.request = meanwhile  # type: ignore[method-assign]
    await desk.lives(desk.notices, seconds=20)
    assert len(let_in) == 20
    # One was being told at that very instant.
    assert len(conditions(desk)) == 4


async def test_one_that_is_let_in_and_says_that_it_waits_is_mended() -> None:
    """The word was written when its turn had come already, by us or by the leader before; once, and with an Event."""
    desk = Desk(nodes=(1,))
    said = PodCondition(type=NAMES.admitted, status="False", reason="NoRoom")
    gated = desk.stage.submit("p", 100, queue="a")
    gated = replace(gated, status=replace(gated.status, conditions=[said]))
    desk.notices.pod_changed(Added(new=gated))
    assert desk.stage.run() == ["p"]
    await desk.lives(desk.notices, seconds=10)
    # As long as its gate is there, whoever lifts it writes that too.
    assert conditions(desk) == []
    lifted = replace(gated, spec=replace(gated.spec, scheduling_gates=[]))
    desk.notices.pod_changed(Modified(old=gated, new=lifted))
    await asyncio.gather(desk.lives(desk.notices, seconds=10), desk.lives(desk.events, seconds=10))
    assert conditions(desk) == [("p", "True", "LetIn")]
    assert [(event["reason"], event["action"]) for event in desk.sink.bodies("/events")] == [("LetIn", "Admitting")]


async def test_one_that_is_gone_is_not_mended() -> None:
    """Nor one that has become another under its name, nor one that waits no more and says so."""
    desk = Desk(nodes=(4,))
    said = PodCondition(type=NAMES.admitted, status="False", reason="NoRoom")
    told = {}
    for uid in ("gone", "other", "mended"):
        pod = desk.stage.submit(uid, 100, queue="a")
        spec = replace(pod.spec, scheduling_gates=[])
        told[uid] = replace(pod, spec=spec, status=replace(pod.status, conditions=[said]))
        desk.notices.pod_changed(Added(new=told[uid]))
    assert len(desk.stage.run()) == 3
    desk.notices.pod_changed(Deleted(old=told["gone"]))
    meta = replace(told["other"].metadata, uid="another")
    desk.notices.pod_changed(Modified(old=told["other"], new=replace(told["other"], metadata=meta)))
    good = replace(said, status="True", reason="LetIn")
    status = replace(told["mended"].status, conditions=[good])
    desk.notices.pod_changed(Modified(old=told["mended"], new=replace(told["mended"], status=status)))
    await desk.lives(desk.notices, seconds=10)
    assert desk.sink.asked == []


def two_wait(desk: Desk) -> None:
    """For the one card there is."""
    desk.stage.submit("x", 100, queue="b")
    desk.stage.run()
    for uid in ("p", "q"):
        desk.stage.submit(uid, 100, queue="a")
    desk.stage.run()


async def test_a_pod_that_could_not_be_told_is_told_once_it_can_be() -> None:
    """One write that fails must not silence its reason for as long as it holds."""
    desk = Desk(nodes=(1,))
    two_wait(desk)
    answer, tried = desk.sink.request, list[str]()

    async def troubled(question: Question) -> Response:
        tried.append(question.path)
        if len(tried) == 1:
            raise ServerTroubleError("no", status=500)
        return await answer(question)

    desk.sink.request = troubled  # type: ignore[method-assign]
    await desk.lives(desk.notices, seconds=30)
    assert sorted(conditions(desk)) == [("p", "False", "NoRoom"), ("q", "False", "NoRoom")]
    assert len(tried) == 3


async def test_a_pod_that_can_never_be_told_is_tried_ever_more_seldom() -> None:
    """A webhook denies it: others are told in that time."""
    desk = Desk(nodes=(1,))
    two_wait(desk)
    answer, tried = desk.sink.request, list[str]()

    async def denied(question: Question) -> Response:
        if "pod-p/" in question.path:
            tried.append(question.path)
            raise ForbiddenError("no", status=403)
        return await answer(question)

    desk.sink.request = denied  # type: ignore[method-assign]
    await desk.lives(desk.notices, seconds=600)
    assert conditions(desk) == [("q", "False", "NoRoom")]
    assert 5 <= len(tried) <= 12


async def test_a_word_that_is_told_by_the_watch_does_not_outlive_what_others_write() -> None:
    """It was let in and its gate could not be lifted: it waits again for what it said before, and has to say so."""
    desk = Desk(nodes=(1,))
    two_wait(desk)
    await desk.lives(desk.notices, seconds=10)
    before = desk.stage.pods["p"]
    said = PodCondition(type=NAMES.admitted, status="False", reason="NoRoom")
    waits = replace(before, status=replace(before.status, conditions=[said]))
    let_in = replace(before, status=replace(before.status, conditions=[replace(said, status="True", reason="LetIn")]))
    desk.notices.pod_changed(Modified(old=before, new=waits))
    desk.notices.pod_changed(Modified(old=waits, new=let_in))
    desk.stage.see(let_in)
    await desk.lives(desk.notices, seconds=10)
    assert [one for one in conditions(desk) if one[0] == "p"] == [("p", "False", "NoRoom")] * 2


async def test_an_event_is_told_with_each_new_reason() -> None:
    """Beside the condition, in the same words, and only once it is written."""
    desk = Desk({"a": queue(limit=100), "b": queue()}, nodes=(1,))
    desk.stage.submit("x", 100, queue="b")
    desk.stage.run()
    desk.stage.submit("p", 100, queue="a")
    desk.stage.run()
    await asyncio.gather(desk.lives(desk.notices, seconds=10), desk.lives(desk.events, seconds=10))
    (event,) = desk.sink.bodies("/events")
    said = desk.sink.bodies("/status")[0]["status"]["conditions"][0]
    assert (event["reason"], event["note"], event["type"]) == ("NoRoom", said["message"], "Normal")
    assert (event["regarding"]["name"], event["regarding"]["uid"]) == ("pod-p", "p")
    assert (event["reportingController"], event["reportingInstance"]) == (NAMES.of("scheduler"), "replica")


async def test_conditions_and_events_together_keep_to_their_pace() -> None:
    """What thousands wait for changes at once: at most 20 writes in any second, and most of them conditions."""
    desk = Desk(nodes=(1,))
    desk.stage.submit("x", 100, queue="b")
    for number in range(500):
        desk.stage.submit(f"p{number:03}", 100, queue="a")
    desk.stage.run()
    running = [asyncio.ensure_future(one.run()) for one in (desk.notices, desk.events)]
    at: list[float] = []
    while desk.clock.monotonic() < 20.0:
        before = len(desk.sink.asked)
        await desk.clock.advance(0.01)
        at += [desk.clock.monotonic()] * (len(desk.sink.asked) - before)
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert max(sum(then <= one < then + 0.995 for one in at) for then in at) <= 20
    assert 50 <= len(desk.sink.bodies("/events")) <= 80
    assert len(desk.sink.bodies("/status")) >= 150


def broken_gang(desk: Desk, name: str, *, left: int = 1) -> None:
    """All of a gang run, and one of them fails."""
    uids = [f"{name}{number}" for number in range(left + 1)]
    for uid in uids:
        desk.stage.submit(uid, 100, queue="a", group=name, notes={"group-size": str(left + 1)})
    assert len(desk.stage.run()) == left + 1
    pod = desk.stage.pods[uids[-1]]
    desk.stage.see(replace(pod, status=replace(pod.status, phase="Failed")))


async def test_what_is_left_of_a_gang_that_can_not_run_is_evicted_once() -> None:
    """By its UID, and it is told why; again only after a while, if it is still there."""
    desk = Desk(settings=QueueSettings(stale_gang=5.0))
    broken_gang(desk, "g")
    await asyncio.gather(desk.lives(desk.gangs, seconds=15), desk.lives(desk.events, seconds=15))
    (eviction,) = desk.sink.bodies("/eviction")
    assert eviction["deleteOptions"]["preconditions"] == {"uid": "g0"}
    assert [(event["reason"], event["action"]) for event in desk.sink.bodies("/events")] == [("GangBroken", "Evicting")]
    await desk.lives(desk.gangs, seconds=25)
    assert len(desk.sink.bodies("/eviction")) == desk.gangs.evicted == 2


async def test_nobody_is_sent_back_while_nothing_may_be_decided() -> None:
    """Another leads, or what is known is old; once that is over it goes."""
    desk = Desk(settings=QueueSettings(stale_gang=5.0))
    broken_gang(desk, "g")
    desk.silent = "another replica leads"
    await desk.lives(desk.gangs, seconds=15)
    assert desk.sink.bodies("/eviction") == []
    desk.silent = ""
    await desk.lives(desk.gangs, seconds=15)
    assert len(desk.sink.bodies("/eviction")) == 1


async def test_nobody_is_sent_back_whose_gang_is_whole_again() -> None:
    """What was missing is there again while another one is asked: the others stay."""
    desk = Desk(settings=QueueSettings(stale_gang=5.0))
    broken_gang(desk, "g", left=2)
    answer = desk.sink.request

    async def meanwhile(question: Question) -> Response:
        if question.path.endswith("/eviction"):
            desk.stage.submit("g9", 100, queue="a", group="g", notes={"group-size": "3"})
            desk.stage.run()
        return await answer(question)

    desk.sink.request = meanwhile  # type: ignore[method-assign]
    await desk.lives(desk.gangs, seconds=20)
    assert len(desk.sink.bodies("/eviction")) == 1


SAID = PodCondition(type=NAMES.admitted, status="False", reason="NoRoom")
MANY = FEW_NODES + 1
# Whether it was told to wait, its group, how many nodes there are; what is written in its status: node and condition.
NOMINATIONS: dict[str, tuple[bool, str, int, tuple[str, list[str]] | None]] = {
    "few nodes": (False, "", FEW_NODES, None),
    "many nodes": (False, "", MANY, ("n0", [])),
    "one of a group": (False, "g", 1, ("n0", [])),
    "it says that it waits": (True, "", 1, ("n0", ["True"])),
    "both": (True, "", MANY, ("n0", ["True"])),
}


@pytest.mark.parametrize("row", NOMINATIONS)
def test_a_nomination_is_written_where_it_is_worth_it(row: str) -> None:
    """With what else is to be said in a pod's status; else where it spares more than it costs, or a whole group."""
    told, group, nodes, expected = NOMINATIONS[row]
    stage = Stage(TWO)
    pod = stage.submit("p", 100, queue="a", group=group, notes={"group-size": "1"} if group else None)
    if told:
        stage.see(replace(pod, status=replace(pod.status, conditions=[SAID])))
    stage.round()
    patch = status_of(stage.turns["p"], names=NAMES, at="2026-11-21T10:00:00Z", nodes=nodes)
    said = json.loads(patch.body)["status"] if patch else None
    conditions = [one["status"] for one in said.get("conditions", [])] if said else []
    assert (said and (said["nominatedNodeName"], conditions)) == expected


def test_a_later_turn_is_nominated_wherever_it_is() -> None:
    """It has no gate any more, and lost a turn already."""
    stage = Stage(TWO)
    stage.submit("p", 100, queue="a")
    stage.round()
    turn = stage.turns["p"]
    lifted = replace(turn, pod=replace(turn.pod, spec=replace(turn.pod.spec, scheduling_gates=[])), number=2)
    patch = status_of(lifted, names=NAMES, at="2026-11-21T10:00:00Z", nodes=1)
    assert patch is not None
    assert json.loads(patch.body)["status"] == {"nominatedNodeName": "n0"}


@pytest.mark.parametrize("told", [False, True])
async def test_an_event_tells_that_a_pod_waits_no_more(*, told: bool) -> None:
    """If it was told to wait; who never waited has Events enough, and no write is spent on it."""
    desk = Desk()
    pod = desk.stage.submit("p", 100, queue="a")
    if told:
        desk.stage.see(replace(pod, status=replace(pod.status, conditions=[SAID])))
    desk.stage.beat()
    gatekeeper = Gatekeeper(desk=desk.stage.desk, turns=desk.stage.queues, means=desk.means)
    await asyncio.gather(desk.lives(gatekeeper, seconds=3), desk.lives(desk.events, seconds=3))
    assert [body["reason"] for body in desk.sink.bodies("/events")] == (["LetIn"] if told else [])
    # Any other kind costs the API server more.
    kinds = [one.content_type for one in desk.sink.asked if one.method == "PATCH" and "/pods/" in one.path]
    assert kinds == [STRATEGIC_MERGE_PATCH] * (2 if told else 1)


@pytest.mark.parametrize("heard", [True, False], ids=["as soon as it tells", "late if it is silent"])
async def test_a_gate_is_lifted_once_the_watch_has_told_of_the_status(*, heard: bool) -> None:
    """The API server would work out the second write twice, by what was before the first and then anew."""
    desk = Desk()
    pod = desk.stage.submit("p", 100, queue="a")
    desk.stage.see(replace(pod, status=replace(pod.status, conditions=[SAID])))
    desk.stage.beat()
    gatekeeper = Gatekeeper(desk=desk.stage.desk, turns=desk.stage.queues, means=desk.means)
    running = asyncio.ensure_future(gatekeeper.run())

    def written() -> list[str]:
        return [one.path.rpartition("/")[2] for one in desk.sink.asked if one.method == "PATCH"]

    await desk.clock.advance(0.2)
    assert written() == ["status"]
    if heard:
        gatekeeper.told(pod)
    await desk.clock.advance(0.01 if heard else 0.1)
    assert written() == ["status", "pod-p"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
