"""GPUs and nodes that are to stand empty though nobody waits for them: who is moved for that, and that it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_core.claims import Claim
from aliquot_core.quantities import MiB, Percent
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import Preemption
from aliquot_scheduler.reclaim.residents import Budget
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

What = Literal["Nothing", "GPUs", "Nodes"]
# Longer than it takes until an hour's moves are allowed, and until one that found nothing looks again.
AN_HOUR = 3_600.0


class Lies(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on a card, as `node card`."""

    compute: int
    card: str
    by: str = "job"
    notes: dict[str, str] = {}
    group: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Who lies where on nodes of so many cards, what is to stand empty, and who is moved for that."""

    there: dict[str, Lies]
    nodes: tuple[int, ...] = (2,)
    what: What = "GPUs"
    per_hour: int = 10
    kept: Sequence[str] = ()
    moved: Sequence[str] = ()


def on(card: str, compute: int = 50, **more: Any) -> Lies:
    """A pod there."""
    return Lies(compute=compute, card=card, **more)


HALVES = {"a": on("0 0", 40), "b": on("0 1", 50)}
SPREAD = {"a": on("0 0", 100), "b": on("1 0", 60)}
ROWS = {
    "two halves on two cards": Row(there=HALVES, moved=["a"]),
    "nobody has asked for it": Row(there=HALVES, what="Nothing"),
    "nobody may be moved": Row(there=HALVES, per_hour=0),
    "both are too large for one card": Row(there={"a": on("0 0", 60), "b": on("0 1", 50)}),
    "one card that is empty already": Row(there={"a": on("0 0"), "b": on("0 0")}),
    "alone, it could only lie on what is empty": Row(there={"a": on("0 0")}),
    "the two small ones of one card": Row(
        there={"a": on("0 0", 10), "b": on("0 0", 10), "c": on("0 1", 80)}, moved=["a", "b"]
    ),
    "more than may be moved in an hour": Row(
        there={"a": on("0 0", 10), "b": on("0 0", 10), "c": on("0 1", 60), "d": on("0 1", 20)}, per_hour=1
    ),
    "one of two finds no place": Row(
        there={"a": on("0 0", 30), "b": on("0 0", 30), "c": on("0 1", 50), "d": on("0 1", 10, by="")}
    ),
    "nobody would make it anew": Row(there={"a": on("0 0", 40, by=""), "b": on("0 1", 50, by="")}),
    "the other one goes where the less harmful may not": Row(
        there={"a": on("0 0", 40, by=""), "b": on("0 1", 50)}, moved=["b"]
    ),
    "beside one that stays nobody goes": Row(
        there={"a": on("0 0", 10), "x": on("0 0", 10, by=""), "b": on("0 1", 50, by="")}
    ),
    "of groups nobody is moved": Row(
        there={"a": on("0 0", group="g", notes={"group-size": "1"}), "b": on("0 1", 50, by="")}
    ),
    "a budget keeps it": Row(there=HALVES, kept=["a", "b"]),
    "GPUs are not emptied onto a node that is": Row(nodes=(1, 1), there=SPREAD),
    "of two nodes one": Row(nodes=(2, 2), there=SPREAD, what="Nodes", moved=["b"]),
    "a whole card goes to a node that is in use": Row(
        nodes=(1, 2), there={"a": on("0 0", 100), "b": on("1 0", 100, by="")}, what="Nodes", moved=["a"]
    ),
    "GPUs of one node are no node": Row(there=HALVES, what="Nodes"),
    "a node is no node if one stays on another card of it": Row(
        nodes=(2, 1), there={"a": on("0 0", 30), "x": on("0 1", 30, by=""), "b": on("1 0", 50, by="")}, what="Nodes"
    ),
}


class Board(ReclaimStage):
    """A cluster an hour after its leader began."""

    def __init__(self, *, what: What, nodes: Sequence[int], per_hour: int) -> None:
        super().__init__({"q": queue()}, nodes=nodes, moves_per_hour=per_hour, settings=QueueSettings(empties=what))
        self.consolidate()
        self.consolidate(after=AN_HOUR)

    def lay(self, uid: str, lies: Lies) -> None:
        """It is let in there."""
        node, card = lies.card.split()
        more: dict[str, Any] = {"queue": "q", "group": lies.group}
        more["notes"] = {"gpu-uuid": f"GPU-n{node}-{card}", **lies.notes}
        if lies.by:
            self.submit_made(uid, lies.compute, by=f"{lies.by}-{uid}", **more)
        else:
            self.submit(uid, lies.compute, **more)
        assert self.run(after=1.0) == [uid]
        self.unpin(uid)

    def free(self, what: What) -> int:
        """How many GPUs, or nodes, nobody lies on."""
        used = {key for claims in self.picture.holdings.everything().values() for key in claims}
        if what == "Nodes":
            return len(self.picture.nodes.keys() - {node for node, _ in used})
        return sum(len(known.columns) for known in self.picture.nodes.values()) - len(used)

    def moved(self, asked: dict[str, int], *, budgets: Sequence[Budget] = ()) -> list[str]:
        """Who is moved in an hour; those are gone by then, and others have come in their places."""
        found = self.consolidate(after=AN_HOUR, budgets=budgets)
        for uid in self.evict():
            job = uid.partition("-")[0]
            self.gone(uid)
            again = f"{job}-{self._born}"
            self.submit_made(again, asked[job], by=f"job-{job}", queue="q")
            assert self.run(after=1.0) == [again]
        return found


@pytest.mark.parametrize("name", ROWS)
def test_what_is_to_stand_empty_is_emptied(name: str) -> None:
    """If everybody there has a place on what is in use: one more stands empty, and nobody goes after that."""
    row = ROWS[name]
    board = Board(what=row.what, nodes=row.nodes, per_hour=row.per_hour)
    for uid, lies in row.there.items():
        board.lay(uid, lies)
    budgets = [Budget(pods=frozenset(row.kept), allowed=0)] if row.kept else []
    before = board.free(row.what)
    asked = {uid: lies.compute for uid, lies in row.there.items()}
    assert board.moved(asked, budgets=budgets) == list(row.moved)
    assert board.free(row.what) == before + bool(row.moved)
    for _ in range(5):
        assert board.moved(asked, budgets=budgets) == []


def test_where_somebody_is_to_come_nobody_is_moved_off() -> None:
    """Room is kept there: the GPU would not stand empty. Nor is it empty for those who are moved off another one."""
    board = Board(what="GPUs", nodes=(2,), per_hour=10)
    board.lay("b", on("0 1", 50))
    there = ("n0", "GPU-n0-0")
    board.picture.keep("somebody", {there: Claim(compute=Percent(30), memory=MiB(1_000), closes=False)})
    board.lay("x", on("0 0", 10, by=""))
    assert board.consolidate(after=AN_HOUR) == ["b"]
    board.queues.register.refuges.close("b")
    board.gone("x")
    board.gone("b")
    board.lay("c", on("0 0", 10))
    board.lay("d", on("0 1", 90, by=""))
    assert board.consolidate(after=AN_HOUR) == []
    board.picture.keep("somebody", {})
    assert board.consolidate(after=AN_HOUR) == ["c"]


def test_whom_a_budget_covers_is_asked_first() -> None:
    """If it is kept by then, the other one has not gone for nothing."""
    for kept, order in (("a", ["a", "b"]), ("b", ["b", "a"])):
        board = Board(what="GPUs", nodes=(2,), per_hour=10)
        for uid, lies in ROWS["the two small ones of one card"].there.items():
            board.lay(uid, lies)
        assert board.consolidate(after=AN_HOUR, budgets=[Budget(pods=frozenset({kept}), allowed=1)]) == ["a", "b"]
        assert board.evict() == order


def test_one_that_is_kept_keeps_those_who_were_to_go_with_it() -> None:
    """A webhook has denied it: the GPU would not stand empty, so the other one stays as well."""
    board = Board(what="GPUs", nodes=(2,), per_hour=10)
    for uid, lies in ROWS["the two small ones of one card"].there.items():
        board.lay(uid, lies)
    assert board.consolidate(after=AN_HOUR) == ["a", "b"]
    register = board.queues.register
    board.reclaim.refused(register.inside.bound["a"], now=board.now)
    assert board.evict() == []
    assert len(register.refuges) == 0


def test_whoever_was_moved_is_not_moved_again_within_a_day() -> None:
    """Jobs come and go, so GPUs could be emptied all day, each time for the work of the same one."""
    board = Board(what="GPUs", nodes=(2,), per_hour=10)
    board.lay("a", on("0 0", 40))
    board.lay("b", on("0 1", 50))
    assert board.moved({"a": 40, "b": 50}) == ["a"]
    (again,) = (uid for uid, pod in board.pods.items() if uid != "b" and pod.spec.node_name)
    board.gone("b")
    board.lay("c", on("0 0", 60, by=""))
    assert [board.consolidate(after=AN_HOUR) for _ in range(22)] == [[]] * 22
    assert board.consolidate(after=2 * AN_HOUR) == [again]


@pytest.mark.parametrize("waits", [False, True])
def test_nobody_is_moved_who_would_not_come_in_again(*, waits: bool) -> None:
    """An owner waits for all that is free, in a queue that takes nothing back."""
    board = Board(what="GPUs", nodes=(2,), per_hour=10)
    never = Preemption(reclaim="Never")
    board.queues.queues_seen({"q": queue(), "k": queue(guarantee=200, preemption=never)})
    for uid, lies in HALVES.items():
        board.lay(uid, lies)
    if waits:
        board.submit("k0", 200, queue="k")
        board.run(after=1.0)
    assert board.consolidate(after=AN_HOUR) == ([] if waits else ["a"])


@given(
    what=st.sampled_from(("GPUs", "Nodes")),
    nodes=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    sizes=st.lists(
        st.tuples(st.sampled_from((10, 20, 30, 50, 70, 100)), st.integers(0, 8), st.booleans()), min_size=1, max_size=10
    ),
)
@example(what="GPUs", nodes=(3, 3), sizes=[(30, at, True) for at in range(6)])
@example(what="Nodes", nodes=(1, 1, 1), sizes=[(30, at, True) for at in range(3)])
@settings(max_examples=40, deadline=None)
def test_each_time_one_more_stands_empty_and_it_ends(
    what: What, nodes: tuple[int, ...], sizes: list[tuple[int, int, bool]]
) -> None:
    """Whoever goes comes again in the same plan, no card is given twice, and nobody goes to and fro."""
    board = Board(what=what, nodes=nodes, per_hour=100)
    cards = [f"{node} {card}" for node, count in enumerate(nodes) for card in range(count)]
    asked: dict[str, int] = {}
    for number, (compute, at, made) in enumerate(sizes):
        node, card = cards[at % len(cards)].split()
        total, _ = board.picture.holdings.total((f"n{node}", f"GPU-n{node}-{card}"))
        if total.compute.value + compute <= 100:
            asked[f"p{number}"] = compute
            board.lay(f"p{number}", Lies(compute=compute, card=f"{node} {card}", by="job" if made else ""))
    free, plans = board.free(what), 0
    while board.moved(asked):
        plans += 1
        assert board.free(what) > free
        free = board.free(what)
    assert plans <= len(cards)
    assert len([pod for pod in board.pods.values() if pod.spec.node_name]) == len(asked)
    assert [board.moved(asked) for _ in range(3)] == [[], [], []]
