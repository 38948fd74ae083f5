"""A promise's life, row by row: how it begins, what the watch and time make of it, and what its end leaves held."""

from __future__ import annotations

import logging

import msgspec
import pytest

from aliquot_scheduler.deciding.promises import DOUBT, NEVER, PROMISE, Ended, Stage
from support.centre import NAMES, asks, bound
from support.office import A, B, Office, at, granted

replace = msgspec.structs.replace


STAGES = list(Stage)
ENDS = [
    ("taken", Ended.TAKEN, Stage.WRITTEN),
    ("refused", Ended.REFUSED, None),
    ("unknown", Ended.UNKNOWN, Stage.DOUBTFUL),
]


@pytest.mark.parametrize(("ended", "then"), [one[1:] for one in ENDS], ids=[one[0] for one in ENDS])
def test_a_write_ends_in_one_of_three_ways(ended: Ended, then: Stage | None) -> None:
    """The room is held in all but one of them."""
    office = at(Stage.WRITING)
    office.ends(A, ended)
    assert office.stage(A) is then
    assert office.held() == ({"a"} if then else set())
    assert bool(office.filter(B)) is (then is None)


@pytest.mark.parametrize("ended", [Ended.TAKEN, Ended.REFUSED, Ended.UNKNOWN])
@pytest.mark.parametrize("stage", [None, Stage.OFFERED, Stage.WRITTEN, Stage.DOUBTFUL])
def test_word_on_a_write_that_is_not_under_way_changes_nothing(stage: Stage | None, ended: Ended) -> None:
    """The watch was faster, or it is told twice."""
    office = at(stage)
    office.ends(A, ended)
    assert office.stage(A) is stage


@pytest.mark.parametrize("stage", STAGES)
def test_the_grant_takes_the_promise_s_place(stage: Stage) -> None:
    """Whenever it is seen; the room is held without a gap, and until the pod ends."""
    office = at(stage)
    pod = granted(office, A)
    office.sees(pod)
    assert office.stage(A) is None
    assert office.held() == {"a"}
    office.sees(replace(pod, status=replace(pod.status, phase="Succeeded")))
    assert office.filter(B)


@pytest.mark.parametrize("stage", STAGES)
def test_a_pod_that_is_gone_or_has_ended_is_kept_no_room(stage: Stage) -> None:
    """Whatever the stage."""
    gone, over = at(stage), at(stage)
    gone.loses(A)
    over.sees(replace(A, status=replace(A.status, phase="Failed")))
    for office in (gone, over):
        assert office.stage(A) is None
        assert not office.held()
        office.passes(2 * DOUBT)
        assert "a" not in office.turns


@pytest.mark.parametrize(
    ("stage", "then"),
    [
        (Stage.OFFERED, None),
        (Stage.WRITING, None),
        (Stage.WRITTEN, Stage.WRITTEN),
        (Stage.DOUBTFUL, None),
    ],
)
@pytest.mark.parametrize("note", ["none", "another's"])
def test_a_pod_that_a_stranger_has_bound_is_kept_no_room(stage: Stage, then: Stage | None, note: str) -> None:
    """No write of ours can land any more; only where one has landed, somebody has taken the grant off."""
    office = at(stage)
    by_others = replace(A, spec=replace(A.spec, node_name="n1"))
    if note == "another's":
        forged = bound(asks("x", 60, 1_000), node="n1", held={"GPU-n1-0": (60, 1_000)}).metadata.annotations
        by_others = replace(by_others, metadata=replace(by_others.metadata, annotations=forged))
    office.sees(by_others)
    assert office.stage(A) is then
    assert bool(office.filter(B)) is (then is None)


@pytest.mark.parametrize("stage", STAGES)
def test_only_an_offer_can_be_given_up(stage: Stage) -> None:
    """A gate whose lifting got no answer may have been lifted: what is being bound meanwhile stays."""
    office = at(stage)
    office.desk.take_back("a")
    assert office.stage(A) is (None if stage is Stage.OFFERED else stage)


@pytest.mark.parametrize("stage", STAGES)
def test_a_pod_that_is_to_go_is_not_offered_room(stage: Stage) -> None:
    """What is being written may land before it is marked, and is kept."""
    office = at(stage)
    leaving = replace(A, metadata=replace(A.metadata, deletion_timestamp="2026-11-21T10:00:00Z"))
    office.sees(leaving)
    assert office.stage(A) is (None if stage is Stage.OFFERED else stage)
    if stage is Stage.OFFERED:
        assert office.why_not(A) == "the pod is being deleted"
        assert not office.held()


def test_who_asks_for_a_pod_that_is_gone_is_kept_no_room() -> None:
    """kube-scheduler's watch may be behind ours: nobody would ever tell us of that pod again."""
    gone, over = Office(), Office()
    for office in (gone, over):
        office.sees(A)
    gone.loses(A)
    over.sees(replace(A, status=replace(A.status, phase="Failed")))
    for office in (gone, over):
        for _ in range(4):
            assert office.why_not(A) == "the pod has ended or is gone"
            office.passes(14.0)
        assert not office.held()
        assert office.filter(B)


def test_a_clock_that_jumps_back_forgets_nobody_who_is_gone() -> None:
    """Its minute is not over sooner."""
    office = Office()
    office.sees(A)
    office.loses(A)
    for seconds in (50.0, -40.0, 50.0, -90.0, 50.0):
        office.passes(seconds)
        assert office.why_not(A) == "the pod has ended or is gone"


def test_who_is_gone_is_forgotten_within_minutes() -> None:
    """By then nobody asks any more; should somebody, its room is given back when its turn is over."""
    office = Office()
    office.sees(A)
    office.loses(A)
    for _ in range(2):
        office.passes(60.0)
    assert office.filter(A)
    assert office.held() == {"a"}
    office.passes(PROMISE)
    assert not office.held()


def test_a_pod_that_is_there_after_all_finds_room() -> None:
    """An API server that was put back to an older state tells again of one that was gone."""
    office = Office()
    office.sees(A)
    office.loses(A)
    office.sees(A)
    assert office.filter(A)


@pytest.mark.parametrize(
    ("stage", "after", "then"),
    [
        (Stage.OFFERED, PROMISE, None),
        (Stage.OFFERED, PROMISE - 1, Stage.OFFERED),
        (Stage.WRITING, 3_600.0, Stage.WRITING),
        (Stage.WRITTEN, 3_600.0, Stage.WRITTEN),
        (Stage.DOUBTFUL, 3_600.0, Stage.DOUBTFUL),
    ],
)
def test_only_an_offer_ends_by_time(stage: Stage, after: float, then: Stage | None) -> None:
    """A watch may lag for longer than any time."""
    office = at(stage)
    office.passes(after)
    assert office.stage(A) is then


def test_an_offer_that_grew_old_is_a_lost_turn() -> None:
    """The room goes to others; the pod is refused until it has a new turn."""
    office = at(Stage.OFFERED)
    office.passes(PROMISE)
    assert not office.filter(A)
    assert office.turn() == ["b"]
    assert office.filter(B)
    office.ends(B, Ended.REFUSED)
    office.passes(3_600.0)
    assert office.turn() == ["a"]
    assert office.filter(A)


def test_a_doubt_is_looked_up_once_no_write_can_land_any_more() -> None:
    """Not before."""
    office = at(Stage.DOUBTFUL)
    office.passes(DOUBT - 1)
    assert office.desk.doubts(office.now) == []
    office.passes(1)
    assert [promise.pod.metadata.uid for promise in office.desk.doubts(office.now)] == ["a"]


@pytest.mark.parametrize("case", ["bound by us", "not bound", "bound by others", "gone"])
def test_what_the_api_server_says_ends_a_doubt(case: str) -> None:
    """Whatever the watch has told so far."""
    office = at(Stage.DOUBTFUL)
    office.passes(DOUBT)
    (promise,) = office.desk.doubts(office.now)
    found = {
        "bound by us": granted(office, A),
        "not bound": A,
        "bound by others": replace(A, spec=replace(A.spec, node_name="n1")),
        "gone": None,
    }[case]
    office.desk.looked_up(promise, found, now=office.now)
    assert office.stage(A) is None
    assert office.held() == ({"a"} if case == "bound by us" else set())
    assert bool(office.turn()) is (case != "bound by us")
    assert bool(office.filter(B)) is (case != "bound by us")


def test_late_word_from_the_api_server_does_not_bring_a_pod_back() -> None:
    """The watch told meanwhile that it is gone, and nobody would tell so again."""
    office = at(Stage.DOUBTFUL)
    office.passes(DOUBT)
    (promise,) = office.desk.doubts(office.now)
    found = granted(office, A)
    office.loses(A)
    office.desk.looked_up(promise, found, now=office.now)
    office.desk.heard(promise, found)
    assert not office.held()


def test_a_late_question_about_a_granted_pod_does_not_touch_its_grant() -> None:
    """kube-scheduler may know less than we; a promise would take the grant's place, and grow old."""
    office = Office("n1", "n2")
    office.sees(A)
    office.filter(A)
    pod = granted(office, A)
    office.sees(pod)
    assert not office.filter(A)
    assert "bound already" in office.desk.filter(A, ["n1"], now=office.now).unresolvable["n1"]
    # Even if our own watch tells something older than what we were told otherwise.
    office.sees(A)
    assert not office.filter(A)
    assert office.turn() == []
    office.passes(10 * PROMISE)
    assert office.held() == {"a"}


def test_a_pod_bound_by_a_stranger_is_offered_nothing() -> None:
    """Its binding could not land."""
    office = Office()
    office.sees(replace(A, spec=replace(A.spec, node_name="n1")))
    assert not office.filter(A)
    assert not office.held()


ELSEWHERE = bound(A, node="n2", held={"GPU-n2-0": (60, 1_000)})


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "not readable"), (ELSEWHERE.metadata.annotations[NAMES.grant], "for pod a on node n2"), (None, "")],
    ids=["garbage", "another node's", "taken off"],
)
def test_a_grant_that_is_spoilt_later_holds_no_more_than_one_that_was_never_good(
    caplog: pytest.LogCaptureFixture, text: str | None, why: str
) -> None:
    """Whoever leads next, and reads it anew, knows the same; the pod is named, if there is something to be read."""
    office = Office()
    office.sees(granted := bound(A, node="n1", held={"GPU-n1-0": (60, 1_000)}))
    assert office.held() == {"a"}
    notes = {**granted.metadata.annotations, NAMES.grant: text}
    spoilt = replace(granted, metadata=replace(granted.metadata, annotations={k: v for k, v in notes.items() if v}))
    with caplog.at_level(logging.ERROR):
        office.sees(spoilt)
        rebuilt = Office()
        rebuilt.sees(spoilt)
    assert office.held() == rebuilt.held() == set()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == (2 if text else 0)
    assert all("team/pod-a" in line and why in line for line in told)


def test_a_promise_under_way_has_no_end() -> None:
    """Only the sender's word or the watch ends it."""
    office = at(Stage.WRITING)
    promise = office.desk.promises.of("a")
    assert promise is not None
    assert promise.until == NEVER
