"""Groups each pod of which lies on a node of its own, where some of them have less choice than others."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_scheduler.queues.judging.apart import NOWHERE, apart
from support.centre import gpus, make_node
from support.queue_stage import H100, Stage, queue
from support.reclaim_stage import ReclaimStage

SPREAD = {"group-topology": "spread"}
ON_H100, ON_ANOTHER = {"gpu-model": H100}, {"gpu-model": f"!{H100}"}


def most(able: list[list[bool]]) -> int:
    """How many can have a row of their own, tried out."""
    rows = range(max(len(able), len(able[0])))
    return max(
        sum(row < len(one) and one[row] for one, row in zip(able, order, strict=False)) for order in permutations(rows)
    )


@given(
    st.integers(1, 5).flatmap(
        lambda rows: st.lists(st.lists(st.booleans(), min_size=rows, max_size=rows), min_size=1, max_size=3)
    ),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
)
def test_as_many_have_a_node_of_their_own_as_can(kinds: list[list[bool]], members: list[int]) -> None:
    """Whatever each may have, by trying all ways; nobody has one that it may not have, and none is given twice."""
    able = {number: np.array(kind) for number, kind in enumerate(kinds)}
    members = [number % len(kinds) for number in members]
    rows = apart(members, able)
    given = [row for row in rows if row != NOWHERE]
    assert len(given) == len(set(given)) == most([kinds[number] for number in members])
    assert all(row == NOWHERE or able[number][row] for number, row in zip(members, rows, strict=True))


def group(stage: Stage, *asked: tuple[int, dict[str, str]], name: str = "g", where: str = "a") -> None:
    """One that lies apart, each of it with so much compute and such notes."""
    for number, (compute, notes) in enumerate(asked):
        said = SPREAD | {"group-size": str(len(asked))} | notes
        stage.submit(f"{name}{number}", compute, queue=where, group=name, notes=said)


# By what each asks; there is a node of two H100 and one of two others.
ROWS: dict[str, list[tuple[int, dict[str, str]]]] = {
    "each may lie on one node alone, and not on the same": [(50, ON_H100), (50, ON_ANOTHER)],
    "the first has the choice, and the second none": [(30, {}), (60, ON_H100)],
}


@pytest.mark.parametrize("row", ROWS)
def test_who_has_no_choice_is_not_kept_out_by_who_has(row: str) -> None:
    """All of it comes in, whoever is first of it, if there is any way; else it would keep its guarantee for ever."""
    stage = Stage({"a": queue()}, nodes=(2, 2), models={0: H100})
    group(stage, *ROWS[row])
    assert sorted(stage.run()) == ["g0", "g1"]
    on = [{node for node, _ in stage.picture.holdings.of(uid)} for uid in ("g0", "g1")]
    assert on[0] | on[1] == {"n0", "n1"}


def test_too_few_nodes_for_some_of_it_are_told() -> None:
    """Two of three need the one node with H100: that never comes to pass, though there are as many nodes as pods."""
    stage = Stage({"a": queue()}, nodes=(2, 2, 2), models={0: H100})
    group(stage, (30, ON_H100), (30, {}), (30, ON_H100))
    assert stage.run() == []
    notice = stage.queues.notice(next(iter(stage.queues.waiting())))
    assert notice.reason == "NeverFits"
    assert notice.message == "its group starts with 3 pods on a node each, and 2 could take them"


@pytest.mark.parametrize("row", ROWS)
def test_room_is_made_for_each_where_it_may_lie(row: str) -> None:
    """Whatever the first of a group may have: each of it is looked for by what it asks itself."""
    stage = ReclaimStage({"a": queue(guarantee=400), "b": queue()}, nodes=(1, 1), models={0: H100})
    # Where least is lost is the one node of the one without a choice.
    for uid, notes in (("b0", ON_ANOTHER), ("b1", ON_H100)):
        stage.submit(uid, 100, queue="b", notes=notes)
        assert stage.run(after=1.0) == [uid]
    group(stage, *ROWS[row])
    assert stage.run(after=1.0) == []
    assert stage.reclaimed() == ["b0", "b1"]
    assert sorted(stage.run(after=1.0)) == ["g0", "g1"]


def test_nobody_goes_for_a_place_on_a_node_that_takes_it_not() -> None:
    """Who goes for a limit may lie on a cordoned node: its card is free then, and no place for anybody."""
    specs = {"o": queue(limit=200), "a": queue("o", guarantee=200), "b": queue("o"), "c": queue()}
    stage = ReclaimStage(specs, nodes=(1, 1, 1))
    for uid in ("b0", "b1", "c0"):
        stage.submit(uid, 100, queue=uid[0])
        assert stage.run(after=1.0) == [uid]
    stage.picture.node_seen(make_node("n0", gpus("n0", 1), cordoned=True))
    for uid in ("a0", "a1"):
        stage.submit(uid, 100, queue="a")
    assert [clearing.nodes for clearing in stage.decide()] == [["n1"], ["n2"]]
