"""What each replica hears of queues and namespaces, and what it asks when it must be sure."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aliquot_core.inventory import model_names
from aliquot_core.names import Names
from aliquot_kube.errors import ForbiddenError
from aliquot_kube.resources import LEASES, NAMESPACES, queues_of
from aliquot_kube.transport import Question
from aliquot_scheduler.admission.landscape import Landscape
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.told_there import MOST_MODELS, there_as_told, told_there
from aliquot_scheduler.admission.validation import judge
from aliquot_scheduler.picture.there import There, there_in
from support.admitting import container, decoded, written
from support.centre import gpus, make_node, picture_with
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
    told_by_leader = [said_of(There(contexts=one))[NAMES.context] for one in ([], [None], [None, 512], [512])]
    assert told_by_leader == ["", "", "300 512", "512"]


async def test_a_follower_warns_of_models_and_memory_as_the_leader_does(stage: Stage) -> None:
    """What no GPU is, and more than any has; nodes and uuids the leader alone knows."""
    nodes = [
        make_node("n1", [*gpus("n1", 1), *gpus("n1b", 1, memory=20_000)]),
        make_node("n2", gpus("n2", 1, model="NVIDIA L4", memory=24_000)),
    ]
    leader = there_in(picture_with(*nodes))
    lease = thing("pace", 5)
    lease["metadata"]["annotations"] = said_of(leader)
    stage.watches.tell(PACE, "MODIFIED", lease)
    await stage.clock.advance(0.0)
    follower = stage.landscape.there()
    assert follower.memory() == leader.memory()
    asked = [
        written(container(compute="30"), notes={"gpu-model": "H1000"}),
        written(container(compute="30", memory="900000")),
        written(container(compute="30", memory="30000"), notes={"gpu-model": "L4"}),
        written(container(compute="30", memory="30000"), notes={"gpu-model": "!L4"}),
    ]
    said = [judge(decoded(pod), names=NAMES, settings=AdmissionSettings(), there=follower).warnings for pod in asked]
    assert [len(one) for one in said] == [1, 1, 1, 0]
    assert "no GPU of this cluster will do; there are" in said[0][0]
    assert "the largest that it may have has" in said[1][0]
    assert said == [
        judge(decoded(pod), names=NAMES, settings=AdmissionSettings(), there=leader).warnings for pod in asked
    ]


NAME = "NVIDIA L4"
TOLD: dict[str, tuple[str, dict[tuple[str, ...], int]]] = {
    "nothing": ("", {}),
    "one": (f'{{"{NAME}": 24000}}', {model_names(NAME): 24_000}),
    "one that can't be given": (f'{{"{NAME}": 0}}', {model_names(NAME): 0}),
    "no JSON": ("{", {}),
    "a list": ('["NVIDIA L4"]', {}),
    "less than nothing": (f'{{"{NAME}": -1}}', {}),
    "what no GPU has": (f'{{"{NAME}": 1000000000}}', {}),
    "words": (f'{{"{NAME}": "24000"}}', {}),
    "too deep": ("[" * 5_000, {}),
    "too long": (json.dumps({"x" * 9_000: 1}), {}),
    "too many": (json.dumps({str(number): 1 for number in range(MOST_MODELS + 1)}), {}),
    "as many as may be": (
        json.dumps({str(number): 1 for number in range(MOST_MODELS)}),
        {model_names(str(number)): 1 for number in range(MOST_MODELS)},
    ),
}


@pytest.mark.parametrize("row", TOLD)
def test_of_what_is_not_understood_nothing_is_known(row: str) -> None:
    """A leader of another version may say anything."""
    said, known = TOLD[row]
    there = there_as_told({NAMES.models: said}, names=NAMES)
    assert (dict(there.memory()), tuple(there.models)) == (known, tuple(known))


@pytest.mark.parametrize(("names", "told"), [(["x" * 60] * 64, True), (["x"] * 65, False), (["x" * 300] * 64, False)])
def test_of_too_many_models_none_is_told(names: list[str], told: bool) -> None:
    """Who knew but some of them would warn of the others."""
    models = [model_names(f"{name}{number}") for number, name in enumerate(names)]
    said = said_of(There(models=models, memory=lambda: dict.fromkeys(models, 9)))[NAMES.models]
    assert bool(said) is told
    assert len(there_as_told({NAMES.models: said}, names=NAMES).models) == (len(names) if told else 0)


def said_of(there: There | None) -> dict[str, str]:
    """What a leader writes on its Lease."""
    return told_there(there, names=NAMES, settings=AdmissionSettings(least_memory=300))


def test_who_knows_nothing_says_nothing() -> None:
    """And takes back what was said before."""
    assert said_of(None) == said_of(There()) == {NAMES.context: "", NAMES.models: ""}
