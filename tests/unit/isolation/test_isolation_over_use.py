"""An agent tells a pod of each rung it climbs, as far as its queue or its node says, and gives it up on the last."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.isolation.ladder import LOOKS, Rung
from aliquot_agent.isolation.over_use import OverUse
from aliquot_agent.web.accounts import SliceUse
from aliquot_core.isolation import is_over_use
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import UnreachableError
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from support.clocks import VirtualClock
from support.fake_api import FakeApi
from support.over_use import GIVEN_UP, RUNGS

NAMES = Names()
A = "GPU-a"
PATH = "/api/v1/namespaces/team/pods/u1/status"


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
