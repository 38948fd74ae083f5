"""What was lent comes back: to who lends a part of it, past who reserves beside it, and from who is partly inside."""

from __future__ import annotations

import pytest

from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.lent_scenes import Asked, Scene, expect
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

CARD = 80_000
WHOLE, HALF, THIN = (100, None), (50, CARD // 2), (10, CARD // 2)


def on_a_node(
    *,
    queues: dict[str, QueueSpec],
    runs: dict[str, Asked],
    comes: dict[str, Asked],
    gone: tuple[str, ...],
    let_in: tuple[str, ...],
    cards: int = 2,
) -> Scene:
    """On so many cards of one node."""
    return Scene(queues=queues, runs=runs, comes=comes, gone=gone, let_in=let_in, nodes=(cards,))


ROWS = {
    "of a guarantee that lends a half": on_a_node(
        queues={"a": queue(guarantee=200, lend=100), "o": queue()},
        runs={"o1": WHOLE},
        comes={"a1": WHOLE, "a2": WHOLE},
        gone=("o1",),
        let_in=("a1", "a2"),
    ),
    "of a card that lends a half": on_a_node(
        queues={"a": queue(guarantee=100, lend=50), "o": queue()},
        runs={"o1": HALF, "o2": HALF, "o3": HALF},
        comes={"a1": WHOLE},
        gone=("o3",),
        let_in=("a1",),
    ),
    "in small pods": on_a_node(
        queues={"a": queue(guarantee=200, lend=100), "o": queue()},
        runs={"o1": WHOLE},
        comes={f"a{number}": HALF for number in range(4)},
        gone=("o1",),
        let_in=("a0", "a1", "a2", "a3"),
    ),
    "of memory that lends a half": on_a_node(
        queues={"a": queue(memory=Quota(guarantee=2 * CARD, lending_limit=CARD)), "o": queue()},
        runs={"o1": WHOLE},
        comes={"a1": (None, CARD), "a2": (None, CARD)},
        gone=("o1",),
        let_in=("a1", "a2"),
    ),
    "of a guarantee above one that lends a half": on_a_node(
        queues={"org": queue(), "a": queue("org", guarantee=200, lend=100), "o": queue()},
        runs={"o1": WHOLE},
        comes={"a1": WHOLE, "a2": WHOLE},
        gone=("o1",),
        let_in=("a1", "a2"),
    ),
    "with more memory than goes along with a reservation": on_a_node(
        queues={"a": queue(guarantee=100, lend=0), "o": queue()},
        runs={"o1": HALF, "o2": HALF},
        comes={f"a{number}": THIN for number in range(3)},
        gone=("o2",),
        let_in=("a0", "a1", "a2"),
    ),
    "nobody goes who is inside a guarantee in compute, and beyond what a reservation keeps of memory": on_a_node(
        queues={"a": queue(guarantee=200, lend=150), "b": queue(guarantee=100)},
        runs={"a1": THIN, "a2": THIN, "a3": THIN, "a4": THIN},
        comes={"b1": WHOLE},
        gone=(),
        let_in=(),
    ),
    "from who borrows beside a reservation": on_a_node(
        queues={
            "b": queue(),
            "bx": queue("b", guarantee=100, lend=0),
            "by": queue("b"),
            "d": queue(guarantee=100),
        },
        runs={"by1": WHOLE},
        comes={"d1": WHOLE},
        gone=("by1",),
        let_in=("d1",),
    ),
    "from who borrows beside a reservation, judged from further up": on_a_node(
        queues={
            "top": queue(),
            "b": queue("top"),
            "bx": queue("b", guarantee=100, lend=0),
            "by": queue("b"),
            "d": queue(guarantee=100),
        },
        runs={"by1": WHOLE},
        comes={"d1": WHOLE},
        gone=("by1",),
        let_in=("d1",),
    ),
    "from who borrows beside a reservation of memory": on_a_node(
        queues={
            "b": queue(),
            "bx": queue("b", memory=Quota(guarantee=CARD, lending_limit=0)),
            "by": queue("b"),
            "d": queue(memory=Quota(guarantee=CARD)),
        },
        runs={"by1": (None, CARD)},
        comes={"d1": (None, CARD)},
        gone=("by1",),
        let_in=("d1",),
    ),
    "nobody goes who is guaranteed it beside a reservation": on_a_node(
        queues={
            "b": queue(guarantee=200),
            "bx": queue("b", guarantee=100, lend=0),
            "by": queue("b"),
            "d": queue(guarantee=100),
        },
        runs={"by1": WHOLE},
        comes={"d1": WHOLE},
        gone=(),
        let_in=(),
    ),
    "nobody goes for who borrows beside a reservation": on_a_node(
        queues={"b": queue(), "bx": queue("b", guarantee=100, lend=0), "by": queue("b"), "o": queue()},
        runs={"o1": WHOLE},
        comes={"by1": WHOLE},
        gone=(),
        let_in=(),
    ),
}

TWO = {"a": queue(guarantee=100), "b": queue(guarantee=100)}
ROWS |= {
    "from one pod that is partly inside": on_a_node(
        queues=TWO, runs={"a1": (200, None)}, comes={"b1": WHOLE}, gone=("a1",), let_in=("b1",)
    ),
    "from one pod that is partly in what its queue keeps": on_a_node(
        queues={"a": queue(guarantee=100, lend=0), "b": queue(guarantee=100)},
        runs={"a1": (200, None)},
        comes={"b1": WHOLE},
        gone=("a1",),
        let_in=("b1",),
    ),
    "who is wholly beyond goes before who is partly inside, whatever is lost": on_a_node(
        queues={"a": queue(guarantee=100), "b": queue(guarantee=100), "o": queue()},
        runs={"o1": (100, None), "a1": (200, None)},
        comes={"b1": WHOLE},
        gone=("o1",),
        let_in=("b1",),
        cards=3,
    ),
    "nobody goes who would own the room again": on_a_node(
        queues={"a": queue(guarantee=100), "b": queue(guarantee=200)},
        runs={"a1": WHOLE, "b1": WHOLE},
        comes={"b2": WHOLE},
        gone=(),
        let_in=(),
    ),
    "the smaller of two, and not both": on_a_node(
        queues=TWO,
        runs={"a1": (80, CARD), "a2": (60, CARD)},
        comes={"b1": WHOLE},
        gone=("a2",),
        let_in=("b1",),
    ),
    "from who is beyond what goes with its guarantee, in what lacks": on_a_node(
        queues={"a": queue(guarantee=100), "b": queue(guarantee=100, memory=Quota(guarantee=CARD))},
        runs={"a1": (10, CARD), "a2": (10, CARD)},
        comes={"b1": WHOLE},
        gone=("a2",),
        let_in=("b1",),
    ),
    "from who is beyond it in pieces": on_a_node(
        queues={"a": queue(guarantee=100), "b": queue(guarantee=100)},
        runs={f"a{number}": (10, 60_000) for number in range(4)},
        comes={"b1": WHOLE},
        gone=("a3",),
        let_in=("b1",),
        cards=4,
    ),
    "nobody partly inside goes for one that is beyond what goes with its guarantee": on_a_node(
        queues={"a": queue(guarantee=100), "b": queue(memory=Quota(guarantee=CARD))},
        runs={"a1": (10, CARD), "a2": (10, CARD), "b1": (90, 1_000)},
        comes={"b2": (90, 79_000)},
        gone=(),
        let_in=(),
        cards=3,
    ),
    "nobody goes for the memory of which it takes more than goes with its compute, while compute lacks": on_a_node(
        queues={"a": queue(guarantee=100), "b": queue(guarantee=100), "c": queue(guarantee=100)},
        runs={"a1": (50, 50_000), "c1": WHOLE, "a2": (50, 50_000)},
        comes={"b1": (90, 20_000)},
        gone=(),
        let_in=(),
        cards=3,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_was_lent_comes_back(name: str) -> None:
    """Those go who have borrowed, as few as need be, and once they are gone it is over."""
    expect(ROWS[name])


def test_a_group_that_is_partly_inside_goes_as_a_whole_and_only_once() -> None:
    """Half of it is guaranteed, and it starts together or not at all: it waits then, and takes nothing back."""
    stage, pair = ReclaimStage(TWO, nodes=(2,)), {"group-size": "2"}
    for uid in ("a1", "a2"):
        stage.submit(uid, *WHOLE, queue="a", group="pair", notes=pair)
    assert sorted(stage.run()) == ["a1", "a2"]
    stage.submit("b1", *WHOLE, queue="b")
    assert stage.reclaimed() == ["a1", "a2"]
    assert stage.run(after=1.0) == ["b1"]
    for uid in ("a3", "a4"):
        stage.submit(uid, *WHOLE, queue="a", group="other", notes=pair)
    assert stage.run(after=1.0) == []
    assert stage.victims(after=40.0) == []


def test_of_a_group_with_some_to_spare_those_stay_who_start_by_their_guarantee() -> None:
    """One alone starts, and is guaranteed: only the other one goes, for a pair that is guaranteed more than that."""
    stage = ReclaimStage({"a": queue(guarantee=100), "b": queue(guarantee=200)}, nodes=(2,))
    for uid in ("a1", "a2"):
        stage.submit(uid, *WHOLE, queue="a", group="loose", notes={"group-size": "2", "group-min": "1"})
    assert sorted(stage.run()) == ["a1", "a2"]
    for uid in ("b1", "b2"):
        stage.submit(uid, *WHOLE, queue="b", group="pair", notes={"group-size": "2"})
    assert stage.run(after=1.0) == []
    assert stage.victims(after=1.0) == []
