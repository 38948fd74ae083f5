"""The leader evicts whom an agent has given up for over-use, when its grace is over and its queue says so."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from aliquot_core.instants import second_time
from aliquot_core.isolation import is_over_use
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Deleted, Modified
from aliquot_kube.errors import DisruptionBlockedError, UnreachableError
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.centre.evictions import Evictions
from aliquot_scheduler.centre.over_use import OverUseEvictor, overdue
from support.centre_means import means
from support.clocks import VirtualClock
from support.fake_api import FakeApi
from support.over_use import GIVEN_UP

NAMES = Names()


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


async def test_one_who_can_t_be_judged_keeps_no_other_and_is_judged_later() -> None:
    """A word that can't be worked out is a defect of that one's; the leader goes on."""
    centre, bad = Centre(), {"u1"}

    def word(uid: str) -> str:
        if uid in bad:
            raise KeyError(uid)
        return "evict"

    centre.evictor._word = word
    for uid in ("u1", "u2"):
        centre.evictor.pod_changed(Added(new=pod(uid)))
    await centre.run(12.0)
    assert {one.path for one in centre.api.writes} == {"/api/v1/namespaces/team/pods/pod-u2/eviction"}
    assert centre.evictor.untold >= 1
    centre.evictor.pod_changed(Deleted(old=pod("u2")))
    bad.clear()
    await centre.run(20.0)
    assert centre.api.writes[-1].path == "/api/v1/namespaces/team/pods/pod-u1/eviction"
