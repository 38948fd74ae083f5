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

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.isolation.node_processes import NodeProcesses
from aliquot_agent.isolation.trespass import GRACE, LOOKS, Case, Stage, Trespasser, judged
from aliquot_agent.isolation.trespassers import REASON, Trespassers
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.client import KubeClient
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from support.clocks import VirtualClock
from support.fake_api import FakeApi

NAMES = Names()
A, B = "GPU-a", "GPU-b"
SAMPLE = 10.0


def pod(uid: str, *, namespace: str = "team", granted: str = "", spoilt: str = "") -> Pod:
    """A pod, maybe with a slice of that GPU, or with a grant that is none."""
    part = Slice(gpu=granted, compute=Percent(10), limit=Percent(10), memory=MiB(100))
    grant = Grant(node="n1", pod=uid, containers={"main": ContainerGrant(slices=(part,))})
    annotations = {NAMES.grant: spoilt or encode_grant(grant)} if granted or spoilt else {}
    body = {"metadata": {"name": uid, "namespace": namespace, "uid": uid, "annotations": annotations}}
    return msgspec.convert(body, Pod)


class FakeProcesses:
    """Processes by pid, with when they started; signals are written down."""

    def __init__(self, **refuses: bool) -> None:
        self.births: dict[int, int] = {7: 100, 8: 100}
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

    def __init__(self, *, stop: bool, processes: FakeProcesses, pods: Mapping[str, Pod]) -> None:
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
    [pod("u1", namespace="kube-system"), pod("u1", namespace="aliquot-system"), pod("u1", granted=A), None],
    ids=["spared", "ours", "granted", "unknown"],
)
async def test_others_are_let_be(who: Pod | None) -> None:
    """The node's own, whose grant names the GPU, and who is not known: none is told of, none is stopped."""
    node = Node(stop=True, processes=FakeProcesses(), pods={"u1": who} if who else {})
    async with node.running():
        await node.see((7, "u1", A), times=20)
    assert (node.processes.signals, node.notes) == ([], [])


@pytest.mark.parametrize("who", [pod("u1", granted=B), pod("u1", spoilt="{")], ids=["another-gpus", "spoilt"])
async def test_a_grant_that_does_not_name_the_gpu_is_none_of_it(who: Pod) -> None:
    """A pod that has one GPU and uses another one is as any other; so is one whose grant nobody can read."""
    node = Node(stop=True, processes=FakeProcesses(), pods={"u1": who})
    async with node.running():
        await node.see((7, "u1", A), times=LOOKS)
    assert node.processes.signals == [(7, 100, signal.SIGTERM)]


async def test_a_pid_that_is_used_again_begins_anew() -> None:
    """The second process is judged by what it does itself; one that has ended is not looked for."""
    node = Node(stop=True, processes=FakeProcesses(), pods={"u1": pod("u1")})
    async with node.running():
        await node.see((7, "u1", A), times=LOOKS - 1)
        node.processes.births[7] = 200
        await node.see((7, "u1", A), times=LOOKS - 1)
        assert node.processes.signals == []
        await node.see((7, "u1", A))
        assert node.processes.signals == [(7, 200, signal.SIGTERM)]
        del node.processes.births[7]
        await node.see((7, "u1", A), times=10)
    assert len(node.processes.signals) == 1


async def test_a_right_that_is_lacking_is_said() -> None:
    """Whoever switched it on without the capability reads so on the pod."""
    node = Node(stop=True, processes=FakeProcesses(refuses=True), pods={"u1": pod("u1")})
    async with node.running():
        await node.see((7, "u1", A), times=LOOKS)
    assert node.notes == ["process 7 uses GPU GPU-a without a grant; the agent lacks the right to end it (CAP_KILL)"]


@given(st.lists(st.sets(st.sampled_from([7, 8])), max_size=30), st.booleans())
def test_nobody_rises_who_was_not_seen_each_time(samples: list[set[int]], stop: bool) -> None:  # noqa: FBT001 - drawn
    """By their last samples in a row alone; ended only after the grace, and nobody at all where it is not said."""
    cases: dict[Trespasser, Case] = {}
    row = dict.fromkeys((7, 8), 0)
    for at, pids in enumerate(samples):
        seen = [Trespasser(pid=pid, born=1, pod="u", gpus=(A,)) for pid in sorted(pids)]
        cases = judged(cases, seen, stop=stop, now=at * SAMPLE)
        row = {pid: row[pid] + 1 if pid in pids else 0 for pid in row}
        assert {one.pid for one in cases} == pids
        for one, case in cases.items():
            assert (case.stage >= Stage.TOLD) is (row[one.pid] >= LOOKS)
            assert (case.stage is Stage.ENDED) is (stop and (row[one.pid] - LOOKS) * SAMPLE >= GRACE)


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
