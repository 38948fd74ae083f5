"""Small kubelets for tests: on a short root folder, quick, stopped at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from aliquot_core.clock import Clock
from aliquot_core.objects import Pod
from aliquot_kube.clock import SystemClock
from aliquot_proto import deviceplugin_v1beta1_pb2 as api
from aliquot_standalone.kubelet.containers import MARK
from aliquot_standalone.kubelet.node import SmallKubelet
from aliquot_standalone.kubelet.settings import Folders, Settings
from support.folders import lent_folder
from support.pod_board import PodBoard
from support.tiny_plugin import TinyPlugin, device

RESOURCE = "example.test/part"
# What asks for two of a plugin's devices.
TWO = {RESOURCE: "2"}
QUICK = Settings(
    settle=0.0,
    start_retry=(0.01,),
    crash_back_off=0.01,
    node_status_every=0.02,
    registry_poll=0.01,
    default_grace=5.0,
)


@contextlib.contextmanager
def short_folders() -> Iterator[Folders]:
    """A root with a short path: unix sockets allow 107 bytes."""
    with lent_folder("ak-") as root:
        folders = Folders(root=root)
        folders.create()
        try:
            yield folders
        finally:
            kill_leftovers(folders)


def kill_leftovers(folders: Folders) -> None:
    """End the processes that a test's kubelet has left running, as kubelets do."""
    mark = f"{MARK}={folders.place}.".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"\0" + mark in b"\0" + (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


@contextlib.asynccontextmanager
async def running(
    folders: Folders,
    board: PodBoard,
    *,
    settings: Settings = QUICK,
    clock: Clock | None = None,
    warn: Callable[[Pod, str], None] = lambda _pod, _why: None,
) -> AsyncIterator[SmallKubelet]:
    """A kubelet with real processes that serves for as long as the block lasts."""
    kubelet = SmallKubelet(
        name="node",
        folders=folders,
        source=board,
        sink=board,
        clock=clock or SystemClock(),
        settings=settings,
        warn=warn,
    )
    task = asyncio.create_task(kubelet.run())
    try:
        await _serves(kubelet, task)
        yield kubelet
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _serves(kubelet: SmallKubelet, running: asyncio.Task[None]) -> None:
    """Wait until it serves; one that can't says why."""
    serving = asyncio.ensure_future(kubelet.serving.wait())
    await asyncio.wait({serving, running}, return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    if running.done():
        await running


def new_plugin(folders: Folders, *, count: int, resource: str = RESOURCE) -> TinyPlugin:
    """A plugin that does not serve yet; its socket lies where a kubelet's start leaves it alone."""
    devices = [device(f"d{number}") for number in range(count)]
    return TinyPlugin(resource=resource, devices=devices, folder=folders.device_plugins, socket="sub/tiny.sock")


@contextlib.asynccontextmanager
async def plugin_on(
    folders: Folders, board: PodBoard, *, count: int = 4, pre_start: bool = False, env: dict[str, str] | None = None
) -> AsyncIterator[TinyPlugin]:
    """A plugin that the kubelet knows."""
    plugin = new_plugin(folders, count=count)
    plugin.options.pre_start_required = pre_start
    plugin.answer = lambda _: api.ContainerAllocateResponse(envs=env or {})
    await plugin.serve()
    try:
        await _taken(plugin, board)
        yield plugin
    finally:
        await plugin.stop()


@contextlib.asynccontextmanager
async def plugin_after_start(folders: Folders, board: PodBoard) -> AsyncIterator[TinyPlugin]:
    """A kubelet for the length of the block, and a plugin of two devices that outlives it."""
    async with running(folders, board):
        plugin = new_plugin(folders, count=2)
        await plugin.serve()
        await _taken(plugin, board)
        yield plugin


async def _taken(plugin: TinyPlugin, board: PodBoard) -> None:
    """Register, and wait until the node has the devices."""
    await plugin.register()
    # The list comes after the registration: a pod admitted in between gets no devices, as with a real kubelet.
    await board.until_node(lambda status: status["allocatable"].get(RESOURCE) == str(len(plugin.devices)))
