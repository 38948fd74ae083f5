"""The small kubelet at its limits: a disk that takes nothing in, logs that grow, and its end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from aliquot_core.clock import Clock
from aliquot_kube.clock import SystemClock
from aliquot_standalone.kubelet import memory, node
from aliquot_standalone.kubelet.containers import MARK, LocalProcesses, marked_at
from aliquot_standalone.kubelet.leaving import end_containers
from aliquot_standalone.kubelet.memory import Memories
from aliquot_standalone.kubelet.settings import Folders
from support.kubelets import QUICK, running
from support.pipes import Pipe
from support.pod_board import PodBoard, container, pod

# Each says when it is as it is to be met: a shell that has not got so far takes a signal in its own way.
POLITE = "echo >{pipe}; exec sleep 1000"
STUBBORN = "trap '' TERM; echo >{pipe}; while :; do sleep 0.1; done"
GRACE = 33.0


def waits(status: dict[str, Any]) -> bool:
    """Whether the container's start is put off, as one that could be repeated would be."""
    waiting = status["containerStatuses"][0]["state"].get("waiting", {})
    return "can't be written to disk" in waiting.get("message", "")


async def end(folders: Folders, *, clock: Clock | None = None) -> None:
    """End all containers of the place."""
    await end_containers(
        place=folders.place,
        memories=Memories(folders.containers),
        runtime=LocalProcesses(),
        clock=clock or SystemClock(),
        grace=GRACE,
    )


class GraceUntil(SystemClock):
    """A clock on which the grace is over as soon as a file is there."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def sleep(self, seconds: float) -> None:
        """Sleep as long as asked, but for the grace."""
        if seconds != GRACE:
            return await super().sleep(seconds)
        while not self._file.exists():
            await super().sleep(0.01)
        return None


async def test_nothing_starts_that_could_not_be_written_down(
    folders: Folders, board: PodBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet that dies would leave the next one to start it a second time; with room again it starts."""

    def no_room(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as full:
        full.setattr(memory, "replace_file", no_room)
        full.setattr(node, "replace_file", no_room)
        async with running(folders, board):
            board.put(pod("one", containers=[container("main", "true")], restartPolicy="Never"))
            await board.until("one", waits)
            assert marked_at(folders.place) == []
            full.undo()
            await board.until_phase("one", "Succeeded")


async def test_all_containers_end_with_the_place(folders: Folders, board: PodBoard) -> None:
    """Who listens to SIGTERM ends by itself and says how, who does not is killed; the next kubelet learns of both."""
    async with running(folders, board):
        for name, script in (("polite", POLITE), ("stubborn", STUBBORN)):
            pipe = Pipe(folders.root / name)
            main = container("main", "sh", "-c", script.format(pipe=pipe))
            board.put(pod(name, containers=[main], restartPolicy="Never"))
            await pipe.heard()
            pipe.close()
            await board.until_phase(name, "Running")
    await end(folders, clock=GraceUntil(Memories(folders.containers).exit_file("uid-polite", "main", 0)))
    assert marked_at(folders.place) == []
    async with running(folders, board):
        codes = [
            (await board.until_phase(name, "Failed"))["containerStatuses"][0]["state"]["terminated"]["exitCode"]
            for name in ("polite", "stubborn")
        ]
    assert codes == [143, 137]


async def test_who_is_not_remembered_ends_too(folders: Folders) -> None:
    """A process of a start that nobody wrote down is found by its mark, and none of another place is touched."""
    marks = (f"{folders.place}.u.main.0", "elsewhere.u.main.0")
    ours, other = [
        await asyncio.create_subprocess_exec("sleep", "1000", env={**os.environ, MARK: mark}) for mark in marks
    ]
    await end(folders)
    assert await ours.wait() != 0
    assert other.returncode is None
    other.kill()
    await other.wait()


async def test_a_log_is_held_to_its_bound_while_its_container_prints(folders: Folders, board: PodBoard) -> None:
    """Again and again, with nobody asking for it."""
    settings = type(QUICK)(log_most=64 * 1024, log_look=0.02, settle=0.0, node_status_every=0.02)
    made = pod("flood", containers=[container("main", "sh", "-c", "yes | head -c 5000000; sleep 1000")])
    async with running(folders, board, settings=settings):
        board.put(made)
        log = folders.log_file(made, "main", 0)

        def held() -> bool:
            return log.exists() and log.stat().st_size == 5_000_000 and log.stat().st_blocks * 512 <= 64 * 1024

        async with asyncio.timeout(60):
            while not held():  # noqa: ASYNC110 - a file tells nobody that it shrinks
                await asyncio.sleep(0.02)
        assert log.read_bytes().endswith(b"y\ny\n")
