"""Who uses a GPU without a grant is told of, and ended where the node says so; nobody else is ever touched."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.isolation.node_processes import NodeProcesses
from aliquot_agent.isolation.trespass import GRACE, LOOKS, Case, Process, Stage, Trespasser, judged, stage_of
from aliquot_agent.isolation.trespassers import REASON, Trespassers
from aliquot_agent.publishing.others import has_from_others
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.names import Names
from aliquot_core.objects import Node as K8sNode
from aliquot_core.objects import NodeStatus, Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.client import KubeClient
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from support.clocks import VirtualClock
from support.fake_api import FakeApi

NAMES = Names()
A, B = "GPU-a", "GPU-b"
SAMPLE = 10.0


def pod(uid: str, *, namespace: str = "team", granted: str = "", spoilt: str = "", asks: str = "") -> Pod:
    """A pod, maybe with a slice of that GPU, or with a grant that is none, or that asks for another resource."""
    part = Slice(gpu=granted, compute=Percent(10), limit=Percent(10), memory=MiB(100))
    grant = Grant(node="n1", pod=uid, containers={"main": ContainerGrant(slices=(part,))})
    annotations = {NAMES.grant: spoilt or encode_grant(grant)} if granted or spoilt else {}
    container = {"name": "main", "resources": {"limits": {asks: "1"} if asks else {}}}
    meta = {"name": uid, "namespace": namespace, "uid": uid, "annotations": annotations}
    body = {"metadata": meta, "spec": {"containers": [container]}}
    return msgspec.convert(body, Pod)


class FakeProcesses:
    """Processes by pid, with when they started; signals are written down."""

    def __init__(self, **refuses: bool) -> None:
        self.births: dict[int, int] = dict.fromkeys(range(7, 100), 100)
        self.signals: list[tuple[int, int, signal.Signals]] = []
        self.refuses = refuses.get("refuses", False)

    def born(self, pid: int) -> int:
        """When it started."""
        return self.births.get(pid, 0)

    def signal(self, pid: int, *, born: int, number: signal.Signals) -> None:
        """Write it down."""
        if self.refuses:
            raise PermissionError
        self.signals.append((pid, born, number))


class Node:
    """A node whose samples are told one by one."""

    def __init__(
        self, *, stop: bool, processes: FakeProcesses, pods: Mapping[str, Pod], offered: Mapping[str, str] | None = None
    ) -> None:
        self.clock, self.api = VirtualClock(), FakeApi()
        self.processes = processes
        self._events = EventRecorder(
            client=KubeClient(transport=self.api),
            clock=self.clock,
            random=lambda: 0.5,
            controller="c",
            instance="i",
            ledger=EventLedger(),
        )
        self._watch = Trespassers(
            names=NAMES,
            clock=self.clock,
            events=self._events,
            pods=lambda: pods,
            processes=processes,
            stop=stop,
            spared={"aliquot-system", "kube-system"},
            has_from_others=partial(has_from_others, node=K8sNode(status=NodeStatus(allocatable=dict(offered or {})))),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let Events be written."""
        work = asyncio.ensure_future(self._events.run())
        yield
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    async def see(self, *found: tuple[int, str, str], times: int = 1) -> None:
        """So many samples with these processes: pid, pod, GPU."""
        for _ in range(times):
            self._watch.hear(found)
            await self.clock.advance(SAMPLE)

    @property
    def notes(self) -> list[str]:
        """The texts of Events."""
        made = [json.loads(one.body or b"{}") for one in self.api.asked if one.path.endswith("/events")]
        assert {one["reason"] for one in made} <= {REASON}
        return [one["note"] for one in made]


async def test_where_it_is_only_told_of_nothing_is_signalled(caplog: pytest.LogCaptureFixture) -> None:
    """One Event when it has lasted, however long it lasts."""
    node = Node(stop=False, processes=FakeProcesses(), pods={"u1": pod("u1")})
    async with node.running():
        await node.see((7, "u1", A), times=LOOKS - 1)
        assert node.notes == []
        await node.see((7, "u1", A), times=20)
    assert node.processes.signals == []
    assert node.notes == ["process 7 uses GPU GPU-a without a grant"]
    assert [one.message for one in caplog.records] == ["a GPU is used without a grant"]


async def test_it_is_asked_to_end_and_then_ended() -> None:
    """SIGTERM once it has lasted, SIGKILL after the grace, and both are said."""
    node = Node(stop=True, processes=FakeProcesses(), pods={"u1": pod("u1")})
    async with node.running():
        await node.see((7, "u1", A), times=LOOKS)
        assert node.processes.signals == [(7, 100, signal.SIGTERM)]
        await node.see((7, "u1", A), times=2)
        assert {number for *_, number in node.processes.signals} == {signal.SIGTERM}
        await node.see((7, "u1", A))
        assert node.processes.signals[-1] == (7, 100, signal.SIGKILL)
    assert [note.rpartition("; ")[2] for note in node.notes] == ["it is asked to end", "it did not end and was killed"]


@pytest.mark.parametrize(
    "who",
    [
        *(pod("u1", namespace="kube-system"), pod("u1", namespace="aliquot-system"), pod("u1", granted=A), None),
        *(pod("u1", asks="nvidia.com/gpu"), pod("u1", asks="nvidia.com/mig-1g.10gb")),
    ],
    ids=["spared", "ours", "granted", "unknown", "anothers", "anothers-instance"],
)
async def test_others_are_let_be(who: Pod | None) -> None:
    """The node's own, whose grant names the GPU, and who is not known: none is told of, none is stopped."""
    node = Node(stop=True, processes=FakeProcesses(), pods={"u1": who} if who else {})
    async with node.running():
        await node.see((7, "u1", A), times=20)
    assert (node.processes.signals, node.notes) == ([], [])


@pytest.mark.parametrize(("offered", "told"), [("8", False), ("0", True)])
async def test_where_another_plugin_gives_the_gpus_away_nobody_needs_a_grant(offered: str, *, told: bool) -> None:
    """Until it is off the node: the ordinary way in."""
    pods = {"u1": pod("u1", asks="cpu")}
    node = Node(stop=True, processes=FakeProcesses(), pods=pods, offered={"nvidia.com/gpu": offered})
    async with node.running():
        await node.see((7, "u1", A), times=LOOKS)
    assert (bool(node.processes.signals), bool(node.notes)) == (told, told)


@pytest.mark.parametrize("who", [pod("u1", granted=B), pod("u1", spoilt="{")], ids=["another-gpus", "spoilt"])
async def test_a_grant_that_does_not_name_the_gpu_is_none_of_it(who: Pod) -> None:
    """A pod that has one GPU and uses another one is as any other; so is one whose grant nobody can read."""
    node = Node(stop=True, processes=FakeProcesses(), pods={"u1": who})
    async with node.running():
        await node.see((7, "u1", A), times=LOOKS)
    assert node.processes.signals == [(7, 100, signal.SIGTERM)]


async def test_a_pid_that_is_used_again_has_its_own_time_to_end() -> None:
    """The second is asked as the first was, and ended after a grace of its own; nothing is told twice of the pod."""
    node = Node(stop=True, processes=FakeProcesses(), pods={"u1": pod("u1")})
    async with node.running():
        await node.see((7, "u1", A), times=LOOKS + 3)
        assert node.processes.signals == [(7, 100, signal.SIGTERM)] * 3 + [(7, 100, signal.SIGKILL)]
        node.processes.births[7] = 200
        await node.see((7, "u1", A), times=4)
        assert node.processes.signals[4:] == [(7, 200, signal.SIGTERM)] * 3 + [(7, 200, signal.SIGKILL)]
        await node.see((8, "u1", A), times=4)
        assert node.processes.signals[8:] == [(8, 100, signal.SIGTERM)] * 3 + [(8, 100, signal.SIGKILL)]
        del node.processes.births[8]
        await node.see((8, "u1", A), times=10)
    assert len(node.processes.signals) == 12
    assert len(node.notes) == 2


async def test_a_pod_that_has_none_at_one_sample_begins_anew() -> None:
    """Whoever ended, or got a grant, is not met by what was seen before."""
    node = Node(stop=True, processes=FakeProcesses(), pods={"u1": pod("u1")})
    async with node.running():
        for _ in range(5):
            await node.see((7, "u1", A), times=LOOKS - 1)
            await node.see()
    assert (node.processes.signals, node.notes) == ([], [])


async def test_a_second_gpu_that_comes_and_goes_changes_nothing() -> None:
    """A process is one by pid and start, on whichever GPUs it is seen."""
    node = Node(stop=True, processes=FakeProcesses(), pods={"u1": pod("u1")})
    async with node.running():
        for turn in range(LOOKS + 3):
            await node.see((7, "u1", A), *([] if turn % 2 else [(7, "u1", B)]))
    assert node.processes.signals == [(7, 100, signal.SIGTERM)] * 3 + [(7, 100, signal.SIGKILL)]
    assert node.notes == [
        "process 7 uses GPU GPU-a, GPU-b without a grant; it is asked to end",
        "process 7 uses GPU GPU-a without a grant; it did not end and was killed",
    ]


async def test_a_process_for_each_piece_of_work_is_no_way_round_it() -> None:
    """The pod's samples count: whoever is there then is asked, and each has its own time to end."""
    node = Node(stop=True, processes=FakeProcesses(), pods={"u1": pod("u1"), "u2": pod("u2")})
    async with node.running():
        for turn in range(12):
            # Each of them lives for two samples; the other pod has one for a moment.
            await node.see((7 + turn // 2, "u1", A), *([(90, "u2", A)] if turn < LOOKS - 1 else []))
    asked = [(7 + turn // 2, 100, signal.SIGTERM) for turn in range(LOOKS - 1, 12)]
    assert node.processes.signals == asked
    assert node.notes == ["process 8 uses GPU GPU-a without a grant; it is asked to end"]


async def test_many_at_once_are_told_of_in_one_event() -> None:
    """Eight are named, whoever there are more of; each is signalled."""
    node = Node(stop=True, processes=FakeProcesses(), pods={"u1": pod("u1")})
    async with node.running():
        await node.see(*[(pid, "u1", (A, B)[pid % 2]) for pid in range(10, 20)], times=LOOKS)
    assert len(node.processes.signals) == 10
    named = "10, 11, 12, 13, 14, 15, 16, 17 and 2 more"
    assert node.notes == [f"processes {named} use GPU GPU-a, GPU-b without a grant; they are asked to end"]


async def test_a_right_that_is_lacking_is_said() -> None:
    """Whoever switched it on without the capability reads so on the pod."""
    node = Node(stop=True, processes=FakeProcesses(refuses=True), pods={"u1": pod("u1")})
    async with node.running():
        await node.see((7, "u1", A), times=LOOKS)
    assert node.notes == ["process 7 uses GPU GPU-a without a grant; the agent lacks the right to end it (CAP_KILL)"]


@given(st.lists(st.sets(st.sampled_from([7, 8])), max_size=30), st.booleans())
def test_no_pod_rises_that_was_not_seen_each_time(samples: list[set[int]], stop: bool) -> None:
    """By its last samples in a row alone; a process is ended a grace after it was asked, where that is said."""
    cases: dict[str, Case] = {}
    row, asked = 0, dict[int, float]()
    for at, pids in enumerate(samples):
        now = at * SAMPLE
        seen = [Trespasser(process=Process(pid=pid, born=1), pod="u", gpus=(A,)) for pid in sorted(pids)]
        cases = judged(cases, seen, stop=stop, now=now)
        row = row + 1 if pids else 0
        asked = {pid: asked.get(pid, now) for pid in pids} if row >= LOOKS else {}
        assert set(cases) == ({"u"} if pids else set())
        for one in seen:
            stage = stage_of(one.process, case=cases["u"], now=now)
            assert (stage >= Stage.TOLD) is (row >= LOOKS)
            assert (stage is Stage.ENDED) is (stop and row >= LOOKS and now >= asked[one.process.pid] + GRACE)
            assert stage <= cases["u"].stage


def test_a_real_process_is_signalled_if_it_is_the_one_that_was_meant() -> None:
    """By its start as well as its number; one that is gone is no error."""
    processes = NodeProcesses()
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    born = processes.born(child.pid)
    assert born > 0
    processes.signal(child.pid, born=born + 1, number=signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.5)
    processes.signal(child.pid, born=born, number=signal.SIGKILL)
    assert child.wait(60) == -signal.SIGKILL
    assert processes.born(child.pid) == 0
    processes.signal(child.pid, born=born, number=signal.SIGKILL)
    assert processes.born(os.getpid()) > 0
