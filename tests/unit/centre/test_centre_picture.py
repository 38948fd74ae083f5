"""The picture: what each event changes, what takes a node out, and that a rebuilt picture is the one that was lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aliquot_core.claims import Claim
from aliquot_core.inventory import Gpu
from aliquot_core.objects import Node, Pod, ResourceRequirements
from aliquot_core.quantities import MiB, Percent
from aliquot_scheduler.picture.hearing import Hearing, deaf_after, told_all
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.picture.signs import SILENT, UNHEARD
from support.centre import MEMORY, NAMES, WALL, asks, bound, gpus, make_lease, make_node, make_pod, picture_with, sick
from support.steps import most_held_by, steps_of


def free(picture: Picture, node: str, column: int) -> tuple[int, int]:
    """Compute and memory left of a GPU."""
    row = picture.nodes[node].row
    return int(picture.grid.compute[row, column]), int(picture.grid.memory[row, column])


def test_a_granted_pod_takes_its_slice_and_gives_it_back_when_it_ends() -> None:
    """A deletion timestamp frees nothing, an end does."""
    picture = picture_with(make_node("n1", gpus("n1", 2)))
    pod = bound(asks("u1", 30, 8_000), node="n1", held={"GPU-n1-1": (30, 8_000)})
    picture.pod_seen(pod)
    assert free(picture, "n1", 1) == (70, MEMORY - 8_000)
    leaving = msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-11-21T10:00:00Z")
    )
    picture.pod_seen(leaving)
    assert free(picture, "n1", 1) == (70, MEMORY - 8_000)
    picture.pod_seen(msgspec.structs.replace(leaving, status=msgspec.structs.replace(pod.status, phase="Succeeded")))
    assert free(picture, "n1", 1) == (100, MEMORY)


def events(nodes: int) -> dict[str, Callable[[], object]]:
    """What is told of one node and one pod, in turn, among so many nodes and ten times as many pods."""
    there = [make_node(f"n{at}", gpus(f"n{at}", 8)) for at in range(nodes)]
    picture = picture_with(*there)
    for at in range(10 * nodes):
        node = f"n{at % nodes}"
        picture.pod_seen(bound(asks(f"u{at}", 10, 1_000), node=node, held={f"GPU-{node}-{at % 8}": (10, 1_000)}))
    pod = bound(asks("one", 10, 1_000), node="n1", held={"GPU-n1-1": (10, 1_000)})
    more_cpu = msgspec.convert({"requests": {"cpu": "2"}}, ResourceRequirements)
    resized = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=more_cpu))
    plain = make_pod("plain", {"name": "main", "resources": {"requests": {"cpu": "1"}}}, node="n1")
    cordoned = make_node("n1", gpus("n1", 8), cordoned=True)
    first, *others = gpus("n1", 8)
    falls_sick = make_node("n1", [sick(first), *others])
    lease = make_lease("n1", renewed="2026-11-21T10:00:05.000000Z")
    return {
        "a pod is bound": lambda: picture.pod_seen(pod),
        "it is told of again": lambda: picture.pod_seen(pod),
        "it is resized": lambda: picture.pod_seen(resized),
        "it is gone": lambda: picture.pod_gone(pod),
        "a pod without slices is bound": lambda: picture.pod_lies(plain),
        "and is gone": lambda: picture.pod_gone(plain),
        "a heart-beat": lambda: picture.lease_seen(lease, wall=WALL),
        "a node is cordoned": lambda: picture.node_seen(cordoned),
        "it is told of again, as it is": lambda: picture.node_seen(cordoned),
        "one of its GPUs falls sick": lambda: picture.node_seen(falls_sick),
    }


@pytest.mark.parametrize(("counted", "slack"), [(steps_of, 0), (most_held_by, 1_000)])
def test_an_event_costs_as_much_however_many_nodes_and_pods_there_are(
    counted: Callable[[Callable[[], object]], int], slack: int
) -> None:
    """Counted, not timed: calls of functions, and the memory that whole arrays of nodes with their GPUs would take.

    A heart-beat goes into a heap, which is a little deeper. A node that comes or goes, or has other hardware, is not
    among them: then all are looked at.
    """
    for tell in events(2).values():
        # What is worked out once for all times is not counted.
        tell()
    few, many = ({event: counted(tell) for event, tell in events(nodes).items()} for nodes in (20, 600))
    assert {event: more for event, more in many.items() if more - few[event] > slack} == {}


def test_a_pod_that_is_gone_holds_nothing() -> None:
    """Also one of which no end was seen."""
    picture = picture_with(make_node("n1", gpus("n1", 1)))
    pod = bound(asks("u1", 30, 8_000), node="n1", held={"GPU-n1-0": (30, 8_000)})
    picture.pod_seen(pod)
    picture.pod_gone(pod)
    assert free(picture, "n1", 0) == (100, MEMORY)


@pytest.mark.parametrize(
    ("node", "uid", "bound_to"),
    [("n2", "u1", "n1"), ("n1", "other", "n1"), ("n1", "u1", "")],
    ids=["another node's", "another pod's", "not bound"],
)
def test_a_grant_that_is_not_the_pod_s_own_counts_for_nothing(node: str, uid: str, bound_to: str) -> None:
    """A forged grant neither takes a slice from others nor frees one."""
    picture = picture_with(make_node("n1", gpus("n1", 1)))
    pod = bound(asks(uid, 30, 8_000), node=node, held={"GPU-n1-0": (30, 8_000)})
    forged = msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, uid="u1"),
        spec=msgspec.structs.replace(pod.spec, node_name=bound_to),
    )
    picture.pod_seen(forged)
    assert free(picture, "n1", 0) == (100, MEMORY)


def test_a_grant_that_is_spoilt_gives_back_what_it_held() -> None:
    """A picture that is built anew of the same pod holds nothing either."""
    picture = picture_with(make_node("n1", gpus("n1", 1)))
    pod = bound(asks("u1", 30, 8_000), node="n1", held={"GPU-n1-0": (30, 8_000)})
    picture.pod_seen(pod)
    picture.pod_seen(
        msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations={NAMES.grant: "{"}))
    )
    assert free(picture, "n1", 0) == (100, MEMORY)


def test_claims_outlive_the_node_s_inventory() -> None:
    """GPUs that come back are as full as they were."""
    picture = picture_with(make_node("n1", gpus("n1", 1)))
    picture.pod_seen(bound(asks("u1", 30, 8_000), node="n1", held={"GPU-n1-0": (30, 8_000)}))
    picture.node_seen(make_node("n1", ()))
    picture.node_gone("n1")
    picture.node_seen(make_node("n1", gpus("n1", 3)))
    assert free(picture, "n1", 0) == (70, MEMORY - 8_000)
    assert free(picture, "n1", 2) == (100, MEMORY)


def test_a_sick_gpu_is_shut_and_opens_again() -> None:
    """The others of its node are not touched."""
    cards = gpus("n1", 2)
    picture = picture_with(make_node("n1", (sick(cards[0]), cards[1])))
    row = picture.nodes["n1"].row
    assert list(picture.grid.open[row, :2]) == [False, True]
    picture.node_seen(make_node("n1", cards))
    assert list(picture.grid.open[row, :2]) == [True, True]


@pytest.mark.parametrize(
    ("node", "lease", "why"),
    [
        ({"cordoned": True}, {}, "cordoned"),
        ({"ready": "Unknown"}, {}, "not ready"),
        ({}, {"state": "draining"}, "leaving"),
        ({}, {"state": "away"}, "device plugin"),
        ({}, {"state": ""}, "device plugin"),
        ({"annotations": {NAMES.inventory: "{"}}, {}, "can't be used"),
        ({}, {"renewed": "2026-11-21T09:00:00.000000Z"}, "not heard of any more"),
    ],
)
def test_what_takes_a_node_out_is_said(node: dict[str, Any], lease: dict[str, Any], why: str) -> None:
    """Each reason is a sentence of its own."""
    picture = Picture(names=NAMES, hearing=told_all())
    picture.node_seen(make_node("n1", gpus("n1", 1), **node))
    picture.lease_seen(make_lease("n1", **lease), wall=WALL)
    assert why in picture.nodes["n1"].out
    assert not picture.grid.bindable[picture.nodes["n1"].row]


def test_a_node_whose_agent_falls_silent_goes_out_by_itself_and_comes_back_with_the_next_beat() -> None:
    """Age is counted by our own clock from when a beat was seen: being told of it again makes it no younger."""
    picture = picture_with(make_node("n1", gpus("n1", 1)), now=100.0)
    assert picture.tell_time(109.0) == []
    picture.lease_seen(make_lease("n1"), wall=WALL + 9)
    assert picture.tell_time(110.0) == ["n1"]
    assert "not heard of" in picture.nodes["n1"].out
    picture.lease_seen(make_lease("n1", renewed="2026-11-21T10:00:11.000000Z"), wall=WALL + 11)
    assert picture.nodes["n1"].out == ""
    assert picture.tell_time(119.0) == []


def test_how_long_a_node_was_silent_is_told_by_our_own_clock(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever its lease says; of a node that comes back nothing is to be told."""
    caplog.set_level(logging.INFO)
    picture = picture_with(make_node("n1", gpus("n1", 1)), now=100.0)
    picture.tell_time(111.25)
    picture.lease_seen(make_lease("n1", renewed="2026-11-21T10:00:11.000000Z"), wall=WALL)
    picture.tell_time(112.0)
    picture.lease_seen(make_lease("n1", state="draining", renewed="2026-11-21T10:00:12.000000Z"), wall=WALL)
    told = [(line.message, getattr(line, "silent_s", None)) for line in caplog.records if hasattr(line, "node")]
    assert told == [("node in", None), ("node out", 11.25), ("node in", None), ("node out", 0.0)]


def test_no_node_is_said_to_be_silent_while_nobody_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is bound there, but it is not the node's fault; once others are heard again it has a beat's time."""
    silence = 0.0
    picture = Picture(names=NAMES, hearing=Hearing(silence=lambda: silence, after=deaf_after(2.0)))
    picture.tell_time(100.0)
    for name in ("dies", "lives", "dead"):
        picture.node_seen(make_node(name, gpus(name, 1)))
        picture.lease_seen(make_lease(name), wall=WALL)
    for name in ("dies", "lives"):
        picture.tell_time(105.0)
        picture.lease_seen(make_lease(name, renewed="2026-11-21T10:00:05.000000Z"), wall=WALL)
    # A beat's time and nothing of it, while its neighbours are heard.
    picture.tell_time(110.0)
    silence = 8.0
    picture.tell_time(115.0)
    told = {name: known.out for name, known in picture.nodes.items()}
    assert told == {"dies": UNHEARD, "lives": UNHEARD, "dead": SILENT}
    assert not picture.grid.bindable[picture.nodes["lives"].row]
    silence = 0.0
    picture.tell_time(120.0)
    picture.lease_seen(make_lease("lives", renewed="2026-11-21T10:00:20.000000Z"), wall=WALL)
    assert {name: known.out for name, known in picture.nodes.items()} == told | {"lives": ""}
    picture.tell_time(125.0)
    assert {name: known.out for name, known in picture.nodes.items()} == {"dies": SILENT, "lives": "", "dead": SILENT}
    lines = [(line.levelname, line.message, vars(line)["node"]) for line in caplog.records if "node" in vars(line)]
    assert lines == [("WARNING", "node out", "dead"), ("WARNING", "node out", "dies")]


def test_a_node_that_goes_while_nobody_is_heard_is_forgotten() -> None:
    """Time passes after it as before."""
    silence = 8.0
    picture = Picture(names=NAMES, hearing=Hearing(silence=lambda: silence, after=deaf_after(2.0)))
    picture.node_seen(make_node("n1", gpus("n1", 1)))
    picture.lease_seen(make_lease("n1"), wall=WALL)
    picture.tell_time(20.0)
    assert picture.nodes["n1"].out == UNHEARD
    picture.node_gone("n1")
    silence = 0.0
    assert picture.tell_time(40.0) == []
    assert not picture.nodes


@pytest.mark.parametrize(("node", "state"), [({"cordoned": True}, "ready"), ({}, "draining")])
def test_what_somebody_wanted_is_no_warning(node: dict[str, Any], state: str, caplog: pytest.LogCaptureFixture) -> None:
    """A cordon, and an agent that says that it leaves."""
    caplog.set_level(logging.INFO)
    picture = picture_with(make_node("n1", gpus("n1", 1)))
    picture.node_seen(make_node("n1", gpus("n1", 1), **node))
    picture.lease_seen(make_lease("n1", state=state), wall=WALL)
    assert [line.levelname for line in caplog.records if line.message == "node out"] == ["INFO"]


def test_a_wrong_clock_on_the_node_takes_it_out_for_one_beat_at_most() -> None:
    """Only the beat found at our start is judged by the node's own time."""
    picture = Picture(names=NAMES, hearing=told_all())
    picture.node_seen(make_node("n1", gpus("n1", 1)))
    picture.lease_seen(make_lease("n1", renewed="2020-01-01T00:00:00.000000Z"), wall=WALL)
    assert picture.nodes["n1"].out
    picture.lease_seen(make_lease("n1", renewed="2020-01-01T00:00:05.000000Z"), wall=WALL)
    assert picture.nodes["n1"].out == ""


def test_a_heart_beat_may_come_before_its_node() -> None:
    """Two watches deliver in any order."""
    picture = Picture(names=NAMES, hearing=told_all())
    picture.lease_seen(make_lease("n1"), wall=WALL)
    picture.node_seen(make_node("n1", gpus("n1", 1)))
    assert picture.nodes["n1"].out == ""
    picture.lease_gone(NAMES.lease("n1"))
    assert "not been heard of" in picture.nodes["n1"].out


@given(st.integers(1, 40), st.integers(1, 20))
@settings(max_examples=20)
def test_the_grid_grows_and_rows_are_used_again(nodes: int, width: int) -> None:
    """However many nodes with however many GPUs come and go, each is where it belongs."""
    picture = Picture(names=NAMES, hearing=told_all())
    for wave in range(3):
        for number in range(nodes * (wave + 1)):
            picture.node_seen(make_node(f"n{number}", gpus(f"n{number}", 1 + number % width)))
        assert int(picture.grid.open.sum()) == sum(1 + number % width for number in range(nodes * (wave + 1)))
        assert len({known.row for known in picture.nodes.values()}) == len(picture.nodes)
        for name in list(picture.nodes):
            picture.node_gone(name)
        assert not picture.grid.open.any()


CARDS: dict[str, tuple[Gpu, ...]] = {name: gpus(name, 3) for name in ("n1", "n2")}


class LiveAndRebuilt(RuleBasedStateMachine):
    """Events in any order, repeated or late; beside it what a new centre would read from the API server."""

    def __init__(self) -> None:
        super().__init__()
        self.picture = Picture(names=NAMES, hearing=told_all())
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}

    @rule(name=st.sampled_from(sorted(CARDS)), count=st.integers(0, 3), bad=st.booleans())
    def node(self, name: str, count: int, bad: bool) -> None:
        """A node publishes."""
        cards = CARDS[name][:count]
        self.nodes[name] = make_node(name, (sick(cards[0]), *cards[1:]) if bad and cards else cards)
        self.picture.node_seen(self.nodes[name])

    @rule(name=st.sampled_from(sorted(CARDS)))
    def node_gone(self, name: str) -> None:
        """A node is deleted."""
        self.nodes.pop(name, None)
        self.picture.node_gone(name)

    @rule(
        uid=st.sampled_from("abcdef"),
        gpu=st.integers(0, 2),
        asked=st.tuples(st.integers(0, 100), st.integers(1, 50_000)),
        phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    )
    def pod(self, uid: str, gpu: int, asked: tuple[int, int], phase: str) -> None:
        """A pod is bound, runs or ends; a UID never has a second grant."""
        known = self.pods.get(uid)
        if known is None:
            node = "n1" if uid < "d" else "n2"
            known = bound(asks(uid, asked[0] or None, asked[1]), node=node, held={f"GPU-{node}-{gpu}": asked})
        self.pods[uid] = msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, phase=phase))
        self.picture.pod_seen(self.pods[uid])

    @rule(uid=st.sampled_from("abcdef"))
    def pod_gone(self, uid: str) -> None:
        """A pod is deleted."""
        if pod := self.pods.pop(uid, None):
            self.picture.pod_gone(pod)

    @invariant()
    def is_what_a_new_one_would_be(self) -> None:
        """Live and rebuilt agree in every number."""
        rebuilt = Picture(names=NAMES, hearing=told_all())
        for pod in self.pods.values():
            rebuilt.pod_seen(pod)
        for node in self.nodes.values():
            rebuilt.node_seen(node)
        assert rebuilt.holdings.everything() == self.picture.holdings.everything()
        assert rebuilt.nodes.keys() == self.picture.nodes.keys()
        for name, known in self.picture.nodes.items():
            other = rebuilt.nodes[name]
            for column in ("open", "compute", "memory", "usable", "holders", "closed"):
                mine = getattr(self.picture.grid, column)[known.row]
                theirs = getattr(rebuilt.grid, column)[other.row]
                where = self.picture.grid.open[known.row]
                assert np.array_equal(mine[where], theirs[where]), (name, column)


TestLiveAndRebuilt = LiveAndRebuilt.TestCase
TestLiveAndRebuilt.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_holders_replace_what_they_held() -> None:
    """A grant takes the place of the promise that was made for the same pod."""
    picture = picture_with(make_node("n1", gpus("n1", 2)))
    picture.hold("u1", {("n1", "GPU-n1-0"): Claim(compute=Percent(60), memory=MiB(1_000))})
    picture.pod_seen(bound(asks("u1", 60, 1_000), node="n1", held={"GPU-n1-1": (60, 1_000)}))
    assert free(picture, "n1", 0) == (100, MEMORY)
    assert free(picture, "n1", 1) == (40, MEMORY - 1_000)
