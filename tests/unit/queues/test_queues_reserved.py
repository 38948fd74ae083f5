"""Reservations: what nobody else gets, though it is idle, and what goes with it."""

from __future__ import annotations

import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from support.centre import gpus, make_node
from support.queue_stage import H100, Stage, queue

CARD = 80_000


def kept(stage: Stage, name: str) -> tuple[int, ...]:
    """What a queue keeps idle, of compute and memory."""
    stage.queues.register.tell_time(stage.now)
    node = stage.queues.books.ledger.tree.nodes[name]
    return node.kept[COMPUTE], node.kept[MEMORY]


# On four cards.
RESERVED: dict[str, tuple[QueueSpec, tuple[int, int]]] = {
    "three cards' compute keep their memory": (queue(guarantee=300, lend=0), (300, 3 * CARD)),
    "what is lent of it keeps nothing": (queue(guarantee=300, lend=200), (100, CARD)),
    "two cards' memory keep their compute": (
        QueueSpec(memory=Quota(guarantee=2 * CARD, lending_limit=0)),
        (200, 2 * CARD),
    ),
    "memory is left to all where that is said": (
        queue(guarantee=300, lend=0, memory=Quota(guarantee=0)),
        (300, 0),
    ),
    "what is said of memory holds": (
        queue(guarantee=300, lend=0, memory=Quota(guarantee=1_000, lending_limit=600)),
        (300, 400),
    ),
    "a limit of memory holds for what is kept of it": (
        queue(guarantee=300, lend=0, memory=Quota(limit=CARD)),
        (300, CARD),
    ),
    "what its own limit forbids keeps nothing of the other": (queue(guarantee=300, lend=0, limit=0), (0, 0)),
    "a guarantee that is lent keeps nothing": (queue(guarantee=300), (0, 0)),
}


@pytest.mark.parametrize("row", RESERVED)
def test_what_is_reserved_of_one_keeps_its_part_of_the_other(row: str) -> None:
    """Compute without memory is of no use, nor memory without compute; unless the queue says so itself."""
    spec, found = RESERVED[row]
    assert kept(Stage({"a": spec}, nodes=(4,)), "a") == found


# What three queues keep on four cards; `c` reserves memory alone.
SAID = QueueSpec(memory=Quota(guarantee=CARD, lending_limit=0), namespaces=("*",))
TWO = queue(guarantee=200, lend=0)
BESIDE: dict[str, tuple[dict[str, QueueSpec], tuple[tuple[int, int], ...]]] = {
    "all compute is reserved by others, and the memory that is left is shared by them": (
        {"a": TWO, "b": TWO, "c": SAID},
        ((200, 3 * CARD // 2), (200, 3 * CARD // 2), (0, CARD)),
    ),
    "a half of it is left": (
        {"a": TWO, "b": queue(guarantee=150, lend=0), "c": SAID},
        ((200, 2 * CARD * 6 // 7), (150, CARD * 3 // 2 * 6 // 7), (50, CARD)),
    ),
    "all of it is left": (
        {"a": TWO, "b": queue(guarantee=100, lend=0), "c": SAID},
        ((200, 2 * CARD), (100, CARD), (100, CARD)),
    ),
    "a parent's reservation counts once": (
        {"a": TWO, "b": queue("a", guarantee=200, lend=0), "c": SAID},
        ((200, 2 * CARD), (200, 2 * CARD), (100, CARD)),
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_only_goes_along_takes_nothing_of_what_is_reserved_in_so_many_words(name: str) -> None:
    """Both together are never more than there is, as long as what is said is not."""
    specs, found = BESIDE[name]
    stage = Stage(specs, nodes=(4,))
    assert tuple(kept(stage, queue_name) for queue_name in "abc") == found


def test_no_more_goes_along_where_children_are_guaranteed_more_of_it() -> None:
    """Of two cards that are guaranteed one is lent: with the other one goes its memory, and not that of both."""
    specs = {
        "a": queue(guarantee=200, lend=100),
        "ax": queue("a", guarantee=200, memory=Quota(guarantee=2 * CARD)),
        "b": queue(),
    }
    stage = Stage(specs, nodes=(4,))
    assert kept(stage, "a") == (100, CARD)
    for number in range(4):
        stage.submit(f"b{number}", 100, queue="b")
    assert stage.run() == ["b0", "b1", "b2"]


def test_a_reservation_of_memory_opens_none_of_compute() -> None:
    """All compute is reserved by two queues: a pod of a third, that reserves memory alone, gets none of it."""
    stage = Stage({"a": TWO, "b": TWO, "c": SAID}, nodes=(4,))
    stage.submit("c0", 100, CARD // 2, queue="c")
    assert stage.run() == []
    stage.submit("a0", 100, queue="a")
    assert stage.run(after=1.0) == ["a0"]


def test_a_reservation_of_compute_is_kept_from_pods_that_ask_for_memory_alone() -> None:
    """They get the memory of the cards that are not reserved, and no more; the owner finds its own."""
    stage = Stage({"a": queue(guarantee=300, lend=0), "b": queue()}, nodes=(1, 1, 1, 1))
    for number in range(4):
        stage.submit(f"b{number}", None, 40_000, queue="b")
    for _ in range(3):
        stage.run(after=1.0)
    assert stage.used("b") == (0, CARD)
    for number in range(3):
        stage.submit(f"a{number}", 100, queue="a")
    for _ in range(3):
        stage.run(after=1.0)
    assert stage.used("a") == (300, 3 * CARD)


def test_what_is_kept_of_the_other_follows_the_cards() -> None:
    """Cards of another size come: the same part of all memory is kept, for who waits already too."""
    stage = Stage({"a": queue(guarantee=100, lend=0), "b": queue()}, nodes=(2,))
    stage.submit("b0", None, 60_000, queue="b")
    stage.submit("b1", None, 60_000, queue="b")
    assert kept(stage, "a") == (100, CARD)
    assert stage.run() == ["b0"]
    stage.picture.node_seen(make_node("n1", gpus("n1", 2, memory=40_000)))
    assert kept(stage, "a") == (100, 60_000)
    assert stage.run() == ["b1"]


def test_who_keeps_more_idle_than_there_is_is_told() -> None:
    """Alone or together, by the dimension of which it is said; what is guaranteed and lent is no such thing."""
    model = ModelQuota(compute=Quota(guarantee=300, lending_limit=0))
    specs = {
        "alone": queue(guarantee=500, lend=0),
        "lent": queue(guarantee=900),
        "models": QueueSpec(models={"*H100*": model}),
    }
    bare = Stage(specs, nodes=())
    assert all(not status.problems for status in bare.queues.statuses(now=0.0, at="").values()), "no cards are known"
    stage = Stage(specs, nodes=(4,), models={0: H100})
    problems = {name: status.problems for name, status in stage.queues.statuses(now=0.0, at="").items()}
    (said,) = problems["alone"]
    assert said == (
        "queue alone, lendingLimit: it keeps 500 % of compute idle, and the cluster has 400 %: "
        "nobody else is let in; guarantee less, lend some of it, or add GPUs"
    )
    assert not problems["lent"]
    assert not problems["models"]
    stage.queues.queues_seen(specs | {"other": QueueSpec(models={"*H100*": model})})
    stage.queues.register.tell_time(1.0)
    problems = {name: status.problems for name, status in stage.queues.statuses(now=1.0, at="").items()}
    for name in ("models", "other"):
        (said,) = problems[name]
        assert "300 % of compute of *H100* idle (all queues together 600 %), and the cluster has 400 %" in said


def test_who_keeps_gpus_of_a_model_that_is_not_there_is_told() -> None:
    """A mistyped pattern keeps nothing for anybody, and nobody else would notice."""
    model = ModelQuota(compute=Quota(guarantee=300, lending_limit=0))
    stage = Stage({"typo": QueueSpec(models={"*H1000*": model})}, nodes=(4,), models={0: H100})
    stage.queues.register.tell_time(0.0)
    (said,) = stage.queues.statuses(now=0.0, at="")["typo"].problems
    assert said == (
        "queue typo, lendingLimit: it keeps 300 % of compute of *H1000* idle, and the cluster has no such GPU; "
        "mend the pattern, or add GPUs"
    )


def test_no_guarantee_opens_another_s_reservation() -> None:
    """Who is guaranteed a card and asks for it gets one that is not reserved, or waits, and is told whose it is."""
    both = Quota(guarantee=CARD)
    specs = {"a": queue(guarantee=100, memory=both), "b": queue(), "k": queue(guarantee=100, lend=0)}
    stage = Stage(specs, nodes=(4,))
    for number in range(4):
        stage.submit(f"b{number}", 100, None, queue="b")
    assert stage.run() == ["b0", "b1", "b2"]
    stage.submit("a0", 100, None, queue="a")
    assert stage.run(after=1.0) == []
    notice = stage.queues.notice(next(one for one in stage.queues.waiting() if one.uid == "a0"))
    assert (notice.reason, notice.message) == (
        "HeldBack",
        "it asks 100 % of compute; 100 of 400 % are free, and 100 % is reserved (k 100 %)",
    )
    stage.end("b1")
    assert stage.run(after=1.0) == ["a0"]
    stage.submit("k0", 100, None, queue="k")
    assert stage.run(after=1.0) == ["k0"]


def test_under_a_limit_a_reservation_is_its_owner_s_too() -> None:
    """Of what a parent may have the part is kept that one child reserves, whatever its sibling is guaranteed."""
    specs = {"org": queue(limit=300), "a": queue("org", guarantee=200), "k": queue("org", guarantee=100, lend=0)}
    stage = Stage(specs | {"b": queue("org")}, nodes=(8,))
    stage.submit("b0", 100, queue="b")
    assert stage.run() == ["b0"]
    for number in range(2):
        stage.submit(f"a{number}", 100, queue="a")
    assert stage.run(after=1.0) == ["a0"]
    notice = stage.queues.notice(next(one for one in stage.queues.waiting() if one.uid == "a1"))
    assert notice.message == ("it asks 100 % of compute; queue org may use 100 % more, and 100 % is reserved (k 100 %)")
    stage.submit("k0", 100, queue="k")
    assert stage.run(after=1.0) == ["k0"]


def test_a_parent_s_reservation_is_open_to_all_its_children() -> None:
    """And to nobody beside them, up to what one of them keeps for itself."""
    specs = {"org": queue(guarantee=300, lend=0), "x": queue("org", guarantee=100, lend=0), "y": queue("org")}
    stage = Stage(specs | {"a": queue(guarantee=100)}, nodes=(4,))
    for number in range(3):
        stage.submit(f"a{number}", 100, queue="a")
        stage.submit(f"y{number}", 100, queue="y")
    assert sorted(stage.run() + stage.run(after=1.0)) == ["a0", "y0", "y1"]
    stage.submit("x0", 100, queue="x")
    assert stage.run(after=1.0) == ["x0"]


def test_what_is_reserved_beyond_all_there_is_keeps_guarantees_out_too() -> None:
    """Those who keep it share what there is, and nobody else gets anything."""
    specs = {"a": queue(guarantee=100), "k": queue(guarantee=300, lend=0), "l": queue(guarantee=300, lend=0)}
    stage = Stage(specs, nodes=(4,))
    stage.submit("a0", 100, queue="a")
    assert stage.run() == []
    for number in range(3):
        stage.submit(f"k{number}", 100, queue="k")
        stage.submit(f"l{number}", 100, queue="l")
    assert len(stage.run(after=1.0)) == 4
    assert stage.used("a") == (0, 0)


def test_nobody_stands_back_for_a_head_that_a_reservation_keeps_out() -> None:
    """What stays and what is reserved leave it too little: small ones behind it pass for ever."""
    specs = {"b": queue(), "k": queue(guarantee=100, lend=0, memory=Quota(guarantee=0))}
    stage = Stage(specs, nodes=(4,), settings=QueueSettings(patience=10.0, hold=50.0))
    for number in range(5):
        stage.submit(f"ever{number}", 50, queue="b")
    assert len(stage.run()) == 5
    stage.submit("large", 100, queue="b", user="large")
    assert stage.run(after=60.0) == []
    for number in range(1, 25):
        stage.submit(f"small{number}", 10, queue="b", user="small")
        assert stage.run(after=5.0) == [f"small{number}"]
        stage.end(f"small{number}")
