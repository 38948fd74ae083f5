"""What each replica hears of queues and namespaces, and what it asks when it must be sure."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aliquot_core.names import Names
from aliquot_kube.errors import ForbiddenError
from aliquot_kube.resources import LEASES, NAMESPACES, queues_of
from aliquot_kube.transport import Question
from aliquot_scheduler.admission.landscape import Landscape, told_contexts
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.picture.there import There
from support.clocks import VirtualClock
from support.fake_api import FakeApi

NAMES = Names()
QUEUES = queues_of(NAMES)
PACE = LEASES.collection(NAMES.namespace)
Json = dict[str, Any]


class Watches:
    """Open watches, into which a test writes."""

    def __init__(self, api: FakeApi) -> None:
        self.lines: dict[str, asyncio.Queue[bytes]] = {}
        api.streams += [self._stream] * 3

    async def _stream(self, question: Question) -> AsyncIterator[bytes]:
        lines = self.lines[question.path] = asyncio.Queue()
        while True:
            yield await lines.get()

    def tell(self, path: str, kind: str, thing: Json) -> None:
        """One event."""
        self.lines[path].put_nowait(json.dumps({"type": kind, "object": thing}).encode())


def thing(name: str, version: int, **parts: Any) -> Json:
    """An object as the API server lists it."""
    labels = parts.pop("labels", {})
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version), "labels": labels}, **parts}


class Stage:
    """A landscape that is being followed."""

    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), VirtualClock()
        self.watches = Watches(self.api)
        self.landscape = Landscape(transport=self.api, clock=self.clock, random=lambda: 0.5, names=NAMES)
        self.put(QUEUES.collection(), [thing("a", 1, spec={"namespaces": ["x"]})])
        self.put(PACE, [])
        self.put(NAMESPACES.collection(), [thing("team", 1, labels={NAMES.queue: "a"})])

    def put(self, path: str, items: list[Json]) -> None:
        """What the API server has of a kind."""
        self.api.put(path, {"items": items})


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Follow one queue and one namespace."""
    made = Stage()
    assert made.landscape.known() is None
    task = asyncio.ensure_future(made.landscape.run())
    await made.clock.advance(0.0)
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_what_is_heard_is_known(stage: Stage) -> None:
    """Once both lists are whole, and with every change that counts."""
    plan = stage.landscape.known()
    assert plan is not None
    assert (sorted(plan.specs), plan.home("team"), plan.home("other")) == (["a"], "a", "default")
    stage.watches.tell(QUEUES.collection(), "ADDED", thing("b", 5, spec={}))
    stage.watches.tell(NAMESPACES.collection(), "MODIFIED", thing("team", 6, labels={NAMES.queue: "b"}))
    await stage.clock.advance(0.0)
    plan = stage.landscape.known()
    assert plan is not None
    assert (sorted(plan.specs), plan.home("team")) == (["a", "b"], "b")


async def test_what_changes_nothing_plants_no_tree(stage: Stage) -> None:
    """Statuses are written every few seconds, and namespaces are annotated by many."""
    before = stage.landscape.known()
    status = {"used": {"compute": 5}}
    stage.watches.tell(QUEUES.collection(), "MODIFIED", thing("a", 5, spec={"namespaces": ["x"]}, status=status))
    noted = thing("team", 6, labels={NAMES.queue: "a", "other": "label"})
    stage.watches.tell(NAMESPACES.collection(), "MODIFIED", noted)
    await stage.clock.advance(0.0)
    assert stage.landscape.known() is before
    stage.watches.tell(QUEUES.collection(), "MODIFIED", thing("a", 7, spec={"namespaces": ["y"]}))
    await stage.clock.advance(0.0)
    assert stage.landscape.known() is not before


async def test_who_must_be_sure_asks(stage: Stage) -> None:
    """All queues, and the one namespace; the others are as they were heard of."""
    stage.put(QUEUES.collection(), [thing("new", 9, spec={})])
    stage.api.put(NAMESPACES.path(name="fresh"), thing("fresh", 9, labels={NAMES.queue: "new"}))
    plan = await stage.landscape.asked("fresh")
    assert (sorted(plan.specs), plan.home("fresh"), plan.home("team")) == (["new"], "new", "a")
    del stage.api.objects[QUEUES.collection()]
    assert not (await stage.landscape.asked()).specs


async def test_what_may_not_be_read_is_not_taken_for_nothing(stage: Stage) -> None:
    """Without the right to list queues there might be any."""
    stage.api.before.append(ForbiddenError("no", status=403))
    with pytest.raises(ForbiddenError):
        await stage.landscape.asked()


async def test_a_follower_knows_of_contexts_what_the_leader_says(stage: Stage) -> None:
    """And nothing where it says nothing, or nothing that is understood."""

    async def told(version: int, said: str) -> list[int | None]:
        lease = thing("pace", version)
        lease["metadata"]["annotations"] = {NAMES.context: said}
        stage.watches.tell(PACE, "MODIFIED", lease)
        await stage.clock.advance(0.0)
        return [*stage.landscape.there().contexts]

    assert [*stage.landscape.there().contexts] == []
    words = ("512", "0", "300 512", "", "-1", "a lot", "9" * 5_000, "1 " * 5_000)
    heard = [[512], [0], [300, 512], [], [], [], [], [1, 1]]
    assert [await told(at, said) for at, said in enumerate(words, start=5)] == heard
    settings = AdmissionSettings(least_memory=300)
    told_by_leader = [told_contexts(There(contexts=one), settings=settings) for one in ([], [None], [None, 512], [512])]
    assert told_by_leader == ["", "", "300 512", "512"]
    assert told_contexts(None, settings=settings) == ""
