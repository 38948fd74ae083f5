"""What the endpoint registers with the kubelet, and until when: over real sockets and gRPC."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from aliquot_agent.door import DoorRefusedError
from aliquot_core.door import Device
from aliquot_deviceplugin.endpoint import plugin, process
from aliquot_deviceplugin.endpoint.table import LINGER
from aliquot_kube.clock import SystemClock
from support.endpoints import (
    COMPUTE,
    NAMES,
    ScriptedAgent,
    agent,
    endpoint,
    kubelet_known,
    settings_in,
    table,
)
from support.scripted_kubelet import ScriptedKubelet


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
