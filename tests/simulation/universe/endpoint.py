"""The endpoint of a node without its gRPC: the real door, the real open calls, names and choices behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from aliquot_core import door
from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_deviceplugin.endpoint.agent_calls import AgentCalls
from aliquot_deviceplugin.endpoint.door_server import DoorServer
from aliquot_deviceplugin.endpoint.given_names import GivenNames
from aliquot_deviceplugin.endpoint.preference import acceptable, choose_alone
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb
from aliquot_standalone.kubelet.errors import PluginError
from simulation.universe.chance import Chance
from simulation.universe.loop import VirtualLoop

_SETTINGS = EndpointSettings()


class SimEndpoint:
    """What the kubelet's calls reach; it survives the agent, and forgets only what its state file does not keep."""

    def __init__(self, *, door_path: str, loop: VirtualLoop, clock: Clock, names: Names, chance: Chance) -> None:
        self._path = door_path
        self._loop = loop
        self._clock = clock
        self._names = names
        self._chance = chance
        self.tables: dict[str, list[door.Device]] = {}
        self._given = GivenNames()
        self._calls = AgentCalls(clock=clock)
        self._listening: tuple[str, ...] = ()
        self._registrations = 0
        self._speak: Callable[[door.FromEndpoint], None] | None = None
        self._server: DoorServer | None = None
        # The kubelet, while it listens to us.
        self.on_devices: Callable[[str, list[door.Device]], None] = lambda _, __: None

    @property
    def up(self) -> bool:
        """Whether the process runs."""
        return self._server is not None

    def start(self) -> None:
        """Run, with what the state file has; nothing new where it runs."""
        if self.up:
            return
        self._calls = AgentCalls(clock=self._clock)
        server = DoorServer(
            path=Path(self._path),
            endpoint="simulated",
            clock=self._clock,
            on_agent=self._agent_came,
            on_message=self._agent_said,
            on_agent_gone=self._agent_left,
        )
        self._server = server

        def accept() -> asyncio.Protocol:
            reader = asyncio.StreamReader(loop=self._loop)
            return asyncio.StreamReaderProtocol(reader, server._visit, loop=self._loop)

        self._loop.listeners[self._path] = accept

    def crash(self) -> None:
        """Die: calls under way come to nothing."""
        server, self._server = self._server, None
        self._loop.listeners.pop(self._path, None)
        self._calls.close()
        self.listened(())
        if server is not None:
            for visit in list(server._visits):
                visit.cancel()

    def listened(self, resources: tuple[str, ...]) -> None:
        """The kubelet listens to these resources now."""
        if resources and resources != self._listening:
            self._registrations += len(resources)
        self._listening = resources
        self._tell()

    # --- what the kubelet calls --------------------------------------------------------------------------------------
    def allocate(self, resource: str, ids: list[str]) -> bytes:
        """Answer a fresh name."""
        self._check()
        name = self._names.cdi_name(f"{self._chance.getrandbits(64):016x}")
        self._given.remember(resource=resource, ids=ids, name=name)
        return pb.ContainerAllocateResponse(cdi_devices=[pb.CDIDevice(name=name)]).SerializeToString()

    async def prefer(self, asked: door.Prefer) -> list[str]:
        """Say which ids to take."""
        self._check()
        answer = await self._calls.preference(asked, patience=_SETTINGS.preference_patience)
        return answer.ids if answer and acceptable(answer.ids, asked=asked) else choose_alone(asked)

    async def pre_start(self, resource: str, ids: list[str]) -> None:
        """Return when the container may start; `PluginError` says why it may not."""
        self._check()
        names = self._given.names(resource=resource, ids=ids)
        question = door.PreStart(call=0, resource=resource, ids=ids, names=names)
        answer = await self._calls.may_start(question, patience=_SETTINGS.prestart_patience)
        if answer is None:
            raise PluginError("nobody has answered")
        if answer.refused is not None:
            raise PluginError(answer.refused)

    def _check(self) -> None:
        if not self.up:
            raise PluginError("the plugin's socket does not answer")

    # --- the agent ---------------------------------------------------------------------------------------------------
    def _agent_came(self, _: str, speak: Callable[[door.FromEndpoint], None]) -> None:
        self._speak = speak
        self._tell()
        self._calls.agent_came(speak)

    def _agent_left(self) -> None:
        self._speak = None
        self._calls.agent_left()

    def _agent_said(self, message: door.Devices | door.Started | door.Preference) -> None:
        if not isinstance(message, door.Devices):
            self._calls.answered(message)
            return
        self.tables = {resource: list(devices) for resource, devices in message.resources.items()}
        for resource, devices in self.tables.items():
            self.on_devices(resource, devices)

    def _tell(self) -> None:
        if self._speak is not None:
            seen = door.KubeletSeen(listening=sorted(self._listening), registrations=self._registrations)
            self._speak(seen)
