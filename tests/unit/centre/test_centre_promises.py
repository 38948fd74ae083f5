"""A promise's life, row by row, and what of it the desk says to kube-scheduler, the turns and the picture."""

from __future__ import annotations

import logging

import msgspec
import pytest

from aliquot_core.objects import Pod
from aliquot_core.request import parse_request
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.deciding.places import Places
from aliquot_scheduler.deciding.promises import DOUBT, NEVER, PROMISE, Ended, Promise, Stage
from aliquot_scheduler.fit.bounds import ANYWHERE
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.queues.turns import Queues
from support.centre import MEMORY, NAMES, WALL, asks, bound, gpus, make_lease, make_node, picture_with, with_grant

replace = msgspec.structs.replace
Notes = dict[str, str]


class Office:
    """A desk with one node of one GPU, or more nodes if asked; heart-beats never age."""

    def __init__(self, *nodes: str, cards: int = 1) -> None:
        self.now = 100.0
        self.nodes = nodes or ("n1",)
        self.picture = picture_with(*(make_node(name, gpus(name, cards)) for name in self.nodes), now=self.now)
        self.turns = Queues(names=NAMES, random=lambda: 0.5, picture=self.picture)
        self.desk = Desk(picture=self.picture, names=NAMES, turns=self.turns)
        self.desk.tell_time(self.now)

    def sees(self, *pods: Pod) -> None:
        """The watch tells of pods."""
        for pod in pods:
            self.desk.pod_seen(pod)
            self.turns.pod_seen(pod)

    def loses(self, pod: Pod) -> None:
        """The watch tells that a pod is gone."""
        self.desk.pod_gone(pod)
        self.turns.pod_gone(pod.metadata.uid)

    def passes(self, seconds: float) -> None:
        """Time passes, and the agents beat."""
        self.now += seconds
        self.picture.tell_time(self.now)
        for name in self.nodes:
            self.picture.lease_seen(make_lease(name, renewed=f"beat {self.now}"), wall=WALL)
        self.desk.tell_time(self.now)

    def filter(self, pod: Pod, *nodes: str) -> list[str]:
        """Which of the nodes will do."""
        return list(self.desk.filter(pod, nodes or self.nodes, now=self.now).nodes)

    def why_not(self, pod: Pod) -> str:
        """What kube-scheduler is told of the first node that will not do."""
        return self.desk.filter(pod, self.nodes, now=self.now).unresolvable[self.nodes[0]]

    def begin(self, pod: Pod, node: str = "n1") -> Promise:
        """Call bind, which is begun."""
        begun = self.desk.begin_bind(uid=pod.metadata.uid, node=node, now=self.now)
        assert isinstance(begun, Promise), begun
        return begun

    def refused(self, pod: Pod, node: str = "n1") -> str:
        """Call bind, which is refused."""
        begun = self.desk.begin_bind(uid=pod.metadata.uid, node=node, now=self.now)
        assert isinstance(begun, str)
        return begun

    def ends(self, pod: Pod, ended: Ended) -> None:
        """The write is over."""
        self.desk.bind_ended(pod.metadata.uid, ended, now=self.now)

    def stage(self, pod: Pod) -> Stage | None:
        """How far the promise has come."""
        promise = self.desk.promises.of(pod.metadata.uid)
        return promise.stage if promise else None

    def held(self) -> set[str]:
        """Who holds room."""
        return set(self.picture.holdings.everything())

    def turn(self) -> list[str]:
        """Who is let through now."""
        turns = self.turns.turns(self.desk, now=self.now)
        return [turn.pod.metadata.uid for turn in turns]


A, B = asks("a", 60, 1_000), asks("b", 60, 1_000)


def at(stage: Stage | None) -> Office:
    """Pod A with a promise that has come so far; B is there too."""
    office = Office()
    office.sees(A, B)
    if stage is None:
        return office
    assert office.filter(A) == ["n1"]
    if stage is not Stage.OFFERED:
        office.begin(A)
    if stage in {Stage.WRITTEN, Stage.DOUBTFUL}:
        office.ends(A, Ended.TAKEN if stage is Stage.WRITTEN else Ended.UNKNOWN)
    assert office.stage(A) is stage
    return office


def granted(office: Office, pod: Pod) -> Pod:
    """The pod as the write leaves it."""
    promise = office.desk.promises.of(pod.metadata.uid)
    assert promise is not None
    return with_grant(pod, promise.plan.grant)


STAGES = list(Stage)
ENDS = [
    ("taken", Ended.TAKEN, Stage.WRITTEN),
    ("refused", Ended.REFUSED, None),
    ("unknown", Ended.UNKNOWN, Stage.DOUBTFUL),
]


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


def test_a_promise_under_way_has_no_end() -> None:
    """Only the sender's word or the watch ends it."""
    office = at(Stage.WRITING)
    promise = office.desk.promises.of("a")
    assert promise is not None
    assert promise.until == NEVER


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
