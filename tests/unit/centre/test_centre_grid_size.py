"""The grid is as wide, and knows as many kinds of GPUs, as there are: whatever has come and gone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.inventory import MOST_GPUS, Gpu
from aliquot_core.objects import Node
from aliquot_core.request import parse_request
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.said.tree import Dimensions
from support.centre import NAMES, asks, gpus, make_node, picture_with

WIDTH = 8
ALLOWING = tuple(
    asks(f"{number}", 30, 1_000, annotations={NAMES.gpu_model: text}) for number, text in enumerate(("A", "B,C", "!A"))
)


def odd(name: str, count: int, *, tag: str = "") -> Node:
    """A node whose GPUs are all of different models."""
    cards = (Gpu(uuid=f"{name}-{at}", index=at, model=f"{tag}{at}", memory=80_000) for at in range(count))
    return make_node(name, tuple(cards))


def models(picture: Picture) -> list[str]:
    """Of which models kinds are known."""
    return sorted(kind.models[0] for kind in picture.grid.kinds)


def test_a_wide_node_that_goes_leaves_nothing_behind() -> None:
    """One agent's inventory made every look at every pod slower for good."""
    picture = picture_with(*(make_node(f"n{at}", gpus("n", WIDTH, model="A")) for at in range(3)))
    picture.node_seen(odd("wide", MOST_GPUS))
    assert picture.grid.open.shape[1] == MOST_GPUS
    assert len(picture.grid.kinds) == MOST_GPUS + 1
    picture.node_gone("wide")
    assert picture.grid.open.shape[1] == WIDTH
    assert models(picture) == ["A"]


def test_a_node_that_tells_of_other_gpus_leaves_nothing_of_those_before() -> None:
    """Nor does one that stays and says something new again and again."""
    picture = picture_with(make_node("n", gpus("n", WIDTH, model="A")))
    for tag in "xyz":
        picture.node_seen(odd("wide", MOST_GPUS, tag=tag))
        assert len(picture.grid.kinds) == MOST_GPUS + 1
    picture.node_seen(make_node("wide", gpus("w", 2, model="B")))
    assert picture.grid.open.shape[1] == WIDTH
    assert models(picture) == ["A", "B"]


def test_more_gpus_than_a_node_has_keep_it_out_and_widen_nothing() -> None:
    """Whoever runs the node reads why, where nodes that are out are told of."""
    picture = picture_with(odd("wide", MOST_GPUS + 1))
    assert picture.grid.open.shape[1] == WIDTH
    assert "names 257 GPUs, and a node has 256 at the most" in picture.nodes["wide"].out


def test_half_of_the_columns_are_kept_for_who_comes_back() -> None:
    """To look at all nodes anew costs more than a few columns."""
    picture = picture_with(make_node("n", gpus("n", 10)), make_node("wide", gpus("w", 12)))
    picture.node_gone("wide")
    assert picture.grid.open.shape[1] == 12


CHANGES = st.lists(
    st.tuples(st.sampled_from(["n0", "n1", "n2"]), st.integers(-1, 20), st.sampled_from("ABCD")), max_size=10
)


@pytest.mark.parametrize("valued", [False, True])
@settings(deadline=None, max_examples=40)
@given(changes=CHANGES)
def test_nobody_goes_by_what_a_number_of_a_kind_meant_before(
    *, valued: bool, changes: list[tuple[str, int, str]]
) -> None:
    """Numbers are given again, and whatever was worked out by them is worked out anew; -1 is a node that goes."""
    there = dict.fromkeys(("n0", "n1", "n2"), (0, "A"))
    picture = picture_with(*(make_node(name, ()) for name in there))
    look = Appraiser(picture=picture, names=NAMES).look if valued else None
    finder, cards = (
        Finder(picture=picture, names=NAMES, look=look),
        Cards(picture=picture, dimensions=Dimensions(), names=NAMES),
    )
    for name, count, model in changes:
        there.pop(name, None)
        if count < 0:
            picture.node_gone(name)
        else:
            picture.node_seen(make_node(name, gpus(name, count, model=model)))
            there[name] = count, model
        assert as_written(picture) == {name: [model] * count for name, (count, model) in there.items()}
        assert models(picture) == sorted({model for count, model in there.values() if count})
        widest = max([WIDTH, *(count for count, _ in there.values())])
        assert widest <= picture.grid.open.shape[1] < 2 * widest
        for pod in ALLOWING:
            demand = demand_of(parse_request(pod, names=NAMES))
            admits = demand.request.models.admits
            does = {name: model for name, (count, model) in there.items() if count and admits(model)}
            found = finder.survey(pod, demand).fits
            assert {known.name for known in picture.nodes.values() if found[known.row]} == set(does)
            kinds = cards.kinds(demand.request)
            assert {picture.grid.kinds[number].models[0] for number in kinds} == set(does.values())


def as_written(picture: Picture) -> dict[str, list[str]]:
    """By node the models of its GPUs, as the grid has them."""
    grid = picture.grid
    return {
        known.name: [grid.kinds[kind].models[0] for kind in grid.kind[known.row][grid.open[known.row]].tolist()]
        for known in picture.nodes.values()
    }


def test_what_places_are_worth_follows_the_kinds_that_are_there() -> None:
    """As many kinds as before need not be the same ones."""
    picture = picture_with(make_node("n0", gpus("n0", 2, model="A")), make_node("n1", gpus("n1", 2, model="B")))
    before, anew = (Appraiser(picture=picture, names=NAMES) for _ in range(2))
    for pod in ALLOWING:
        before.pod_seen(pod)
        anew.pod_seen(pod)
    before.look(ALLOWING[0])
    for model in "BC":
        picture.node_seen(make_node("n0", gpus("n0", 2, model=model)))
    assert len(picture.grid.kinds) == 2
    assert before.look(ALLOWING[0]).tables.allowed.tolist() == anew.look(ALLOWING[0]).tables.allowed.tolist()
