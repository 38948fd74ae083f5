"""The endpoint's own place on a node: one at a time, its state file, what it leaves behind."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
from pathlib import Path

import msgspec
import pytest

from aliquot_deviceplugin.endpoint.lock import AnotherEndpointError
from aliquot_deviceplugin.endpoint.process import SocketFolderError, run_endpoint
from aliquot_kube.clock import SystemClock
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb
from support.endpoints import (
    COMPUTE,
    ScriptedAgent,
    agent,
    endpoint,
    settings_in,
    table,
)
from support.scripted_kubelet import ScriptedKubelet


async def test_one_endpoint_per_node(folder: Path, kubelet: ScriptedKubelet) -> None:
    """A second endpoint says who is there and leaves; the first goes on."""
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        client = await kubelet.until_listed(COMPUTE, 200)
        with pytest.raises(AnotherEndpointError, match="pid"):
            await run_endpoint(settings, clock=SystemClock(), stop=asyncio.Event(), chance=random.random)
        await client.stub.GetDevicePluginOptions(pb.Empty())

        assert len(kubelet.requests) == 1


async def test_takes_over_from_one_that_leaves(folder: Path, kubelet: ScriptedKubelet) -> None:
    """During an update the new endpoint waits for the old one to leave, then registers."""
    settings = settings_in(folder, takeover_patience=10.0)
    async with endpoint(settings) as stop_first, agent(settings, ScriptedAgent()):
        await kubelet.until_listed(COMPUTE, 200)
        async with endpoint(settings):
            stop_first.set()
            await kubelet.until(lambda: len(kubelet.requests) == 2)
            assert len((await kubelet.until_listed(COMPUTE, 200)).devices) == 200


@pytest.mark.parametrize("content", [b"", b'{"version":1,"tables":{"aliq', b'{"version":0}', b"\xff\xfe"])
async def test_state_file_is_unusable(
    folder: Path, kubelet: ScriptedKubelet, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A truncated, old or garbled state file is said and done without, and is a good one afterwards."""
    settings = settings_in(folder)
    put(Path(settings.state_file), content)
    with caplog.at_level(logging.WARNING):
        async with endpoint(settings), agent(settings, ScriptedAgent()):
            await kubelet.until_listed(COMPUTE, 200)
    assert settings.state_file in caplog.text
    async with endpoint(settings):
        await kubelet.until_listed(COMPUTE, 200)


@pytest.mark.parametrize("name", ["other.example/compute", "aliquot.dev/../../evil", "", "aliquot.dev/" + "x" * 120])
async def test_state_file_names_what_is_none_of_ours(folder: Path, kubelet: ScriptedKubelet, name: str) -> None:
    """Left by another domain, or by whoever wrote there: it is neither offered nor the end of the endpoint."""
    settings = settings_in(folder)
    tables = {name: table(), COMPUTE: table()}
    put(Path(settings.state_file), msgspec.json.encode({"version": 1, "tables": tables}))
    async with endpoint(settings):
        await kubelet.until_listed(COMPUTE, 200)
    assert {request.resource_name for request in kubelet.requests} == {COMPUTE}


async def test_state_file_is_a_pipe(folder: Path, kubelet: ScriptedKubelet, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for what it may hold."""
    settings = settings_in(folder)
    Path(settings.state_file).parent.mkdir()
    os.mkfifo(settings.state_file)
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        await kubelet.until_listed(COMPUTE, 200)
    assert "not an ordinary file" in caplog.text


async def test_no_room_for_the_holder_s_number(
    folder: Path, kubelet: ScriptedKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is held without a word of who holds it: on a full disk pods still start."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        await kubelet.until_listed(COMPUTE, 200)
        with pytest.raises(AnotherEndpointError):
            await run_endpoint(settings, clock=SystemClock(), stop=asyncio.Event(), chance=random.random)


@pytest.mark.parametrize("place", ["aliquot", "aliquot/endpoint.lock"])
async def test_something_else_lies_where_the_sockets_go(folder: Path, place: str) -> None:
    """The error says where and what to do."""
    settings = settings_in(folder)
    if place == "aliquot":
        put(Path(settings.plugin_folder) / place, b"")
    else:
        (Path(settings.plugin_folder) / place).mkdir(parents=True)
    with pytest.raises(SocketFolderError, match="check the folder"):
        await run_endpoint(settings, clock=SystemClock(), stop=asyncio.Event(), chance=random.random)


async def test_leaves_nothing_behind(folder: Path, kubelet: ScriptedKubelet) -> None:
    """An endpoint that is told to stop takes its sockets with it and keeps its state."""
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        await kubelet.until_listed(COMPUTE, 200)

    assert sockets_below(folder) == ["kubelet.sock"]
    async with endpoint(settings):
        await kubelet.until(lambda: len(kubelet.requests) == 2)


def put(path: Path, content: bytes) -> None:
    """Write a file and the folder it lies in."""
    path.parent.mkdir()
    path.write_bytes(content)


def sockets_below(folder: Path) -> list[str]:
    """The names of all sockets in a folder and its sub-folders."""
    return sorted(path.name for path in folder.rglob("*") if path.is_socket())
