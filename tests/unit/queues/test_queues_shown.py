"""Pods of queues with `autoscale`, shown to a cluster autoscaler while they are within quota and have no room."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from aliquot_scheduler.queues.letting_in.showing import MOST_SHOWN
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE
from aliquot_scheduler.queues.telling.views import views
from support.centre import gpus, make_node
from support.queue_stage import A100, H100, Stage, queue

replace = msgspec.structs.replace
ALL_H100 = "*H100*"


def of_h100(**compute: int) -> dict[str, ModelQuota]:
    """A quota of the compute of H100."""
    return {ALL_H100: ModelQuota(compute=Quota(**compute))}


def test_with_autoscale_a_pod_without_room_is_shown() -> None:
    """As far as quota allows, and comes in when a node has joined; in another queue it waits behind its gate."""
    stage = Stage({"a": queue(limit=200, autoscale=True, autoscale_minutes=2), "b": queue()}, nodes=(1,))
    stage.submit("x", 100, queue="a")
    for uid, where in (("p", "a"), ("q", "a"), ("r", "b")):
        stage.submit(uid, 100, queue=where)
    assert stage.round() == ["x", "p"]
    stage.bind("x")
    assert stage.turns["p"].promise is None
    assert stage.used("a")[0] == 100
    assert "waits for room" in stage.queues.why_not(stage.pods["p"])
    lifted = replace(stage.pods["p"], spec=replace(stage.pods["p"].spec, scheduling_gates=[]))
    stage.see(lifted)
    assert stage.round(after=60.0) == []
    stage.picture.node_seen(make_node("n1", gpus("n1", 2)))
    assert stage.round() == ["r", "p"]
    turn = stage.turns["p"]
    assert turn.promise is not None
    assert (turn.promise.node, turn.pod.spec.scheduling_gates) == ("n1", [])
    assert stage.used("a")[0] == 200


def test_who_is_shown_is_told_as_who_waits() -> None:
    """It has no card: neither the queue's status nor what its namespace is shown counts it as used."""
    stage = Stage({"a": queue(guarantee=100, autoscale=True)}, nodes=(1,))
    stage.submit("x", 100, queue="a")
    stage.submit("p", 100, queue="a")
    assert stage.round() == ["x", "p"]
    stage.bind("x")
    status = stage.queues.statuses(now=stage.now, at="")["a"]
    assert (status.used.compute, status.borrowed.compute, status.asked.compute, status.waiting) == (100, 0, 100, 1)
    queues = stage.queues
    waiting, words = queues.waiting(), queues.words()
    found = views(queues.books, waiting=waiting, statuses={"a": status}, homes={}, at="", words=words)
    own = found["team", "a"].own
    assert (own.used.compute, own.running, own.waiting, own.reasons) == (100, 1, 1, {"NoRoom": 1})
    assert queues.notice(waiting[0]).message.startswith("it is shown to a cluster autoscaler: ")
    stage.picture.node_seen(make_node("n1", gpus("n1", 1)))
    assert stage.run() == ["p"]
    status = stage.queues.statuses(now=stage.now, at="")["a"]
    assert (status.used.compute, status.borrowed.compute, status.asked.compute, status.waiting) == (200, 100, 0, 0)


def test_who_is_shown_passes_nobody_who_is_before_it_in_the_line() -> None:
    """One GPU joins: it is for the queue that holds nothing, not for the one whose pod was shown first."""
    stage = Stage({"a": queue(autoscale=True), "b": queue()}, nodes=(1,))
    stage.submit("x", 100, queue="a")
    stage.submit("p", 100, queue="a")
    assert stage.round() == ["x", "p"]
    stage.bind("x")
    stage.submit("r", 100, queue="b")
    assert stage.round() == []
    stage.picture.node_seen(make_node("n1", gpus("n1", 1)))
    assert stage.run() == ["r"]
    stage.picture.node_seen(make_node("n2", gpus("n2", 1)))
    assert stage.run() == ["p"]


def test_who_is_shown_takes_no_share_and_no_quota_of_others() -> None:
    """Five of them wait for whole GPUs: others have what is left of their parent's limit, and in their order."""
    specs = {
        "org": queue(limit=500),
        "a": queue("org", autoscale=True),
        "b": queue("org"),
        "c": queue(),
    }
    stage = Stage(specs, nodes=(2,))
    for uid in ("x", "y"):
        stage.submit(uid, 60, queue="c")
    assert stage.run() == ["x", "y"]
    for number in range(8):
        stage.submit(f"p{number}", 100, queue="a")
    assert stage.round() == [f"p{number}" for number in range(5)]
    assert stage.used("org")[0] == 0
    for _ in range(2):
        stage.round(after=100.0)
    for uid, where in (("b0", "b"), ("c0", "c")):
        stage.submit(uid, 40, queue=where)
    assert stage.run() == ["b0", "c0"]
    assert stage.queues.books.usage.of("a", now=stage.now)[0] == 0
    assert stage.queues.books.users.of(("a", "team"), now=stage.now)[0] == 0


def test_below_one_uppermost_queue_no_more_are_shown_than_a_list_holds() -> None:
    """Its queues part the list; what is below another one has its own."""
    specs = {"o": queue(), **{name: queue("o", autoscale=True) for name in "ab"}, "c": queue(autoscale=True)}
    stage = Stage({**specs, "other": queue()}, nodes=(1,))
    stage.submit("x", 100, queue="other")
    assert stage.run() == ["x"]
    for number in range(MOST_SHOWN):
        for name in "abc":
            stage.submit(f"{name}{number}", 10, queue=name)
    assert Counter(uid[0] for uid in stage.round()) == {"a": MOST_SHOWN // 2, "b": MOST_SHOWN // 2, "c": MOST_SHOWN}


def test_of_one_queue_no_more_are_shown_than_a_list_holds() -> None:
    """However many wait; the next ones follow as the first get room."""
    stage = Stage({"a": queue(autoscale=True)}, nodes=(1,))
    for number in range(MOST_SHOWN + 20):
        stage.submit(f"p{number:03}", 100, queue="a")
    assert len(stage.round()) == MOST_SHOWN + 1
    assert stage.round() == []
    stage.bind("p000")
    stage.end("p000")
    assert stage.round() == ["p001", "p101"]
    assert stage.turns["p001"].promise is not None
    assert stage.turns["p101"].promise is None


def test_a_gang_that_is_shown_comes_in_as_a_whole() -> None:
    """One GPU is not enough for the two of it."""
    stage = Stage({"a": queue(autoscale=True), "b": queue()}, nodes=(1,))
    stage.submit("x", 100, queue="b")
    assert stage.run() == ["x"]
    for uid in ("g0", "g1"):
        stage.submit(uid, 100, queue="a", group="g", notes={"group-size": "2"})
    assert stage.round() == ["g0", "g1"]
    assert stage.turns["g0"].promise is None
    stage.picture.node_seen(make_node("n1", gpus("n1", 1)))
    assert stage.round() == []
    assert all("waits for room" in stage.queues.why_not(stage.pods[uid]) for uid in ("g0", "g1"))
    stage.picture.node_seen(make_node("n2", gpus("n2", 1)))
    assert stage.run() == ["g0", "g1"]


def test_a_pod_is_not_shown_for_ever() -> None:
    """When no node has come in its time, it is told so, and stands in its line as before."""
    stage = Stage({"a": queue(limit=100, autoscale=True, autoscale_minutes=1), "b": queue()}, nodes=(1,))
    stage.submit("x", 100, queue="b")
    assert stage.run() == ["x"]
    stage.submit("p", 100, queue="a")
    assert stage.round() == ["p"]
    assert stage.round(after=59.0) == []
    assert "waits for room" in stage.queues.why_not(stage.pods["p"])
    assert stage.round(after=1.0) == []
    assert "waits for its turn" in stage.queues.why_not(stage.pods["p"])
    (waiter,) = stage.queues.waiting()
    notice = stage.queues.notice(waiter)
    assert notice.reason == "NoNodeCame"
    assert notice.message.startswith(
        "no node came for it while it was shown to a cluster autoscaler for 1 minute (1 time); "
        "it, or another that asks the same, is shown again at 2026-11-21T10:02:00Z at the earliest; it counts as "
    )
    stage.end("x")
    assert stage.run() == ["p"]
    assert stage.turns["p"].promise is not None


def test_who_is_shown_to_a_cluster_autoscaler_comes_in_by_its_own_guarantee() -> None:
    """It is charged already, and another guarantee is demanded by the time there is a card for one of them."""
    specs = {"a": queue(guarantee=100, autoscale=True), "b": queue(guarantee=100), "c": queue()}
    stage = Stage(specs, nodes=(1,))
    stage.submit("in", 100, queue="c")
    assert stage.run() == ["in"]
    stage.submit("shown", 100, queue="a")
    assert stage.round() == ["shown"]
    assert stage.turns["shown"].promise is None
    stage.submit("waits", 100, queue="b")
    assert stage.round() == []
    stage.end("in")
    assert stage.round() == ["shown"]
    assert stage.turns["shown"].promise is not None


# On four cards; the pods of others come first, and p is of queue a and asks for a card.
KEPT_OUT: dict[str, tuple[dict[str, QueueSpec], dict[str, int], str]] = {
    "a reservation keeps all cards idle": ({"k": queue(guarantee=400, lend=0)}, {}, "shown"),
    "it keeps the memory of all cards idle": (
        {"k": QueueSpec(memory=Quota(guarantee=320_000, lending_limit=0))},
        {},
        "shown",
    ),
    "it keeps all cards of a model idle": (
        {"k": QueueSpec(models={"*": ModelQuota(compute=Quota(guarantee=400, lending_limit=0))})},
        {},
        "shown",
    ),
    "it leaves a card": ({"k": queue(guarantee=400, lend=0, limit=300)}, {}, "let in"),
    "others demand a guarantee that was lent": (
        {"g": queue(guarantee=100), "b": queue()},
        {"b": 4, "g": 1},
        "shown",
    ),
    "a reservation keeps a limit above it, whatever cards there are": (
        {"o": queue(limit=400), "k": queue("o", guarantee=300, lend=0), "b": queue("o")},
        {"b": 1},
        "waits",
    ),
    "its limit is reached": ({}, {"a": 2}, "waits"),
}


@pytest.mark.parametrize("row", KEPT_OUT)
def test_who_would_come_in_if_there_were_more_cards_is_shown(row: str) -> None:
    """Free cards that are kept for others are no room; what lacks under a limit no new card brings."""
    specs, others, found = KEPT_OUT[row]
    own = queue("o" if "o" in specs else "", limit=200, autoscale=True)
    stage = Stage({"a": own, **specs}, nodes=(4,))
    for name, count in others.items():
        for number in range(count):
            stage.submit(f"{name}{number}", 100, queue=name)
        stage.run()
    stage.submit("p", 100, queue="a")
    turn = stage.turns.get("p") if "p" in stage.round() else None
    assert ("waits" if turn is None else "let in" if turn.promise else "shown") == found


def test_who_is_shown_for_a_reservation_comes_in_with_the_card_that_is_not_kept() -> None:
    """Until it joins, what is kept idle stays so, however many rounds there are."""
    stage = Stage({"a": queue(autoscale=True), "k": queue(guarantee=200, lend=0)}, nodes=(2,))
    stage.submit("p", 100, queue="a")
    assert stage.round() == ["p"]
    assert stage.round(after=30.0) == []
    assert stage.queues.stock().free[COMPUTE] == 200
    stage.picture.node_seen(make_node("n1", gpus("n1", 1)))
    assert stage.round() == ["p"]
    assert stage.turns["p"].promise is not None


def test_who_is_kept_off_a_model_is_shown_for_the_others() -> None:
    """Its queue has all that it may have of H100, and A100 are full: it takes whichever card it may have first."""
    specs = {"a": QueueSpec(namespaces=("*",), models=of_h100(limit=100), autoscale=True)}
    stage = Stage(specs, nodes=(1, 2), models={0: A100, 1: H100})
    for uid in ("p0", "p1"):
        stage.submit(uid, 100, queue="a")
        assert stage.run() == [uid]
    stage.submit("p2", 100, queue="a")
    assert stage.round() == ["p2"]
    assert stage.turns["p2"].promise is None
    dimensions, account = stage.queues.books.ledger.tree.dimensions, stage.queues.books.ledger.accounts["a"]
    h100 = next(dim for dim in range(dimensions.cards) if dimensions.model_of(dim) == ALL_H100)
    assert account.used[h100] == 100
    (on_h100,) = (uid for uid in ("p0", "p1") if "n1" in {node for node, _ in stage.picture.holdings.of(uid)})
    stage.end(on_h100)
    assert stage.run() == ["p2"]
    assert {node for node, _ in stage.picture.holdings.of("p2")} == {"n1"}


# What becomes of the queue of a pod that is shown, and what the pod is told then.
NO_MORE: dict[str, tuple[dict[str, QueueSpec], str]] = {
    "it is held": ({"a": queue(autoscale=True, stop="hold")}, "QueueHeld"),
    "it is drained": ({"a": queue(autoscale=True, stop="drain")}, "QueueHeld"),
    "it is deleted, the last one": ({}, "NoQueue"),
    "its limit is lowered": ({"a": queue(autoscale=True, limit=100)}, "OverLimit"),
    "it does not grow any more": ({"a": queue()}, "NoRoom"),
}


@pytest.mark.parametrize("change", NO_MORE)
def test_who_is_shown_no_more_is_told_why_it_waits(change: str) -> None:
    """As if it had never been shown; once the queue is as before it is shown as before, and nothing is written."""
    after, word = NO_MORE[change]
    stage = Stage({"a": queue(autoscale=True)}, nodes=(1,))
    stage.submit("x", 100, queue="a")
    stage.submit("p", 100, queue="a")
    assert stage.round() == ["x", "p"]
    stage.bind("x")
    stage.queues.queues_seen(after)
    assert stage.round(after=1.0) == []
    (waiter,) = stage.queues.waiting()
    notice = stage.queues.notice(waiter)
    assert (notice.reason, "autoscaler" in notice.message) == (word, False)
    assert "waits for room" not in stage.queues.why_not(stage.pods["p"])
    stage.queues.queues_seen({"a": queue(autoscale=True)})
    assert stage.round(after=1.0) == []
    assert "waits for room" in stage.queues.why_not(stage.pods["p"])
