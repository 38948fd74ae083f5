"""Device plugins as the kubelet meets them: they register, are called back, tell their devices, and may go away.

How it works, and it must be no kinder than the real one: `Register` dials back before it answers. Each registration
starts a client that reads ListAndWatch until the stream ends. Then *whatever client is registered under the resource's
name by that time* is disconnected: a plugin that registers anew before its old stream has ended loses the new one.
A client that can't be reached is forgotten, and with it an older one of the same name.
"""

from __future__ import annotations

import asyncio
import logging
import re
import stat
from pathlib import Path
from typing import Any, Protocol

import grpc
from grpc import aio

from aliquot_proto import deviceplugin_v1beta1_pb2 as api
from aliquot_proto import deviceplugin_v1beta1_pb2_grpc as rpc
from aliquot_standalone.kubelet.choosing import Allocate, Answer, Device, Options, Prefer
from aliquot_standalone.kubelet.errors import PluginError
from aliquot_standalone.kubelet.settings import Folders, Settings, grpc_address

log = logging.getLogger(__name__)

VERSION = "v1beta1"
HEALTHY = "Healthy"
_RESOURCE_NAME = re.compile(r"(?!requests\.)(?:[a-z0-9][-a-z0-9.]*)/[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class PluginEvents(Protocol):
    """Who is told what plugins do."""

    def plugin_connected(self, resource: str, options: Options) -> None:
        """A plugin has registered and was reached."""

    def plugin_listed(self, resource: str, devices: list[Device]) -> None:
        """A plugin tells all its devices."""

    def plugin_gone(self, resource: str) -> None:
        """A plugin's stream has ended."""


class PluginClient:
    """The kubelet's connection to one registered plugin."""

    def __init__(self, *, resource: str, socket: Path, events: PluginEvents, settings: Settings) -> None:
        self.resource = resource
        self.stopped = False
        self._events = events
        self._settings = settings
        self._socket = socket
        self._channel = aio.insecure_channel(
            grpc_address(socket),
            options=[
                ("grpc.max_receive_message_length", settings.receive_limit),
                ("grpc.default_authority", "localhost"),
                # Else a new socket under an old path inherits the old one's connection and its back-off.
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self.stub: rpc.DevicePluginAsyncStub = rpc.DevicePluginStub(self._channel)

    async def connect(self) -> None:
        """Reach the plugin and ask for its options."""
        try:
            async with asyncio.timeout(self._settings.dial_timeout):
                await self._channel.channel_ready()
            options = await self.stub.GetDevicePluginOptions(api.Empty())
        except (TimeoutError, aio.AioRpcError, aio.UsageError, asyncio.CancelledError) as error:
            if _is_own_cancellation(error):
                raise
            raise PluginError(
                f"{self.resource} can't be reached: {_reason(error)}",
                where=str(self._socket),
                remedy="a plugin must serve before it registers; register again",
            ) from error
        self._events.plugin_connected(
            self.resource,
            Options(pre_start=options.pre_start_required, preferred=options.get_preferred_allocation_available),
        )

    async def watch(self) -> None:
        """Pass on the plugin's lists until the stream ends."""
        try:
            async for response in self.stub.ListAndWatch(api.Empty()):
                self._events.plugin_listed(self.resource, [_device(device) for device in response.devices])
        except aio.AioRpcError as error:
            log.warning("plugin's stream ended", extra={"resource": self.resource, "why": _reason(error)})
        except asyncio.CancelledError as error:
            if _is_own_cancellation(error):
                raise

    async def disconnect(self) -> None:
        """Close the connection; the plugin's devices are unhealthy from now on."""
        self.stopped = True
        self._events.plugin_gone(self.resource)
        await self._channel.close()

    async def close(self) -> None:
        """Close the connection of a plugin that was never reached."""
        await self._channel.close()


class Plugins(rpc.RegistrationServicer):
    """The registration service, and the calls to registered plugins."""

    def __init__(self, *, folders: Folders, settings: Settings, events: PluginEvents) -> None:
        self._folders = folders
        self._settings = settings
        self._events = events
        self._server: aio.Server | None = None
        # By resource: who is registered, and who answers calls. They differ after some failed registrations.
        self._clients: dict[str, PluginClient] = {}
        self._endpoints: dict[str, PluginClient] = {}
        self._watches: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Remove sockets that lie directly in the folder, as the kubelet does, and serve."""
        remove_sockets(self._folders.device_plugins)
        self._server = aio.server()
        rpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(grpc_address(self._folders.registration_socket))
        await self._server.start()

    async def stop(self) -> None:
        """Disconnect all plugins and serve no more."""
        if self._server:
            await self._server.stop(grace=None)
        clients = {*self._clients.values(), *self._endpoints.values()}
        self._clients.clear()
        for client in clients:
            if not client.stopped:
                await client.disconnect()
        await asyncio.gather(*self._watches, return_exceptions=True)

    async def Register(self, request: api.RegisterRequest, context: Any) -> api.Empty:
        """Take a plugin: dial back first, answer then."""
        try:
            check_plugin(resource=request.resource_name, versions=[request.version])
            await self.connect(request.resource_name, self._folders.device_plugins / request.endpoint)
        except PluginError as error:
            log.warning("registration refused", extra={"resource": request.resource_name, "why": str(error)})
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return api.Empty()

    async def connect(self, resource: str, socket: Path) -> None:
        """Reach a plugin at its socket and follow its list."""
        client = PluginClient(resource=resource, socket=socket, events=self._events, settings=self._settings)
        self._clients[resource] = client
        try:
            await client.connect()
        except BaseException:
            self._clients.pop(resource, None)
            await client.close()
            raise
        self._endpoints[resource] = client
        log.info("plugin connected", extra={"resource": resource, "socket": str(socket)})
        task = asyncio.create_task(self._follow(client), name=f"plugin {resource}")
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _follow(self, client: PluginClient) -> None:
        await client.watch()
        # Who was dropped in another's stead has been told so already, and takes no third one with it.
        if not client.stopped:
            await self.disconnect(client.resource)

    async def disconnect(self, resource: str) -> None:
        """Drop whoever is registered under this name now."""
        client = self._clients.pop(resource, None)
        if client:
            await client.disconnect()

    async def ask(self, question: Prefer | Allocate) -> Answer:
        """Put a question of the device table to its plugin."""
        if isinstance(question, Prefer):
            return await self._prefer(question)
        return await self._allocate(question)

    async def pre_start(self, resource: str, ids: list[str]) -> None:
        """Announce that a container which holds these ids is about to be created."""
        stub = self._stub(resource)
        request = api.PreStartContainerRequest(devices_ids=ids)
        try:
            await stub.PreStartContainer(request, timeout=self._settings.prestart_timeout)
        except aio.AioRpcError as error:
            raise PluginError(f"PreStartContainer of {resource} refused: {_reason(error)}") from error

    async def _prefer(self, question: Prefer) -> Answer:
        request = api.PreferredAllocationRequest(
            container_requests=[
                api.ContainerPreferredAllocationRequest(
                    available_deviceIDs=question.available,
                    must_include_deviceIDs=question.must_include,
                    allocation_size=question.size,
                )
            ]
        )
        try:
            reply = await self._stub(question.resource).GetPreferredAllocation(request)
        except aio.AioRpcError as error:
            raise PluginError(f"GetPreferredAllocation of {question.resource} failed: {_reason(error)}") from error
        return Answer(ids=tuple(reply.container_responses[0].deviceIDs) if reply.container_responses else ())

    async def _allocate(self, question: Allocate) -> Answer:
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=question.ids)])
        try:
            reply = await self._stub(question.resource).Allocate(request)
        except aio.AioRpcError as error:
            raise PluginError(f"Allocate of {question.resource} failed: {_reason(error)}") from error
        if not reply.container_responses:
            raise PluginError(f"Allocate of {question.resource} answered for no container")
        return Answer(response=reply.container_responses[0].SerializeToString(deterministic=True))

    def _stub(self, resource: str) -> rpc.DevicePluginAsyncStub:
        client = self._endpoints.get(resource)
        if client is None or client.stopped:
            raise PluginError(f"the plugin of {resource} is gone", remedy="it must register again")
        return client.stub


def check_plugin(*, resource: str, versions: list[str]) -> None:
    """Refuse another protocol or an impossible resource name."""
    if VERSION not in versions:
        raise PluginError(f"{resource} speaks {', '.join(versions) or 'nothing'}, not {VERSION}")
    domain = resource.partition("/")[0]
    if not _RESOURCE_NAME.fullmatch(resource) or domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        raise PluginError(f"{resource!r} can't be the name of an extended resource")


def remove_sockets(folder: Path) -> None:
    """Remove sockets lying directly in the folder; those in sub-folders survive."""
    for entry in folder.iterdir():
        if stat.S_ISSOCK(entry.lstat().st_mode):
            entry.unlink()


def _device(device: api.Device) -> Device:
    nodes = tuple(node.ID for node in device.topology.nodes)
    return Device(id=device.ID, healthy=device.health == HEALTHY, numa=nodes)


def _is_own_cancellation(error: BaseException) -> bool:
    # Closing a channel cancels its calls too; only our own task's cancellation goes on upwards.
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _reason(error: BaseException) -> str:
    if isinstance(error, aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return "an older plugin's stream of the same name ended meanwhile and took this one with it"
