"""Each pod that runs says how far its queue lets it climb the ladder of over-use, as long as its queue says so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import get_args

import msgspec
import pytest

from aliquot_agent.isolation.ladder import Rung
from aliquot_agent.settings import AgentSettings
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Deleted, Modified
from aliquot_kube.errors import ApiError, ForbiddenError, ServerTroubleError, UnreachableError
from aliquot_kube.patches import Patch
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.centre import over_use_words
from aliquot_scheduler.centre.over_use_words import OverUseWords, word_of
from aliquot_scheduler.centre.pod_patches import with_over_use
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.said.tree import plant
from support.centre import NAMES, asks
from support.centre_means import means
from support.clocks import VirtualClock
from support.fake_api import FakeApi
from support.queue_stage import Stage, queue

SPECS = {"org": queue(over_use="throttle"), "a": queue("org"), "b": queue("org", over_use="evict"), "c": queue()}
AWAY = UnreachableError("away", where="a test")


@pytest.mark.parametrize(("name", "word"), [("a", "throttle"), ("b", "evict"), ("c", ""), ("gone", ""), ("", "")])
def test_a_queue_s_word_is_its_own_or_the_nearest_above(name: str, word: str) -> None:
    """Of a queue that is not there, nobody has said anything."""
    assert word_of(name, tree=plant(SPECS)) == word


def test_rungs_have_one_name_wherever_they_are_written() -> None:
    """In a queue, in an agent's settings, and as the ladder has them."""
    said = {
        field.name: set(get_args(field.type))
        for kind in (QueueSpec, AgentSettings)
        for field in msgspec.structs.fields(kind)
        if field.name == "over_use"
    }
    ladder = {rung.name.lower() for rung in Rung if rung}
    assert said == {"over_use": ladder}
    (of_queues,) = (field.type for field in msgspec.structs.fields(QueueSpec) if field.name == "over_use")
    assert set(get_args(of_queues)) == ladder | {""}


class Town:
    """Pods that run in queues, an API server that has them, and who writes on them."""

    def __init__(self, specs: Mapping[str, QueueSpec], **pods: str) -> None:
        """Each of `pods` runs in that queue."""
        self.stage = Stage(specs)
        self.clock, self.api, self.silent = VirtualClock(), FakeApi(), ""
        self.words = OverUseWords(
            turns=self.stage.queues, means=means(self.api, clock=self.clock, why_not=lambda: self.silent)
        )
        for uid, name in pods.items():
            self.stage.submit(uid, 10, queue=name)
        self.stage.run()
        for uid in pods:
            pod = self.stage.pods[uid]
            self.api.put(self.path(uid), msgspec.to_builtins(pod))
            self.words.pod_changed(Added(new=pod))

    def path(self, uid: str) -> str:
        """Where a pod lies."""
        return f"/api/v1/namespaces/team/pods/pod-{uid}"

    async def run(self, seconds: float = 2.5) -> list[str]:
        """Let so much time pass; on whom was written meanwhile, by name."""
        before = len(self.api.asked)
        running = asyncio.ensure_future(self.words.run())
        await self.clock.advance(seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return [one.path.rpartition("/pod-")[2] for one in self.api.asked[before:]]

    def said(self, uid: str) -> str | None:
        """What a pod says."""
        annotations = self.api.objects[self.path(uid)]["metadata"]["annotations"]
        found: str | None = annotations.get(NAMES.over_use)
        return found

    def tell(self, uid: str) -> None:
        """The watch tells of a pod as the API server has it."""
        old = self.stage.pods[uid]
        new = self.stage.pods[uid] = msgspec.convert(self.api.objects[self.path(uid)], Pod, strict=False)
        self.words.pod_changed(Modified(old=old, new=new))


async def test_pods_say_what_their_queues_say_and_others_nothing() -> None:
    """Once: what the watch tells of it then is no reason to write again."""
    town = Town(SPECS, u1="a", u2="b", u3="c")
    assert sorted(await town.run()) == ["u1", "u2"]
    assert [town.said(uid) for uid in ("u1", "u2", "u3")] == ["throttle", "evict", None]
    for uid in ("u1", "u2"):
        town.tell(uid)
    assert await town.run(10.0) == []


async def test_a_queue_that_says_something_else_is_followed() -> None:
    """Also for pods that run already; and where it says nothing any more, the word is taken away."""
    town = Town(SPECS, u1="a", u2="b")
    await town.run()
    for uid in ("u1", "u2"):
        town.tell(uid)
    town.stage.queues.queues_seen(SPECS | {"org": queue(over_use="note")})
    town.stage.round()
    assert await town.run() == ["u1"]
    assert (town.said("u1"), town.said("u2")) == ("note", "evict")
    town.tell("u1")
    town.stage.queues.queues_seen({name: queue(spec.parent) for name, spec in SPECS.items()})
    town.stage.round()
    assert sorted(await town.run()) == ["u1", "u2"]
    assert (town.said("u1"), town.said("u2")) == (None, None)


async def test_nobody_is_written_on_who_does_not_run() -> None:
    """Not bound yet, ended, or gone; nor by one who does not lead."""
    town = Town(SPECS, u1="a", u2="a", u3="a")
    town.silent = "another leads"
    assert await town.run(10.0) == []
    ended = msgspec.structs.replace(
        town.stage.pods["u1"], status=msgspec.structs.replace(town.stage.pods["u1"].status, phase="Failed")
    )
    town.words.pod_changed(Modified(old=town.stage.pods["u1"], new=ended))
    town.words.pod_changed(Deleted(old=town.stage.pods["u2"]))
    town.words.pod_changed(Added(new=asks("u4", 10, 1_000, labels={NAMES.queue: "a"})))
    town.silent = ""
    assert await town.run(10.0) == ["u3"]


# What the API server says of one pod, five times and no more; how often it is asked for it in 30 s and in 5 minutes.
TROUBLES: dict[str, tuple[ApiError, int, int]] = {
    "nobody answers": (AWAY, 6, 6),
    "its own webhook is down": (ServerTroubleError("500", where="a test", status=500), 4, 6),
    "it may not be written": (ForbiddenError("no", where="a test", status=403), 4, 6),
}


@pytest.mark.parametrize("what", TROUBLES)
async def test_one_that_can_t_be_written_keeps_nobody_from_it(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is tried ever more seldom, until it is told; who could not be reached at each look. That is logged once."""
    fault, soon, later = TROUBLES[what]
    town = Town(SPECS, u1="a", u2="b")
    left, answer = [fault] * 5, town.api.request

    async def troubled(question: Question) -> Response:
        if question.path.endswith("pod-u1") and left:
            town.api.before = [left.pop()]
        return await answer(question)

    town.api.request = troubled  # type: ignore[method-assign]
    written = await town.run(30.0)
    assert (written.count("u1"), written.count("u2")) == (soon, 1)
    assert town.said("u2") == "evict"
    written += await town.run(270.0)
    assert (written.count("u1"), town.said("u1")) == (later, "throttle")
    of_one = [line for line in caplog.records if vars(line).get("of") == "team/pod-u1"]
    is_down = what == "nobody answers"
    assert (len(of_one), town.words.untold) == ((0, 0) if is_down else (1, 5))


async def test_one_for_whom_no_word_is_found_keeps_nobody_from_his(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect of ours: it is logged once, with where it lies, and counted; mended, it is told."""
    town = Town(SPECS, u1="a", u2="b")

    def fails(pod: Pod, word: str, *, names: Names) -> Patch:
        if pod.metadata.uid == "u1" and not mended:
            raise KeyError("word")
        return with_over_use(pod, word, names=names)

    mended: list[bool] = []
    monkeypatch.setattr(over_use_words, "with_over_use", fails)
    assert await town.run(30.0) == ["u2"]
    assert [(line.levelname, vars(line)["of"], bool(line.exc_info)) for line in caplog.records] == [
        ("ERROR", "team/pod-u1", True)
    ]
    assert town.words.untold == 4
    mended.append(True)
    assert await town.run(60.0) == ["u1"]
    fails_again = town.stage.pods["u2"]
    mended.clear()
    town.words._untold.failed("u2", KeyError("word"), of=fails_again.key)
    town.words.pod_changed(Deleted(old=fails_again))
    await town.run(1_000.0)
    assert "u2" not in town.words._untold
