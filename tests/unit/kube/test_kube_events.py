"""Events: counted, bounded, and in the end written or known to be dropped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from aliquot_core.objects import ObjectReference
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ForbiddenError, UnreachableError
from aliquot_kube.event_ledger import Create, EventLedger, Happening, Limits, Repeat, Write
from aliquot_kube.events import EventRecorder, Failed
from aliquot_kube.transport import Question
from support.clocks import VirtualClock
from support.fake_api import FakeApi

POD = ObjectReference(api_version="v1", kind="Pod", namespace="team", name="train", uid="u1")
NODE = ObjectReference(api_version="v1", kind="Node", name="node1")


def happening(note: str = "the GPU is sick", *, regarding: ObjectReference = POD) -> Happening:
    """Something that happened to a pod."""
    return Happening(regarding=regarding, type="Warning", reason="Sick", action="Hold", note=note)


def drain(ledger: EventLedger, *, now: float) -> list[Write]:
    """Write all that is due."""
    writes = []
    while (write := ledger.next_write(now=now)) is not None:
        ledger.written(write, name="n", now=now)
        writes.append(write)
    return writes


def test_repeats_become_one_count_written_ever_more_seldom() -> None:
    """A minute of the same once a second is one Event and one patch; an hour is few."""
    ledger = EventLedger()
    writes: list[tuple[float, Write]] = []
    for second in range(3_600):
        ledger.record(happening(), now=second, wall=second)
        writes += [(second, write) for write in drain(ledger, now=second)]
    assert isinstance(writes[0][1], Create)
    assert all(isinstance(write, Repeat) for _, write in writes[1:])
    assert [second for second, _ in writes] == [0, 30, 90, 210, 450, 930, 1530, 2130, 2730, 3330]
    assert [write.count for _, write in writes[1:3] if isinstance(write, Repeat)] == [31, 91]


def test_after_a_long_silence_it_is_a_new_event() -> None:
    """A series that ended is not continued."""
    ledger = EventLedger()
    ledger.record(happening(), now=0, wall=0)
    drain(ledger, now=0)
    ledger.record(happening(), now=901, wall=901)
    assert [type(write) for write in drain(ledger, now=901)] == [Create]


def test_one_object_can_not_flood_and_does_not_silence_others() -> None:
    """25 new Events for one pod, then one in five minutes; another pod has its own allowance."""
    ledger = EventLedger()
    for number in range(100):
        ledger.record(happening(f"failure {number}"), now=0, wall=0)
    assert len(drain(ledger, now=0)) == 25
    assert ledger.dropped == 75
    ledger.record(happening(regarding=NODE), now=0, wall=0)
    assert len(drain(ledger, now=0)) == 1
    ledger.record(happening("later"), now=300, wall=300)
    assert len(drain(ledger, now=300)) == 1


def test_all_writes_together_are_bounded_by_the_second() -> None:
    """50 writes at once, then five a second, whatever happens to how many objects."""
    ledger = EventLedger()
    for number in range(200):
        ledger.record(happening(regarding=ObjectReference(kind="Pod", name=str(number))), now=0, wall=0)
    assert len(drain(ledger, now=0)) == 50
    assert ledger.wait(now=0) == pytest.approx(0.2)
    assert len(drain(ledger, now=1)) == 5


def test_what_is_over_is_forgotten_and_what_is_not_written_is_kept() -> None:
    """A node lives for months: pods that came and went with an Event each must not add up to the bound."""
    ledger = EventLedger()
    for hour in range(100):
        ledger.record(happening(regarding=msgspec.structs.replace(POD, uid=f"u{hour}")), now=3600 * hour, wall=0)
        assert len(drain(ledger, now=3600 * hour)) == 1
    assert len(ledger._series) == 1
    assert len(ledger._objects) == 1
    ledger.record(happening(regarding=NODE), now=360_000, wall=0)
    ledger.record(happening(), now=400_000, wall=0)
    assert [write.happening.regarding for write in drain(ledger, now=400_000)] == [NODE, POD]
    assert ledger.dropped == 0


def test_an_allowance_that_is_used_up_is_not_forgotten() -> None:
    """Or a pod could flood once for each time that nobody looked."""
    ledger = EventLedger()
    for number in range(100):
        ledger.record(happening(f"failure {number}"), now=0, wall=0)
    drain(ledger, now=0)
    ledger.record(happening("later"), now=301, wall=0)
    ledger.record(happening("too soon after it"), now=302, wall=0)
    assert len(drain(ledger, now=302)) == 1


def test_memory_is_bounded_and_what_falls_out_is_counted() -> None:
    """Beyond the limit the oldest is forgotten, and said to be dropped if it was not written."""
    ledger = EventLedger(limits=Limits(most_series=10))
    for number in range(25):
        ledger.record(happening(regarding=ObjectReference(kind="Pod", name=str(number))), now=0, wall=0)
    assert ledger.dropped == 15
    assert len(drain(ledger, now=0)) == 10
    assert len(ledger._objects) == 10


class Played:
    """A ledger, and an API server of which only the counts are kept."""

    def __init__(self) -> None:
        self.ledger = EventLedger(limits=Limits(most_series=4, object_burst=5))
        self.now = 0.0
        self.recorded = 0
        self.lost = False
        self.counts: dict[str, int] = {}

    def record(self, which: int) -> None:
        """Something happens to one of a few objects."""
        self.ledger.record(happening(regarding=ObjectReference(name=str(which))), now=self.now, wall=self.now)
        self.recorded += 1

    def write(self, end: str, seconds: float) -> None:
        """A write that is due is tried and ends in this way."""
        write = self.ledger.next_write(now=self.now)
        if write is None:
            return
        again = self.ledger.next_write(now=self.now)
        assert again is None or again.happening != write.happening
        if again is not None:
            self.finish(again)
        if end == "fail":
            self.ledger.failed(write, now=self.now, again_after=seconds)
        elif end == "refuse":
            before, self.lost = self.ledger.dropped, True
            self.ledger.failed(write, now=self.now, again_after=None)
            assert self.ledger.dropped > before
        elif end == "vanish" and isinstance(write, Repeat):
            self.lost = True
            self.ledger.vanished(write, now=self.now)
        else:
            self.finish(write)

    def finish(self, write: Write) -> None:
        """The API server takes a write."""
        name = write.name if isinstance(write, Repeat) else f"event-{len(self.counts)}"
        self.counts[name] = write.count if isinstance(write, Repeat) else 1
        self.ledger.written(write, name=name, now=self.now)

    def settle(self) -> None:
        """All that waits is written."""
        while (wait := self.ledger.wait(now=self.now)) is not None:
            self.now += wait
            self.write("finish", 0.0)


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["record", "record", "record", "finish", "fail", "refuse", "vanish", "pass"]),
            st.integers(0, 6),
            st.floats(0.1, 400),
        ),
        max_size=60,
    )
)
@settings(deadline=None)
def test_what_is_recorded_is_written_in_the_end_or_counted_as_dropped(steps: list[tuple[str, int, float]]) -> None:
    """In any order of happenings, failures and time nothing is lost uncounted, and no write is doubled."""
    played = Played()
    for action, which, seconds in steps:
        if action == "record":
            played.record(which)
        elif action == "pass":
            played.now += seconds
        else:
            played.write(action, seconds)
        assert len(played.ledger._series) <= 4
    played.settle()
    # Counts that went with a refused or vanished Event can't be added up.
    assert played.lost or sum(played.counts.values()) + played.ledger.dropped == played.recorded


@asynccontextmanager
async def recording(
    api: FakeApi, clock: VirtualClock, ledger: EventLedger, *, failed: Failed | None = None
) -> AsyncIterator[EventRecorder]:
    """Let a recorder run for the time of a block."""
    recorder = EventRecorder(
        client=KubeClient(transport=api),
        clock=clock,
        random=lambda: 0.5,
        controller="aliquot.dev/agent",
        instance="node1",
        ledger=ledger,
    )
    task = asyncio.create_task(recorder.run(failed=failed))
    try:
        yield recorder
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
def api() -> FakeApi:
    """An empty API server."""
    return FakeApi()


@pytest.fixture
def clock() -> VirtualClock:
    """A clock of 2026."""
    return VirtualClock(start=1_800_000_000.25)


def sick(recorder: EventRecorder, *, regarding: ObjectReference = POD, note: str = "the GPU is sick") -> None:
    """Tell of a sick GPU."""
    recorder.tell(regarding=regarding, reason="Sick", action="Hold", note=note, warning=True)


async def test_event_is_written_as_the_api_wants_it(api: FakeApi, clock: VirtualClock) -> None:
    """The first telling is an Event in the pod's namespace with all that events.k8s.io/v1 demands."""
    async with recording(api, clock, EventLedger()) as recorder:
        sick(recorder)
        await clock.advance(0)
    question = api.writes[0]
    assert (question.method, question.path) == ("POST", "/apis/events.k8s.io/v1/namespaces/team/events")
    assert question.body is not None
    written: dict[str, Any] = json.loads(question.body)
    assert written.pop("metadata")["name"].startswith("train.")
    assert written == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2027-01-15T08:00:00.250000Z",
        "reportingController": "aliquot.dev/agent",
        "reportingInstance": "node1",
        "action": "Hold",
        "reason": "Sick",
        "note": "the GPU is sick",
        "type": "Warning",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "train", "uid": "u1"},
    }


async def test_repeats_patch_the_series(api: FakeApi, clock: VirtualClock) -> None:
    """Three tellings become one Event whose series counts three."""
    async with recording(api, clock, EventLedger()) as recorder:
        for _ in range(3):
            sick(recorder)
            await clock.advance(1)
        await clock.advance(30)
    assert [question.method for question in api.writes] == ["POST", "PATCH"]
    (event,) = api.objects.values()
    assert event["series"] == {"count": 3, "lastObservedTime": "2027-01-15T08:00:02.250000Z"}


async def test_event_that_expired_meanwhile_is_made_again(api: FakeApi, clock: VirtualClock) -> None:
    """The API server forgets Events after an hour; the next repeat is then a new one."""
    async with recording(api, clock, EventLedger()) as recorder:
        sick(recorder)
        await clock.advance(1)
        api.objects.clear()
        sick(recorder)
        await clock.advance(31)
    assert [question.method for question in api.writes] == ["POST", "PATCH", "POST"]
    assert len(api.objects) == 1


@pytest.mark.parametrize(
    ("fault", "writes", "dropped"), [(UnreachableError("refused"), 2, 0), (ForbiddenError("no", status=403), 1, 1)]
)
async def test_passing_trouble_is_tried_again_and_a_refusal_is_not(
    api: FakeApi, clock: VirtualClock, fault: Any, writes: int, dropped: int
) -> None:
    """An API server that is away gets the Event later; one that says no is not asked again."""
    ledger = EventLedger()
    api.before = [fault]
    async with recording(api, clock, ledger) as recorder:
        sick(recorder)
        await clock.advance(60)
    assert (len(api.writes), ledger.dropped) == (writes, dropped)


async def test_node_events_and_long_words_keep_to_the_api_s_limits(api: FakeApi, clock: VirtualClock) -> None:
    """Events of nodes go to `default`; notes and names are cut to what the API takes, between characters."""
    long_name = ObjectReference(kind="Pod", namespace="team", name="n" * 253)
    async with recording(api, clock, EventLedger()) as recorder:
        sick(recorder, regarding=NODE)
        sick(recorder, regarding=long_name, note="ü" * 1_000)
        await clock.advance(1)
    node, pod = (json.loads(question.body or b"") for question in api.writes)
    assert api.writes[0].path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert node["metadata"]["namespace"] == "default"
    assert len(pod["metadata"]["name"]) == 253
    assert 1_020 <= len(pod["note"].encode()) <= 1_024
    assert pod["note"].endswith("ü...")


async def test_same_instant_gives_different_names(api: FakeApi, clock: VirtualClock) -> None:
    """Two Events of one pod in the same microsecond do not collide."""
    async with recording(api, clock, EventLedger()) as recorder:
        sick(recorder, note="one")
        sick(recorder, note="two")
        await clock.advance(0)
    assert len(api.objects) == 2


def unheard_of(_: Question) -> None:
    """What no API server answers."""
    raise KeyError("word")


async def test_a_defect_in_one_event_costs_the_others_nothing(api: FakeApi, clock: VirtualClock) -> None:
    """It is dropped, and somebody is told whom it was about; whatever comes of the same later is tried anew."""
    told: list[tuple[ObjectReference, str]] = []
    api.before = [unheard_of]
    async with recording(
        api, clock, EventLedger(), failed=lambda whom, error: told.append((whom, type(error).__name__))
    ) as recorder:
        for regarding in (POD, NODE):
            sick(recorder, regarding=regarding)
        await clock.advance(60.0)
        assert [one["regarding"]["name"] for one in api.objects.values()] == ["node1"]
        assert told == [(POD, "KeyError")]
        sick(recorder)
        await clock.advance(60.0)
        assert len(api.objects) == 2


async def test_a_defect_that_nobody_is_told_of_is_raised(api: FakeApi, clock: VirtualClock) -> None:
    """It is hidden from nobody."""
    api.before = [unheard_of]
    recorder = EventRecorder(
        client=KubeClient(transport=api),
        clock=clock,
        random=lambda: 0.5,
        controller="c",
        instance="i",
        ledger=EventLedger(),
    )
    sick(recorder)
    with pytest.raises(KeyError, match="word"):
        await recorder.run()
