"""Who uses more than granted is noted, warned, throttled and at last given up: by what lasts, as far as was said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.isolation.ladder import LOOKS, Climber, Rung, Rungs, Use, climbed, compute_excess, memory_excess
from aliquot_agent.isolation.over_use import OverUse
from aliquot_agent.web.accounts import SliceUse
from aliquot_core.instants import second_time
from aliquot_core.isolation import is_over_use
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Deleted, Modified
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import DisruptionBlockedError, UnreachableError
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.centre.evictions import Evictions
from aliquot_scheduler.centre.over_use import OverUseEvictor, overdue
from support.centre_means import means
from support.clocks import VirtualClock
from support.fake_api import FakeApi

NAMES = Names()
A = "GPU-a"
PATH = "/api/v1/namespaces/team/pods/u1/status"
RUNGS = Rungs(top=Rung.EVICT, warn=30.0, throttle=60.0, evict=120.0)


def use(mib: int | None = 100, percent: int | None = 0, *, shared: bool = True, fills: bool = False) -> Use:
    """A slice of 1,000 MiB and up to 50 %, used so much."""
    return Use(memory_mib=1000, limit=50, used_mib=mib, used_percent=percent, shared=shared, fills=fills)


@pytest.mark.parametrize(
    ("sample", "what"),
    [
        (use(1000, 50), ""),
        (use(1064, 60), ""),
        (use(1065), "uses 1065 of 1000 MiB"),
        (use(100, 61), "uses 61 % of its GPU's time, its limit is 50 %"),
        (use(100, 100, shared=False), ""),
        (use(1065, 100), "uses 1065 of 1000 MiB"),
        (use(None, fills=True), "makes its account larger, which takes room on the node's disk"),
        (Use(memory_mib=10_000, limit=1, used_mib=10_500, used_percent=0, shared=True), ""),
        (Use(memory_mib=10_000, limit=1, used_mib=10_501, used_percent=0, shared=True), "uses 10501 of 10000 MiB"),
    ],
)
def test_what_is_too_much(sample: Use, what: str) -> None:
    """Beyond what rounding and the driver's own part make of it; compute only beside others."""
    assert (memory_excess(sample) or compute_excess(sample) or "") == what


def after(*samples: tuple[float, Use], rungs: Rungs = RUNGS) -> list[Rung]:
    """The rung after each sample."""
    climber, found = Climber(), []
    for now, sample in samples:
        climber = climbed(climber, sample, now=now, rungs=rungs)
        found.append(climber.rung)
    return found


def test_each_rung_is_reached_in_its_time() -> None:
    """Counted from the sample that brought it onto the ladder."""
    seconds = [0, 10, 20, 40, 50, 79, 80, 139, 140, 900]
    assert after(*((float(at), use(2000)) for at in seconds)) == [
        *[Rung.INSIDE] * 2, Rung.NOTE, Rung.NOTE, Rung.WARN, Rung.WARN, Rung.THROTTLE, Rung.THROTTLE, *[Rung.EVICT] * 2
    ]  # fmt: skip


@pytest.mark.parametrize("top", list(Rung)[1:])
def test_nobody_is_above_the_top(top: Rung) -> None:
    """A node that only warns throttles nobody, whatever is used for however long."""
    rungs = msgspec.structs.replace(RUNGS, top=top)
    assert after(*((10.0 * at, use(2000, 100)) for at in range(50)), rungs=rungs)[-1] is top


def test_nobody_is_given_up_for_compute() -> None:
    """It can be taken back at any moment; memory as well, and it is a matter of memory."""
    assert after(*((10.0 * at, use(100, 100)) for at in range(50)))[-1] is Rung.THROTTLE
    assert after(*((10.0 * at, use(100 if at < 40 else 2000, 100)) for at in range(50)))[-1] is Rung.EVICT


def test_what_does_not_last_leads_nowhere() -> None:
    """Two samples are no over-use, and two without it no end of it; the third counts."""
    flickers = [use(2000), use(2000), use()] * 10
    assert set(after(*((10.0 * at, one) for at, one in enumerate(flickers)))) == {Rung.INSIDE}
    mends = [*[use(2000)] * 10, use(), use(), use(2000), use(), use(), use()]
    assert after(*((10.0 * at, one) for at, one in enumerate(mends)))[-7:] == [
        Rung.THROTTLE, Rung.THROTTLE, Rung.THROTTLE, Rung.THROTTLE, Rung.THROTTLE, Rung.THROTTLE, Rung.INSIDE
    ]  # fmt: skip


uses = st.builds(use, st.none() | st.integers(0, 3000), st.none() | st.integers(0, 100), shared=st.booleans())


tops = st.sampled_from(list(Rung)[1:])


@given(st.lists(st.tuples(uses, tops), max_size=40))
def test_only_what_is_known_moves_anybody(samples: list[tuple[Use, Rung]]) -> None:
    """No sample of unknown use changes a rung; a rise needs an excess, an end three samples without; a top holds."""
    climber, inside = Climber(), {"memory": 0, "compute": 0}
    for at, (sample, top) in enumerate(samples):
        before, rungs = climber, msgspec.structs.replace(RUNGS, top=top)
        climber = climbed(climber, sample, now=10.0 * at, rungs=rungs)
        found = {"memory": memory_excess(sample), "compute": compute_excess(sample)}
        for kind, what in found.items():
            inside[kind] = 0 if what else inside[kind] + (what is not None)
        assert climber.rung <= top
        if set(found.values()) == {None}:
            assert climber == msgspec.structs.replace(before, rung=min(before.rung, top))
        if climber.rung > before.rung:
            assert any(found.values())
        if before.rung and not climber.rung:
            assert not any(found.values())
            assert (inside["memory"] if before.memory.over else inside["compute"]) >= LOOKS


figures = st.none() | st.sampled_from([100, 2000])
percents = st.none() | st.sampled_from([0, 100])


@given(st.lists(figures, max_size=40), st.lists(percents, max_size=40))
def test_what_is_never_told_is_taken_to_be_inside(mibs: list[int | None], percents: list[int | None]) -> None:
    """A driver that tells no use by time, or no memory by process, makes nothing of the other worse or better."""
    quiet = [(10.0 * at, use(mib, None)) for at, mib in enumerate(mibs)]
    assert after(*quiet) == after(*((at, msgspec.structs.replace(one, used_percent=0)) for at, one in quiet))
    hidden = [(10.0 * at, use(None, percent)) for at, percent in enumerate(percents)]
    assert after(*hidden) == after(*((at, msgspec.structs.replace(one, used_mib=100)) for at, one in hidden))


OVER_BOTH, MEMORY, COMPUTE = use(2000, 100), use(2000, None), use(None, 100)


@pytest.mark.parametrize(
    ("then", "rung"),
    [
        ([use(100, None)] * 2, Rung.EVICT),
        ([use(100, None)] * 3, Rung.THROTTLE),
        ([use(None, 0)] * 9, Rung.EVICT),
        ([use(100, 100)] * 2, Rung.EVICT),
        ([use(100, 100)] * 9, Rung.THROTTLE),
        ([use(100, None), use(None, 0)] * 2, Rung.EVICT),
        ([use(100, None), use(None, 0)] * 3, Rung.INSIDE),
    ],
    ids=["two", "memory-ends", "compute-ends", "flicker", "compute-stays", "in-turns-two", "in-turns-three"],
)
def test_memory_ends_by_memory_and_compute_by_compute(then: list[Use], rung: Rung) -> None:
    """Who had too much of both stays for what has not ended, and nobody stays given up for compute."""
    samples = [*[OVER_BOTH] * 20, *then]
    assert after(*((10.0 * at, one) for at, one in enumerate(samples)))[-1] is rung


@pytest.mark.parametrize(("inside", "over"), [(use(100, None), MEMORY), (use(None, 0), COMPUTE)])
def test_one_sample_inside_begins_the_count_anew(inside: Use, over: Use) -> None:
    """Also where the other figure is not known."""
    samples = [over, over, inside] * 5
    assert set(after(*((10.0 * at, one) for at, one in enumerate(samples)))) == {Rung.INSIDE}


def test_one_sample_of_too_much_memory_gives_nobody_up() -> None:
    """However long it has had too much compute: memory counts from its third sample."""
    samples = [*[use(100, 100)] * 40, *[use(2000, 100)] * 3]
    assert after(*((10.0 * at, one) for at, one in enumerate(samples)))[-3:] == [
        Rung.THROTTLE, Rung.THROTTLE, Rung.EVICT
    ]  # fmt: skip


class Node:
    """A node with one pod, its ladder and its API server."""

    def __init__(self, *, top: Rung = Rung.EVICT, conditions: Sequence[dict[str, str]] = ()) -> None:
        self.clock, self.api = VirtualClock(), FakeApi()
        self.pods: dict[str, Pod] = {}
        status = {"phase": "Running", "conditions": list(conditions)}
        self.api.put(PATH, {"metadata": {"name": "u1", "namespace": "team", "uid": "u1"}, "status": status})
        client = KubeClient(transport=self.api)
        events = EventRecorder(
            client=client, clock=self.clock, random=lambda: 0.5, controller="c", instance="i", ledger=EventLedger()
        )
        self.ladder = OverUse(
            names=NAMES,
            clock=self.clock,
            client=client,
            events=events,
            pods=lambda: self.pods,
            rungs=msgspec.structs.replace(RUNGS, top=top),
        )
        self.see()
        self.runs = [asyncio.ensure_future(self.ladder.run()), asyncio.ensure_future(events.run())]

    def see(self, *, word: str | None = None) -> None:
        """Let the watch tell of the pod, and of the word of its queue if there is one."""
        if word is not None:
            self.api.objects[PATH]["metadata"]["annotations"] = {NAMES.over_use: word}
        self.pods["u1"] = msgspec.convert(self.api.objects[PATH], Pod)

    async def use(
        self, mib: int | None, *, seconds: float = 10.0, times: int = 1, filling: Sequence[Owner] = ()
    ) -> None:
        """So many samples of a slice of 1,000 MiB."""
        for _ in range(times):
            one = SliceUse(
                namespace="team", pod="u1", uid="u1", container="main", gpu=A, compute=10, limit=20, memory_mib=1000,
                used_mib=mib, used_percent=0,
            )  # fmt: skip
            self.ladder.hear([one], filling=filling)
            await self.clock.advance(seconds)

    @property
    def told(self) -> list[tuple[str, str, str]]:
        """Type, reason and text of each Event."""
        made = [json.loads(one.body or b"{}") for one in self.api.asked if one.path.endswith("/events")]
        return [(one["type"], one["reason"], one["note"]) for one in made]

    @property
    def condition(self) -> dict[str, Any]:
        """What stands on the pod, without its time."""
        found = [one for one in self.api.objects[PATH]["status"]["conditions"] if one["type"] == NAMES.of("granted")]
        return found[0] if found else {}

    async def close(self) -> None:
        """End."""
        for one in self.runs:
            one.cancel()
        await asyncio.gather(*self.runs, return_exceptions=True)


async def test_a_pod_is_told_of_each_rung_once_and_given_up_on_the_last() -> None:
    """Events as it climbs; then a condition, which is taken back when it keeps inside."""
    node = Node()
    await node.use(2000, times=LOOKS)
    assert node.told == []
    assert node.ladder.rungs == {("u1", "main", A): Rung.NOTE}
    await node.use(2000, times=20)
    what = f"main uses 2000 of 1000 MiB, on GPU {A}"
    assert node.told == [
        ("Warning", "OverUse", what),
        ("Warning", "OverUse", f"{what}; it gets no idle compute until it keeps inside"),
        ("Warning", "OverUse", f"{what}; it is evicted unless it keeps inside soon"),
    ]
    assert (node.condition["status"], node.condition["reason"]) == ("False", "OverUse")
    assert node.condition["message"] == what
    node.see()
    patches = len([one for one in node.api.writes if one.path.endswith("/status")])
    await node.use(2000, times=5)
    assert len([one for one in node.api.writes if one.path.endswith("/status")]) == patches == 1
    await node.use(100, times=LOOKS)
    assert (node.condition["status"], node.condition["reason"]) == ("True", "InsideSlice")
    assert node.told[-1] == ("Normal", "InsideSlice", f"main keeps inside its slice of GPU {A} again")
    assert node.ladder.rungs == {}
    await node.close()


async def test_who_fills_the_node_s_disk_by_its_account_climbs_too() -> None:
    """Once leads nowhere; sample after sample leads up to eviction, with words; another container's is not its own."""
    node = Node()
    own, other = Owner(pod="u1", container="main"), Owner(pod="u1", container="side")
    await node.use(100, filling=[own])
    await node.use(100, times=10, filling=[other])
    assert node.ladder.rungs == {}
    await node.use(100, times=20, filling=[own])
    assert node.ladder.rungs == {("u1", "main", A): Rung.EVICT}
    assert node.condition["message"] == (
        f"main makes its account larger, which takes room on the node's disk, on GPU {A}"
    )
    await node.use(100, times=LOOKS)
    assert (node.ladder.rungs, node.condition["status"]) == ({}, "True")
    await node.close()


async def test_throttled_are_those_from_that_rung_on() -> None:
    """And nobody on a node that does not go so far."""
    for top, throttled in ((Rung.WARN, set()), (Rung.THROTTLE, {("u1", "main", A)})):
        node = Node(top=top)
        await node.use(2000, times=30)
        assert node.ladder.throttled() == throttled
        assert node.condition == {}
        await node.use(100, times=LOOKS)
        assert node.told[-1][:2] == ("Normal", "InsideSlice")
        await node.close()


@pytest.mark.parametrize(
    ("node", "word", "highest"),
    [
        (Rung.EVICT, "note", Rung.NOTE),
        (Rung.EVICT, "warn", Rung.WARN),
        (Rung.NOTE, "throttle", Rung.THROTTLE),
        (Rung.WARN, "evict", Rung.EVICT),
        (Rung.THROTTLE, "", Rung.THROTTLE),
        (Rung.THROTTLE, "a word of a later version", Rung.THROTTLE),
    ],
)
async def test_a_queue_s_word_comes_before_its_node_s(node: Rung, word: str, highest: Rung) -> None:
    """Up and down; who has none that is known goes as far as the node says."""
    stage = Node(top=node)
    stage.see(word=word)
    await stage.use(2000, times=30)
    assert stage.ladder.rungs == {("u1", "main", A): highest}
    assert bool(stage.ladder.throttled()) is (highest >= Rung.THROTTLE)
    assert bool(stage.condition) is (highest is Rung.EVICT)
    await stage.close()


@pytest.mark.parametrize("mib", [2000, None])
async def test_a_queue_that_goes_less_far_lets_its_pods_down_at_once(mib: int | None) -> None:
    """Also where nothing is known of what they use now; the word by which they were to go is taken back."""
    node = Node(top=Rung.WARN)
    node.see(word="evict")
    await node.use(2000, times=20)
    node.see(word="throttle")
    assert is_over_use(node.pods["u1"], names=NAMES)
    await node.use(mib)
    assert node.ladder.rungs == {("u1", "main", A): Rung.THROTTLE}
    assert (node.condition["status"], node.condition["reason"]) == ("True", "OverUseLetBe")
    node.see(word="evict")
    await node.use(2000)
    assert (node.condition["status"], node.condition["reason"]) == ("False", "OverUse")
    await node.close()


GIVEN_UP = {"type": NAMES.of("granted"), "status": "False", "reason": "OverUse", "message": "main uses too much"}


async def test_the_next_agent_keeps_to_what_was_said() -> None:
    """A restart neither takes the condition back nor begins to count anew; keeping inside does."""
    node = Node(conditions=[GIVEN_UP])
    await node.clock.advance(60.0)
    assert node.condition["status"] == "False"
    await node.use(2000)
    assert node.ladder.rungs == {("u1", "main", A): Rung.EVICT}
    assert node.condition["status"] == "False"
    await node.use(100, times=LOOKS)
    assert node.condition["status"] == "True"
    await node.close()


async def test_a_condition_that_could_not_be_written_is_written_later() -> None:
    """An API server that is away for a while changes nothing of it."""
    node = Node()
    await node.use(2000, times=14)
    node.api.before += [UnreachableError("away", where="a test")] * 3
    await node.use(2000, times=6)
    assert node.condition["reason"] == "OverUse"
    await node.close()


def pod(uid: str = "u1", *, reason: str = "OverUse", at: float = 0.0, **more: Any) -> Pod:
    """A pod with such a condition since then."""
    told = {**GIVEN_UP, "reason": reason, "lastTransitionTime": second_time(at)}
    body = {
        "metadata": {"name": f"pod-{uid}", "namespace": "team", "uid": uid, **more.pop("metadata", {})},
        "spec": {"nodeName": more.pop("node", "n1")},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, told | more]},
    }
    return msgspec.convert(body, Pod)


@pytest.mark.parametrize(
    ("one", "due"),
    [
        (pod(at=40.0), True),
        (pod(at=41.0), False),
        (pod(status="True"), False),
        (pod(reason="NoValidGrant"), False),
        (pod(type="Other"), False),
        (pod(node=""), False),
        (pod(lastTransitionTime=None), False),
        (pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False),
    ],
)
def test_a_pod_goes_when_its_grace_is_over(one: Pod, due: bool) -> None:
    """And only one that its agent has given up, and that is not on its way out."""
    assert bool(list(overdue([one], names=NAMES, wall=100.0, grace=60.0, word=lambda _: ""))) is due


@pytest.mark.parametrize(("word", "due"), [("", 1), ("evict", 1), ("throttle", 0), ("warn", 0), ("note", 0)])
def test_a_pod_whose_queue_goes_less_far_stays(word: str, due: int) -> None:
    """At once when the queue says so, whether or not the pod's agent lives to take its word back."""
    words = {"u1": word, "u2": "evict"}
    found = overdue([pod("u1"), pod("u2")], names=NAMES, wall=100.0, grace=60.0, word=words.__getitem__)
    assert len(list(found)) == 1 + due


class Centre:
    """A leader who evicts, and an API server that takes evictions."""

    def __init__(self) -> None:
        self.clock, self.api, self.silent, self.word = VirtualClock(start=1000.0), FakeApi(), "", ""
        given = means(self.api, clock=self.clock, why_not=lambda: self.silent)
        self.evictor = OverUseEvictor(
            means=given, grace=60.0, evictions=Evictions(means=given), word=lambda _: self.word
        )

    async def run(self, seconds: float) -> int:
        """How many evictions were asked for in so long."""
        before = len(self.api.asked)
        running = asyncio.ensure_future(self.evictor.run())
        await self.clock.advance(seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return len([one for one in self.api.asked[before:] if one.path.endswith("/eviction")])


async def test_the_leader_evicts_whom_an_agent_gave_up() -> None:
    """Of the very pod, once its grace is over, and not when the word was taken back or the pod is gone."""
    centre = Centre()
    now = centre.clock.wall()
    first, second, third = (pod(uid, at=now) for uid in ("u1", "u2", "u3"))
    for one in (first, second, third):
        centre.evictor.pod_changed(Added(new=one))
    assert await centre.run(50.0) == 0
    centre.evictor.pod_changed(Modified(old=second, new=pod("u2", at=now, status="True")))
    centre.evictor.pod_changed(Deleted(old=third))
    assert await centre.run(12.0) == 1
    (asked,) = centre.api.writes
    assert asked.path == "/api/v1/namespaces/team/pods/pod-u1/eviction"
    assert json.loads(asked.body or b"")["deleteOptions"]["preconditions"] == {"uid": "u1"}


async def test_the_leader_goes_by_the_queue_s_word_of_that_moment() -> None:
    """A queue that says less keeps its pod; when it says so no more, the pod goes."""
    centre = Centre()
    centre.evictor.pod_changed(Added(new=pod("u1")))
    centre.word = "warn"
    assert await centre.run(100.0) == 0
    centre.word = "evict"
    assert await centre.run(6.0) == 1


async def test_a_pod_made_anew_under_the_name_is_another() -> None:
    """Nothing of the one before is held against it."""
    centre = Centre()
    centre.evictor.pod_changed(Added(new=pod("u1")))
    centre.evictor.pod_changed(Modified(old=pod("u1"), new=pod("u2", status="True")))
    assert await centre.run(100.0) == 0


@pytest.mark.parametrize("trouble", [DisruptionBlockedError, UnreachableError])
async def test_who_could_not_be_evicted_is_asked_again(trouble: type[Exception]) -> None:
    """What a budget forbids now it may allow later; and nobody is asked by one who does not lead."""
    centre = Centre()
    centre.evictor.pod_changed(Added(new=pod("u1")))
    centre.silent = "another leads"
    assert await centre.run(20.0) == 0
    centre.silent = ""
    centre.api.before = [trouble("not now", where="a test")] * 2  # type: ignore[call-arg, list-item]  # its double
    assert await centre.run(16.0) == 3
    assert centre.evictor.evicted == 1


async def test_nobody_is_evicted_whose_agent_takes_its_word_back_meanwhile() -> None:
    """While another one is asked, which may take seconds."""
    centre = Centre()
    now = centre.clock.wall()
    first, second = (pod(uid, at=now) for uid in ("u1", "u2"))
    for one in (first, second):
        centre.evictor.pod_changed(Added(new=one))
    answer = centre.api.request

    async def meanwhile(question: Question) -> Response:
        centre.evictor.pod_changed(Modified(old=second, new=pod("u2", at=now, status="True")))
        return await answer(question)

    centre.api.request = meanwhile  # type: ignore[method-assign]
    assert await centre.run(62.0) == 1
    assert centre.api.writes[0].path.endswith("/pod-u1/eviction")


async def test_nobody_else_is_asked_when_nobody_answers() -> None:
    """For each we would wait for seconds."""
    centre = Centre()
    for uid in ("u1", "u2"):
        centre.evictor.pod_changed(Added(new=pod(uid)))
    centre.api.before = [UnreachableError("no", where="a test")]
    assert await centre.run(6.0) == 1
    assert await centre.run(6.0) == 2


def test_a_condition_of_another_kind_is_no_over_use() -> None:
    """By type, status and reason."""
    assert is_over_use(pod(), names=NAMES) is not None
    for other in (pod(type="Ready"), pod(status="True"), pod(reason="NoValidGrant")):
        assert is_over_use(other, names=NAMES) is None
