"""What a bind is answered: what it asks, where there was room, and all looked at once more."""

from __future__ import annotations

import pytest

from aliquot_scheduler.deciding.promises import PROMISE, Ended, Stage
from support.centre import NAMES, asks, gpus, make_node
from support.office import A, B, Office, at

Notes = dict[str, str]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {NAMES.gpus: "2"}),
        ({NAMES.gpus: "2"}, {}),
        ({}, {NAMES.compute_limit: "100"}),
        ({NAMES.compute_limit: "100"}, {}),
        ({}, {NAMES.gpu_model: "H100*"}),
        ({}, {NAMES.gpu_uuid: "!GPU-n1-0,!GPU-n1-1"}),
        ({}, {NAMES.isolation: "mps"}),
        ({}, {NAMES.placement: "spread"}),
        ({}, {NAMES.gpus: "many"}),
    ],
)
def test_who_asks_for_something_else_at_bind_is_placed_anew(before: Notes, after: Notes) -> None:
    """The grant would be of what it asked once: its node refuses that, or it lies where it must not."""
    office = Office(cards=4)
    pod = asks("a", 40, 4000, annotations=before)
    office.sees(pod)
    assert office.filter(pod) == ["n1"]
    office.sees(asks("a", 40, 4000, annotations=after))
    said = office.refused(pod)
    assert said == "what it asks for has changed since room was promised to it; it is placed anew"
    assert office.desk.promises.of(pod.metadata.uid) is None


def test_who_says_the_same_in_other_words_is_bound() -> None:
    """And who says something that is nothing to us."""
    office = Office()
    pod = asks("a", 40, 4000, annotations={NAMES.gpu_model: "A100*, H100*"})
    office.sees(pod)
    assert office.filter(pod) == ["n1"]
    notes = {NAMES.gpu_model: "A100*,H100*", NAMES.turn: "2", "example.org/a": "b"}
    office.sees(asks("a", 40, 4000, annotations=notes))
    assert office.begin(pod).node == "n1"


@pytest.mark.parametrize("stage", [Stage.WRITING, Stage.WRITTEN, Stage.DOUBTFUL])
def test_a_replayed_bind_is_refused_and_changes_nothing(stage: Stage) -> None:
    """One write at a time, whoever calls."""
    office = at(stage)
    assert "being written" in office.refused(A)
    assert office.stage(A) is stage
    assert not office.filter(A)


def test_a_bind_goes_only_where_there_was_room_for_it() -> None:
    """A node that was not among the answers is refused, and the offer stays good."""
    office = Office("n1", "n2")
    office.sees(A)
    assert office.filter(A, "n1") == ["n1"]
    assert "not among" in office.refused(A, "n2")
    assert office.begin(A, "n1").node == "n1"


def test_a_bind_without_an_offer_is_refused() -> None:
    """Never filtered, or too late."""
    office = Office()
    office.sees(A)
    assert "no room is promised" in office.refused(A)


def test_room_moves_to_the_node_that_is_chosen() -> None:
    """And what was kept elsewhere is free."""
    office = Office("n1", "n2")
    office.sees(A, B)
    assert office.filter(A) == ["n1", "n2"]
    first = office.desk.promises.of("a")
    assert first is not None
    other = "n2" if first.node == "n1" else "n1"
    assert office.begin(A, other).node == other
    assert office.filter(B) == [first.node]


def test_a_pod_that_we_were_not_told_of_is_not_bound() -> None:
    """If it were deleted before our watch tells of it, its room would be kept for ever: it is given back, too."""
    office = Office()
    assert office.filter(A) == ["n1"]
    assert "not been told" in office.refused(A)
    assert not office.held()
    office.sees(A)
    assert office.filter(A) == ["n1"]
    assert office.begin(A).node == "n1"


def test_at_bind_all_is_looked_at_once_more() -> None:
    """A GPU that fell sick, a node that went out, room that is gone: the room is given back, the turn goes on."""
    office = at(Stage.OFFERED)
    office.picture.node_seen(make_node("n1", gpus("n1", 1), cordoned=True))
    assert "cordoned" in office.refused(A)
    assert not office.held()
    office.picture.node_gone("n1")
    office.picture.node_seen(make_node("n1", gpus("n1", 1)))
    office.passes(1)
    assert office.filter(A)


def test_a_pod_whose_bind_always_fails_starves_nobody() -> None:
    """Its turn ends though it is filtered again and again; another one gets the only slot."""
    office = Office()
    office.sees(A, B)
    let_in: list[str] = []
    while not let_in:
        if office.filter(A):
            office.begin(A)
            office.ends(A, Ended.REFUSED)
        office.passes(1)
        let_in = office.turn()
    assert office.now < 100 + PROMISE + 5
    assert not office.filter(A)
    assert "led to no binding" in office.desk.filter(A, ["n1"], now=office.now).unresolvable["n1"]
    assert let_in == ["b"]
    assert office.filter(B)


def test_no_decision_counts_on_a_node_that_is_silent_for_two_heart_beats() -> None:
    """To the instant, although nobody has looked at the clock since: neither filter nor bind does."""
    office = Office(cards=2)
    office.sees(A, B)
    office.now = 109.9
    assert office.filter(A) == ["n1"]
    office.now = 110.0
    assert office.filter(B) == []
    assert "not heard of any more" in office.refused(A)
    assert office.stage(A) is None
