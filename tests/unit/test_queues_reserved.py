"""Reservations: what nobody else gets, though it is idle, and what goes with it."""

from __future__ import annotations

import pytest

from aliquot_scheduler.queues.spec import ModelQuota, QueueSpec, Quota
from aliquot_scheduler.queues.tree import COMPUTE, MEMORY
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
    stage = Stage(specs, nodes=(4,), models={0: H100})
    assert all(not status.problems for status in stage.queues.statuses(now=0.0, at="").values()), "no cards are known"
    stage.queues.register.tell_time(0.0)
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
