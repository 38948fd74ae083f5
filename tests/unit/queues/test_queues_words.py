"""In which words a pod is told why it waits: one word by which it is looked for, and a sentence with numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from aliquot_core.objects import NodeCondition
from aliquot_scheduler.queues.letting_in import sweep
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import HostLimits, ModelQuota, QueueSpec, Quota
from aliquot_scheduler.queues.telling import notices
from support.queue_stage import H100, Stage, queue

replace = msgspec.structs.replace
TWO = {"a": queue(guarantee=100), "b": queue()}


def reason(stage: Stage, uid: str) -> str:
    """The word that a waiting pod is told."""
    return next(stage.queues.notice(waiter).reason for waiter in stage.queues.waiting() if waiter.uid == uid)


def test_who_would_fit_only_where_a_node_is_kept_is_behind() -> None:
    """And not without room; who fits on no node at all is."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=(2,), settings=QueueSettings(patience=10.0, hold=100.0))
    stage.submit("ever", 60, queue="b")
    assert stage.run() == ["ever"]
    stage.submit("large", 200, queue="a", notes={"gpus": "2"})
    stage.run()
    stage.submit("small", 40, queue="b")
    stage.submit("middle", 40, 81_000, queue="b", notes={"gpus": "2"})
    assert stage.round(after=20.0) == []
    assert reason(stage, "large") == "NoRoom"
    assert reason(stage, "small") == "Behind"
    assert reason(stage, "middle") == "Behind"
    stage.gone("large")
    assert stage.run() == ["small"]
    assert reason(stage, "middle") == "NoRoom"


def test_a_reason_is_that_of_the_last_round() -> None:
    """What was so before and is not asked for any more, since no card is free, is told no longer."""
    stage = Stage({"a": queue(guarantee=200, lend=0), "b": queue()}, nodes=(3,))
    stage.submit("p", 100, queue="b")
    assert stage.run() == ["p"]
    stage.submit("q", 100, queue="b")
    stage.run()
    assert reason(stage, "q") == "HeldBack"
    for number in range(2):
        stage.submit(f"a{number}", 100, queue="a")
    stage.run()
    assert reason(stage, "q") == "NoRoom"


def test_who_is_over_a_limit_is_told_so_whether_there_are_cards_or_not() -> None:
    """One reason that stays, and not one after the other as cards come and go."""
    stage = Stage({"a": queue(limit=100), "b": queue()}, nodes=(2,))
    stage.submit("in", 100, queue="a")
    stage.run()
    stage.submit("over", 50, queue="a")
    stage.run()
    assert reason(stage, "over") == "OverLimit"
    stage.submit("rest", 100, queue="b")
    stage.run()
    assert reason(stage, "over") == "OverLimit"


@pytest.mark.parametrize("limited", [True, False])
def test_what_was_said_before_a_sweep_was_broken_off_is_said_no_more_if_it_is_not_so(
    monkeypatch: pytest.MonkeyPatch, *, limited: bool
) -> None:
    """Who is over its limit since then is told that, and who is not any more is not; others are told what was said."""
    keeps = queue(guarantee=100, lend=0, memory=Quota(guarantee=0))
    stage = Stage(
        {"a": queue(memory=Quota(limit=85_000)), "k": keeps, "b": queue(priority=int(not limited))},
        nodes=(2,),
        memory=100_000,
    )
    stage.submit("full", 100, queue="b")
    if not limited:
        stage.submit("first", None, 10_000, queue="a")
    stage.run()
    for uid, where in (("p", "a"), ("q", "b")):
        stage.submit(uid, 90, 80_000, queue=where)
    # Within its limit: so a sweep comes to all of the line.
    stage.submit("small", 90, 1_000, queue="a")
    stage.run()
    assert (reason(stage, "p"), reason(stage, "q")) == ("HeldBack" if limited else "OverLimit", "HeldBack")
    monkeypatch.setattr(sweep, "MOST_IN_VAIN", 0)
    if limited:
        stage.submit("first", None, 10_000, queue="a", priority=1)
        assert stage.round() == ["first"]
    else:
        stage.end("first")
        assert stage.round() == []
    assert (reason(stage, "p"), reason(stage, "q")) == ("OverLimit" if limited else "Waiting", "HeldBack")


def test_who_is_over_a_limit_is_told_so_without_asking_all_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """No card is free, so no sweep asks of them; and a look at all who wait is every two seconds, of thousands."""
    stage = Stage({"a": queue(limit=100), "b": queue()}, nodes=(2,))
    for uid, where in (("in", "a"), ("rest", "b")):
        stage.submit(uid, 100, queue=where)
    stage.run()
    stage.submit("over", 50, queue="a")
    stage.run()
    asked: list[str] = []
    monkeypatch.setattr(notices, "admissible", lambda *_, **__: asked.append("rules"))
    assert (reason(stage, "over"), asked) == ("OverLimit", [])


def test_who_could_do_without_a_model_is_told_that_no_card_is_left() -> None:
    """Its queue has all that it may of one, and no card of another is free: its limit is not in its way."""
    of_h100 = {"*H100*": ModelQuota(compute=Quota(limit=100))}
    specs = {"a": QueueSpec(namespaces=("*",), models=of_h100), "b": queue()}
    stage = Stage(specs, nodes=(1, 1), models={0: H100})
    stage.submit("in", 100, queue="a", notes={"gpu-model": "*H100*"})
    stage.submit("rest", 100, queue="b", notes={"gpu-model": "*A100*"})
    assert len(stage.run()) == 2
    stage.submit("p", 100, queue="a")
    stage.run()
    assert reason(stage, "p") == "NoRoom"


def test_a_gang_is_told_what_keeps_it() -> None:
    """Its limit, if that is it; else that it starts as a whole, once it is all there."""
    stage = Stage({"a": queue(limit=150), "b": queue()}, nodes=(2,))
    for number in range(2):
        stage.submit(f"g{number}", 50, queue="a", group="g", notes={"group-size": "2"})
    stage.submit("in", 100, queue="a", priority=1)
    assert stage.run() == ["in"]
    assert {reason(stage, uid) for uid in ("g0", "g1")} == {"OverLimit"}
    stage.submit("h0", 100, queue="b", group="h", notes={"group-size": "2"})
    stage.run()
    assert reason(stage, "h0") == "GangIncomplete"
    stage.submit("h1", 100, queue="b", group="h", notes={"group-size": "2"})
    stage.run()
    assert {reason(stage, uid) for uid in ("h0", "h1")} == {"GangWaits"}


def told(stage: Stage, uid: str) -> str:
    """The word and the sentence."""
    notice = next(stage.queues.notice(waiter) for waiter in stage.queues.waiting() if waiter.uid == uid)
    return f"{notice.reason}: {notice.message}"


def members(stage: Stage, *uids: str, queue: str = "b", user: str = "team", size: int = 3, **notes: str) -> None:
    """Pods of one group join, each asking a GPU."""
    notes = {"group-size": str(size), **{name.replace("_", "-"): text for name, text in notes.items()}}
    for uid in uids:
        stage.submit(uid, 100, queue=queue, user=user, group="g", notes=notes)


def test_a_gang_that_is_not_all_there_is_told_how_many_are_missing() -> None:
    """With what there is to be done."""
    stage = Stage(TWO, nodes=(4,))
    members(stage, "g0", "g1", size=3)
    stage.run()
    said = "GangIncomplete: group g starts with 3 pods, and 2 are there: create 1 more, or lower aliquot.dev/group-min"
    assert {told(stage, uid) for uid in ("g0", "g1")} == {said}


def test_who_is_gone_or_moved_is_counted_in_its_gang_no_more() -> None:
    """Also when all is put down anew, for other queues."""
    stage = Stage(TWO, nodes=(4,))
    members(stage, "g0", "g1", queue="b")
    stage.gone("g1")
    stage.run()
    said = "GangIncomplete: group g starts with 3 pods, and 1 is there: create 2 more, or lower aliquot.dev/group-min"
    assert told(stage, "g0") == said
    stage.queues.queues_seen({**TWO, "c": queue()})
    stage.run()
    assert told(stage, "g0") == said


def test_a_gang_that_waits_in_several_queues_is_told_where() -> None:
    """It could never start, though all of it are there."""
    stage = Stage(TWO, nodes=(4,))
    members(stage, "g0", queue="a")
    members(stage, "g1", "g2", queue="b")
    stage.run()
    said = "GangSplit: group g starts with 3 pods of one queue, and they wait 1 in a, 2 in b: give all of them one "
    assert {told(stage, uid) for uid in ("g0", "g1", "g2")} == {f"{said}aliquot.dev/queue"}


def test_a_gang_of_several_users_is_told_whose_its_pods_are() -> None:
    """Where a label says whose a pod is, those of one namespace may be of several."""
    stage = Stage(TWO, nodes=(4,), settings=QueueSettings(user_label="who"))
    for uid, who in (("g0", "ann"), ("g1", "bob"), ("g2", "bob")):
        members(stage, uid)
        pod = stage.pods[uid]
        meta = replace(pod.metadata, labels={**pod.metadata.labels, "who": who})
        stage.see(replace(pod, metadata=meta))
    stage.run()
    said = (
        "GangSplit: group g starts with 3 pods of one user, and 1 is of ann, 2 are of bob: create all of them as one "
    )
    assert {told(stage, uid) for uid in ("g0", "g1", "g2")} == {f"{said}user"}


def test_a_gang_whose_pods_disagree_about_it_is_told_what_each_says() -> None:
    """It waits for what the first of them says, which the others may not know of."""
    stage = Stage(TWO, nodes=(4,))
    members(stage, "g0", size=4)
    members(stage, "g1", "g2", size=3)
    stage.run()
    said = (
        "GangDisagrees: pods of group g disagree about how many start: 2 say 3 of 3, 1 says 4 of 4; "
        "write the same aliquot.dev/group-size and aliquot.dev/group-min on all of them"
    )
    assert {told(stage, uid) for uid in ("g0", "g1", "g2")} == {said}


def test_a_gang_without_room_is_told_what_it_asks_as_a_whole() -> None:
    """Beside what is free; and those beyond its minimum wait as any pod does."""
    stage = Stage({"b": queue()}, nodes=(2,))
    members(stage, "g0", "g1", "g2", group_min="2")
    stage.submit("early", 10, 500, queue="b", priority=1)
    assert stage.run() == ["early"]
    assert told(stage, "g0") == (
        "GangWaits: group g starts with 2 pods, which count as 200 % of compute and 160000 MiB of memory; "
        "of all GPUs 190 of 200 % and 159500 of 160000 MiB are free, and there is no room for all of them at once"
    )
    stage.gone("early")
    assert stage.run() == ["g0", "g1"]
    assert told(stage, "g2") == (
        "NoRoom: it counts as 100 % of compute and 80000 MiB of memory; of all GPUs 0 of 200 % and 0 of 160000 MiB are "
        "free, and no node that may take it has room for it now"
    )


@pytest.mark.parametrize(
    ("cordoned", "unready", "said"),
    [
        ((), (), "of all GPUs 0 of 300 % and 0 of 240000 MiB are free"),
        (("n1",), (), "of all GPUs 0 of 200 % and 0 of 160000 MiB are free (not counted: 1 cordoned node)"),
        (("n1", "n2"), (), "of all GPUs 0 of 100 % and 0 of 80000 MiB are free (not counted: 2 cordoned nodes)"),
        ((), ("n1",), "of all GPUs 0 of 200 % and 0 of 160000 MiB are free (not counted: 1 node that is out)"),
        (
            ("n1",),
            ("n0", "n2"),
            "of all GPUs 0 of 0 % and 0 of 0 MiB are free (not counted: 1 cordoned node and 2 nodes that are out)",
        ),
    ],
)
def test_nodes_that_take_no_pods_count_neither_as_free_nor_as_there(
    cordoned: Sequence[str], unready: Sequence[str], said: str
) -> None:
    """Else the sum speaks of room that nobody sees taken; they are named apart, in the condition and to who asks."""
    stage = Stage({"b": queue()}, nodes=(1, 1, 1))
    for number in range(3):
        stage.submit(f"in{number}", 100, queue="b")
    stage.run()
    for node in {*cordoned, *unready}:
        known = stage.picture.nodes[node]
        status = known.node.status
        if node in unready:
            status = replace(status, conditions=[NodeCondition(type="Ready", status="False")])
        spec = replace(known.node.spec, unschedulable=node in cordoned)
        stage.picture.node_seen(replace(known.node, spec=spec, status=status))
    stage.submit("waits", 50, queue="b")
    stage.run()
    assert f"; {said}, and no node that may take it has room for it now" in told(stage, "waits")


def test_a_member_whose_mates_rest_is_told_to_look_at_them() -> None:
    """Two of three have lost their turn, so the third has none to come in with."""
    stage = Stage({"b": queue()}, nodes=(3,))
    members(stage, "g0", "g1", "g2")
    assert stage.round() == ["g0", "g1", "g2"]
    stage.queues.missed(stage.pods["g0"], now=stage.now)
    for uid in ("g1", "g2"):
        stage.queues.not_told(stage.pods[uid], now=stage.now)
    stage.round(after=1.5)
    assert told(stage, "g1") == (
        "GangWaits: group g starts with 3 pods, and 1 of those there has no turn for now, as its own condition says"
    )


def test_a_pod_of_a_held_queue_is_told_which_one_is_held() -> None:
    """Itself, or one above it, held or drained."""
    specs = {"org": queue(stop="drain"), "a": queue("org"), "b": queue(stop="hold")}
    stage = Stage(specs)
    stage.submit("p", queue="a")
    stage.submit("q", queue="b")
    stage.run()
    assert told(stage, "p") == "QueueHeld: queue org is drained: it lets nobody in, and queue a is below it"
    assert told(stage, "q") == "QueueHeld: queue b is held: it lets nobody in"


def test_who_stands_back_is_told_for_whom() -> None:
    """By name, whether a node is kept for that one, what a queue has left, or what is free."""
    settings = QueueSettings(patience=10.0, hold=100.0)
    stage = Stage({"a": queue(), "b": queue()}, nodes=(2,), settings=settings)
    stage.submit("ever", 60, queue="b")
    stage.run()
    stage.submit("large", 200, queue="a", notes={"gpus": "2"})
    stage.run()
    stage.submit("small", 40, queue="b")
    stage.round(after=20.0)
    said = "it counts as 40 % of compute and 1000 MiB of memory; team/pod-large has waited for long and goes first"
    assert told(stage, "small") == f"Behind: {said}"
    limited = Stage({"a": queue(limit=100)}, nodes=(2,), settings=settings)
    limited.submit("ever", 60, queue="a")
    limited.run()
    limited.submit("large", 100, queue="a")
    limited.run()
    limited.submit("small", 40, queue="a")
    assert limited.round(after=20.0) == []
    assert told(limited, "large") == (
        "OverLimit: it asks 100 % of compute; queue a uses 60 % of the 100 % that it may have"
    )
    assert told(limited, "small") == f"Behind: {said}"


def test_limits_of_nodes_are_told_in_cores_and_mebibytes() -> None:
    """Nobody reads thousandths of a core, or bytes."""
    hosts = HostLimits(cpu="2500m", memory="4Gi")
    stage = Stage({"a": queue(hosts=hosts)}, nodes=(4,))
    for uid, requests in (
        ("first", {"cpu": "2", "memory": "3Gi"}),
        ("cores", {"cpu": "1"}),
        ("ram", {"memory": "2Gi"}),
    ):
        stage.submit(uid, 10, queue="a", requests=requests)
    assert stage.run() == ["first"]
    stage.run()
    assert told(stage, "cores") == (
        "OverLimit: it asks 1 core of CPU; queue a uses 2 cores of the 2.5 cores that it may have"
    )
    assert told(stage, "ram") == (
        "OverLimit: it asks 2048 MiB of host memory; queue a uses 3072 MiB of the 4096 MiB that it may have"
    )


def test_a_gang_over_a_limit_is_told_what_all_of_it_ask() -> None:
    """What one of its pods asks might well be there."""
    stage = Stage({"b": queue(limit=250)}, nodes=(4,))
    stage.submit("in", 100, queue="b", priority=1)
    assert stage.run() == ["in"]
    members(stage, "g0", "g1", size=2)
    stage.run()
    assert told(stage, "g1") == (
        "OverLimit: group g starts with 2 pods, which ask 200 % of compute; "
        "queue b uses 100 % of the 250 % that it may have"
    )


def test_what_is_held_back_is_told_with_for_whom() -> None:
    """Of many the three of whom most is."""
    specs = {name: queue(guarantee=due, lend=0) for name, due in zip("acdef", (50, 60, 70, 80, 40), strict=True)}
    stage = Stage({**specs, "b": queue()}, nodes=(3, 1))
    stage.submit("first", 100, queue="b")
    assert stage.run() == ["first"]
    stage.submit("p", 100, queue="b")
    stage.run()
    assert told(stage, "p") == (
        "HeldBack: it asks 100 % of compute; 300 of 400 % are free, and 300 % is reserved "
        "(e 80 %, d 70 %, c 60 %, 2 more)"
    )


def asking_much(specs: Mapping[str, QueueSpec]) -> Stage:
    """Of eight cards one queue uses four, and a pod of another asks five."""
    stage = Stage(specs, nodes=(8,))
    for number in range(4):
        stage.submit(f"t{number}", queue="trial")
    assert len(stage.run()) == 4
    stage.submit("large", 500, queue="clinic")
    return stage


def test_nobody_is_told_that_its_own_guarantee_is_in_its_way() -> None:
    """What is free is kept for its queue and no other: it asks more than that."""
    stage = asking_much({"clinic": queue(guarantee=400, lend=0), "trial": queue()})
    stage.submit("more", queue="trial")
    assert stage.run() == []
    free = "400 of 800 % are free"
    assert told(stage, "large") == f"HeldBack: it asks 500 % of compute; {free}, held back for its own queue"
    assert told(stage, "more") == f"HeldBack: it asks 100 % of compute; {free}, and 400 % is reserved (clinic 400 %)"


def test_what_is_lent_is_not_kept_for_who_asks_more_than_all_of_a_guarantee() -> None:
    """Only what is kept idle is; and for who fits in it all of it, beside that."""
    stage = asking_much({"clinic": queue(guarantee=400, lend=200), "trial": queue()})
    for number in range(3):
        stage.submit(f"more{number}", queue="trial")
    assert stage.run() == ["more0", "more1"]
    said = "it asks 100 % of compute; 200 of 800 % are free, and 200 % is reserved (clinic 200 %)"
    assert told(stage, "more2") == f"HeldBack: {said}"
    stage.gone("more1")
    stage.submit("fits", 300, queue="clinic", notes={"gpu-uuid": "GPU-n0-0,GPU-n0-1,GPU-n0-2"})
    assert stage.run() == []
    said = (
        "it asks 100 % of compute; 300 of 800 % are free, and 300 % of that is held back for guarantees (clinic 300 %)"
    )
    assert told(stage, "more2") == f"HeldBack: {said}"


def test_who_asks_more_than_its_own_guarantee_is_told_what_others_are_guaranteed_beside_it() -> None:
    """Of what is free its own part is not told: it takes that itself."""
    specs = {"a": queue(guarantee=200, lend=0), "b": queue(guarantee=100), "c": queue()}
    stage = Stage(specs, nodes=(4,))
    stage.submit("c", queue="c", notes={"gpu-uuid": "GPU-n0-0"})
    assert stage.run() == ["c"]
    stage.submit("b", queue="b", notes={"gpu-uuid": "GPU-n0-0"})
    stage.submit("a", 300, queue="a")
    assert stage.run() == []
    free = "300 of 400 % are free, and 100 % of that is held back for guarantees (b 100 %)"
    assert told(stage, "a") == f"HeldBack: it asks 300 % of compute; {free}"


def test_the_guarantee_of_a_queue_above_is_its_own_too() -> None:
    """And others read of that queue, since those below it are guaranteed nothing themselves."""
    stage = asking_much({"org": queue(guarantee=400, lend=0), "clinic": queue("org"), "trial": queue()})
    stage.submit("more", queue="trial")
    assert stage.run() == []
    free = "400 of 800 % are free"
    assert told(stage, "large") == f"HeldBack: it asks 500 % of compute; {free}, held back for its own queue"
    guaranteed = "and 400 % is reserved (org 400 %)"
    assert told(stage, "more") == f"HeldBack: it asks 100 % of compute; {free}, {guaranteed}"


def test_whose_queue_went_with_the_leader_before_is_told_so_before_anything_was_decided() -> None:
    """The page and `aliquot explain` look at it between two rounds."""
    before = Stage({"a": queue(), "b": queue()}, nodes=(1,))
    before.submit("x", 100, queue="b")
    before.round()
    before.lift("x")
    now = Stage({"a": queue()}, nodes=(1,))
    now.see(before.pods["x"])
    assert told(now, "x") == "NoQueue: its queue b is not there any more"
