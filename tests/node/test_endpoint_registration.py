"""The endpoint registers with the kubelet, whatever becomes of either: over real sockets and gRPC."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import msgspec
import pytest

from aliquot_agent.door import DoorRefusedError
from aliquot_core.door import Device
from aliquot_deviceplugin.endpoint import folder_watch, plugin, process
from aliquot_deviceplugin.endpoint.lock import AnotherEndpointError
from aliquot_deviceplugin.endpoint.process import SocketFolderError, run_endpoint
from aliquot_deviceplugin.endpoint.table import LINGER
from aliquot_kube.clock import SystemClock
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb
from aliquot_proto import pluginregistration_v1_pb2 as registration_pb
from aliquot_proto import pluginregistration_v1_pb2_grpc as registration_grpc
from support.endpoints import (
    COMPUTE,
    NAMES,
    ScriptedAgent,
    agent,
    appears,
    endpoint,
    kubelet_known,
    made_at,
    settings_in,
    short_folder,
    table,
)
from support.scripted_kubelet import OPTIONS, ScriptedKubelet


@pytest.fixture
def folder() -> Iterator[Path]:
    """Everything of one node."""
    with short_folder() as made:
        yield made


@pytest.fixture
async def kubelet(folder: Path) -> AsyncIterator[ScriptedKubelet]:
    """A kubelet that runs."""
    made = ScriptedKubelet(folder / "dp")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def only_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look at the folder but when something happens."""
    monkeypatch.setattr(folder_watch, "_ANYWAY", 3600.0)


async def test_registers_what_the_agent_tells(folder: Path, kubelet: ScriptedKubelet) -> None:
    """Each resource comes with its own socket in the sub-folder, its ids and their health; never with a NUMA node."""
    settings = settings_in(folder)
    sick = [Device(id="a-b00", healthy=False), Device(id="a-b01")]
    async with (
        endpoint(settings),
        agent(settings, ScriptedAgent(), resources={COMPUTE: table(), NAMES.best_effort: sick}),
    ):
        compute = await kubelet.until_listed(COMPUTE, 200)
        best_effort = await kubelet.until_listed(NAMES.best_effort, 1)

        assert {(r.resource_name, r.endpoint, r.version) for r in kubelet.requests} == {
            (COMPUTE, "aliquot/compute.sock", "v1beta1"),
            (NAMES.best_effort, "aliquot/best-effort.sock", "v1beta1"),
        }
        assert [device.ID for device in compute.devices] == [device.id for device in table()]
        assert not any(device.HasField("topology") for device in compute.devices)
        assert [(d.ID, d.health) for d in best_effort.devices] == [("a-b00", "Unhealthy"), ("a-b01", "Healthy")]


@pytest.mark.usefixtures("only_events")
async def test_nothing_known_nothing_registered(folder: Path, kubelet: ScriptedKubelet) -> None:
    """Without state and agent there is nothing to register; the first table is registered at once."""
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent(), resources={COMPUTE: []}) as at_door:
        await kubelet_known(at_door, lambda seen: seen.registrations == 0)
        assert kubelet.requests == []
        at_door.publish({COMPUTE: table(gpus=1)})
        await kubelet.until_listed(COMPUTE, 100)


async def test_remembers_its_table(folder: Path, kubelet: ScriptedKubelet) -> None:
    """After a restart the endpoint registers the last table before any agent is there."""
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        await kubelet.until_listed(COMPUTE, 200)
    async with endpoint(settings):
        client = await kubelet.until_listed(COMPUTE, 200)

        assert client.devices[100].ID == "1-00"


async def test_table_stays_when_the_agent_goes(folder: Path, kubelet: ScriptedKubelet) -> None:
    """An agent that dies, and one that comes back with the same table, cause no word to the kubelet."""
    settings = settings_in(folder)
    async with endpoint(settings):
        async with agent(settings, ScriptedAgent()):
            client = await kubelet.until_listed(COMPUTE, 200)
        async with agent(settings, ScriptedAgent(), name="agent-2") as successor:
            await kubelet_known(successor, lambda seen: seen.listening == [COMPUTE])
            changed = [Device(id="0-00", healthy=False), *table()[1:]]
            successor.publish({COMPUTE: changed})
            await kubelet.until_listed(COMPUTE, 199)

            assert (client.messages, len(kubelet.requests)) == (2, 1)


async def test_what_is_left_out_is_gone(folder: Path, kubelet: ScriptedKubelet) -> None:
    """A resource that the agent no longer names has no devices, and has them again when it is named again."""
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent()) as at_door:
        await kubelet.until_listed(COMPUTE, 200)
        at_door.publish({})
        await kubelet.until_listed(COMPUTE, 0)
        at_door.publish({COMPUTE: table(gpus=3)})
        client = await kubelet.until_listed(COMPUTE, 300)
        assert {device.ID for device in client.devices} == {device.id for device in table(gpus=3)}


class PutForward(SystemClock):
    """A clock on which more time has passed than in the world, when the test says so."""

    def __init__(self) -> None:
        self.more = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return super().monotonic() + self.more


async def test_what_is_left_out_stays_unhealthy_for_a_while_and_then_goes(
    folder: Path, kubelet: ScriptedKubelet
) -> None:
    """Nobody but time has to come by for it to go: else the list would grow with each id that was ever replaced."""
    settings, clock = settings_in(folder), PutForward()
    async with endpoint(settings, clock=clock), agent(settings, ScriptedAgent()) as at_door:
        await kubelet.until_listed(COMPUTE, 200)
        at_door.publish({COMPUTE: table()[1:]})
        client = await kubelet.until_listed(COMPUTE, 199)
        assert [device.ID for device in client.devices if device.health == "Unhealthy"] == ["0-00"]
        clock.more = LINGER
        await kubelet.until(lambda: len(client.devices) == 199)
        assert "0-00" not in {device.ID for device in client.devices}


async def test_table_changes_while_it_is_first_served(
    folder: Path, kubelet: ScriptedKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list that comes while a resource's first server starts is the one that is told."""
    serving, may_go_on = asyncio.Event(), asyncio.Event()
    serve = plugin.Plugin.serve

    async def slowly(self: plugin.Plugin) -> None:
        serving.set()
        await may_go_on.wait()
        await serve(self)

    monkeypatch.setattr(plugin.Plugin, "serve", slowly)
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent(), resources={COMPUTE: table(gpus=1)}) as at_door:
        await serving.wait()
        at_door.publish({COMPUTE: table(gpus=2)})
        await kubelet_known(at_door, lambda _: True)
        async with agent(settings, ScriptedAgent(), name="agent-2") as refused:
            with pytest.raises(DoorRefusedError):
                await refused.run()  # by now the first agent's words were heard
        may_go_on.set()
        await kubelet.until_listed(COMPUTE, 200)


def test_socket_made_anew_with_the_same_number(folder: Path) -> None:
    """File systems give inode numbers again at once: a socket of another time is another socket."""
    path = folder / "kubelet.sock"
    path.touch()
    before = process._look_at(path)
    os.utime(path, ns=(0, 1))

    assert before != process._look_at(path)
    path.unlink()
    assert process._look_at(path) is None


async def test_foreign_resources_are_left_out(
    folder: Path, kubelet: ScriptedKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """A name of another domain, or one that is no file name, is said and not served."""
    settings = settings_in(folder)
    odd = {"nvidia.com/gpu": table(), "aliquot.dev/../up": table(), COMPUTE: table()}
    async with endpoint(settings), agent(settings, ScriptedAgent(), resources=odd):
        await kubelet.until_listed(COMPUTE, 200)

    assert [request.resource_name for request in kubelet.requests] == [COMPUTE]
    assert sum("none of ours" in record.message for record in caplog.records) == 2


@pytest.mark.usefixtures("only_events")
@pytest.mark.parametrize("keep_socket", [False, True], ids=["SIGTERM", "SIGKILL"])
async def test_kubelet_restarts(folder: Path, kubelet: ScriptedKubelet, keep_socket: bool) -> None:  # noqa: FBT001 - pytest's
    """A kubelet that comes back is told at once, whether its old socket was removed or left behind."""
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent()) as at_door:
        await kubelet.until_listed(COMPUTE, 200)
        for times in range(1, 6):
            # One that ends before it has answered has registered nobody, though it listens already.
            await kubelet_known(at_door, lambda seen, times=times: seen.registrations == times)  # type: ignore[misc]
            await kubelet.stop(keep_socket=keep_socket)
            await kubelet.start()
            # How soon is measured by `benchmarks/endpoint.py`; here nothing but the event tells of the new kubelet.
            await kubelet.until_listed(COMPUTE, 200)
        await kubelet_known(at_door, lambda seen: (seen.registrations, seen.listening) == (6, [COMPUTE]))

        assert kubelet.most_registering == 1


async def test_kubelet_replaced_unnoticed(folder: Path, kubelet: ScriptedKubelet) -> None:
    """A new kubelet is told though the old one's stream seems alive, and the old stream is ended."""
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        await kubelet.until_listed(COMPUTE, 200)
        await kubelet.forget_socket()
        await kubelet.until_listed(COMPUTE, 200)
        old = kubelet.abandoned[COMPUTE].stream
        assert old is not None
        # The same process plays both kubelets, so the old stream's end disconnects the new client, as the real race
        # would: the endpoint registers once more.
        await old
        await kubelet.until_listed(COMPUTE, 200)


async def test_refused_and_taken_later(folder: Path, kubelet: ScriptedKubelet) -> None:
    """A kubelet that refuses is asked again until it takes us."""
    settings = settings_in(folder)
    kubelet.refusals = 4
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        await kubelet.until_listed(COMPUTE, 200)

    assert (len(kubelet.requests), kubelet.most_registering) == (5, 1)


async def test_lost_while_the_kubelet_lives(folder: Path, kubelet: ScriptedKubelet) -> None:
    """A kubelet that dropped us is told again, without a new socket to wake us."""
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        for count in range(1, 4):
            await kubelet.until_listed(COMPUTE, 200)
            assert len(kubelet.requests) == count
            await kubelet.disconnect(COMPUTE)
        await kubelet.until_listed(COMPUTE, 200)

    assert kubelet.most_registering == 1


async def test_a_slow_kubelet_gets_one_call(folder: Path, kubelet: ScriptedKubelet) -> None:
    """While a Register call is under way, nothing makes a second one to the same kubelet."""
    settings = settings_in(folder)
    kubelet.gate.clear()
    async with endpoint(settings), agent(settings, ScriptedAgent()) as at_door:
        await asyncio.wait_for(kubelet.asked.wait(), 60)
        for gpus in range(1, 5):
            at_door.publish({COMPUTE: table(gpus=gpus)})
            (kubelet.folder / f"noise{gpus}").touch()
        kubelet.gate.set()
        await kubelet.until_listed(COMPUTE, 400)

    assert (len(kubelet.requests), kubelet.most_registering) == (1, 1)


async def test_our_socket_is_deleted(folder: Path, kubelet: ScriptedKubelet) -> None:
    """Somebody empties the folder: the socket is made anew and registered again."""
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        await kubelet.until_listed(COMPUTE, 200)
        shutil.rmtree(settings.sockets)
        await kubelet.until(lambda: len(kubelet.requests) == 2)
        client = await kubelet.until_listed(COMPUTE, 200)
        await client.stub.GetDevicePluginOptions(pb.Empty())

        assert (settings.sockets / "compute.sock").is_socket()


async def test_no_kubelet_yet(folder: Path) -> None:
    """On a node where the kubelet never ran, its folder is watched for from the start."""
    settings = settings_in(folder)
    kubelet = ScriptedKubelet(folder / "dp")
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        await appears(settings.sockets / "compute.sock")
        await kubelet.start()
        await kubelet.until_listed(COMPUTE, 200)
        await kubelet.stop()


@pytest.mark.usefixtures("only_events")
async def test_the_kubelets_folder_is_made_anew(folder: Path, kubelet: ScriptedKubelet) -> None:
    """A kubelet that is installed again in a new folder is found there."""
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        await kubelet.until_listed(COMPUTE, 200)
        await kubelet.stop()
        shutil.rmtree(folder / "dp")
        await kubelet.start()
        await kubelet.until_listed(COMPUTE, 200)


async def test_without_inotify(
    folder: Path, kubelet: ScriptedKubelet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the kernel gives no inotify, that is said once, and a poll finds the new kubelet."""

    def none_left(_folder: Path) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(folder_watch, "_inotify", none_left)
    settings = settings_in(folder)
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        await kubelet.until_listed(COMPUTE, 200)
        await kubelet.stop()
        await kubelet.start()
        await kubelet.until_listed(COMPUTE, 200)

    assert caplog.text.count("Too many open files") == 1


async def test_by_the_registry(folder: Path, kubelet: ScriptedKubelet) -> None:
    """The other way: the kubelet finds a socket in plugins_registry, asks who it is, and connects; lost, it is new."""
    settings = settings_in(folder, registration="registry")
    offer = folder / "reg/aliquot.dev-compute.sock"
    async with endpoint(settings), agent(settings, ScriptedAgent()):
        await appears(offer)
        first = made_at(offer)
        await _visit(offer, kubelet)
        await kubelet.until_listed(COMPUTE, 200)
        await kubelet.disconnect(COMPUTE)
        await appears(offer, other_than=first)
        await _visit(offer, kubelet)
        await kubelet.until_listed(COMPUTE, 200)

    assert kubelet.requests == []
    assert not offer.exists()


async def _visit(offer: Path, kubelet: ScriptedKubelet) -> None:
    """Do what the kubelet does when it finds a socket."""
    async with grpc.aio.insecure_channel(f"unix:{offer}", options=OPTIONS) as channel:
        stub = registration_grpc.RegistrationStub(channel)
        info = await stub.GetInfo(registration_pb.InfoRequest(), timeout=60, wait_for_ready=True)
        assert (info.type, info.name, list(info.supported_versions)) == ("DevicePlugin", COMPUTE, ["v1beta1"])
        await kubelet.connect(info.name, info.endpoint)
        await stub.NotifyRegistrationStatus(registration_pb.RegistrationStatus(plugin_registered=True))


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
            await kubelet.until_listed(COMPUTE, 200)


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
