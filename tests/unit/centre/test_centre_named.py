"""Which GPUs lists of uuids allow, whatever changes, and how seldom each GPU is asked."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.patterns import MOST, Patterns, parse_patterns
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.turns import Queues
from support.centre import NAMES, asks, gpus, make_node, picture_with

NODES, CARDS = 100, 8
GATED = {"schedulingGates": [{"name": NAMES.gate}]}
LISTS = tuple(parse_patterns(text, where="here") for text in ("GPU-a-1,GPU-b-*", "!GPU-?-0", "nothing"))


def plainly(uuids: Patterns, picture: Picture) -> set[tuple[str, str]]:
    """Each GPU asked by itself."""
    return {
        (known.name, gpu.uuid)
        for known in picture.nodes.values()
        for gpu in known.inventory.gpus
        if uuids.admits(gpu.uuid)
    }


def as_kept(uuids: Patterns, picture: Picture) -> set[tuple[str, str]]:
    """The same, as the picture says it."""
    named = picture.named(uuids)
    assert named is not None
    whose = {known.row: known for known in picture.nodes.values()}
    where = zip(*np.nonzero(named), strict=True)
    return {(whose[int(row)].name, whose[int(row)].inventory.gpus[int(column)].uuid) for row, column in where}


CHANGES = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(-1, 12), st.sampled_from("ab")), max_size=12)


@given(CHANGES)
def test_what_is_kept_is_what_asking_each_gpu_says(changes: list[tuple[str, int, str]]) -> None:
    """Nodes come, go, and have other GPUs; -1 is a node that goes."""
    picture = picture_with()
    for name, cards, whose in changes:
        if cards < 0:
            picture.node_gone(name)
        else:
            picture.node_seen(make_node(name, gpus(whose, cards)))
        for uuids in LISTS:
            assert as_kept(uuids, picture) == plainly(uuids, picture)


def test_more_nodes_than_there_were_rows_for_are_asked_too() -> None:
    """The grid grows under what is kept."""
    picture = picture_with(make_node("a", gpus("a", 2)))
    assert as_kept(LISTS[1], picture) == {("a", "GPU-a-1")}
    for number in range(70):
        picture.node_seen(make_node(f"n{number}", gpus("b", 1)))
    assert as_kept(LISTS[0], picture) == plainly(LISTS[0], picture)
    assert as_kept(LISTS[1], picture) == plainly(LISTS[1], picture)


@pytest.fixture(name="asked")
def _asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many names were held against a list of patterns."""
    count, admits = [0], Patterns.admits

    def counted(self: Patterns, *names: str) -> bool:
        count[0] += bool(self.allowed or self.forbidden)
        return admits(self, *names)

    monkeypatch.setattr(Patterns, "admits", counted)
    return count


def test_a_long_list_of_uuids_asks_each_gpu_once_and_later_those_that_have_changed(asked: list[int]) -> None:
    """Being seen, each filter and each turn asked all GPUs anew: one tenant's pods stopped the centre."""
    nodes = [make_node(f"n{number}", gpus(f"n{number}", CARDS)) for number in range(NODES)]
    picture = picture_with(*nodes, now=1.0)
    turns = Queues(names=NAMES, random=lambda: 0.5, picture=picture)
    desk = Desk(picture=picture, names=NAMES, turns=turns)
    words = ",".join(["gpu-n3-*", *(f"*{number:04x}*" for number in range(1, MOST))])
    pods = [asks(f"p{number}", 10, 1_000, annotations={NAMES.gpu_uuid: words}, spec=GATED) for number in range(5)]

    def let_in() -> int:
        before = asked[0]
        for pod in pods:
            desk.pod_seen(pod)
            turns.pod_seen(pod)
        let_through = [turn.promise.node if turn.promise else "" for turn in turns.turns(desk, now=1.0)]
        assert let_through == ["n3"] * len(pods)
        for pod in pods:
            lifted = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=()))
            desk.pod_seen(lifted)
            turns.pod_seen(lifted)
            assert desk.filter(lifted, [node.metadata.name for node in nodes], now=1.0).nodes == ["n3"]
            desk.pod_gone(lifted)
            turns.pod_gone(lifted.metadata.uid)
        return asked[0] - before

    # Beside each GPU of the cluster, those of the one node where places are laid out, a few times a pod.
    a_few = 5 * CARDS * len(pods)
    assert NODES * CARDS <= let_in() <= NODES * CARDS + a_few
    assert let_in() <= a_few
    picture.node_seen(make_node("n7", gpus("other", CARDS)))
    assert CARDS <= let_in() <= CARDS + a_few
