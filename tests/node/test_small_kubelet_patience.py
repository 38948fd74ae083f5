"""The small kubelet whose plugins are yet to register: who waits for them, how long, and who does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from aliquot_kube.clock import SystemClock
from aliquot_standalone.kubelet import checkpoint
from aliquot_standalone.kubelet.containers import marked_at
from aliquot_standalone.kubelet.settings import Folders, Settings
from support.kubelets import QUICK, RESOURCE, TWO, new_plugin, plugin_after_start, plugin_on, running
from support.pipes import Pipe
from support.pod_board import PodBoard, container, pod

SETTLE = 7.0
PATIENCE = 1234.0


class _SettlesWhenTold(SystemClock):
    """The time that plugins have to register is over when the test says so."""

    def __init__(self) -> None:
        self.settled = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Sleep as long as asked, but for that one time."""
        if seconds == SETTLE:
            await self.settled.wait()
        else:
            await super().sleep(seconds)


async def test_plugins_have_a_second_before_pods_are_taken(folders: Folders, board: PodBoard) -> None:
    """Between kubelet.sock and the first admission there is time to register: a pod bound meanwhile runs."""
    board.put(pod("one", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
    folders.checkpoint.write_bytes(checkpoint.encode([], {RESOURCE: []}))
    settings, clock = msgspec.structs.replace(QUICK, settle=SETTLE), _SettlesWhenTold()
    async with running(folders, board, settings=settings, clock=clock), plugin_on(folders, board):
        assert board.statuses == {}
        clock.settled.set()
        await board.until_phase("one", "Succeeded")


class _Hears(SystemClock):
    """Notes that somebody began to wait for so many seconds, and lets them pass when the test says so."""

    def __init__(self, seconds: float) -> None:
        self.begun, self.over = asyncio.Event(), asyncio.Event()
        self._seconds = seconds

    async def sleep(self, seconds: float) -> None:
        """Sleep as long as asked, but for that one wait, which the clock's own run has shortened a little."""
        if self._seconds - 10 < seconds <= self._seconds:
            self.begun.set()
            await self.over.wait()
            self._seconds = 0.0
        else:
            await super().sleep(seconds)

    def monotonic(self) -> float:
        """Time, with what the test has let pass."""
        return super().monotonic() + (PATIENCE if self.over.is_set() else 0.0)


@pytest.fixture
def patient() -> Settings:
    """Settings of a kubelet that waits for plugins to come back."""
    return msgspec.structs.replace(QUICK, plugin_patience=PATIENCE, node_status_every=3600.0)


def bind_three(board: PodBoard) -> None:
    """Pods that were bound while no kubelet was there, two of them for a plugin's devices."""
    board.put(pod("one", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
    board.put(pod("two", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
    board.put(pod("plain", containers=[container("main", "true")], restartPolicy="Never"))


async def test_pods_wait_for_a_plugin_that_is_to_come_back(
    folders: Folders, board: PodBoard, patient: Settings
) -> None:
    """However late it registers, pods that ask for its devices run; who asks for none does not wait for it."""
    bind_three(board)
    folders.checkpoint.write_bytes(checkpoint.encode([], {RESOURCE: [], "example.test/never-back": []}))
    clock = _Hears(PATIENCE)
    plugin = new_plugin(folders, count=4)
    async with running(folders, board, settings=patient, clock=clock):
        await clock.begun.wait()
        await board.until_phase("plain", "Succeeded")
        await board.until_node(lambda status: status["allocatable"].get(RESOURCE) == "0")
        assert set(board.statuses) == {"uid-plain"}
        await plugin.serve()
        await plugin.register()
        await board.until_phase("one", "Succeeded")
        await board.until_phase("two", "Succeeded")
        await plugin.stop()


async def test_nobody_waits_with_those_who_wait_for_a_plugin(
    folders: Folders, board: PodBoard, patient: Settings
) -> None:
    """Meanwhile pods come that need none, pods that wait are deleted, and others come to wait too."""
    bind_three(board)
    folders.checkpoint.write_bytes(checkpoint.encode([], {RESOURCE: []}))
    clock = _Hears(PATIENCE)
    plugin = new_plugin(folders, count=2)
    async with running(folders, board, settings=patient, clock=clock):
        await clock.begun.wait()
        board.put(pod("late", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
        board.delete("two", grace=0)
        await board.until_removed("two")
        board.force_delete("one")
        board.put(pod("new", containers=[container("main", "true")], restartPolicy="Never"))
        await board.until_phase("new", "Succeeded")
        assert not board.statuses.keys() & {"uid-one", "uid-late"}
        await plugin.serve()
        await plugin.register()
        await board.until_phase("late", "Succeeded")
        await plugin.stop()
    assert "uid-one" not in board.statuses


@pytest.mark.parametrize("by_force", [True, False])
async def test_what_still_runs_of_a_pod_that_waits_ends_with_it(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe], patient: Settings, *, by_force: bool
) -> None:
    """It waits for the plugin of a container that has ended, and is deleted: no process of it is left."""
    ready = pipe("ready")
    async with plugin_after_start(folders, board) as plugin:
        goes_on = container("main", "sh", "-c", f"echo >{ready}; exec sleep 1000")
        over = container("over", "true", limits=TWO)
        board.put(pod("one", containers=[goes_on, over], restartPolicy="Never", terminationGracePeriodSeconds=0))
        await ready.heard()
        await board.until(
            "one", lambda status: any("terminated" in one["state"] for one in status["containerStatuses"])
        )
    await plugin.stop()
    clock = _Hears(PATIENCE)
    async with running(folders, board, settings=patient, clock=clock):
        await clock.begun.wait()
        assert marked_at(folders.place)
        if by_force:
            board.force_delete("one")
        else:
            board.delete("one", grace=0)
            await board.until_removed("one")
        async with asyncio.timeout(50):
            while marked_at(folders.place):  # noqa: ASYNC110 - a process that is nobody's child tells nobody of its end
                await asyncio.sleep(0.02)


async def test_running_pod_does_not_wait_for_its_plugin(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe], patient: Settings
) -> None:
    """A patient kubelet finds it again at once, though its plugin is away."""
    ready, go = pipe("ready"), pipe("go")
    async with plugin_after_start(folders, board) as plugin:
        main = container("main", "sh", "-c", f"echo >{ready}; read x <{go}", limits=TWO)
        board.put(pod("one", containers=[main], restartPolicy="Never"))
        await ready.heard()
        await board.until_phase("one", "Running")
    await plugin.stop()
    clock = _Hears(PATIENCE)
    async with running(folders, board, settings=patient, clock=clock):
        go.tell()
        await board.until_phase("one", "Succeeded")
    assert not clock.begun.is_set()


async def test_plugin_that_never_comes_back_is_not_waited_for_for_ever(
    folders: Folders, board: PodBoard, patient: Settings
) -> None:
    """When patience ends the pods that ask for its devices fail and say why."""
    bind_three(board)
    folders.checkpoint.write_bytes(checkpoint.encode([], {RESOURCE: []}))
    clock = _Hears(PATIENCE)
    async with running(folders, board, settings=patient, clock=clock):
        await clock.begun.wait()
        await board.until_phase("plain", "Succeeded")
        assert set(board.statuses) == {"uid-plain"}
        clock.over.set()
        status = await board.until_phase("one", "Failed")
    assert "has no healthy device" in status["message"]


async def test_resource_that_no_plugin_ever_had_is_not_waited_for(
    folders: Folders, board: PodBoard, patient: Settings
) -> None:
    """A patient kubelet starts a pod at once whose resource is in no checkpoint."""
    bind_three(board)
    clock = _Hears(PATIENCE)
    async with running(folders, board, settings=patient, clock=clock):
        await board.until_phase("one", "Succeeded")
    assert not clock.begun.is_set()
