"""The endpoint as a whole: what it remembers, which resources it serves, how it starts and leaves.

Start: take the lock, read the state file, serve and register what it remembers; only then open the door. The kubelet
admits pods some 0.8 s after it can be registered with, and a pod that comes before us is failed for good.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from aliquot_agent.pulse_file import PulseFile
from aliquot_core import door
from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_core.names import Names
from aliquot_deviceplugin.endpoint import registration as reg
from aliquot_deviceplugin.endpoint import state
from aliquot_deviceplugin.endpoint.agent_calls import AgentCalls
from aliquot_deviceplugin.endpoint.door_server import DoorServer
from aliquot_deviceplugin.endpoint.folder_watch import FolderWatch
from aliquot_deviceplugin.endpoint.given_names import GivenNames
from aliquot_deviceplugin.endpoint.lock import lock
from aliquot_deviceplugin.endpoint.plugin import Plugin, PluginSocketError, make_folder
from aliquot_deviceplugin.endpoint.registrar import register_at_socket
from aliquot_deviceplugin.endpoint.registry import RegistryOffer
from aliquot_deviceplugin.endpoint.service import Patience, Service
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from aliquot_deviceplugin.endpoint.state_keeper import StateKeeper
from aliquot_deviceplugin.endpoint.table import Listener, Table

log = logging.getLogger(__name__)

# The short name is also a file's, and the kubelet's rule for resource names is stricter still.
_SHORT = re.compile(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?")
# In plugins_registry the kubelet comes by itself: there is one "kubelet", for ever.
_ANY_KUBELET = reg.SocketId(0, 0)


class SocketFolderError(ClusterError):
    """The folder of our sockets can't be made or written to."""


def fresh_token() -> str:
    """Make a CDI device name that nobody can guess or has ever used."""
    return os.urandom(8).hex()


async def run_endpoint(
    settings: EndpointSettings,
    *,
    clock: Clock,
    stop: asyncio.Event,
    chance: Callable[[], float],
    names: Names | None = None,
    token: Callable[[], str] = fresh_token,
) -> None:
    """Serve until `stop` is set; `chance` in [0, 1) spreads repeated tries."""
    try:
        make_folder(settings.sockets)
        held = await lock(settings.sockets / "endpoint.lock", patience=settings.takeover_patience, clock=clock)
    except OSError as error:
        raise SocketFolderError(
            f"can't be used: {error}", where=str(settings.sockets), remedy="check the folder and its permissions"
        ) from error
    try:
        await _Endpoint(settings, clock=clock, chance=chance, names=names or Names(), token=token).run(stop)
    finally:
        os.close(held)


class _Endpoint:
    """All parts, and the threads between them."""

    def __init__(
        self,
        settings: EndpointSettings,
        *,
        clock: Clock,
        chance: Callable[[], float],
        names: Names,
        token: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._token = token
        self._names = names
        remembered = _remembered(Path(settings.state_file))
        # Another domain's may stand there, or anything at all: what the kubelet is told of, nobody can take back.
        self._wanted = {
            resource: devices for resource, devices in remembered.tables.items() if devices and self._is_ours(resource)
        }
        self._given = GivenNames(remembered.names)
        self._plugins: dict[str, Plugin] = {}
        self._offers: list[RegistryOffer] = []
        self._calls = AgentCalls(clock=clock)
        self._agent: str | None = None
        self._speak: Callable[[door.FromEndpoint], None] | None = None
        self._told: door.KubeletSeen | None = None
        self._leaving = False
        self._watch = FolderWatch(Path(settings.plugin_folder), clock=clock, poll=settings.poll)
        write = partial(state.write, Path(settings.state_file))
        self._keeper = StateKeeper(write=write, snapshot=self._snapshot, clock=clock)
        self._door = DoorServer(
            path=Path(settings.door),
            endpoint=f"{socket.gethostname()}, pid {os.getpid()}",
            clock=clock,
            on_agent=self._agent_came,
            on_message=self._agent_said,
            on_agent_gone=self._agent_left,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop."""
        work: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait())]
        try:
            await self._look()
            await self._door.start()
            pulse = PulseFile(self._settings.pulse).keep(clock=self._clock)
            work += [asyncio.ensure_future(each) for each in (self._follow_kubelet(), self._keeper.run(), pulse)]
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            await self._leave()

    async def _leave(self) -> None:
        log.info("the endpoint leaves; the kubelet counts its devices as unhealthy until it is back")
        self._leaving = True
        self._calls.close()
        await asyncio.gather(*(plugin.close() for plugin in self._plugins.values()))
        await asyncio.gather(*(offer.close() for offer in self._offers))
        await self._door.close()
        self._watch.close()
        await self._keeper.flush()

    # --- the kubelet --------------------------------------------------------------------------------------------------
    async def _follow_kubelet(self) -> None:
        while True:
            await self._watch.changed()
            try:
                await self._look()
            except PluginSocketError as error:
                log.warning("%s", error)

    async def _look(self) -> None:
        """Serve what is wanted, and tell each resource whether the kubelet is there."""
        self._watch.arm()
        while self._wanted:
            resource, devices = next(iter(self._wanted.items()))
            plugin = await self._serve(resource, devices)
            # The agent may have told a newer list meanwhile.
            plugin.table.replace(self._wanted.pop(resource))
            self._plugins[resource] = plugin
        seen = _ANY_KUBELET if self._settings.registration == "registry" else _look_at(self._settings.kubelet_socket)
        for plugin in list(self._plugins.values()):
            plugin.table.let_go()
            await plugin.renew_if_lost()
            plugin.kubelet_seen(seen)

    async def _serve(self, resource: str, devices: Sequence[door.Device]) -> Plugin:
        path = self._settings.sockets / f"{resource.partition('/')[2]}.sock"
        by_registry = self._settings.registration == "registry"
        plugin = Plugin(
            resource=resource,
            socket=path,
            table=Table(devices, clock=self._clock),
            make_service=partial(self._service, resource),
            register=self._offer(resource, path) if by_registry else self._register(resource, path),
            pace=reg.Pace(stream_expected=None) if by_registry else reg.Pace(),
            on_change=self._tell_agent,
            clock=self._clock,
            chance=self._chance,
        )
        await plugin.serve()
        return plugin

    def _register(self, resource: str, path: Path) -> Callable[[], Awaitable[None]]:
        endpoint = str(path.relative_to(self._settings.plugin_folder))
        return partial(register_at_socket, str(self._settings.kubelet_socket), endpoint=endpoint, resource=resource)

    def _offer(self, resource: str, path: Path) -> Callable[[], Awaitable[None]]:
        offer = RegistryOffer(folder=Path(self._settings.registry_folder), resource=resource, endpoint=path)
        self._offers.append(offer)
        return offer.renew

    def _service(
        self,
        resource: str,
        table: Table,
        on_listening: Callable[[Listener], None],
        on_deaf: Callable[[Listener], None],
    ) -> Service:
        return Service(
            resource=resource,
            table=table,
            calls=self._calls,
            given=self._given,
            names=self._names,
            token=self._token,
            patience=Patience(prestart=self._settings.prestart_patience, preference=self._settings.preference_patience),
            awaited=self._awaited,
            on_given=self._keeper.changed,
            on_listening=on_listening,
            on_deaf=on_deaf,
        )

    # --- the agent ----------------------------------------------------------------------------------------------------
    def _agent_came(self, agent: str, speak: Callable[[door.FromEndpoint], None]) -> None:
        self._agent, self._speak, self._told = agent, speak, None
        self._tell_agent()
        self._calls.agent_came(speak)

    def _agent_left(self) -> None:
        self._agent = self._speak = None
        self._calls.agent_left()

    def _agent_said(self, message: door.Devices | door.Started | door.Preference) -> None:
        if isinstance(message, door.Devices):
            self._take_devices(message.resources)
        else:
            self._calls.answered(message)

    def _take_devices(self, resources: dict[str, list[door.Device]]) -> None:
        for resource, plugin in self._plugins.items():
            plugin.table.replace(resources.get(resource, ()))
        for resource, devices in resources.items():
            if self._is_ours(resource) and resource not in self._plugins and devices:
                self._wanted[resource] = devices
                self._watch.wake()
        self._keeper.changed()

    def _is_ours(self, resource: str) -> bool:
        domain, _, short = resource.partition("/")
        ours = domain == self._names.domain and _SHORT.fullmatch(short) is not None
        if not ours:
            log.warning("a resource that is none of ours is left out", extra={"resource": resource})
        return ours

    def _tell_agent(self) -> None:
        states = {resource: plugin.state for resource, plugin in self._plugins.items()}
        seen = door.KubeletSeen(
            listening=sorted(resource for resource, state in states.items() if state.streams),
            registrations=sum(state.registrations for state in states.values()),
        )
        if self._speak is not None and seen != self._told:
            self._told = seen
            self._speak(seen)

    def _awaited(self) -> str:
        if self._leaving:
            return "Aliquot's endpoint on this node is being replaced: the start is tried again"
        if self._agent is None:
            return "Aliquot's agent on this node is not connected: the start waits for it and is tried again"
        return f"Aliquot's agent {self._agent} has not answered yet: the start is tried again"

    def _snapshot(self) -> state.State:
        tables = {resource: list(plugin.table.devices) for resource, plugin in self._plugins.items()}
        return state.State(tables={**self._wanted, **tables}, names=self._given.snapshot())


def _remembered(path: Path) -> state.State:
    try:
        found = state.read(path)
    except state.StateFileError as error:
        log.warning("%s", error)
        return state.State()
    if found is None:
        log.info("no state yet: the endpoint registers when the agent has told the devices")
    return found or state.State()


def _look_at(kubelet_socket: Path) -> reg.SocketId | None:
    try:
        found = kubelet_socket.stat()
    except OSError:
        return None
    return reg.SocketId(inode=found.st_ino, modified_ns=found.st_mtime_ns)
