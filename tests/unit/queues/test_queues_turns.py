"""Who is let in by queues: scenarios with a desk and cards behind them."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.centre import NAMES, gpus, make_node
from support.queue_stage import Stage, queue

replace = msgspec.structs.replace
TWO = {"a": queue(), "b": queue()}


def test_without_queues_who_came_first_is_first_of_one_s_own() -> None:
    """Where no queue was made, one's pods are let in by age while there is room, and the small pass the large."""
    stage = Stage(nodes=(1,))
    for uid, compute in (("p", 60), ("q", 60), ("r", 40), ("s", 1)):
        stage.submit(uid, compute)
    assert stage.run() == ["p", "r"]
    assert len(stage.queues) == 2
    stage.end("p")
    assert stage.run() == ["q"]


@pytest.mark.parametrize("specs", [None, {}, {"unrelated": queue()}], ids=["none yet", "none", "another's alone"])
def test_without_queues_bulk_and_urgency_buy_no_place(specs: dict[str, QueueSpec] | None) -> None:
    """Who submits eight urgent pods leaves the next card to whoever asks; a queue of nobody's changes nothing."""
    stage = Stage(specs, nodes=(2,))
    if specs is not None:
        stage.queues.queues_seen(specs)
    for number in range(8):
        stage.submit(f"ann{number}", 100, user="ann", priority=9)
    assert stage.run() == ["ann0", "ann1"]
    stage.submit("bob", 100, user="bob")
    stage.end("ann0")
    assert stage.run() == ["bob"]


def test_without_queues_priority_orders_what_is_one_s_own() -> None:
    """A user's urgent pod goes before the same user's older ones."""
    stage = Stage(nodes=(1,))
    for uid, priority in (("old", 0), ("urgent", 9)):
        stage.submit(uid, 100, priority=priority)
    assert stage.run() == ["urgent"]


def test_without_queues_a_large_pod_is_not_passed_for_ever() -> None:
    """Nor after queues were there, and are gone."""
    stage = Stage(TWO, nodes=(1,), settings=QueueSettings(patience=10.0, hold=100.0))
    stage.queues.queues_seen({})
    stage.submit("runs", 50)
    stage.run()
    stage.submit("large", 100)
    assert stage.run() == []
    stage.submit("small", 40)
    assert stage.run(after=9.0) == ["small"]
    stage.submit("late", 10)
    assert stage.run(after=2.0) == []
    stage.end("runs", "small")
    assert stage.run() == ["large"]


def test_a_pod_is_let_in_once() -> None:
    """Between its turn and its binding nobody is let in twice, and binding changes nothing of what is charged."""
    stage = Stage(TWO)
    stage.submit("p", 50, queue="a")
    assert stage.round() == ["p"]
    assert stage.round() == []
    assert stage.used("a") == (50, 1000)
    stage.bind("p")
    assert stage.used("a") == (50, 1000)
    stage.end("p")
    assert stage.used("a") == (0, 0)


def test_bulk_buys_no_place() -> None:
    """A queue with a hundred pods and one with two are let in in turns, so the second gets all it asks."""
    stage = Stage(TWO, nodes=(4,))
    for number in range(100):
        stage.submit(f"a{number}", 100, queue="a")
    stage.submit("b0", 100, queue="b")
    stage.submit("b1", 100, queue="b")
    assert sorted(stage.run()) == ["a0", "a1", "b0", "b1"]


@pytest.mark.parametrize(("each", "served"), [(50, 1), (10, 5), (30, 1), (90, 0)])
def test_who_asks_for_more_than_half_is_still_served(each: int, served: int) -> None:
    """Two halves of one GPU are held by one queue; as they end, the other gets what is due to it, whatever it asks."""
    stage = Stage(TWO, nodes=(1,))
    for number in range(2):
        stage.submit(f"a{number}", 50, queue="a")
    assert len(stage.run()) == 2
    for number in range(9):
        stage.submit(f"b{number}", each, queue="b")
        stage.submit(f"a{number + 2}", 50, queue="a")
    assert stage.run() == []
    stage.end("a0")
    assert [uid[0] for uid in stage.run()].count("b") == served


def test_guarantees_come_first() -> None:
    """Within its guarantee a queue comes before one that has less; beyond it, the smaller share comes first."""
    stage = Stage({"a": queue(guarantee=200), "b": queue()}, nodes=(4,))
    for number in range(4):
        stage.submit(f"b{number}", 100, queue="b")
        stage.submit(f"a{number}", 100, queue="a")
    assert stage.run() == ["a0", "a1", "b0", "a2"]


def test_what_is_guaranteed_and_asked_for_is_not_taken() -> None:
    """A guarantee that is asked for is kept free though the pod does not fit yet; one that is not is lent."""
    stage = Stage({"a": queue(guarantee=200), "b": queue()}, nodes=(1, 1))
    for number in range(2):
        stage.submit(f"b{number}", 60, queue="b")
    assert stage.run() == ["b0", "b1"]
    # Asked for, but no card has room for a whole slice: 40 + 40 stay free for it all the same.
    stage.submit("a0", 100, queue="a")
    stage.submit("b2", 40, queue="b")
    assert stage.run() == []
    stage.end("b0")
    assert stage.run() == ["a0", "b2"]


def test_a_hard_reservation_is_not_lent() -> None:
    """With lendingLimit 0 nobody else gets the guarantee, even idle."""
    stage = Stage({"a": queue(guarantee=100, lend=0), "b": queue()}, nodes=(2,))
    for number in range(2):
        stage.submit(f"b{number}", 100, queue="b")
    assert stage.run() == ["b0"]
    assert stage.run() == []
    stage.submit("a0", 100, queue="a")
    assert stage.run() == ["a0"]


def test_a_limit_holds_at_every_queue_above() -> None:
    """Brothers share their parent's limit, however much room there is."""
    specs = {"o": queue(limit=250), "a": queue("o", limit=200), "b": queue("o")}
    stage = Stage(specs, nodes=(8,))
    for number in range(4):
        stage.submit(f"a{number}", 100, queue="a")
        stage.submit(f"b{number}", 100, queue="b")
    assert len(stage.run()) == 2
    stage.submit("c", 50, queue="a")
    assert stage.run() == ["c"]
    assert stage.used("o")[0] == 250


def test_priority_orders_only_what_is_ones_own() -> None:
    """Who marks everything urgent gets no more than half; among one's own pods the urgent go first."""
    stage = Stage(TWO, nodes=(2,))
    for number in range(4):
        stage.submit(f"b{number}", 100, queue="b")
        stage.submit(f"a{number}", 100, queue="a", priority=number * 1000)
    assert sorted(stage.run()) == ["a3", "b0"]


def test_users_of_a_queue_share_it() -> None:
    """One user's bulk and urgency leave the other half to a second user of the same queue."""
    stage = Stage({"a": queue()}, nodes=(4,))
    for number in range(9):
        stage.submit(f"u{number}", 100, queue="a", user="u", priority=9)
    for number in range(9):
        stage.submit(f"v{number}", 100, queue="a", user="v")
    assert sorted(stage.run()) == ["u0", "u1", "v0", "v1"]


def test_what_a_user_holds_no_more_does_not_count() -> None:
    """Whose pods have ended comes before the one whose pods run on, though both were let in the same."""
    stage = Stage({"a": queue()}, nodes=(4,))
    for number in range(2):
        stage.submit(f"u{number}", 100, queue="a", user="u")
        stage.submit(f"v{number}", 100, queue="a", user="v")
    assert len(stage.run()) == 4
    for number in range(2, 4):
        stage.submit(f"v{number}", 100, queue="a", user="v")
        stage.submit(f"u{number}", 100, queue="a", user="u")
    stage.end("u0", "u1")
    assert stage.run() == ["u2", "u3"]


def test_a_user_who_fits_nowhere_keeps_no_other_of_the_queue_waiting() -> None:
    """Though their pods came first, and are the head of the line from then on."""
    stage = Stage({"a": queue()}, nodes=(1,), settings=QueueSettings(patience=10.0, hold=100.0))
    stage.submit("runs", 60, queue="a", user="w")
    stage.run()
    stage.submit("large", 100, queue="a", user="u")
    assert stage.run() == []
    stage.submit("small", 30, queue="a", user="v")
    assert stage.run(after=9.0) == ["small"]
    stage.submit("late", 10, queue="a", user="v")
    assert stage.run(after=2.0) == []


def test_the_higher_sibling_comes_first_beyond_guarantees() -> None:
    """A queue of higher priority is given of what is left first, but not of what others are guaranteed."""
    stage = Stage({"a": queue(priority=1), "b": queue(guarantee=100)}, nodes=(3,))
    for number in range(3):
        stage.submit(f"b{number}", 100, queue="b")
        stage.submit(f"a{number}", 100, queue="a")
    assert sorted(stage.run()) == ["a0", "a1", "b0"]


def test_firm_pods_need_a_guarantee() -> None:
    """A pod that is never evicted is let in only within its queue's guarantee; others of its queue may borrow."""
    stage = Stage({"a": queue(guarantee=100)}, nodes=(4,))
    firm = {"preemptible": "false"}
    for number in range(3):
        stage.submit(f"f{number}", 60, queue="a", notes=firm)
    stage.submit("p", 60, queue="a")
    assert sorted(stage.run()) == ["f0", "p"]
    stage.end("f0")
    assert stage.run() == ["f1"]


def test_shares_count_over_time() -> None:
    """Two queues whose pods need the whole cluster have it in turns."""
    stage = Stage(TWO, nodes=(2,))
    notes = {"gpus": "2"}
    for number in range(40):
        stage.submit(f"a{number}", 200, queue="a", notes=notes)
    for number in range(40):
        stage.submit(f"b{number}", 200, queue="b", notes=notes)
    order = ""
    for _ in range(40):
        (uid,) = stage.run(after=60.0)
        order += uid[0]
        stage.now += 600
        stage.end(uid)
    assert abs(order.count("a") - order.count("b")) <= 2


def test_a_gang_is_let_in_whole_or_not_at_all() -> None:
    """With too few pods or too little room none of a gang is let in, and no room is kept for it."""
    stage = Stage(TWO, nodes=(3,))
    size = {"group-size": "3"}
    stage.submit("g0", 100, queue="a", group="g", notes=size)
    stage.submit("g1", 100, queue="a", group="g", notes=size)
    assert stage.run() == []
    stage.submit("p", 100, queue="b")
    assert stage.run() == ["p"]
    stage.submit("g2", 100, queue="a", group="g", notes=size)
    assert stage.run() == []
    assert len(stage.desk.promises) == 0
    assert stage.used("a") == (0, 0)
    stage.end("p")
    assert stage.run() == ["g0", "g1", "g2"]


def test_an_elastic_gang_starts_with_its_minimum() -> None:
    """As many as its minimum are let in together, the others one by one as there is room."""
    stage = Stage(TWO, nodes=(3,))
    notes = {"group-size": "5", "group-min": "2"}
    for number in range(5):
        stage.submit(f"g{number}", 100, queue="a", group="g", notes=notes)
    assert stage.run() == ["g0", "g1", "g2"]
    stage.end("g0")
    assert stage.run() == ["g3"]


def test_two_gangs_do_not_lock_each_other_out() -> None:
    """Of two gangs that need more than half each, one runs and the other waits."""
    stage = Stage(TWO, nodes=(4,))
    for number in range(3):
        for name in "ab":
            stage.submit(f"{name}{number}", 100, queue=name, group=name, notes={"group-size": "3"})
    first = stage.run()
    assert [uid[0] for uid in first] == ["a"] * 3
    assert stage.run() == []
    stage.end(*first)
    assert [uid[0] for uid in stage.run()] == ["b"] * 3


def test_memory_left_out_is_charged_with_the_largest_card_until_it_is_bound() -> None:
    """At admission a half is charged with half of the largest card there is, at bind with half of its own."""
    stage = Stage(TWO, nodes=(1,), memory=40_000)
    stage.submit("p", 50, None, queue="a")
    assert stage.round() == ["p"]
    assert stage.used("a") == (50, 20_000)
    stage.bind("p")
    assert stage.used("a") == (50, 20_000)


def test_a_whole_card_is_charged_with_all_its_memory() -> None:
    """Who asks 100 and 1,000 MiB closes the card to others, and pays for all of it."""
    stage = Stage({"a": queue(memory=Quota(limit=100_000))}, nodes=(2,))
    stage.submit("p", 100, 1000, queue="a")
    stage.submit("q", 100, 1000, queue="a")
    stage.submit("r", 50, 1000, queue="a")
    assert stage.run() == ["p", "r"]
    assert stage.used("a") == (150, 81_000)


@pytest.mark.parametrize(
    ("labels", "notes"), [({}, {"preemptible": "false"}), ({"group": "g"}, {"group-size": "2"})], ids=["firm", "group"]
)
def test_who_comes_by_another_right_after_its_turn_has_none(labels: dict[str, str], notes: dict[str, str]) -> None:
    """It waits again and is judged by what it says by now: who may not be evicted needs a guarantee."""
    stage = Stage(TWO, nodes=(1,))
    stage.submit("p", 60, queue="a")
    assert stage.round() == ["p"]
    stage.lift("p")
    was = stage.pods["p"]
    meta = replace(
        was.metadata,
        labels=was.metadata.labels | {NAMES.of(key): value for key, value in labels.items()},
        annotations=was.metadata.annotations | {NAMES.of(key): value for key, value in notes.items()},
    )
    stage.see(replace(was, metadata=meta))
    assert stage.used("a") == (0, 0)
    assert stage.queues.why_not(stage.pods["p"])


def test_a_turn_that_led_to_nothing_is_taken_back() -> None:
    """No binding in time: quota and room are free for others, and the pod gets a new turn after a rest."""
    stage = Stage({"a": queue(limit=100)}, nodes=(1,))
    stage.submit("p", 100, queue="a")
    stage.submit("q", 100, queue="a")
    assert stage.round() == ["p"]
    assert stage.round(after=29.0) == []
    assert stage.run(after=2.0) == ["q"]
    assert stage.queues.why_not(stage.pods["p"]).startswith("its turn led to no binding (1 time)")
    chance = stage.queues._register.hall.rests_until("p")
    assert chance is not None
    stage.end("q")
    assert stage.round() == []
    assert stage.round(after=chance - stage.now) == ["p"]
    assert stage.turns["p"].number == 2


def test_a_pod_that_could_not_be_told_waits_on() -> None:
    """Its charge is taken back at once, and its next turn is its first."""
    stage = Stage(TWO, nodes=(1,))
    pod = stage.submit("p", 100, queue="a")
    assert stage.round() == ["p"]
    stage.desk.take_back("p")
    stage.queues.not_told(pod, now=stage.now)
    assert stage.used("a") == (0, 0)
    assert stage.round() == []
    assert stage.round(after=1.0) == ["p"]
    assert stage.turns["p"].number == 1


def test_a_pod_that_is_to_go_and_could_not_be_told_waits_no_more() -> None:
    """It needs no other turn, and asks nothing that others could have."""
    stage = Stage(TWO, nodes=(1,))
    pod = stage.submit("p", 100, queue="a")
    assert stage.round() == ["p"]
    pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=pod.metadata.creation_timestamp))
    stage.see(pod)
    stage.desk.take_back("p")
    stage.queues.not_told(pod, now=stage.now)
    assert stage.queues.waiting() == []
    assert stage.used("a") == (0, 0)
    assert stage.round(after=1_000.0) == []


def test_a_pod_that_rests_while_all_is_put_down_anew_rests_on_and_is_told_why_it_waits() -> None:
    """Shapes are counted anew then, so what was noted of the pod before would point at another one, or at none."""
    stage = Stage(TWO, nodes=(1,))
    for asked in (10, 20, 30):
        stage.submit(f"gone{asked}", asked, queue="a")
        stage.queues.pod_gone(f"gone{asked}")
    pod = stage.submit("p", 100, queue="a")
    assert stage.round() == ["p"]
    stage.desk.take_back("p")
    stage.queues.not_told(pod, now=stage.now)
    stage.queues.queues_seen(TWO | {"c": queue()})
    (waiter,) = stage.queues.waiting()
    assert stage.queues.notice(waiter).reason
    assert stage.round() == []
    assert stage.round(after=1.0) == ["p"]


def test_the_head_of_a_line_is_passed_only_for_so_long() -> None:
    """Small pods pass a large one that does not fit until its patience ends; then room gathers for it."""
    stage = Stage(TWO, nodes=(2,), settings=QueueSettings(patience=100.0))
    stage.submit("s0", 50, queue="a")
    stage.submit("s1", 100, queue="a")
    assert stage.run() == ["s0", "s1"]
    stage.submit("large", 200, queue="a")
    stage.submit("t0", 50, queue="a")
    stage.submit("t1", 50, queue="a")
    assert stage.run() == ["t0"]
    stage.end("s0")
    assert stage.run(after=99.0) == ["t1"]
    stage.submit("t2", 100, queue="a")
    stage.end("s1")
    assert stage.run(after=1.0) == []
    stage.end("t0", "t1")
    assert stage.run() == ["large"]
    stage.end("large")
    assert stage.run() == ["t2"]


@pytest.mark.parametrize(("guaranteed", "let_in"), [(None, []), (100, ["b0", "b1"])])
def test_an_impatient_head_yields_to_guarantees_alone(guaranteed: int | None, let_in: list[str]) -> None:
    """What is kept for it others get only if it is guaranteed to them, however small their share."""
    specs = {"a": queue(), "b": queue(guarantee=guaranteed), "c": queue()}
    stage = Stage(specs, nodes=(4,), settings=QueueSettings(patience=10.0))
    stage.submit("s", 100, queue="c")
    stage.submit("t", 100, queue="c")
    stage.run()
    stage.submit("large", 400, queue="a")
    stage.submit("small", 100, queue="c")
    assert stage.run() == ["small"]
    assert stage.run(after=20.0) == []
    for number in range(4):
        stage.submit(f"b{number}", 50, queue="b", user=f"v{number}")
    assert stage.run() == let_in


@pytest.mark.parametrize(
    ("name", "compute", "why"),
    [
        ("gone", 10, "there is no queue gone"),
        ("o", 10, "has queues below it"),
        ("closed", 10, "does not take pods of namespace team"),
        ("a", 60, "it asks 60 % of compute, more than the 50 % that queue o may have"),
        ("c", 900, "no node could take it"),
        ("meek", 60, "of the 200 % that queue share may have those below it keep too much though they don't use it"),
    ],
)
def test_who_can_never_be_let_in_is_told_so(name: str, compute: int, why: str) -> None:
    """Such a pod stands in no line, so nothing is held back for it."""
    specs = {"o": queue(limit=50), "a": queue("o"), "c": queue(guarantee=900), "closed": queue(namespaces=())}
    specs |= {"share": queue(limit=200), "keeps": queue("share", guarantee=150, lend=0), "meek": queue("share")}
    stage = Stage(specs, nodes=(4, 4, 4))
    stage.submit("p", compute, None, queue=name)
    assert stage.run() == []
    assert why in stage.queues.why_not(stage.pods["p"])
    stage.submit("q", 800 - 400, None, queue="c")
    stage.submit("r", 400, None, queue="default")
    assert sorted(stage.run()) == ["q", "r"]


def test_where_there_are_no_queues_no_pod_is_charged_to_one() -> None:
    """Queues that are made later have nothing that was let in before them."""
    stage = Stage({}, nodes=(1,))
    stage.submit("p", 50)
    stage.run()
    assert NAMES.charged not in stage.pods["p"].metadata.annotations


def test_a_namespace_has_a_queue_of_its_own() -> None:
    """Pods that name no queue wait in their namespace's; pods that wait follow when that changes."""
    stage = Stage({"a": queue(limit=100, namespaces=()), "b": queue(limit=0, namespaces=())}, nodes=(2,))
    stage.queues.namespace_seen("team", queue="b")
    stage.submit("p", 100)
    assert stage.run() == []
    stage.queues.namespace_seen("team", queue="a")
    assert stage.run() == ["p"]
    assert stage.used("a")[0] == 100


def test_a_held_queue_lets_nobody_in() -> None:
    """Nor is anything held back for it; once it is open again, its pods go on."""
    specs = {"a": queue(guarantee=100, stop="hold"), "b": queue()}
    stage = Stage(specs, nodes=(1,))
    stage.submit("p", 100, queue="a")
    stage.submit("q", 100, queue="b")
    assert stage.run() == ["q"]
    stage.end("q")
    assert stage.run() == []
    stage.queues.queues_seen({**specs, "a": queue(guarantee=100)})
    assert stage.run() == ["p"]


def test_queues_change_under_load() -> None:
    """Shrunk, moved and deleted queues: who runs goes on and is counted, and limits hold for who comes next."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=(4,))
    for number in range(3):
        stage.submit(f"a{number}", 100, queue="a")
    assert len(stage.run()) == 3
    stage.submit("a3", 100, queue="a")
    stage.queues.queues_seen({"o": queue(limit=200), "a": queue("o"), "b": queue("o")})
    assert stage.used("o")[0] == 300
    assert stage.run() == []
    stage.end("a0", "a1")
    assert stage.run() == ["a3"]
    stage.queues.queues_seen({"b": queue()})
    assert stage.used("")[0] == 200
    stage.submit("b0", 100, queue="b")
    assert stage.run() == ["b0"]
    stage.end("a2", "a3", "b0")
    assert stage.used("") == (0, 0)


def test_of_a_deleted_queue_no_waits_are_told_any_more() -> None:
    """Or series of queues that come and go would grow without end; the sum of all of them never falls."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=(4,))
    stage.submit("a0", 100, queue="a")
    stage.submit("b0", 100, queue="b")
    assert stage.run(after=3.0) == ["a0", "b0"]
    assert stage.queues.waits.by_queue == {"a": (1, 3.0), "b": (1, 3.0)}
    stage.queues.queues_seen({"b": queue()})
    assert (stage.queues.waits.by_queue, stage.queues.waits.of_all) == ({"b": (1, 3.0)}, (2, 6.0))


def test_room_is_seen_on_cards_of_each_model() -> None:
    """Of two models the one has room and the other has none: who wants the one is let in, whichever it is."""
    for wanted, other in (("*A100*", "*L4*"), ("*L4*", "*A100*")):
        stage = Stage({"a": queue()}, nodes=(1,))
        stage.picture.node_seen(make_node("small", gpus("small", 1, model="NVIDIA L4", memory=24_000)))
        stage.submit("fills", 100, queue="a", notes={"gpu-model": other})
        assert stage.run() == ["fills"]
        stage.submit("late", 50, queue="a", notes={"gpu-model": other})
        stage.submit("p", 60, queue="a", notes={"gpu-model": wanted})
        assert stage.run() == ["p"]
        stage.submit("q", 50, queue="a", notes={"gpu-model": wanted})
        assert stage.run() == []


@pytest.mark.parametrize("others", ["come last", "come first"])
def test_a_round_in_which_no_card_has_room_counts_for_patience(others: str) -> None:
    """Heads are noted though nobody is let in, and nodes are kept for those who have lost patience."""
    stage = Stage(
        {"a": queue(weight=4, memory=Quota(weight=4)), "b": queue(), "c": queue()},
        nodes=(2, 1),
        settings=QueueSettings(patience=100.0, hold=1_000.0),
    )
    for uid, name, gpu in (
        ("x0", "c", "n0-0"),
        ("x1", "c", "n0-1"),
        ("y", "a" if others == "come first" else "c", "n1-0"),
    ):
        stage.submit(uid, 100, queue=name, notes={"gpu-uuid": f"GPU-{gpu}"})
    assert len(stage.run()) == 3
    for user in "uv":
        stage.submit(f"pair-{user}", 200, queue="a", user=user)
    assert stage.round() == []
    stage.submit("small", 100, queue="b")
    if others == "come first":
        # All of it is full still, and what is kept now counts once a card is free.
        assert stage.round(after=101.0) == []
    stage.end("x0")
    assert stage.round(after=1.0 if others == "come first" else 101.0) == []
    stage.end("x1")
    assert stage.round(after=1.0) == ["pair-u"]
