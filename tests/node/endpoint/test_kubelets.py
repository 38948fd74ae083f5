"""The endpoint is registered again, whatever becomes of the kubelet or of either's socket."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import grpc
import pytest

from aliquot_deviceplugin.endpoint import folder_watch
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb
from aliquot_proto import pluginregistration_v1_pb2 as registration_pb
from aliquot_proto import pluginregistration_v1_pb2_grpc as registration_grpc
from support.endpoints import (
    COMPUTE,
    ScriptedAgent,
    agent,
    appears,
    endpoint,
    kubelet_known,
    made_at,
    settings_in,
    table,
)
from support.scripted_kubelet import OPTIONS, ScriptedKubelet


@pytest.mark.usefixtures("only_events")
@pytest.mark.parametrize("keep_socket", [False, True], ids=["SIGTERM", "SIGKILL"])
async def test_kubelet_restarts(folder: Path, kubelet: ScriptedKubelet, keep_socket: bool) -> None:
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
        assert len((await kubelet.until_listed(COMPUTE, 200)).devices) == 200
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
        assert len((await kubelet.until_listed(COMPUTE, 200)).devices) == 200


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
