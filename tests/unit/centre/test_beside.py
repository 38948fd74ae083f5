"""One pod that can't be treated beside the decisions costs nobody else: not the leader, nor who comes after it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aliquot_core.objects import ObjectReference, Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified, Synced
from aliquot_kube.client import KubeClient
from aliquot_scheduler.centre.beside import Beside
from aliquot_scheduler.centre.by_priority import EVICTED
from aliquot_scheduler.centre.notice_writer import NoticeWriter
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.extender.preempting import LABELLED
from aliquot_scheduler.extender.preemptors import Preemptors
from support.centre import asks, make_pod
from support.centre_means import means
from support.clocks import VirtualClock
from support.fake_api import FakeApi
from support.large_cluster import NAMES, NAMESPACE, pod_manifest
from support.reigning import Reigning, reigning, until
from support.server_apart import PODS

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BAD, GOOD = asks("bad", 10, 1_000), asks("good", 10, 1_000)
UNTAKEN = "what the watch tells of a pod could not be taken in"


def lines(caplog: pytest.LogCaptureFixture, what: str = UNTAKEN) -> list[tuple[str, bool]]:
    """Of whom it was said, and whether with where it lies."""
    return [(vars(one)["of"], bool(one.exc_info)) for one in caplog.records if one.message == what]


class Taker:
    """A subscriber that can't take in some, and notes what it was told."""

    def __init__(self, *bad: str) -> None:
        self.bad = {*bad}
        self.told: list[str] = []

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take it in, or fail."""
        if isinstance(change, Synced):
            self.told.append("synced")
            return
        pod = change.old if isinstance(change, Deleted) else change.new
        self.told.append(pod.metadata.uid)
        if pod.metadata.uid in self.bad:
            raise KeyError("word")


def test_what_one_can_t_take_in_of_one_pod_is_told_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """It hears of it again whenever the watch tells of it, and others as ever; once it can, all is well again."""
    clock, taker = VirtualClock(), Taker("bad")
    beside = Beside(means=means(FakeApi(), clock=clock))
    taken = beside.taking_in(taker.pod_changed)
    for change in (Added(new=BAD), Added(new=GOOD), Synced(resource_version="1"), Modified(old=BAD, new=BAD)):
        taken(change)
    assert taker.told == ["bad", "good", "synced", "bad"]
    assert (lines(caplog), beside.untold) == ([(BAD.key, True)], 2)
    taker.bad.clear()
    taken(Modified(old=BAD, new=BAD))
    taker.bad.add("bad")
    taken(Deleted(old=BAD))
    assert (lines(caplog), beside.untold) == ([(BAD.key, True)] * 2, 3)


def test_each_of_those_who_take_in_stands_for_himself(caplog: pytest.LogCaptureFixture) -> None:
    """What one has taken in, another may not have."""
    beside = Beside(means=means(FakeApi(), clock=VirtualClock()))
    for taker in (Taker("bad"), Taker("bad"), Taker()):
        beside.taking_in(taker.pod_changed)(Added(new=BAD))
    assert (len(lines(caplog)), beside.untold) == (2, 2)


async def test_work_that_stops_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    """After a while, as often as it has to; that is told once and counted."""
    clock, begun = VirtualClock(), list[float]()
    beside = Beside(means=means(FakeApi(), clock=clock))

    async def stops() -> None:
        begun.append(clock.monotonic())
        raise KeyError("planted")

    running = asyncio.ensure_future(beside.going_on("writing", stops)())
    await clock.advance(11.0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [at - begun[0] for at in begun] == [0.0, 5.0, 10.0]
    assert (lines(caplog, "work beside the decisions has stopped"), beside.untold) == ([("writing", True)], 3)


async def test_what_fails_for_thousands_is_said_in_few_lines_and_not_hidden(caplog: pytest.LogCaptureFixture) -> None:
    """Each is counted; some seconds later it is said how many more there were."""
    clock = VirtualClock()
    beside = Beside(means=means(FakeApi(), clock=clock))
    many = [make_pod(f"u{number}", {"name": "main"}) for number in range(1_000)]
    taken = beside.taking_in(Taker(*(pod.metadata.uid for pod in many)).pod_changed)
    for pod in many:
        taken(Added(new=pod))
    assert (len(lines(caplog)), beside.untold) == (5, 1_000)
    await clock.advance(5.0)
    taken(Added(new=many[0]))
    assert [vars(one)["more"] for one in caplog.records if hasattr(one, "more")] == [995]


def test_what_is_about_no_pod_is_raised() -> None:
    """It is everybody's."""

    def fails(_: Change[Pod]) -> None:
        raise KeyError("word")

    with pytest.raises(KeyError):
        Beside(means=means(FakeApi(), clock=VirtualClock())).taking_in(fails)(Synced(resource_version="1"))


def test_an_event_that_is_dropped_is_told_of_once_for_whom(caplog: pytest.LogCaptureFixture) -> None:
    """A node has no namespace."""
    beside = Beside(means=means(FakeApi(), clock=VirtualClock()))
    node = ObjectReference(api_version="v1", kind="Node", name="n1", uid="n1")
    for whom in (BAD.reference, BAD.reference, node):
        beside.not_written(whom, KeyError("word"))
    assert lines(caplog, "an Event could not be written") == [(BAD.key, True), ("n1", True)]
    assert beside.untold == 3


def failing_for_bad(kind: type[Any], method: str, patch: pytest.MonkeyPatch) -> None:
    """Something of that kind can't treat the pod named `bad`."""
    real = getattr(kind, method)

    def fails(self: Any, pod: Pod, *args: Any, **more: Any) -> Any:
        if pod.metadata.name == "bad":
            raise KeyError("word")
        return real(self, pod, *args, **more)

    patch.setattr(kind, method, fails)


@pytest.mark.timeout(30)
async def test_the_leader_goes_on_though_one_pod_can_t_be_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Others are placed, the bad one too: of what is decided nothing is missing."""
    failing_for_bad(NoticeWriter, "_seen", monkeypatch)
    async with reigning() as town:
        town.join("n1")
        for name in ("bad", "good"):
            town.create(PODS, pod_manifest(name, compute=10, memory=1_000))
        await until(lambda: not town.reign.why_not() and {"bad", "good"} <= names(town.reign))
        assert [await town.place(name) for name in ("bad", "good")] == ["n1", "n1"]
        assert town.reign.clerks.beside.untold > 0
    assert lines(caplog)[0] == (f"{NAMESPACE}/bad", True)


@pytest.mark.timeout(30)
async def test_the_leader_goes_on_though_one_pod_of_a_labelled_namespace_can_t_be_treated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever else waits there counts from then on."""
    failing_for_bad(Preemptors, "_node_for", monkeypatch)
    async with reigning() as town:
        town.create(CLASSES, {"metadata": {"name": "high"}, "value": 9})
        town.create("/api/v1/namespaces", {"metadata": {"name": "calico"}})
        spec = {"containers": [{"name": "main", "image": "none"}], "priorityClassName": "high"}
        for name in ("bad", "good"):
            town.create("/api/v1/namespaces/calico/pods", {"metadata": {"name": name}, "spec": spec})
        await until(lambda: not town.reign.why_not() and {"bad", "good"} <= names(town.reign))
        before = town.reign.clerks.beside.untold
        await town.label_namespace("calico", {NAMES.runs_the_cluster: LABELLED})
        await until(lambda: town.reign.clerks.beside.untold > before)
        found = await town.reign.for_the_cluster.one_for(asks("slice", 30, 1_000, node="n1"))
        assert found is not None
        assert found.key == "calico/good"
    assert {of for of, _ in lines(caplog)} == {"calico/bad"}


@pytest.mark.timeout(30)
async def test_the_leader_goes_on_though_one_event_can_t_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are."""
    real = KubeClient.create

    async def fails(self: KubeClient, resource: Any, thing: Any) -> Any:
        if thing.regarding.name == "bad":
            raise KeyError("word")
        return await real(self, resource, thing)

    monkeypatch.setattr(KubeClient, "create", fails)
    async with reigning() as town:
        for name in ("bad", "good"):
            town.create(PODS, pod_manifest(name, compute=10, memory=1_000))
        await until(lambda: not town.reign.why_not() and {"bad", "good"} <= names(town.reign))
        for name in ("bad", "good"):
            pod = town.reign.pods[f"{NAMESPACE}/{name}"]
            town.reign.clerks._events.tell(pod, EVICTED, action="Evicting")
        await until(lambda: town.reign.clerks.beside.untold == 1 and "POST events" in written(town))


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "work",
    ["queue_writer", "views", "notices", "evictor", "over_use", "over_use_words", "gangs", "nodes", "mix", "tables"],
)
async def test_no_work_beside_the_decisions_ends_the_leader(work: str) -> None:
    """Whatever trips in it: pods are placed."""
    async with reigning() as town:

        async def stops() -> None:
            raise KeyError("planted")

        getattr(town.reign.clerks, work).run = stops
        town.join("n1")
        town.create(PODS, pod_manifest("good", compute=10, memory=1_000))
        await until(lambda: not town.reign.why_not() and {"good"} <= names(town.reign))
        await until(lambda: town.reign.clerks.beside.untold == 1)
        assert await town.place("good") == "n1"


def written(town: Reigning) -> list[str]:
    """What it has asked for, of whatever."""
    return [one for each in town.writes.values() for one in each]


@pytest.mark.timeout(30)
async def test_what_the_picture_can_t_take_in_ends_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a part of it GPUs would be given twice."""
    failing_for_bad(Desk, "pod_seen", monkeypatch)
    town = Reigning(CentreSettings())
    town.create(PODS, pod_manifest("bad", compute=10, memory=1_000))
    with pytest.raises(ExceptionGroup) as ended:
        await town.reign.run()
    assert ended.group_contains(KeyError)


def names(reign: Reign) -> set[str]:
    """Of whom it was told."""
    return {pod.metadata.name for pod in reign.pods.values()}
