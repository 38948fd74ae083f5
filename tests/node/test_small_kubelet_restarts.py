"""The small kubelet that starts again: what ran is found, what ended is known, and nothing runs twice."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable

import msgspec

from aliquot_standalone.kubelet.lifecycle import Life, Starting
from aliquot_standalone.kubelet.memory import Memories
from aliquot_standalone.kubelet.settings import Folders
from support.kubelets import TWO, plugin_after_start, plugin_on, running
from support.pipes import Pipe
from support.pod_board import PodBoard, container, pod, state_of


async def test_running_pod_survives_a_kubelets_restart(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """The same process goes on, nobody is asked for devices again, and its end is seen by the new kubelet."""
    ready, go = pipe("ready"), pipe("go")
    async with plugin_after_start(folders, board) as plugin:
        script = f"echo >{ready}; read x <{go}; exit 6"
        main = container("main", "sh", "-c", script, limits=TWO)
        board.put(pod("one", containers=[main], restartPolicy="Never"))
        await ready.heard()
        before = await board.until_phase("one", "Running")
    async with running(folders, board):
        await plugin.register()
        after = await board.until_phase("one", "Running")
        go.tell()
        status = await board.until_phase("one", "Failed")
        await plugin.stop()
    assert before["containerStatuses"][0]["containerID"] == after["containerStatuses"][0]["containerID"]
    assert state_of(status)["terminated"]["exitCode"] == 6
    assert len(plugin.asked("allocate")) == 1


async def test_running_container_needs_no_plugin_after_a_restart(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """With the plugin away a running pod goes on; one that would have to start is failed for good."""
    ready, go = pipe("ready"), pipe("go")
    async with plugin_after_start(folders, board) as plugin:
        main = container("main", "sh", "-c", f"echo >{ready}; read x <{go}", limits=TWO)
        board.put(pod("one", containers=[main], restartPolicy="Never"))
        await ready.heard()
        await board.until_phase("one", "Running")
    await plugin.stop()
    board.put(pod("late", containers=[container("main", "true", limits=TWO)]))
    async with running(folders, board):
        late = await board.until_phase("late", "Failed")
        go.tell()
        await board.until_phase("one", "Succeeded")
    assert "has no healthy device" in late["message"]


async def test_process_that_ended_while_nobody_looked(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """Its exit code is known to the next kubelet; one whose leader vanished without a word is lost and said so."""
    ready, go = pipe("ready"), pipe("go")
    async with running(folders, board):
        main = container("main", "sh", "-c", f"echo >{ready}; read x <{go}; exit 4")
        board.put(pod("one", containers=[main], restartPolicy="Never"))
        await ready.heard()
        await board.until_phase("one", "Running")
    go.tell()
    async with running(folders, board):
        status = await board.until_phase("one", "Failed")
    assert state_of(status)["terminated"]["exitCode"] == 4


async def test_pod_deleted_while_the_kubelet_was_away_is_ended(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """A process whose pod is gone from the API server is terminated by the next kubelet."""
    ready, ended = pipe("ready"), pipe("ended")
    async with running(folders, board):
        script = f"trap 'echo >{ended}; exit' TERM; echo >{ready}; while :; do sleep 0.01; done"
        board.put(pod("one", containers=[container("main", "sh", "-c", script)]))
        await ready.heard()
        await board.until_phase("one", "Running")
    board.force_delete("one")
    board.history.clear()
    async with running(folders, board):
        await ended.heard()
        await asyncio.gather(*[task for task in asyncio.all_tasks() if task.get_name() == "pod default/one"])
    assert board.history == []
    assert not (folders.containers / "uid-one").exists()


async def runs_until_told(board: PodBoard, ready: Pipe) -> None:
    """A pod runs that ends well at SIGTERM."""
    script = f"trap 'exit 0' TERM; echo >{ready}; while :; do sleep 0.01; done"
    board.put(pod("one", containers=[container("main", "sh", "-c", script)]))
    await ready.heard()
    await board.until_phase("one", "Running")


async def test_pod_marked_for_deletion_while_the_kubelet_was_away_goes(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """A deletion that nobody carried out yet is carried out by the next kubelet."""
    ready = pipe("ready")
    async with running(folders, board):
        await runs_until_told(board, ready)
    board.delete("one", grace=30)
    async with running(folders, board):
        await board.until_removed("one")
    assert state_of(board.statuses["uid-one"])["terminated"]["exitCode"] == 0


async def test_start_under_way_when_the_kubelet_died_is_not_made_twice(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """A process that came to be after the last word in the memory is found by its mark and taken over."""
    ready, go = pipe("ready"), pipe("go")
    async with running(folders, board):
        script = f"echo x >>{folders.root}/runs; echo >{ready}; read x <{go}; exit 2"
        board.put(pod("one", containers=[container("main", "sh", "-c", script)], restartPolicy="Never"))
        await ready.heard()
        await board.until_phase("one", "Running")
    memories = Memories(folders.containers)
    memory = memories.read_all()["uid-one"]
    memories.write(msgspec.structs.replace(memory, lives={"main": Life(state=Starting())}))
    board.statuses.clear()
    async with running(folders, board):
        await board.until_phase("one", "Running")
        go.tell()
        status = await board.until_phase("one", "Failed")
    assert state_of(status)["terminated"]["exitCode"] == 2
    assert (folders.root / "runs").read_text() == "x\n"


async def test_refused_pod_stays_refused_after_a_restart(folders: Folders, board: PodBoard) -> None:
    """A pod that failed at its admission is Failed for ever, and nothing else is ever said of it."""
    async with running(folders, board), plugin_on(folders, board, count=1):
        board.put(pod("one", containers=[container("main", "true", limits=TWO)]))
        await board.until_phase("one", "Failed")
    async with running(folders, board), plugin_on(folders, board, count=2):
        board.put(pod("two", containers=[container("main", "true", limits=TWO)], restartPolicy="Never"))
        await board.until_phase("two", "Succeeded")
    assert {status["phase"] for uid, status in board.history if uid == "uid-one"} == {"Failed"}


async def test_pod_that_somebody_else_ended_is_stopped(
    folders: Folders, board: PodBoard, pipe: Callable[[str], Pipe]
) -> None:
    """A running pod whose phase is set to Failed from outside has its processes ended and stays Failed."""
    ready = pipe("ready")
    async with running(folders, board):
        await runs_until_told(board, ready)
        known = board.pods["uid-one"]
        board.put(msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, phase="Failed")))
        status = await board.until("one", lambda status: "terminated" in state_of(status))
    assert (status["phase"], state_of(status)["terminated"]["exitCode"]) == ("Failed", 0)


async def test_ended_pod_stays_ended_after_a_restart(folders: Folders, board: PodBoard) -> None:
    """A pod that is Succeeded does not run again; deleted, it is removed."""
    async with running(folders, board):
        board.put(pod("one", containers=[container("main", "sh", "-c", "echo x >>runs")], restartPolicy="Never"))
        await board.until_phase("one", "Succeeded")
    async with running(folders, board):
        board.put(pod("two", containers=[container("main", "true")], restartPolicy="Never"))
        await board.until_phase("two", "Succeeded")
        assert (folders.containers / "uid-one" / "work" / "runs").read_text() == "x\n"
        board.delete("one", grace=30)
        await board.until_removed("one")


async def test_ended_pod_stays_ended_without_any_memory(folders: Folders, board: PodBoard) -> None:
    """The API server's word is enough: a kubelet that has lost its files does not run an ended pod again."""
    script = f"echo x >>{folders.root}/runs"
    async with running(folders, board):
        board.put(pod("one", containers=[container("main", "sh", "-c", script)], restartPolicy="Never"))
        await board.until_phase("one", "Succeeded")
    shutil.rmtree(folders.containers)
    async with running(folders, board):
        board.put(pod("two", containers=[container("main", "true")], restartPolicy="Never"))
        await board.until_phase("two", "Succeeded")
    assert (folders.root / "runs").read_text() == "x\n"
