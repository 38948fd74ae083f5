"""Groups whose pods ask different things: all of them are laid wherever all of them can lie."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.queues.judging.laying import Laying, Tries
from aliquot_scheduler.queues.said.settings import QueueSettings
from support.centre import gpus, make_node
from support.queue_stage import H100, Stage, queue
from support.reclaim_stage import ReclaimStage

ONE = {"a": queue()}
ON_H100 = {"gpu-model": H100}
# What each pod of a group asks.
Members = tuple[tuple[int, dict[str, str]], ...]


def group(stage: Stage, *asked: int | tuple[int, dict[str, str]], where: str = "a", **said: str) -> list[str]:
    """Its pods, each with so much compute and such notes, the first the oldest."""
    names = [f"g{number}" for number in range(len(asked))]
    for name, one in zip(names, asked, strict=True):
        compute, notes = one if isinstance(one, tuple) else (one, {})
        size = {"group-size": str(len(asked))}
        stage.submit(name, compute, queue=where, group="g", notes={**size, **said, **notes})
    return names


# Nodes by their cards, those of which all cards are H100, what the pods ask from the oldest on, and how they lie.
ROWS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Members, str]] = {
    "small ones are older": ((2,), (), ((10, {}), (10, {}), (90, {}), (90, {})), ""),
    "on two nodes": ((1, 1), (), ((40, {}), (40, {}), (60, {}), (60, {})), ""),
    "on one node of two": ((2, 2), (), ((40, {}), (40, {}), (60, {}), (60, {})), "node"),
    "one node is large enough for one of them": ((4, 1), (), ((100, {}), (400, {})), ""),
    "one of them names a model": ((2, 4), (0,), ((200, {}), (200, ON_H100)), ""),
    "the largest first is not enough": ((2,), (), ((50, {}), (40, {}), (40, {}), (30, {}), (20, {}), (20, {})), ""),
    "even parts of two cards": ((2,), (), ((40, {}), (40, {}), (120, {"gpus": "2"})), ""),
}


@pytest.mark.parametrize("row", ROWS)
def test_all_of_a_group_come_in_where_all_have_room(row: str) -> None:
    """Whichever of it is the oldest, and whichever place is the best for that one alone."""
    nodes, models, members, topology = ROWS[row]
    stage = Stage(ONE, nodes=nodes, models=dict.fromkeys(models, H100))
    names = group(stage, *members, **({"group-topology": topology} if topology else {}))
    assert stage.run() == names


def test_each_of_them_is_bound_where_it_was_laid() -> None:
    """kube-scheduler asks for one after the other; nobody's room is taken by another of the group meanwhile."""
    stage = Stage(ONE, nodes=(1, 1))
    names = group(stage, 10, 10, 90, 90)
    assert stage.round() == names
    stage.lift(*names)
    for name in names:
        found = stage.desk.filter(stage.pods[name], ["n0", "n1"], now=stage.now)
        (node, *_) = found.nodes
        assert isinstance(stage.desk.begin_bind(uid=name, node=node, now=stage.now), Promise), name


def test_on_one_node_the_tenth_is_looked_at_too() -> None:
    """Nine that are fuller have enough in sum, and in pieces that are too small."""
    stage = Stage(ONE, nodes=(3,) * 10)
    for node in range(9):
        for card in range(3):
            stage.submit(f"x{node}.{card}", 50, queue="a", notes={"gpu-uuid": f"GPU-n{node}-{card}"})
    stage.run()
    names = group(stage, 60, 60, **{"group-topology": "node"})
    assert stage.run() == names
    assert {node for name in names for node, _ in stage.picture.holdings.of(name)} == {"n9"}


def test_room_is_made_for_the_largest_first() -> None:
    """Else each of the small ones lies where a large one has to, and nobody goes."""
    stage = ReclaimStage({"a": queue(guarantee=200), "b": queue()}, nodes=(2,))
    for uid in ("b0", "b1"):
        stage.submit(uid, 100, queue="b")
    stage.run()
    names = group(stage, 10, 10, 90, 90)
    assert stage.run(after=60.0) == []
    assert stage.reclaimed() == ["b0", "b1"]
    assert sorted(stage.run(after=1.0)) == names


# --- against all ways ------------------------------------------------------------------------------------------------
def pieces(compute: int) -> list[int]:
    """Whole cards, and the rest."""
    return [100] * (compute // 100) + ([compute % 100] if compute % 100 else [])


def lie(asked: list[int], nodes: list[list[int]]) -> bool:
    """Whether there is any way: each in turn on any cards of any node, all that comes after it too."""
    if not asked:
        return True
    parts = pieces(asked[0])
    for number, cards in enumerate(nodes):
        for chosen in permutations(range(len(cards)), len(parts)):
            if all(cards[at] >= part for at, part in zip(chosen, parts, strict=True)):
                left = list(cards)
                for at, part in zip(chosen, parts, strict=True):
                    left[at] -= part
                if lie(asked[1:], [*nodes[:number], left, *nodes[number + 1 :]]):
                    return True
    return False


@example([[0, 0]], [10, 10, 90, 90], "")
@given(
    st.lists(st.lists(st.sampled_from((0, 0, 10, 40, 50, 70)), min_size=1, max_size=3), min_size=1, max_size=2),
    st.lists(st.sampled_from((10, 20, 30, 40, 50, 60, 70, 90, 100, 150, 200)), min_size=2, max_size=5),
    st.sampled_from(("", "node")),
)
@settings(max_examples=150, deadline=None)
def test_a_group_comes_in_exactly_where_there_is_any_way(
    held: list[list[int]], asked: list[int], topology: str
) -> None:
    """On a few cards of which others hold so much, by trying all ways: what it is told otherwise does not matter."""
    stage = Stage(ONE, nodes=tuple(map(len, held)))
    fillers = [(f"x{node}.{card}", node, card, part) for node, row in enumerate(held) for card, part in enumerate(row)]
    for name, node, card, part in fillers:
        if part:
            stage.submit(name, part, queue="a", notes={"gpu-uuid": f"GPU-n{node}-{card}"})
    stage.run()
    free = [[100 - part for part in row] for row in held]
    names = group(stage, *asked, **({"group-topology": topology} if topology else {}))
    way = any(lie(asked, [row]) for row in free) if topology else lie(asked, free)
    assert stage.round() == (names if way else [])


def test_a_search_ends_when_its_tries_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves all as it was: who is asked next sees the same cards."""
    stage = Stage(ONE, nodes=(2,))
    asked: list[Laying] = []
    found = Laying.found

    def noted(self: Laying, tries: Tries) -> object:
        asked.append(self)
        return found(self, tries)

    monkeypatch.setattr(Laying, "found", noted)
    group(stage, 10, 10, 90, 90)
    stage.run()
    laying = asked[-1]
    assert found(laying, Tries(3)) is None
    tries = Tries(100)
    lying = found(laying, tries)
    assert lying is not None
    assert sorted(lying) == [0, 1, 2, 3]
    # The hardest first: nothing had to be tried twice.
    assert tries.left == 96


# --- what is held back for a group that finds no place ----------------------------------------------------------------
BEGIN = 1000.0


def in_pieces(settings: QueueSettings) -> Stage:
    """Half of each of three cards is free: more than two of 70 % ask, and no place for either.

    Who has the other halves has run for long: no node is kept for the group.
    """
    stage = Stage({"own": queue(guarantee=140), "bor": queue()}, nodes=(1, 1, 1), settings=settings)
    for number in range(3):
        stage.submit(f"x{number}", 50, queue="bor", notes={"gpu-uuid": f"GPU-n{number}-0"})
    assert len(stage.run()) == 3
    stage.now = BEGIN
    group(stage, 70, 70, where="own")
    for number in range(3):
        stage.submit(f"b{number}", 50, queue="bor")
    return stage


# By the settings: from when on the others may come in, and from when on what is free is held back again.
@pytest.mark.parametrize(("patience", "hold", "until"), [(300.0, 900.0, 1500.0), (100.0, 0.0, 200.0)])
def test_what_is_held_back_in_vain_is_lent_after_the_time_of_patience(
    patience: float, hold: float, until: float
) -> None:
    """And it is held back in turns, for that time each: so nobody waits for it for longer."""
    stage = in_pieces(QueueSettings(patience=patience, hold=hold))
    assert stage.run() == []
    assert stage.queues.notice(next(one for one in stage.queues.waiting() if one.uid == "b0")).reason == "HeldBack"
    assert stage.run(after=patience - 1.0) == []
    assert stage.run(after=1.0) == ["b0", "b1", "b2"]
    stage.end("b0")
    stage.submit("b3", 50, queue="bor")
    stage.now = BEGIN + until - 1.0
    assert stage.run() == ["b3"]
    stage.end("b1", "b2", "b3")
    stage.submit("b4", 50, queue="bor")
    stage.now = BEGIN + until
    assert stage.run() == []


def test_a_group_that_demands_nothing_for_now_is_due_its_share_all_the_while() -> None:
    """It asks as before, so what its queue is due is the same; what is held back is another matter."""
    stage = in_pieces(QueueSettings(patience=300.0, hold=900.0))
    for after in (0.0, 300.0):
        stage.run(after=after)
        told = stage.queues.statuses(now=stage.now, at="")
        due = {name: told[name].fair_share.compute for name in ("own", "bor")}
        assert (told["own"].asked.compute, due) == (140, {"own": 140, "bor": 160})
    assert stage.used("bor")[0] == 300


def test_a_group_that_demands_nothing_for_now_comes_in_when_it_has_room() -> None:
    """It stands in line all the while, and what it asks counts again from then on."""
    stage = in_pieces(QueueSettings(patience=300.0, hold=900.0))
    for uid in ("b0", "b1", "b2"):
        stage.gone(uid)
    stage.run()
    stage.run(after=301.0)
    stage.end("x0", "x1")
    assert stage.run() == ["g0", "g1"]


def test_a_group_that_can_lie_in_no_way_is_told_and_holds_nothing_back() -> None:
    """Its sums are there, and as many cards as its pieces need; but two of it need the same one."""
    stage = Stage({"own": queue(guarantee=200), "bor": queue()}, nodes=(1, 1), models={0: H100})
    group(stage, (70, ON_H100), (40, ON_H100), 20, where="own")
    stage.submit("b0", 100, queue="bor", notes={"gpu-model": f"!{H100}"})
    assert stage.run() == ["b0"]
    notice = stage.queues.notice(next(one for one in stage.queues.waiting() if one.uid == "g0"))
    assert notice.reason == "NeverFits"
    assert notice.message == (
        "its group starts with 3 pods, whose slices can't be cut and find no place on all nodes together, "
        "in whatever way they are laid"
    )
    stage.picture.node_seen(make_node("n2", gpus("n2", 1, model=H100)))
    assert sorted(stage.run()) == ["g0", "g1", "g2"]
