"""The small kubelet with a tiny plugin: pods come in, get devices, run as processes, are reported."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from aliquot_kube.clock import SystemClock
from aliquot_standalone.kubelet.node import SmallKubelet
from aliquot_standalone.kubelet.settings import Folders, Settings
from support.pod_board import PodBoard, container, pod
from support.tiny_plugin import TinyPlugin, cdi_answer, device

RESOURCE = "example.test/part"
QUICK = Settings(settle=0.0, start_retry=(0.01,), crash_back_off=0.01, node_status_every=0.02, registry_poll=0.01)


@pytest.fixture
def folders() -> Iterator[Folders]:
    """A root with a short path: unix sockets allow 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ak-") as root:
        folders = Folders(root=Path(root))
        folders.create()
        yield folders


@contextlib.asynccontextmanager
async def running(kubelet: SmallKubelet) -> AsyncIterator[SmallKubelet]:
    """A kubelet that serves for as long as the block lasts."""
    task = asyncio.create_task(kubelet.run())
    try:
        await kubelet.serving.wait()
        yield kubelet
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def kubelet_on(folders: Folders, board: PodBoard, settings: Settings = QUICK) -> SmallKubelet:
    """A kubelet with real processes and the real clock."""
    return SmallKubelet(name="node", folders=folders, source=board, sink=board, clock=SystemClock(), settings=settings)


@contextlib.asynccontextmanager
async def registered(folders: Folders, *, count: int = 4) -> AsyncIterator[TinyPlugin]:
    """A plugin that the kubelet knows."""
    devices = [device(f"d{number}") for number in range(count)]
    plugin = TinyPlugin(resource=RESOURCE, devices=devices, folder=folders.device_plugins)
    await plugin.serve()
    try:
        await plugin.register()
        await plugin.until_called("listed")
        yield plugin
    finally:
        await plugin.stop()


async def test_a_pod_gets_devices_cdi_environment_and_runs(folders: Folders) -> None:
    """Ids are allocated, PreStart is called before the start, and the CDI spec it writes reaches the process."""
    board = PodBoard()
    async with running(kubelet_on(folders, board)), registered(folders) as plugin:
        plugin.options.pre_start_required = True
        await plugin.register()
        await plugin.until_called("listed", times=2)
        plugin.answer = cdi_answer

        async def write_spec(ids: list[str]) -> None:
            device = {"name": "_".join(sorted(ids)), "containerEdits": {"env": [f"SLICE={','.join(sorted(ids))}"]}}
            spec = {"cdiVersion": "0.6.0", "kind": "example.test/slice", "devices": [device]}
            (folders.cdi / "slice.json").write_text(json.dumps(spec))

        plugin.pre_start = write_spec
        env = [{"name": "SLICE", "value": "forged"}]
        main = container("main", "sh", "-c", "echo slice=$SLICE", limits={RESOURCE: "2"}, env=env)
        made = pod("one", containers=[main], restartPolicy="Never")
        board.put(made)
        await board.until_phase("one", "Succeeded")
    assert plugin.asked("allocate") == [["d0", "d1"]]
    assert plugin.asked("pre_start") == [["d0", "d1"]]
    assert folders.log_file(made, "main", 0).read_text() == "slice=d0,d1\n"
