"""Surveys that are brought up to date say what asking all nodes says."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.claims import Claim
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_core.request import parse_request
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.fit.appraisal import Appraisal, room_of
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.fit.survey import Survey, survey
from aliquot_scheduler.fit.surveys import Surveys
from aliquot_scheduler.picture.changes import RowChanges
from aliquot_scheduler.worth.scarcity import scarcity
from support.centre import (
    NAMES,
    WALL,
    Asked,
    asks,
    bound,
    container,
    gpus,
    make_lease,
    make_node,
    make_pod,
    picture_with,
    sick,
)

NODES = tuple(f"n{number}" for number in range(6))
PODS = (
    asks("one", 30, 20_000),
    asks("pack", 30, 20_000, annotations={NAMES.placement: "pack"}),
    asks("cores", 30, 20_000, spec={"priority": 5}),
    asks("two", 200, None),
    asks("least", None, 1_000),
    asks("named", 30, 20_000, annotations={NAMES.gpu_uuid: "GPU-n1-*"}),
    make_pod("pair", container("a", (60, 20_000)), container("b", (60, 20_000))),
)
PODS[2].spec.containers[0].resources.requests["cpu"] = "6"


class Changing:
    """A cluster in which something changes, followed as the centre follows it."""

    def __init__(self) -> None:
        self.nodes = {name: make_node(name, gpus(name, 2), uid="1") for name in NODES}
        self.picture = picture_with(*self.nodes.values())
        self.appraiser = Appraiser(picture=self.picture, names=NAMES)
        for name in NODES:
            self.put(name)
        self.finder = self.fresh()
        self.count = 0

    def fresh(self) -> Finder:
        """One that has been asked nothing."""
        return Finder(picture=self.picture, names=NAMES, look=self.appraiser.look)

    def put(self, name: str, *, cards: int = 2, well: bool = True, cordoned: bool = False, model: str = "") -> None:
        """A node is another one now."""
        its = gpus(name, cards, model=model) if model else gpus(name, cards)
        node = make_node(name, its if well else (sick(its[0]), *its[1:]), cordoned=cordoned)
        node.status.allocatable["cpu"] = "8"
        self.picture.node_seen(node)

    def hold(self, name: str, *, compute: int, card: int = 0) -> None:
        """Somebody is promised a part of a GPU."""
        self.count += 1
        claim = Claim(compute=Percent(compute), memory=MiB(700 * compute), closes=compute == 100)
        self.picture.hold(f"h{self.count}", {(name, f"GPU-{name}-{card}"): claim})

    def let_go(self, number: int) -> None:
        """And has it no more."""
        self.picture.hold(f"h{number}", {})

    def bind(self, name: str) -> None:
        """A pod without GPUs takes cores."""
        self.count += 1
        cores = {"name": "x", "resources": {"requests": {"cpu": "3"}}}
        self.picture.pod_lies(bound(make_pod(f"c{self.count}", cores), node=name, held={}))

    def go(self, name: str) -> None:
        """A node is gone."""
        self.picture.node_gone(name)

    def learn(self, size: int) -> None:
        """Many pods of one size come."""
        for _ in range(30):
            self.count += 1
            self.appraiser.pod_seen(asks(f"l{self.count}", size, None))
        if work := self.appraiser.due():
            self.appraiser.renew(work())


def surveyed(finder: Finder, pod: Pod) -> Survey:
    """What it finds for a pod."""
    return finder.survey(pod, demand_of(parse_request(pod, names=NAMES)))


names = st.sampled_from(NODES)
CHANGES = st.one_of(
    st.tuples(st.just("hold"), names, st.fixed_dictionaries({"compute": st.sampled_from([10, 50, 100])})),
    st.tuples(st.just("hold"), names, st.fixed_dictionaries({"compute": st.just(30), "card": st.just(1)})),
    st.tuples(st.just("let_go"), st.integers(1, 20), st.just({})),
    st.tuples(st.just("bind"), names, st.just({})),
    st.tuples(st.just("go"), names, st.just({})),
    st.tuples(st.just("put"), names, st.fixed_dictionaries({"cordoned": st.booleans(), "well": st.booleans()})),
    st.tuples(st.just("put"), names, st.just({"cards": 12})),
    st.tuples(st.just("put"), st.just("new"), st.just({"model": "NVIDIA T4"})),
    st.tuples(st.just("learn"), st.sampled_from([20, 46]), st.just({})),
)


@given(st.lists(st.tuples(CHANGES, st.sampled_from(PODS)), min_size=1, max_size=25))
@settings(max_examples=120, deadline=None)
def test_what_is_brought_up_to_date_is_what_asking_all_says(
    steps: list[tuple[tuple[str, Any, dict[str, Any]], Pod]],
) -> None:
    """Whatever has changed between two questions, and whoever asked before."""
    town = Changing()
    for pod in PODS:
        surveyed(town.finder, pod)
    for (what, whom, how), pod in steps:
        getattr(town, what)(whom, **how)
        found, anew = surveyed(town.finder, pod), surveyed(town.fresh(), pod)
        assert found.fits.tolist() == anew.fits.tolist()
        # Sums of other lengths are added up in another order: the last bit may differ.
        assert found.cost[found.fits].tolist() == pytest.approx(anew.cost[anew.fits].tolist(), abs=1e-12)


@given(st.lists(CHANGES, max_size=10), st.sampled_from(PODS))
@settings(max_examples=50, deadline=None)
def test_a_node_that_is_asked_alone_says_what_it_says_among_all(
    changes: list[tuple[str, Any, dict[str, Any]]], pod: Pod
) -> None:
    """And of no other anything is said."""
    town = Changing()
    for what, whom, how in changes:
        getattr(town, what)(whom, **how)
    demand, within = demand_of(parse_request(pod, names=NAMES)), np.ones(town.picture.grid.rows, dtype=np.bool_)
    among_all = set(np.flatnonzero(surveyed(town.finder, pod).fits))
    for known in town.picture.nodes.values():
        alone = town.finder.survey_one(pod, demand, known=known, within=within)
        assert set(np.flatnonzero(alone.fits)) == among_all & {known.row}
        assert not town.finder.survey_one(pod, demand, known=known, within=~within).fits.any()


@pytest.mark.parametrize(
    ("pod", "other"),
    [
        (asks("u", 30, 20_000, annotations={NAMES.gpu_model: "*A100*"}), {"model": "NVIDIA T4"}),
        (asks("u", 30, 20_000, annotations={NAMES.gpu_uuid: "GPU-n0-*"}), {}),
        (PODS[0], {"cordoned": True}),
        (PODS[0], {"well": False}),
        (PODS[0], {"cards": 1}),
    ],
)
def test_nodes_that_differ_in_what_matters_are_in_different_states(pod: Pod, other: dict[str, Any]) -> None:
    """However alike they are in all the rest: the second is not spoken for by the first."""
    town = Changing()
    town.put("n1", model="NVIDIA T4")
    town.put("n1", **other)
    surveyed(town.finder, pod)
    for name in ("n0", "n1"):
        town.hold(name, compute=30)
        found, anew = surveyed(town.finder, pod), surveyed(town.fresh(), pod)
        assert found.fits.tolist() == anew.fits.tolist()
        assert found.cost[found.fits].tolist() == anew.cost[anew.fits].tolist()


def test_few_nodes_that_have_changed_are_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask them together takes some hundred steps of numpy, however few they are."""
    town, pod = Changing(), PODS[0]
    surveyed(town.finder, pod)
    asked = Mock(wraps=survey)
    monkeypatch.setattr("aliquot_scheduler.fit.surveys.survey", asked)
    for name in NODES:
        town.hold(name, compute=30)
        surveyed(town.finder, pod)
    assert not asked.called


def test_what_was_handed_out_stays_as_it_was() -> None:
    """A survey is kept for the questions that follow, while others are placed."""
    for pod in PODS[:2]:
        town = Changing()
        before = surveyed(town.finder, pod)
        said = before.fits.tolist(), before.cost.tolist()
        for name in NODES[:2]:
            for card in (0, 1):
                town.hold(name, compute=100, card=card)
            surveyed(town.finder, pod)
        assert (before.fits.tolist(), before.cost.tolist()) == said


def test_other_prices_are_other_answers() -> None:
    """Tables and prices are the same for all nodes, so with new ones all are asked."""
    town, pod = Changing(), PODS[0]
    town.hold("n0", compute=100)
    town.hold("n1", compute=50)
    asked = demand_of(parse_request(pod, names=NAMES))
    first, surveys = town.appraiser.look(pod), Surveys(grid=town.picture.grid)
    dearer = msgspec.structs.replace(first.scarcity, large=first.scarcity.large + np.arange(9.0)[:, np.newaxis])
    for prices in (first.scarcity, dearer):
        look = Appraisal(
            cells=town.picture.grid,
            free=np.full(town.picture.grid.rows, 8.0),
            tables=first.tables,
            scarcity=prices,
            cores=1.0,
            changes=first.changes,
        )
        found = surveys.of(asked, trial=lambda _: None, appraisal=look)
        anew = Surveys(grid=town.picture.grid).of(asked, trial=lambda _: None, appraisal=look)
        assert found.cost.tolist() == anew.cost.tolist()


def test_a_grid_that_grows_is_asked_as_a_whole() -> None:
    """There are more nodes than it was made for."""
    town, pod = Changing(), PODS[0]
    surveyed(town.finder, pod)
    for number in range(70):
        town.put(f"more{number}")
        town.picture.lease_seen(make_lease(f"more{number}"), wall=WALL)
    assert surveyed(town.finder, pod).fits.sum() == len(NODES) + 70


def test_only_what_has_changed_is_asked_again() -> None:
    """Of several containers each node has to be tried, which takes long."""
    town, tried = Changing(), []
    finder = Finder(picture=town.picture, names=NAMES)
    plan = finder._plan
    finder._plan = lambda *args, known, **more: (tried.append(known.name), plan(*args, known=known, **more))[1]  # type: ignore[method-assign,func-returns-value]
    pair = PODS[-1]
    assert surveyed(finder, pair).fits.sum() == len(NODES)
    tried.clear()
    town.hold("n2", compute=10)
    assert surveyed(finder, pair).fits.sum() == len(NODES)
    assert tried == ["n2"]


shares = st.sampled_from([(30, 10_000), (50, 60_000), (60, 30_000), (100, None), (None, 9_000), (150, None)])
cards = st.sampled_from([(0, 0), (0, 0), (40, 1_000), (50, 40_000), (70, 20_000), (0, 70_000), (100, 1_000)])


@given(
    apps=st.lists(shares, min_size=1, max_size=3),
    sidecars=st.lists(shares, max_size=1),
    inits=st.lists(shares, max_size=1),
    held=st.lists(st.lists(cards, min_size=3, max_size=3), min_size=4, max_size=4),
    how=st.sampled_from(["valued", "best fit"]),
)
@settings(max_examples=150, deadline=None)
def test_no_node_is_left_out_that_could_take_several_containers(
    apps: list[Asked], sidecars: list[Asked], inits: list[Asked], held: list[list[tuple[int, int]]], how: str
) -> None:
    """Asked of all nodes at once, some of them alike, and of each by itself."""
    names = [f"n{number}" for number in range(8)]
    picture = picture_with(*(make_node(name, gpus(name, 3)) for name in names))
    for name, state in zip(names, [*held, *held], strict=True):
        for index, (compute, memory) in enumerate(state):
            claim = Claim(compute=Percent(compute), memory=MiB(memory), closes=compute == 100)
            picture.hold(f"{name}-{index}", {(name, f"GPU-{name}-{index}"): claim} if compute or memory else {})
    pod = make_pod(
        "u",
        *(container(f"a{number}", one) for number, one in enumerate(apps)),
        inits=[
            *(container(f"s{number}", one, restartPolicy="Always") for number, one in enumerate(sidecars)),
            *(container(f"i{number}", one) for number, one in enumerate(inits)),
        ],
    )
    look = Appraiser(picture=picture, names=NAMES).look if how == "valued" else None
    finder = Finder(picture=picture, names=NAMES, look=look)
    found, asked = surveyed(finder, pod), demand_of(parse_request(pod, names=NAMES))
    for name in names:
        assert found.fits[picture.nodes[name].row] == (finder.plan(pod, asked, node=name) is not None), name


def test_nodes_that_differ_in_memory_alone_are_not_alike() -> None:
    """The one has room for both containers, the other for neither beside the other."""
    picture = picture_with(*(make_node(name, gpus(name, 1)) for name in ("n1", "n2")))
    for name, memory in (("n1", 1_000), ("n2", 50_000)):
        picture.hold(f"on-{name}", {(name, f"GPU-{name}-0"): Claim(compute=Percent(40), memory=MiB(memory))})
    pod = make_pod("u", container("a", (10, 10_000)), container("b", (10, 10_000)), container("c", (10, 25_000)))
    found = surveyed(Finder(picture=picture, names=NAMES), pod)
    assert [bool(found.fits[picture.nodes[name].row]) for name in ("n1", "n2")] == [True, False]


@pytest.mark.parametrize(("full", "tries"), [(0, 1), (90, 0)])
def test_a_search_for_several_containers_is_short(full: int, tries: int) -> None:
    """1,000 nodes that are empty, or full but for one slice each: 0.5 s if each were tried."""
    names = [f"n{number}" for number in range(1_000)]
    picture = picture_with(*(make_node(name, gpus(name, 2)) for name in names))
    for number, name in enumerate(names):
        for index, compute in enumerate((full, full and 30 + number % 20)):
            claim = Claim(compute=Percent(compute), memory=MiB(100))
            picture.hold(f"{name}-{index}", {(name, f"GPU-{name}-{index}"): claim} if compute else {})
    finder, tried = Finder(picture=picture, names=NAMES), []
    plan = finder._plan
    finder._plan = lambda *args, known, **more: (tried.append(known.name), plan(*args, known=known, **more))[1]  # type: ignore[method-assign,func-returns-value]
    pod = make_pod("u", container("a", (50, 1_000)), container("b", (40, 1_000)))
    assert surveyed(finder, pod).fits.sum() == (0 if full else 1_000)
    assert len(tried) == tries


# What an app container, a sidecar and an init container ask of the only GPU: the last two are too much together.
TOO_MUCH: dict[str, tuple[Asked, Asked, Asked]] = {
    "compute": ((30, 1_000), (60, 1_000), (60, 1_000)),
    "memory": ((30, 1_000), (30, 60_000), (30, 30_000)),
    "a portion of the memory": ((30, 1_000), (30, 60_000), (30, None)),
    "a whole GPU": ((30, 1_000), (None, 1_000), (100, 1_000)),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_what_an_init_container_needs_beside_a_sidecar_is_seen(what: str) -> None:
    """Each has room there alone, and the rest of the pod together."""
    app, sidecar, init = TOO_MUCH[what]
    picture = picture_with(make_node("n1", gpus("n1", 1)))
    finder = Finder(picture=picture, names=NAMES, look=Appraiser(picture=picture, names=NAMES).look)
    beside = container("s", sidecar, restartPolicy="Always")
    assert surveyed(finder, make_pod("without", container("a", app), inits=[beside])).fits.sum() == 1
    asked = [beside, container("i", init)]
    assert surveyed(finder, make_pod("with", container("a", app), inits=asked)).fits.sum() == 0


def test_nodes_that_surely_have_room_are_not_tried() -> None:
    """All in different states, and most with room: each a layout of its own, were they tried."""
    names = [f"n{number}" for number in range(300)]
    picture = picture_with(*(make_node(name, gpus(name, 4)) for name in names))
    for number, name in enumerate(names):
        for index in range(4):
            claim = Claim(compute=Percent(10 + (number * 7 + index * 13) % 40), memory=MiB(100 + number))
            picture.hold(f"{name}-{index}", {(name, f"GPU-{name}-{index}"): claim})
    finder, tried = Finder(picture=picture, names=NAMES, look=Appraiser(picture=picture, names=NAMES).look), []
    plan = finder._plan
    finder._plan = lambda *args, known, **more: (tried.append(known.name), plan(*args, known=known, **more))[1]  # type: ignore[method-assign,func-returns-value]
    beside = container("b", (20, 1_000))
    for apps, inits, fits in (
        ([container("a", (50, 1_000)), beside], [container("i", (40, 500))], 300),
        ([container("a", (20, 1_000)), beside], [container("i", (50, 500))], 300),
        ([container(name, (90, 1_000)) for name in "abcd"], [], 0),
    ):
        assert surveyed(finder, make_pod("u", *apps, inits=inits)).fits.sum() == fits
    assert not tried


def test_changes_are_counted_row_by_row() -> None:
    """After any number of them exactly those since then are told of."""
    changes = RowChanges(5)
    changes.note(3)
    then = changes.now
    changes.note(1)
    changes.note(4)
    changes.note(1)
    assert np.flatnonzero(changes.since(then)).tolist() == [1, 4]
    assert changes.of(3) == then < changes.of(4) < changes.of(1)
    changes.all_anew(7)
    assert changes.since(changes.now - 1).tolist() == [True] * 7
    assert not changes.since(changes.now).any()


def test_rows_that_nobody_uses_change_nothing() -> None:
    """Room is kept for twice as many nodes, and the last one may be cordoned: prices and answers are those of all."""
    many = [make_node(f"n{number}", gpus(f"n{number}", 2), cordoned=number > 67) for number in range(70)]
    picture = picture_with(*many)
    appraiser = Appraiser(picture=picture, names=NAMES)
    assert (picture.grid.rows, picture.grid.in_use) == (128, slice(0, 68))
    pod = asks("u", 30, 20_000)
    look = appraiser.look(pod)
    found = Finder(picture=picture, names=NAMES, look=appraiser.look).survey(
        pod, demand_of(parse_request(pod, names=NAMES))
    )
    assert (found.fits.size, int(found.fits.sum())) == (128, 68)
    assert not found.fits[[known.row for name, known in picture.nodes.items() if name in ("n68", "n69")]].any()
    known = scarcity(room_of(picture.grid, cores=picture.hosts.cores), look.tables)
    assert np.array_equal(look.scarcity.crowding, known.crowding)
    assert np.array_equal(look.scarcity.large, known.large)


def test_a_cluster_without_nodes_has_no_row_in_use() -> None:
    """And nothing fits there."""
    picture = picture_with()
    pod = asks("u", 30, 20_000)
    demand = demand_of(parse_request(pod, names=NAMES))
    found = Finder(picture=picture, names=NAMES, look=Appraiser(picture=picture, names=NAMES).look).survey(pod, demand)
    assert picture.grid.in_use == slice(0, 0)
    assert not found.fits.any()
