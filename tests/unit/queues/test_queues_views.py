"""What namespaces are shown of their queues, and how it is kept."""

from __future__ import annotations

import asyncio
import json
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
import yaml

from aliquot_cli.queue_text import answer_text
from aliquot_core.objects import Namespace, ObjectMeta
from aliquot_kube.errors import AlreadyExistsError, InvalidError, NotFoundError
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.centre.view_writer import ViewWriter
from aliquot_scheduler.queues.telling import views as telling
from aliquot_scheduler.queues.telling.status import QueueStatus
from aliquot_scheduler.queues.telling.views import View, read_view, views
from aliquot_scheduler.queues.telling.whole import shown
from aliquot_scheduler.queues.turns import Queues
from support.centre import NAMES
from support.centre_means import means
from support.clocks import VirtualClock
from support.queue_stage import Stage, queue

FILE = Path(__file__).parents[3] / "daemonset" / "manifests" / "06-view.yaml"
DEFINITION: dict[str, Any] = next(yaml.safe_load_all(FILE.read_text()))
VERSION: dict[str, Any] = DEFINITION["spec"]["versions"][0]
STATUS: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]["properties"]["status"]
TREE = {"org": queue(limit=300), "red": queue("org", guarantee=100), "blue": queue("org", stop="hold")}


class Kept:
    """An API server that keeps views; others may meddle with them."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.asked: list[str] = []
        self.installed = True

    async def request(self, question: Question) -> Response:
        """Answer as the real one does."""
        self.asked.append(question.method)
        body = json.loads(question.body or b"null")
        if not self.installed:
            raise NotFoundError("no such kind", where=question.path, status=404)
        if question.method == "GET":
            return self._answer({"items": list(self.objects.values()), "metadata": {"resourceVersion": "7"}})
        if question.method == "POST":
            path = f"{question.path}/{body['metadata']['name']}"
            if path in self.objects:
                raise AlreadyExistsError("it is there", where=path, status=409)
            self.objects[path] = body
        elif question.path not in self.objects:
            raise NotFoundError("it is gone", where=question.path, status=404)
        elif question.method == "PATCH":
            self.objects[question.path]["status"] = body[0]["value"]
        else:
            del self.objects[question.path]
        return self._answer({"metadata": {"name": "any", "resourceVersion": "8"}})

    @staticmethod
    def _answer(body: Any) -> Response:
        return Response(status=200, headers={}, body=json.dumps(body).encode())

    def stream(self, question: Question) -> Any:
        """Nobody watches here."""
        raise NotImplementedError(question.path)

    def shown(self) -> dict[str, tuple[int, int]]:
        """By namespace and queue, how many percent the namespace holds and how many of its pods wait."""
        return {
            f"{one['metadata']['namespace']}/{one['metadata']['name']}": (
                one["status"]["own"]["used"]["compute"],
                one["status"]["own"]["waiting"],
            )
            for one in self.objects.values()
        }


class Scene:
    """A stage and the writer over it."""

    def __init__(self, specs: dict[str, Any] | None = None) -> None:
        self.stage = Stage(TREE if specs is None else specs, nodes=(4,))
        self.clock, self.kept = VirtualClock(), Kept()
        self.namespaces = {name: Namespace(metadata=ObjectMeta(name=name)) for name in ("u", "v")}
        self.label("w", "blue")
        self.silent = ""
        self.writer = ViewWriter(
            turns=self.stage.queues,
            means=means(self.kept, clock=self.clock, why_not=lambda: self.silent),
            namespaces=lambda: self.namespaces,
        )

    def label(self, name: str, home: str, **meta: Any) -> None:
        """A namespace is at home in a queue."""
        self.namespaces[name] = Namespace(metadata=ObjectMeta(name=name, labels={NAMES.queue: home}, **meta))

    def statuses(self) -> dict[str, QueueStatus]:
        """What is worked out of queues now."""
        return self.stage.queues.statuses(now=0.0, at="")

    async def lives(self, *, seconds: int) -> None:
        """Let the writer run for so long."""
        running = asyncio.ensure_future(self.writer.run())
        for _ in range(seconds):
            await self.clock.advance(1.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def busy() -> Scene:
    """One pod runs, one waits for quota, and one in a held queue."""
    scene = Scene()
    scene.stage.submit("in", 100, queue="red", user="u")
    scene.stage.run()
    scene.stage.submit("waits", 250, queue="red", user="u", notes={"gpus": "4"})
    scene.stage.submit("held", 50, queue="blue", user="v")
    scene.stage.run()
    return scene


def test_a_namespace_is_shown_its_queues_and_its_part_of_them() -> None:
    """Where it is at home, and where it has pods; not what others have there."""
    scene = busy()
    scene.stage.submit("other", 50, queue="red", user="v")
    scene.stage.run()
    stage = scene.stage
    found = views(
        stage.queues.books, waiting=stage.queues.waiting(), statuses=scene.statuses(), homes={"w": "blue"}, at="now"
    )
    assert sorted(found) == [("u", "red"), ("v", "blue"), ("v", "red"), ("w", "blue")]
    mine, theirs = found["u", "red"], found["v", "red"]
    assert (mine.path, mine.guarantee.compute, mine.limit.compute) == (("org", "red"), 100, None)
    # Of memory it says nothing, and that is not a guarantee of 0.
    assert mine.guarantee.memory is None
    assert (mine.used.compute, mine.waiting, mine.stop, mine.at) == (150, 1, "", "now")
    assert (mine.own.used.compute, mine.own.used.memory, mine.own.running, mine.own.waiting) == (100, 80_000, 1, 1)
    assert (theirs.own.used.compute, theirs.own.running, theirs.own.waiting) == (50, 1, 0)
    assert found["w", "blue"].stop == "hold"
    stage.gone("in")
    assert set(stage.queues.books.of_namespaces) == {("v", "red")}


async def test_a_look_that_fails_as_a_whole_ends_nobodys_reign(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect of ours: it is logged, and once it is over views are written as before."""
    scene = busy()
    running = asyncio.ensure_future(scene.writer.run())
    with monkeypatch.context() as broken:
        broken.setattr(Queues, "statuses", Mock(side_effect=KeyError))
        for _ in range(20):
            await scene.clock.advance(1.0)
    assert {type(one.exc_info[1]) for one in caplog.records if one.exc_info} == {KeyError}
    assert not scene.kept.objects
    for _ in range(20):
        await scene.clock.advance(1.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert scene.kept.objects


async def through(scene: Scene, *, seconds: int) -> None:
    """As long as that the writer lives, and it does not end by itself."""
    running = asyncio.ensure_future(scene.writer.run())
    for _ in range(seconds):
        await scene.clock.advance(1.0)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of whom there is a line in the log that somebody has to read."""
    return [getattr(one, "of", "") for one in caplog.records if one.levelname in {"WARNING", "ERROR"}]


async def test_a_pod_without_a_word_costs_no_view(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted among those that wait, and the others by their words."""
    scene = busy()
    real = Queues.word
    monkeypatch.setattr(Queues, "word", lambda self, one: 1 / 0 if one.uid == "waits" else real(self, one))
    await through(scene, seconds=60)
    assert scene.kept.shown() == {"u/red": (100, 1), "v/blue": (0, 1), "w/blue": (0, 0)}
    reasons = {path.rsplit("/", 3)[1]: one["status"]["own"]["reasons"] for path, one in scene.kept.objects.items()}
    assert reasons == {"u": {}, "v": {"QueueHeld": 1}, "w": {}}
    assert logged(caplog) == ["pod u/pod-waits"]


@pytest.mark.parametrize("what", ["a view", "a status"])
async def test_a_view_that_can_not_be_made_stays_as_it_is(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Since of it nothing is known, or of its queue: it is not deleted, and the others change with what they show."""
    scene = busy()
    await scene.lives(seconds=10)
    if what == "a status":
        scene.stage.queues.books.usage.restore("red", (inf, inf), now=0.0)
    else:
        real = telling._view
        broken = {"red"}
        monkeypatch.setattr(telling, "_view", lambda node, **of: 1 / 0 if node.name in broken else real(node, **of))
    scene.stage.submit("held too", 50, queue="blue", user="v")
    scene.stage.gone("in")
    scene.stage.run()
    await through(scene, seconds=600)
    assert scene.kept.shown() == {"u/red": (100, 1), "v/blue": (0, 2), "w/blue": (0, 0)}
    assert logged(caplog) == ["view u/red" if what == "a view" else "queue red"]
    assert scene.writer.untold in range(5, 13)


async def test_views_without_shares_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A share of 0 would be taken for one; and they change again once shares are known."""
    scene = busy()
    await scene.lives(seconds=10)
    before = scene.kept.shown()
    with monkeypatch.context() as broken:
        broken.setattr("aliquot_scheduler.queues.telling.report.due_of", lambda *_, **__: 1 / 0)
        scene.stage.submit("held too", 50, queue="blue", user="v")
        scene.stage.run()
        await through(scene, seconds=600)
    assert scene.kept.shown() == before
    assert logged(caplog) == ["fair shares of all queues"]
    await through(scene, seconds=600)
    assert scene.kept.shown() == before | {"v/blue": (0, 2)}


@pytest.mark.parametrize("error", [InvalidError("no such field", status=422), TypeError("a defect")])
@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_a_view_that_is_not_taken_is_tried_ever_more_seldom(
    method: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """To make, to change or to delete it; the others are kept all the while."""
    scene, tried, path = busy(), list[str](), "/namespaces/u/queueviews"
    if method != "POST":
        await scene.lives(seconds=10)
    scene.stage.submit("held too", 50, queue="blue", user="v")
    if method == "DELETE":
        scene.stage.gone("in")
        scene.stage.gone("waits")
    answer = scene.kept.request

    async def refuses(question: Question) -> Response:
        if path in question.path:
            tried.append(question.method)
            raise error
        return await answer(question)

    scene.kept.request = refuses  # type: ignore[method-assign]
    await through(scene, seconds=600)
    assert set(tried) == {method}
    assert len(tried) in range(5, 13)
    assert scene.kept.shown()["v/blue"] == (0, 2)
    assert logged(caplog) == ["view u/red"]


async def test_views_come_and_go_with_what_they_show() -> None:
    """They are made, changed and deleted; nothing is written while nothing changes."""
    scene = busy()
    await scene.lives(seconds=10)
    assert scene.kept.shown() == {"u/red": (100, 1), "v/blue": (0, 1), "w/blue": (0, 0)}
    before = len(scene.kept.asked)
    scene.stage.gone("in")
    scene.stage.gone("waits")
    await scene.lives(seconds=10)
    assert scene.kept.shown() == {"v/blue": (0, 1), "w/blue": (0, 0)}
    # A writer that begins reads what is there, and can't know what it says.
    assert scene.kept.asked[before:].count("DELETE") == 1
    assert scene.kept.asked[before:].count("PATCH") <= 2


async def test_nothing_is_written_while_nothing_changes() -> None:
    """The time at which it was worked out is none."""
    scene = busy()
    await scene.lives(seconds=30)
    assert scene.kept.asked == ["GET", "POST", "POST", "POST"]


async def test_what_others_did_to_views_is_put_right() -> None:
    """One that was deleted is made anew when it is to be changed; one that is there already is taken over."""
    scene = busy()
    running = asyncio.ensure_future(scene.writer.run())
    await scene.clock.advance(1.0)
    path = f"/apis/{NAMES.domain}/v1alpha1/namespaces/u/queueviews/red"
    scene.kept.objects[path] = {"metadata": {"namespace": "u", "name": "red"}, "status": {}}
    for _ in range(20):
        await scene.clock.advance(1.0)
    assert scene.kept.shown()["u/red"] == (100, 1)
    del scene.kept.objects[path]
    scene.stage.gone("in")
    for _ in range(20):
        await scene.clock.advance(1.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert scene.kept.shown()["u/red"] == (0, 1)


@pytest.mark.parametrize("why", ["no-queues", "not-leading", "not-installed"])
async def test_where_there_is_nothing_to_say_nothing_is_said(why: str) -> None:
    """No Queue is there, another leads, or the kind is not installed."""
    scene = Scene({}) if why == "no-queues" else busy()
    scene.stage.submit("of-the-default", 100, user="u")
    scene.stage.run()
    scene.silent = "another leads" if why == "not-leading" else ""
    scene.kept.installed = why != "not-installed"
    await scene.lives(seconds=30)
    assert set(scene.kept.asked) == {"GET"}


@pytest.mark.parametrize("left", [{}, {"other": queue()}])
async def test_of_a_queue_that_is_gone_it_is_shown_who_waits_and_runs_there(left: dict[str, Any]) -> None:
    """In whose namespace, and why; not where a namespace is only at home, nor by a name that no queue could have."""
    scene = busy()
    scene.stage.submit("odd", 10, queue="No_Queue", user="u")
    scene.stage.queues.queues_seen(left)
    scene.stage.run()
    await scene.lives(seconds=10)
    assert scene.kept.shown() == {"u/red": (100, 1), "v/blue": (0, 1)}
    (own,) = (one["status"]["own"] for one in scene.kept.objects.values() if one["metadata"]["name"] == "red")
    assert (own["running"], own["reasons"]) == (1, {"NoQueue": 1})
    scene.stage.queues.queues_seen(TREE)
    await scene.lives(seconds=10)
    assert scene.kept.shown() == {"u/red": (100, 1), "v/blue": (0, 1), "w/blue": (0, 0)}


async def test_a_namespace_that_is_going_is_left_alone() -> None:
    """Nothing can be made there any more."""
    scene = busy()
    scene.label("w", "blue", deletion_timestamp="2026-11-21T10:00:00Z")
    await scene.lives(seconds=10)
    assert set(scene.kept.shown()) == {"u/red", "v/blue"}


async def test_views_are_written_at_their_pace() -> None:
    """Five a second at most, however many namespaces there are."""
    scene = busy()
    for number in range(100):
        scene.label(f"n{number}", "red")
    await scene.lives(seconds=10)
    assert 20 <= scene.kept.asked.count("POST") <= 26


def test_what_a_namespace_is_shown_reads_as_a_row_with_its_own_part() -> None:
    """So does whoever may look there and not at queues; what another version wrote is left out."""
    stage = Stage(TREE)
    stage.submit("r0", 70, queue="red", user="u")
    stage.run()
    for uid, user in (("r1", "u"), ("r2", "v")):
        stage.submit(uid, 300, queue="red", user=user)
    books, waiting = stage.queues.books, stage.queues.waiting()
    statuses = stage.queues.statuses(now=0.0, at="")
    found = views(books, waiting=waiting, statuses=statuses, homes={}, at="now")
    raw = msgspec.to_builtins(found["u", "red"])
    view = read_view(raw)
    assert view == found["u", "red"]
    assert read_view({**raw, "own": 7}) is None
    assert read_view({}) is None
    assert view is not None
    told = shown("red", view, namespace="u")
    row, own = told.row, told.row.own
    assert (row.name, row.parent, row.told_by, list(told.path)) == ("red", "org", "view", ["org", "red"])
    assert (row.compute.used, row.compute.limit, row.compute.guarantee, row.waiting) == (70, None, 100, 2)
    assert own is not None
    assert (own.compute, own.running, own.waiting) == (70, 1, 1)
    text = answer_text(told, wide=False, now=0.0)
    assert text.splitlines()[0] == "org / red"
    heads, cells = (line.split("  ") for line in text.splitlines()[2:4])
    by = dict(zip(filter(None, map(str.strip, heads)), filter(None, map(str.strip, cells)), strict=True))
    assert (by["USED"], by["OWN"], by["OWN WAITING"], by["WAITING"]) == ("70 %", "70 %", "1", "2")
    assert "As namespace u is shown it" in text
    assert "MiB" not in text.replace(by["OWN MEM"], "")
    memory = msgspec.structs.replace(row.memory, limit=9_000)
    spoken = msgspec.structs.replace(told, row=msgspec.structs.replace(row, memory=memory))
    line = answer_text(spoken, wide=False, now=0.0).splitlines()[4]
    assert line.split("  ")[0] == "(memory)"
    assert "9000 MiB" in line


def test_the_definition_says_what_the_centre_writes() -> None:
    """Fields that only one of the two knows would be dropped silently."""
    fields = {field.encode_name for field in msgspec.structs.fields(View)}
    assert set(STATUS["properties"]) == fields
    shown = [one["jsonPath"].split(".")[2] for one in VERSION["additionalPrinterColumns"]]
    assert set(shown) <= fields
