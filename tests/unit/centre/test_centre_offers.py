"""What room is offered, and which node above the others: no room to whom asks for none, and one promise at a time."""

from __future__ import annotations

import pytest

from aliquot_core.request import parse_request
from aliquot_scheduler.deciding.places import Places
from aliquot_scheduler.deciding.promises import Stage
from aliquot_scheduler.fit.bounds import ANYWHERE
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from support.centre import MEMORY, NAMES, asks, bound, gpus, make_node
from support.office import A, Office, at


def test_prioritize_without_an_offer_grades_nobody_higher() -> None:
    """Whether it was taken back, written or never made."""
    office = Office("n1", "n2")
    assert office.desk.prioritize(A, ["n1", "n2"]) == [0, 0]
    office.sees(A)
    office.filter(A)
    assert any(office.desk.prioritize(A, ["n1", "n2"]))
    office.desk.take_back("a")
    assert office.desk.prioritize(A, ["n1", "n2"]) == [0, 0]


def test_prioritize_bears_nodes_that_came_came_back_or_do_not_fit() -> None:
    """Also when the grid has grown since: what was not looked at has no grade."""
    office = Office("n1", "n2", cards=1)
    office.sees(bound(asks("x", 100, None), node="n2", held={"GPU-n2-0": (100, MEMORY)}), A)
    office.filter(A)
    office.picture.node_gone("n1")
    for number in range(200):
        office.picture.node_seen(make_node(f"m{number}", gpus(f"m{number}", 1)))
    office.picture.node_seen(make_node("n1", gpus("n1", 1)))
    names = ["n1", "n2", "m199", "nowhere"]
    graded = dict(zip(names, office.desk.prioritize(A, names), strict=True))
    assert all(0 <= grade <= 900 for grade in graded.values())
    assert graded["n2"] == graded["m199"] == graded["nowhere"] == 0


def test_the_best_node_is_one_better_than_its_equals() -> None:
    """kube-scheduler draws among equals."""
    office = Office("n1", "n2", "n3")
    office.sees(A)
    office.filter(A)
    promise = office.desk.promises.of("a")
    assert promise is not None
    names = ["n1", "n2", "n3"]
    graded = dict(zip(names, office.desk.prioritize(A, names), strict=True))
    best = graded.pop(promise.node)
    assert set(graded.values()) == {best - 1}


def test_what_asks_for_nothing_or_nonsense_is_promised_nothing() -> None:
    """The one goes everywhere, the other nowhere, with the reason."""
    office = Office()
    plain = asks("p", 60, 1_000, labels={NAMES.use: "none"})
    assert office.filter(plain) == ["n1"]
    nonsense = asks("q", 60, 1_000, annotations={NAMES.placement: "sideways"})
    answer = office.desk.filter(nonsense, ["n1"], now=office.now)
    assert "sideways" in answer.unresolvable["n1"]
    assert not office.held()


def test_no_room_is_looked_for_beside_a_write_under_way() -> None:
    """Whoever orders the turns may err; the desk does not give up what is being written."""
    office = at(Stage.WRITING)
    demand = demand_of(parse_request(A, names=NAMES))
    assert office.desk.promise_best(A, demand, now=office.now) is None
    assert office.stage(A) is Stage.WRITING


def test_where_the_best_node_has_room_and_no_plan_the_next_one_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours on one node holds nobody up who has room on another."""
    office, pod = Office("n1", "n2"), asks("p", 50, 1_000)
    plan = Finder.plan
    monkeypatch.setattr(
        Finder, "plan", lambda self, *asked, node: None if node == "n1" else plan(self, *asked, node=node)
    )
    places = Places(picture=office.picture, names=NAMES)
    promise = places.best(pod, demand_of(parse_request(pod, names=NAMES)), ANYWHERE, now=office.now)
    assert promise is not None
    assert promise.node == "n2"
