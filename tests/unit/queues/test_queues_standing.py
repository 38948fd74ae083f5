"""Where everybody stands, as `aliquot queue` and `aliquot explain` tell it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from aliquot_cli.explain import _text as explanation_text
from aliquot_cli.main import main
from aliquot_cli.queue_text import answer_text, rows_text
from aliquot_core.objects import Namespace, Pod, Queue
from aliquot_scheduler.explaining import Explanation, explain
from aliquot_scheduler.queues.said.entry import Plan, plan_of
from aliquot_scheduler.queues.telling.rows import rows
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.status import Amounts, QueueStatus
from aliquot_scheduler.queues.telling.whole import answer, waiting_pods
from aliquot_scheduler.queues.waiting.showings import written
from aliquot_scheduler.reclaim.inquiry import Inquiry
from support.centre import NAMES, WALL, asks, bound, gpus, make_lease, make_node, picture_with

GATED = {"schedulingGates": [{"name": NAMES.gate}]}
NODES = (make_node("n1", gpus("n1", 4)),)
SHOWN = {NAMES.shown: written(wall=WALL - 60.0, times=1, queue="")}
TREE: Mapping[str, Any] = {
    "org": {"compute": {"limit": 300}},
    "a": {"parent": "org", "compute": {"guarantee": 100}, "namespaces": ["*"]},
    "b": {"parent": "org", "namespaces": ["*"]},
    "held": {"stop": "hold", "namespaces": ["*"]},
    "reserved": {"compute": {"guarantee": 100, "lendingLimit": 0}, "namespaces": ["*"]},
}


CAPPED: Mapping[str, Any] = {"compute": {"limit": 100}, "namespaces": ["*"]}


def plan(queues: Mapping[str, Any] = TREE, **homes: str) -> Plan:
    """A cluster's queues, and its namespaces' own."""
    return plan_of(
        [msgspec.convert({"metadata": {"name": name}, "spec": spec}, Queue) for name, spec in queues.items()],
        [
            msgspec.convert({"metadata": {"name": name, "labels": {NAMES.queue: queue}}}, Namespace)
            for name, queue in homes.items()
        ],
        names=NAMES,
    )


def runs(uid: str, queue: str, compute: int, *, gpu: int = 0, namespace: str = "team", **more: Any) -> Pod:
    """A pod that holds so much of a card."""
    pod = asks(uid, compute, 1000, labels={NAMES.queue: queue}, namespace=namespace, **more)
    return bound(pod, node="n1", held={f"GPU-n1-{gpu}": (compute, 1000)})


def waits(uid: str, queue: str, compute: int, *, at: int = 0, namespace: str = "team", **more: Any) -> Pod:
    """A pod behind its gate."""
    labels = {NAMES.queue: queue} | more.pop("labels", {})
    spec = GATED | more.pop("spec", {})
    created = f"2026-11-21T09:{at:02}:00Z"
    return asks(uid, compute, 1000, labels=labels, namespace=namespace, creationTimestamp=created, spec=spec, **more)


def stand(*pods: Pod, of: Plan | None = None, statuses: Mapping[str, QueueStatus] | None = None) -> Standing:
    """Everybody's standing on four cards."""
    picture = picture_with(*NODES)
    for pod in pods:
        picture.pod_seen(pod)
    return Standing(picture=picture, plan=of or plan(), pods=pods, names=NAMES, wall=WALL, told=statuses)


def explained(pod: Pod, *others: Pod) -> Explanation:
    """What is told of one pod among others."""
    leases = [make_lease(node.metadata.name) for node in NODES]
    return explain(pod, nodes=NODES, leases=leases, pods=[pod, *others], names=NAMES, wall=WALL, plan=plan())


BUSY = (
    runs("r1", "a", 80),
    runs("r2", "b", 100, gpu=1),
    runs("r3", "b", 50, gpu=2),
    waits("w1", "a", 50),
    waits("w2", "b", 60, at=1),
    waits("w3", "held", 10, at=2),
)


def test_rows_are_the_tree_with_numbers() -> None:
    """Parents before their children; a parent has the sums, and what it lends counts as borrowed by who uses it."""
    found = {row.name: row for row in rows(plan(), statuses={}, standing=stand(*BUSY))}
    assert [(row.name, row.depth) for row in found.values()] == [
        *(("default", 0), ("held", 0), ("org", 0), ("a", 1), ("b", 1), ("reserved", 0)),
    ]
    org, a, b = found["org"].compute, found["a"].compute, found["b"].compute
    assert (org.guarantee, org.limit, org.used, org.asked) == (100, 300, 230, 110)
    assert (a.guarantee, a.limit, a.used, a.borrowed, a.asked) == (100, None, 80, 0, 50)
    assert (b.guarantee, b.used, b.borrowed) == (None, 150, 150)
    # 400 there are, 100 of them are kept; of 300 a is due all that it asks and b the rest.
    assert (a.fair_share, b.fair_share) == (130, 170)
    assert [found[name].waiting for name in ("org", "a", "b", "held")] == [2, 1, 1, 1]
    assert [found[name].running for name in ("org", "a", "b", "held")] == [3, 1, 2, 0]


def let_in(pod: Pod, *, admitted: str) -> Pod:
    """The same without its gate, and what the leader said of it last; nothing if that is empty."""
    conditions = [{"type": NAMES.admitted, "status": admitted, "reason": "any"}] if admitted else []
    replace = msgspec.structs.replace
    status = msgspec.convert({"conditions": conditions}, type(pod.status))
    return replace(pod, spec=replace(pod.spec, scheduling_gates=()), status=status)


@pytest.mark.parametrize(
    ("admitted", "used", "running", "waiting"), [("True", 50, 1, 0), ("", 50, 1, 0), ("False", 0, 0, 1)]
)
def test_whose_turn_led_to_nothing_uses_nothing(admitted: str, used: int, running: int, waiting: int) -> None:
    """It has no gate and no node, as one that is let in has; the leader's word tells them apart."""
    pod = let_in(waits("w1", "a", 50), admitted=admitted)
    found = {row.name: row for row in rows(plan(), statuses={}, standing=stand(pod))}
    assert (found["a"].compute.used, found["a"].running, found["a"].waiting) == (used, running, waiting)


def test_whose_turn_led_to_nothing_is_told_so() -> None:
    """Of one pod, and of all of its queue; and who is before it."""
    lost = let_in(waits("w1", "a", 50, at=5), admitted="False")
    notes = {NAMES.charged: "a"}
    lost = msgspec.structs.replace(lost, metadata=msgspec.structs.replace(lost.metadata, annotations=notes))
    told = explained(lost, waits("w2", "a", 50))
    assert told.queue is not None
    assert (told.queue.place, told.queue.before) == (2, ["team/pod-w2"])
    assert told.summary.startswith("its turn led to no binding: 1 of 1 node has room; 1 pod has its turn before it")
    (pod,) = waiting_pods("a", stand(lost))
    assert (pod.place, pod.why) == (1, "its turn led to no binding")


MAKES_ROOM = "1 pod has to go for it since ten, until eleven at the latest, and so on"


@pytest.mark.parametrize(
    ("status", "reason", "told"),
    [("False", "MakingRoom", True), ("True", "MakingRoom", False), ("False", "HeldBack", False)],
)
def test_for_whom_room_is_made_is_told_so(status: str, reason: str, *, told: bool) -> None:
    """By `explain` and `queue` alike, as the leader says it: who goes, since when and until when at the latest."""
    condition = {"type": NAMES.admitted, "status": status, "reason": reason, "message": MAKES_ROOM}
    pod = waits("w1", "a", 50)
    pod = msgspec.structs.replace(pod, status=msgspec.convert({"conditions": [condition]}, type(pod.status)))
    assert explained(pod).summary.startswith(MAKES_ROOM) is told
    (row,) = waiting_pods("a", stand(pod))
    assert row.why.startswith(MAKES_ROOM) is told


def test_who_goes_for_a_pod_is_named_by_who_is_on_the_way_out() -> None:
    """Of the GPUs that are kept for it, as it says itself; its condition may be older than who was chosen last."""
    condition = {"type": NAMES.admitted, "status": "False", "reason": "MakingRoom", "message": MAKES_ROOM}
    room = {"whose": "w1", "count": 1, "queue": "a", "node": "n1", "claims": {"GPU-n1-1": [50, 1000, False]}}
    pod = waits("w1", "a", 50, annotations={NAMES.room: json.dumps(room)})
    pod = msgspec.structs.replace(pod, status=msgspec.convert({"conditions": [condition]}, type(pod.status)))
    # One elsewhere goes for others, and one there stays.
    others = [runs("r0", "b", 100), runs("stays", "b", 30, gpu=1)]
    going = [runs(f"r{number}", "b", 10, gpu=1) for number in range(1, 6)]
    on_the_way = f"{MAKES_ROOM}; on their way out of the GPUs that are kept for it"
    for asked, told in (
        ([], MAKES_ROOM),
        ([others[0], going[0]], f"{on_the_way}: team/pod-r1 of queue b"),
        (
            going,
            f"{on_the_way}: {', '.join(f'team/pod-r{number} of queue b' for number in (1, 2, 3))}, and 2 more",
        ),
    ):
        place = explained(pod, *(on_its_way_out(one) if one in asked else one for one in (*others, *going))).queue
        assert place is not None
        assert place.why == told


def test_room_is_being_made_before_the_leader_has_said_so() -> None:
    """Its own word of where, and who leaves there, come first: until then no room would be told, and it is not true."""
    room = {"whose": "w1", "count": 1, "queue": "a", "node": "n1", "claims": {"GPU-n1-1": [50, 1000, False]}}
    full = [runs(f"r{gpu}", "b", 100, gpu=gpu) for gpu in range(4)]
    going = [*full[:1], on_its_way_out(full[1]), *full[2:]]
    word = {NAMES.room: json.dumps(room)}
    # As the queue's own limit has it, where nobody leaves for it.
    for notes, others, told in ((word, going, "MakingRoom"), (word, full, "OverLimit"), ({}, going, "OverLimit")):
        pod = waits("w1", "a", 50, annotations=notes)
        (row,) = waiting_pods("a", stand(pod, *others))
        assert (row.reason, explained(pod, *others).reason) == (told, told)
        begins = "room is being made for it; on their way out of the GPUs that are kept for it: team/pod-r1 of queue b"
        assert (row.why == begins) is (told == "MakingRoom")


def on_its_way_out(pod: Pod) -> Pod:
    """The same, asked to go."""
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-11-21T10:00:00Z")
    return msgspec.structs.replace(pod, metadata=meta)


def test_who_is_shown_to_an_autoscaler_is_told_so_in_its_queue() -> None:
    """As `aliquot explain` says it."""
    growing = plan({"g": {"autoscale": True, "namespaces": ["*"]}})
    full = [runs(f"r{gpu}", "g", 100, gpu=gpu) for gpu in range(4)]
    shown = let_in(waits("w1", "g", 50, annotations=SHOWN), admitted="False")
    (pod,) = waiting_pods("g", stand(*full, shown, of=growing))
    assert pod.why.startswith("it is shown to a cluster autoscaler: ")
    long_ago = {NAMES.shown: written(wall=WALL - 1_000.0, times=2, queue="")}
    over = let_in(waits("w1", "g", 50, annotations=long_ago), admitted="False")
    (pod,) = waiting_pods("g", stand(*full, over, of=growing))
    assert (pod.reason, pod.why.partition(";")[0]) == (
        "NoNodeCame",
        "no node came for it while it was shown to a cluster autoscaler for 15 minutes (2 times)",
    )


def test_who_was_shown_to_an_autoscaler_has_lost_no_turn() -> None:
    """Its queue is held by now: both commands say that, and not that a turn of it led to nothing."""
    held = plan({"g": {"autoscale": True, "namespaces": ["*"], "stop": "hold"}})
    full = [runs(f"r{gpu}", "g", 100, gpu=gpu) for gpu in range(4)]
    shown = let_in(waits("w1", "g", 50, annotations=SHOWN), admitted="False")
    (pod,) = waiting_pods("g", stand(*full, shown, of=held))
    assert (pod.reason, pod.why) == ("QueueHeld", "queue g is held: it lets nobody in")
    leases = [make_lease(node.metadata.name) for node in NODES]
    told = explain(shown, nodes=NODES, leases=leases, pods=[*full, shown], names=NAMES, wall=WALL, plan=held)
    assert (told.reason, told.summary.startswith("queue g is held: it lets nobody in")) == ("QueueHeld", True)


@pytest.mark.parametrize(("queue", "word"), [("gone", "NoQueue"), ("small", "NeverFits")])
def test_who_can_t_come_in_for_good_is_not_told_that_there_is_no_room(queue: str, word: str) -> None:
    """All cards are full, and room would be of no use to it."""
    small = plan({"small": {"compute": {"limit": 40}, "namespaces": ["*"]}, "b": {}})
    full = [runs(f"r{gpu}", "b", 100, gpu=gpu) for gpu in range(4)]
    pod, leases = waits("w1", queue, 50), [make_lease(node.metadata.name) for node in NODES]
    told = explain(pod, nodes=NODES, leases=leases, pods=[*full, pod], names=NAMES, wall=WALL, plan=small)
    assert (told.reason, "room" in told.summary) == (word, False)


def test_pods_of_a_deleted_queue_have_a_row_of_their_own() -> None:
    """Else nobody saw who uses what no queue does."""
    standing = stand(*BUSY, runs("s1", "gone", 20, gpu=3), runs("s2", "lost", 30, gpu=3), waits("s3", "gone", 10, at=3))
    told = rows(plan(), statuses={}, standing=standing)[-1]
    assert (told.name, told.compute.used, told.memory.used) == ("(no queue)", 50, 2000)
    assert (told.running, told.waiting, told.compute.guarantee) == (2, 1, None)
    assert "(no queue)  -          -      50 %" in rows_text([told], wide=False)
    assert [row.name for row in rows(plan(), statuses={}, standing=stand(*BUSY))][-1] == "reserved"


def test_what_a_queue_says_of_models_is_told_with_what_it_has_of_them() -> None:
    """By pattern; of a queue that says nothing of any model nothing is."""
    of_a100 = {"*A100*": {"compute": {"guarantee": 100, "limit": 200, "lendingLimit": 50}}}
    limited = plan({"a": {"namespaces": ["*"], "models": of_a100}, "b": {"namespaces": ["*"]}})
    standing = stand(runs("r1", "a", 80), waits("w1", "a", 30), of=limited)
    told = {row.name: row for row in rows(limited, statuses={}, standing=standing)}
    part = told["a"].models["*A100*"].compute
    assert (part.guarantee, part.limit, part.lending_limit, part.used, part.asked) == (100, 200, 50, 80, 30)
    assert told["a"].models["*A100*"].memory.used == 1000
    assert told["b"].models == {}
    text = answer_text(answer("a", limited, statuses={}, standing=standing), wide=False, now=WALL)
    assert "*A100*      compute  100 %      200 %  80 %      30 %      50 %   any" in text
    untold = rows(limited, statuses={}, standing=None)[0].models["*A100*"].compute
    assert (untold.guarantee, untold.used) == (100, None)


def test_who_is_shown_to_an_autoscaler_waits() -> None:
    """It has no gate and no card; one without a gate that was promised room is let in, or that says nothing."""
    grows = plan({"a": {"namespaces": ["*"], "autoscale": True}})
    full = [runs(f"r{gpu}", "a", 100, gpu=gpu) for gpu in range(4)]
    seen = waits("seen", "a", 100, spec={"schedulingGates": []}, annotations=SHOWN)
    chosen = waits("chosen", "a", 100, spec={"schedulingGates": []})
    chosen.metadata.annotations[NAMES.promised] = "n1"
    row = {one.name: one for one in rows(grows, statuses={}, standing=stand(*full, seen, chosen, of=grows))}["a"]
    assert (row.compute.used, row.compute.asked, row.running, row.waiting) == (500, 100, 5, 1)
    found = waits("found", "a", 100, spec={"schedulingGates": []})
    row = {one.name: one for one in rows(grows, statuses={}, standing=stand(*full[1:], found, of=grows))}["a"]
    assert (row.compute.used, row.compute.asked, row.running, row.waiting) == (400, 0, 4, 0)
    leases = [make_lease(node.metadata.name) for node in NODES]
    told = explain(seen, nodes=NODES, leases=leases, pods=[*full, seen], names=NAMES, wall=WALL, plan=grows)
    assert told.summary.startswith("it is shown to a cluster autoscaler: ")
    assert told.queue is not None
    assert (told.queue.queue, told.queue.place) == ("a", 1)


def test_without_rights_the_leader_s_word_is_told() -> None:
    """And what nobody has written is not known."""
    statuses = {"a": QueueStatus(used=Amounts(compute=80), fair_share=Amounts(compute=130, memory=5), waiting=4)}
    found = {row.name: row for row in rows(plan(), statuses=statuses, standing=None)}
    assert (found["a"].compute.used, found["a"].memory.fair_share, found["a"].waiting) == (80, 5, 4)
    assert (found["b"].compute.used, found["b"].waiting, found["b"].running) == (None, None, None)
    assert {row.told_by for row in found.values()} == {"status"}
    assert "As the leader wrote it last" in rows_text(list(found.values()), wide=False)


def test_the_order_is_that_of_turns() -> None:
    """Who is within a guarantee first, then who has the smaller share; who is held has no place."""
    standing = stand(*BUSY, waits("w4", "a", 20, at=3))
    assert [waiter.uid for waiter in standing.order()] == ["w1", "w4", "w2"]


def test_who_waits_behind_others_gates_is_in_no_line() -> None:
    """It is listed with whose gates they are; the leader does not know of it before they are lifted."""
    gates = [{"name": "example.com/data"}, {"name": NAMES.gate}]
    standing = stand(waits("held", "a", 50, spec={"schedulingGates": gates}), waits("next", "a", 20, at=1))
    assert rows(plan(), statuses={}, standing=standing)[3].compute.asked == 20
    told = {pod.pod: pod for pod in waiting_pods("a", standing)}
    assert (told["team/pod-held"].place, told["team/pod-next"].place) == (0, 1)
    assert "example.com/data" in told["team/pod-held"].why
    assert NAMES.gate not in told["team/pod-held"].why


@pytest.mark.parametrize(
    ("led", "their", "end"),
    [
        (True, "the leader's", "namespace."),
        (False, "your", "namespace. The leader's are not known here; it goes by its own, which may be others."),
    ],
)
def test_it_is_told_by_which_settings_shares_are_worked_out(*, led: bool, their: str, end: str) -> None:
    """The leader's where it has told them; else those of who asks, and that the leader's may be others."""
    text = answer_text(answer("a", plan(), statuses={}, standing=stand(*BUSY), led=led), wide=False, now=WALL)
    said = f"Shares are worked out by {their} settings [queues]: half-life 86400 s, penalty 60 s, users by {end}"
    assert text.splitlines()[-1] == said


def test_equals_take_turns() -> None:
    """A user who submitted a hundred at once is not before one who came later with one."""
    many = [waits(f"m{at}", "b", 10, at=at, namespace="many") for at in range(5)]
    one = waits("one", "b", 10, at=30, namespace="few")
    order = [waiter.uid for waiter in stand(*many, one).order()]
    assert order[:2] == ["one", "m0"]
    assert order[2:] == ["m1", "m2", "m3", "m4"]


def test_queues_take_turns_too() -> None:
    """Whoever is let in counts at once, for its queue and for its user."""
    pods = [waits(f"{queue}{at}", queue, 10, at=at) for queue in ("b", "default") for at in range(3)]
    flat = plan({name: {"namespaces": ["*"]} for name in ("b", "default")})
    assert [waiter.uid for waiter in stand(*pods, of=flat).order()] == [
        "b0",
        "default0",
        "b1",
        "default1",
        "b2",
        "default2",
    ]
    users = [waits(f"{user}{at}", "b", 10, at=at, namespace=user) for user in ("ann", "bob") for at in range(2)]
    assert [waiter.uid for waiter in stand(*users).order()] == ["ann0", "bob0", "ann1", "bob1"]


def test_who_holds_and_who_waits_is_told_apart() -> None:
    """A pod without a gate was let in, wherever it is; one that has ended is neither."""
    on_its_way = asks("u1", 30, 1000, labels={NAMES.queue: "b"})
    standing = stand(on_its_way, runs("u2", "b", 100, phase="Succeeded"), waits("u3", "b", 5))
    assert standing.statuses()["b"].used == Amounts(compute=30, memory=1000)
    assert (standing.running("b"), len(standing.waiting("b"))) == (1, 1)


def test_those_in_no_line_come_last() -> None:
    """Whoever is told first has a place."""
    pods = waiting_pods("b", stand(waits("never", "b", 400), waits("w", "b", 10, at=5)))
    assert [(one.pod, one.place, one.never) for one in pods] == [
        ("team/pod-w", 1, False),
        ("team/pod-never", 0, True),
    ]


def test_a_gang_that_can_never_start_has_no_place() -> None:
    """Nor does it take one from those behind it; the table says never, and a pod that is held only has none for now."""
    gang = [
        waits(f"g{at}", "a", 80, at=at, labels={NAMES.group: "g"}, annotations={NAMES.group_size: "4"})
        for at in range(4)
    ]
    behind = waits("w", "a", 10, at=9)
    told = answer("org", plan(), statuses={}, standing=stand(*gang, behind))
    assert {one.pod: (one.place, one.never) for one in told.pods} == {
        "team/pod-w": (1, False),
        **{f"team/pod-g{at}": (0, True) for at in range(4)},
    }
    lines = [line.split() for line in answer_text(told, wide=False, now=WALL).splitlines() if " team/pod-" in line]
    assert [line[0] for line in lines] == ["1", "never", "never", "never", "never"]
    (held,) = waiting_pods("held", stand(*BUSY))
    assert (held.place, held.never) == (0, False)
    first = explained(gang[0], *gang[1:], behind)
    assert first.queue is not None
    assert (first.queue.place, first.queue.never) == (0, True)
    assert "in no line, since it never fits as things are" in explanation_text(first)
    second = explained(behind, *gang)
    assert second.queue is not None
    assert (second.queue.place, second.queue.before) == (1, [])


def placed(number: int, waited: int) -> Pod:
    """A pod that was created on a minute and placed so many seconds later."""
    at = f"2026-11-21T09:{number:02}:{waited:02}Z"
    pod = runs(f"p{number}", "b", 1, creationTimestamp=f"2026-11-21T09:{number:02}:00Z")
    told = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]}
    return msgspec.structs.replace(pod, status=msgspec.convert(told, type(pod.status)))


def test_the_last_twenty_tell_how_long_to_wait() -> None:
    """What was long ago tells nothing; half of them waited no longer."""
    pods = [placed(number, 50 if number < 20 else 10 + number % 2) for number in range(40)]
    found = stand(*pods).usual_wait("b")
    assert found is not None
    assert (found.pods, found.seconds) == (20, 10.5)
    assert stand(*pods).usual_wait("a") is None


def test_what_was_used_lately_counts() -> None:
    """As the leader has written it down."""
    pods = [waits("in-a", "a", 10), waits("in-b", "b", 10)]
    flat = plan({name: {"namespaces": ["*"]} for name in ("a", "b")})
    assert [waiter.uid for waiter in stand(*pods, of=flat).order()] == ["in-a", "in-b"]
    lately = {"a": QueueStatus(lately=Amounts(compute=50))}
    assert [waiter.uid for waiter in stand(*pods, of=flat, statuses=lately).order()] == ["in-b", "in-a"]
    assert [one.name for one in stand(*pods, of=flat, statuses=lately).siblings("a")] == ["b", "default", "a"]


def test_what_users_have_used_lately_counts_too() -> None:
    """Half of it after a half-life, as the leader goes on counting."""
    pods = [waits("of-ann", "b", 10, namespace="ann"), waits("of-bob", "b", 10, at=1, namespace="bob")]
    assert [waiter.uid for waiter in stand(*pods).order()] == ["of-ann", "of-bob"]
    used = {"b": QueueStatus(users={"ann": Amounts(compute=50)}, at="2026-11-20T10:00:00Z")}
    standing = stand(*pods, statuses=used)
    assert [(one.user, one.share) for one in standing.users("b")] == [("bob", 0.0), ("ann", 25 / 400)]
    assert [waiter.uid for waiter in standing.order()] == ["of-bob", "of-ann"]


def gang(uid: str, at: int) -> Pod:
    """One of a group that starts with three."""
    return waits(uid, "b", 10, at=at, labels={NAMES.group: "g"}, annotations={NAMES.group_size: "3"})


WHY: dict[str, tuple[Sequence[Pod], str]] = {
    "quota": (
        [waits("w", "a", 90), runs("r1", "b", 100), runs("r2", "a", 100, gpu=1), runs("r3", "b", 50, gpu=2)],
        "it asks 90 % of compute; queue org uses 250 % of the 300 % that it may have",
    ),
    "a reservation": (
        [waits("w", "default", 100), *(runs(f"r{at}", "default", 70, gpu=at) for at in range(4))],
        "it asks 100 % of compute; 120 of 400 % are free, and 100 % is reserved (reserved 100 %)",
    ),
    "a guarantee that is given": (
        [
            waits("w", "a", 60, annotations={NAMES.preemptible: "false"}),
            runs("r", "a", 60, annotations={NAMES.preemptible: "false"}),
        ],
        "it asks 60 % of compute never to be taken back; queue a has given 60 % of its guarantee of 100 % so",
    ),
    "a held queue": ([waits("w", "held", 10)], "queue held is held: it lets nobody in"),
    "a limit": ([waits("w", "b", 400)], "it asks 400 % of compute, more than the 300 % that queue org may have"),
    "no such queue": ([waits("w", "gone", 10)], "there is no queue gone"),
    "an inner queue": ([waits("w", "org", 10)], "queue org has queues below it, and pods wait only in those"),
    "a gang that is not whole": (
        [gang("w", 0), gang("v", 1)],
        "group g starts with 3 pods, and 2 are there: create 1 more",
    ),
    "a gang that is whole": ([gang("w", 0), gang("v", 1), gang("u", 2)], ""),
    "nothing": ([waits("w", "b", 10)], ""),
}


@pytest.mark.parametrize("row", WHY)
def test_each_reason_has_its_numbers(row: str) -> None:
    """What is asked, what the queue has, what the cards have."""
    pods, why = WHY[row]
    told = explained(pods[0], *pods[1:])
    assert told.queue is not None
    assert told.queue.why.startswith(why)
    assert (told.queue.why == "") is (why == "")
    if why:
        assert told.summary.startswith(told.queue.why)


INSIDE: dict[str, tuple[Sequence[Pod], list[str]]] = {
    "others have borrowed": (
        [waits("w", "a", 100), *(runs(f"r{at}", "default", 100, gpu=at) for at in range(4))],
        [
            (
                "inside the guarantee of queue a; others have borrowed 400 % of compute (default 400 %); "
                "2 pods may be sent away for it"
            )
        ],
    ),
    "nobody has": (
        [waits("w", "a", 100), runs("r", "reserved", 100)],
        ["inside the guarantee of queue a; no other queue uses more than it is guaranteed"],
    ),
    "its guarantee is used": ([waits("w", "a", 100), runs("r", "a", 1)], []),
    "under its parent's limit": (
        [waits("w", "a", 100), *(runs(f"r{at}", "b", 100, gpu=at) for at in range(3))],
        [
            (
                "inside the guarantee of queue a; others have borrowed 300 % of compute (b 300 %); "
                "1 pod may be sent away for it"
            )
        ],
    ),
    "by its parent's": (
        [waits("w", "b", 100)],
        ["inside the guarantee of queue org; no other queue uses more than it is guaranteed"],
    ),
    "nothing is guaranteed": ([waits("w", "default", 100)], []),
    "no such queue": ([waits("w", "gone", 10)], []),
}


@pytest.mark.parametrize("row", INSIDE)
def test_who_is_inside_its_guarantee_is_told_who_has_borrowed(row: str) -> None:
    """Else its owner reads of no room alone, and not that it is due; who is not due is told nothing of the sort."""
    pods, said = INSIDE[row]
    told = explained(pods[0], *pods[1:]).queue
    assert told is not None
    assert [line for line in told.quota if not line.startswith("queue ")] == said


def test_nobody_has_borrowed_what_a_limit_keeps_out_of_use() -> None:
    """Its parent is guaranteed 200 % and keeps it, and its own queue may use 100 % of that."""
    of = plan({"c": {"compute": {"guarantee": 200, "lendingLimit": 0}}, "cx": {"parent": "c", **CAPPED}})
    running, waiting = runs("r", "cx", 100), waits("w", "cx", 100)
    standing = stand(running, waiting, of=of)
    (waiter,) = standing.waiting("cx")
    assert Inquiry(standing, wall=WALL).why(waiter) == ""


def test_a_guarantee_that_goes_with_another_is_told_as_such() -> None:
    """Its author has said nothing of memory, and looks in vain for it in the queue's spec."""
    told = explained(waits("w", "reserved", 10)).queue
    assert told is not None
    assert told.quota == [
        "queue reserved: 0 % of compute in use, 100 % guaranteed, no limit",
        "queue reserved: 0 MiB of memory in use, 80000 MiB guaranteed with the compute that it keeps idle, no limit",
        "inside the guarantee of queue reserved; no other queue uses more than it is guaranteed",
    ]


def test_explain_tells_the_place_and_who_comes_before() -> None:
    """With how long others have waited, and what each queue on the way up has."""
    placed = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T09:01:30Z"}]}
    ran = runs("r2", "b", 100, gpu=1, creationTimestamp="2026-11-21T09:00:00Z")
    ran = msgspec.structs.replace(ran, status=msgspec.convert(placed, type(ran.status)))
    told = explained(waits("w2", "b", 30, at=5), waits("w1", "a", 50), ran)
    assert told.queue is not None
    assert (told.queue.place, told.queue.before, told.queue.waiting) == (2, ["team/pod-w1"], 1)
    assert told.queue.usual_wait is not None
    assert str(told.queue.usual_wait) == "the last pod of this queue waited 90 s"
    several = msgspec.structs.replace(told.queue.usual_wait, pods=3)
    assert str(several) == "half of the last 3 pods of this queue waited 90 s at most"
    assert told.queue.quota[0] == "queue b: 100 % of compute in use, 0 % guaranteed, no limit"
    assert told.queue.quota[2] == "queue org: 100 % of compute in use, 100 % guaranteed, at most 300 %"
    assert told.summary == "1 of 1 node has room; 1 pod has its turn before it"
    first = explained(waits("w1", "a", 50), ran)
    assert "its turn comes next" in first.summary


def test_who_finds_no_card_is_told_so() -> None:
    """In a queue's list in a word; with each node's reason when that pod is asked about."""
    full = [runs(f"r{at}", "default", 60, gpu=at) for at in range(4)]
    (waiting,) = waiting_pods("b", stand(*full, waits("w", "b", 50)))
    free = "of all GPUs 160 of 400 % and 316000 of 320000 MiB are free"
    counts = "it counts as 50 % of compute and 1000 MiB of memory"
    assert (waiting.reason, waiting.why) == (
        "NoRoom",
        f"{counts}; {free}, and no node that may take it has room for it now",
    )
    behind = explained(waits("v", "b", 50, at=5), waits("w", "b", 50), *full)
    assert behind.summary.startswith("the only node has no room: 0 of 4 GPUs have 50 % free")
    assert behind.summary.endswith("; 1 pod has its turn before it")


def test_without_queues_nothing_is_said_of_them() -> None:
    """As where their definition is not installed."""
    leases = [make_lease("n1")]
    pod = waits("w", "b", 10)
    told = explain(pod, nodes=NODES, leases=leases, pods=[pod], names=NAMES, wall=WALL, plan=plan({}))
    assert told.queue is None


def test_without_queues_who_comes_just_before_is_named() -> None:
    """As with queues, where they stand beside the pod's place; of many the last five."""
    leases, pods = [make_lease("n1")], [waits(f"w{at}", "", 10, at=at) for at in range(7)]

    def summary(of: int) -> str:
        told = explain(pods[of], nodes=NODES, leases=leases, pods=pods, names=NAMES, wall=WALL, plan=plan({}))
        return told.summary

    assert summary(2).endswith("; 2 pods have their turn before it: team/pod-w0, team/pod-w1")
    assert summary(6).endswith(
        "; 6 pods have their turn before it, the last of them: "
        "team/pod-w1, team/pod-w2, team/pod-w3, team/pod-w4, team/pod-w5"
    )


def test_without_queues_it_is_still_told_what_else_than_room_it_waits_for() -> None:
    """The rest of its group, and whoever came before it; and gates of others, for which no turn is kept."""
    leases, first = [make_lease("n1")], waits("w0", "", 10)

    def summary(pod: Pod) -> str:
        pods = [first, pod]
        return explain(pod, nodes=NODES, leases=leases, pods=pods, names=NAMES, wall=WALL, plan=plan({})).summary

    group = waits("w1", "", 10, at=1, labels={NAMES.group: "g"}, annotations={NAMES.group_size: "3"})
    assert summary(group).startswith("group g starts with 3 pods, and 1 is there: create 2 more")
    assert summary(waits("w2", "", 10, at=2)).endswith("has room; 1 pod has its turn before it: team/pod-w0")
    never = summary(asks("w4", 10, 900_000, spec=GATED))
    assert never.startswith(
        "no node could take it, even if it were empty: it asks 900000 MiB of one GPU, and the largest"
    )
    assert "; the only node does not take it" not in never, "said once"
    gates = {"schedulingGates": [*GATED["schedulingGates"], {"name": "x/y"}]}
    assert summary(waits("w3", "", 10, at=3, spec=gates)) == "it waits behind gates that are not Aliquot's: x/y"


def test_one_queue_is_told_with_who_is_before_whom() -> None:
    """Siblings, users and pods, each in the order of their turns, and why each pod waits."""
    pods = (*BUSY, waits("w5", "b", 5, at=4, namespace="other"))
    told = answer("b", plan(other="b"), statuses={}, standing=stand(*pods, of=plan(other="b")))
    assert told.path == ["org", "b"]
    assert told.home_of == ["other"]
    assert [one.name for one in told.siblings] == ["a", "b"]
    assert [(one.user, one.waiting) for one in told.users] == [("other", 1), ("team", 1)]
    assert [(one.pod, one.place) for one in told.pods] == [("other/pod-w5", 2), ("team/pod-w2", 3)]
    text = answer_text(told, wide=True, now=WALL)
    assert "org / b" in text
    assert "At home here by label: namespace other; pods of * may name it." in text
    assert "BESIDE IT, BY TURN  PRIORITY" in text
    assert "59m" in text


def test_of_the_default_queue_it_is_told_who_waits_there() -> None:
    """No namespace need name it."""
    told = answer("default", plan(), statuses={}, standing=stand())
    here = "At home here by label: no namespace"
    assert f"{here}. Who names no queue waits here, if the namespace names none either." in answer_text(
        told, wide=False, now=WALL
    )


def test_queues_are_printed_in_every_form(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All of them and one of them: the same for programs in both of their forms, and names for other commands."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nobody-asks"))
    of_all = rows(plan(), statuses={}, standing=stand(*BUSY))
    of_one = answer("a", plan(), statuses={}, standing=stand(*BUSY))
    for told, names in ((of_all, [row.name for row in of_all]), (of_one, ["a"])):

        async def found(*_: object, told: object = told, **__: object) -> object:
            return told

        monkeypatch.setattr("aliquot_cli.queue._told", found)
        printed = {form: CliRunner().invoke(main, ["queue", "-o", form]).stdout for form in ("json", "yaml", "name")}
        assert json.loads(printed["json"]) == json.loads(msgspec.json.encode(told))
        assert yaml.safe_load(printed["yaml"]) == json.loads(printed["json"])
        assert not printed["yaml"].startswith(("[", "{"))
        assert printed["name"].splitlines() == [f"queue.{NAMES.domain}/{name}" for name in names]


def test_the_table_reads_as_a_tree() -> None:
    """Children are set in; what is not said is a dash."""
    text = rows_text(rows(plan(), statuses={}, standing=stand(*BUSY)), wide=False).splitlines()
    assert " ".join(text[0].split()) == "QUEUE GUARANTEE LIMIT USED BORROWED FAIR SHARE ASKED RUNNING WAITING STOP"
    assert text[4].split("  ")[:2] == ["", "a"]
    assert "hold" in text[2]
    assert waiting_pods("held", stand(*BUSY))[0].place == 0


def test_memory_is_shown_where_a_queue_speaks_of_it() -> None:
    """In a line of its own below the queue's, whatever it says of it; in the wide table always, within 132 columns."""
    memories = [{"guarantee": 8_000}, {"limit": 9_000}, {"guarantee": 0, "lendingLimit": 0}, {"borrowingLimit": 5}]
    tree = {f"m{at}": {"memory": memory, "namespaces": ["*"]} for at, memory in enumerate(memories)}
    of = plan({**tree, "silent": {"compute": {"guarantee": 100}}})
    found = rows(of, statuses={}, standing=stand(runs("r", "m0", 10), of=of))
    lines = [" ".join(line.split()) for line in rows_text(found, wide=False).splitlines()]
    assert [line.split()[0] for line in lines if "MiB" in line] == ["(memory)"] * len(memories)
    assert lines[2:4] == ["m0 - - 10 % 0 % 10 % 0 % 1 0 -", "(memory) 8000 MiB - 1000 MiB 0 MiB 1000 MiB 0 MiB"]
    assert lines[-1].startswith("silent 100 %")
    wide = rows_text(found, wide=True).splitlines()
    assert sum("(memory)" in line for line in wide) == len(found)
    assert len(wide) == 1 + 2 * len(found)
    assert max(map(len, wide)) <= 132


def test_of_all_nobody_has_more_than_all() -> None:
    """What was used lately counts beside what is held now."""
    told = answer("b", plan(), statuses={}, standing=stand(*BUSY))
    much = [msgspec.structs.replace(one, share=1.001) for one in told.users]
    text = answer_text(msgspec.structs.replace(told, users=much), wide=False, now=WALL)
    assert "100.1 %" not in text
    assert "team           100.0 %" in text


_NOTE = "! Something is wrong with this queue: `aliquot queue NAME` says what, and what to do."
OVERPROMISED: Mapping[str, Any] = {
    **TREE,
    "org": {"compute": {"guarantee": 150}},
    "b": {"parent": "org", "compute": {"guarantee": 100}, "namespaces": ["*"]},
}


def test_what_is_wrong_with_a_queue_is_told() -> None:
    """A mark in the table and a note below it; of one queue a line for each problem, as the leader writes it."""
    of = plan(OVERPROMISED)
    text = rows_text(rows(of, statuses={}, standing=stand(*BUSY, of=of)), wide=False)
    assert [line.split("  ")[0] for line in text.splitlines() if "!" in line[:10]] == ["org !", _NOTE]
    told = answer("org", of, statuses={}, standing=stand(*BUSY, of=of))
    (problem,) = told.row.problems
    assert "guarantee" in problem
    lines = answer_text(told, wide=False, now=WALL).splitlines()
    assert f"! {problem}" in lines
    assert _NOTE not in lines


def test_a_queue_that_keeps_more_than_there_is_is_told_so() -> None:
    """Which is wrong beside the hardware, and not by its spec."""
    of = plan({**TREE, "reserved": {"compute": {"guarantee": 500, "lendingLimit": 0}, "namespaces": ["*"]}})
    found = {row.name: row.problems for row in rows(of, statuses={}, standing=stand(of=of))}
    assert [name for name, problems in found.items() if problems] == ["reserved"]
    assert "lendingLimit" in found["reserved"][0]


def test_what_the_leader_has_found_wrong_is_told_without_rights() -> None:
    """As it wrote it, with what could move a cursor made harmless; where nothing is wrong nothing is said."""
    statuses = {"a": QueueStatus(problems=("first", "sec\x1bond"))}
    lines = answer_text(answer("a", plan(), statuses=statuses, standing=None), wide=True, now=WALL).splitlines()
    assert lines[lines.index("! first") + 1] == "! sec?ond"
    assert "!" not in answer_text(answer("b", plan(), statuses=statuses, standing=None), wide=True, now=WALL)
    assert "!" not in rows_text(rows(plan(), statuses={}, standing=stand(*BUSY)), wide=False)
