"""A pod's condition says why it waits: when that changes, at a bounded pace, and never after its turn."""

from __future__ import annotations

import asyncio

import msgspec

from aliquot_core.objects import PodCondition
from aliquot_kube.changes import Added, Deleted, Modified
from aliquot_kube.errors import ForbiddenError, ServerTroubleError
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.queues.said.spec import Quota
from support.centre import NAMES
from support.queue_stage import queue
from support.telling_desk import Desk

replace = msgspec.structs.replace


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
