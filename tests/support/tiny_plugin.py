"""A device plugin of a few lines, to see what a kubelet does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from aliquot_proto import deviceplugin_v1beta1_pb2 as api
from aliquot_proto import deviceplugin_v1beta1_pb2_grpc as rpc
from aliquot_proto import pluginregistration_v1_pb2 as registration_api
from aliquot_proto import pluginregistration_v1_pb2_grpc as registration_rpc


class Refusal(Exception):  # noqa: N818 - what a hook raises to refuse a call
    """The plugin answers a call with this error."""

    def __init__(self, text: str, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        super().__init__(text)
        self.code = code


def device(name: str, *, healthy: bool = True, numa: int | None = None) -> api.Device:
    """One device as plugins tell of it."""
    topology = None if numa is None else api.TopologyInfo(nodes=[api.NUMANode(ID=numa)])
    return api.Device(ID=name, health="Healthy" if healthy else "Unhealthy", topology=topology)


def cdi_answer(ids: list[str]) -> api.ContainerAllocateResponse:
    """An Allocate answer that names one CDI device for the id set."""
    return api.ContainerAllocateResponse(
        cdi_devices=[api.CDIDevice(name=f"example.test/slice={'_'.join(sorted(ids))}")]
    )


class TinyPlugin(rpc.DevicePluginServicer):
    """Offers devices on a socket and remembers the calls it gets."""

    def __init__(self, *, resource: str, devices: list[api.Device], folder: Path, socket: str = "tiny.sock") -> None:
        self.resource = resource
        self.devices = devices
        self.options = api.DevicePluginOptions()
        self.calls: list[tuple[str, Any]] = []
        self.called = asyncio.Condition()
        self.answer: Callable[[list[str]], api.ContainerAllocateResponse] = lambda _: api.ContainerAllocateResponse()
        self.prefer: Callable[[api.ContainerPreferredAllocationRequest], list[str]] = lambda _: []
        self.pre_start: Callable[[list[str]], Awaitable[None]] | None = None
        self._folder = folder
        self._socket = socket
        self._server: aio.Server | None = None
        self._lists: set[asyncio.Event] = set()
        self._end = asyncio.Event()

    @property
    def path(self) -> Path:
        """Where it serves."""
        return self._folder / self._socket

    # --- its life --------------------------------------------------------------------------------------------------
    async def serve(self) -> None:
        """Listen."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._end = asyncio.Event()
        self._server = aio.server()
        rpc.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.path}")
        await self._server.start()

    async def register(self, *, version: str = "v1beta1", resource: str | None = None) -> None:
        """Tell the kubelet."""
        address = f"unix:{self._folder / 'kubelet.sock'}"
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with aio.insecure_channel(address, options=options) as channel:
            await channel.channel_ready()
            stub: rpc.RegistrationAsyncStub = rpc.RegistrationStub(channel)
            request = api.RegisterRequest(
                version=version, endpoint=self._socket, resource_name=resource or self.resource
            )
            await stub.Register(request, timeout=60)

    async def change(self, devices: list[api.Device]) -> None:
        """Tell another list of devices."""
        self.devices = devices
        for event in self._lists:
            event.set()

    async def end_streams(self) -> None:
        """End ListAndWatch but go on serving."""
        self._end.set()
        for event in self._lists:
            event.set()

    async def stop(self) -> None:
        """Vanish."""
        await self.end_streams()
        if self._server:
            await self._server.stop(grace=None)

    # --- what tests wait for ---------------------------------------------------------------------------------------
    async def until_called(self, name: str, *, times: int = 1) -> list[Any]:
        """Wait for so many calls of a name; what they asked."""
        async with self.called:
            await self.called.wait_for(lambda: len(self.asked(name)) >= times)
        return self.asked(name)

    def asked(self, name: str) -> list[Any]:
        """What all calls of a name asked."""
        return [asked for called, asked in self.calls if called == name]

    async def _note(self, name: str, asked: Any) -> None:
        async with self.called:
            self.calls.append((name, asked))
            self.called.notify_all()

    # --- what the kubelet calls ------------------------------------------------------------------------------------
    async def GetDevicePluginOptions(self, _request: Any, _context: Any) -> api.DevicePluginOptions:
        """What it wants to be asked."""
        await self._note("options", None)
        return self.options

    async def ListAndWatch(self, _request: Any, _context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
        """All devices, at once and at every change."""
        event = asyncio.Event()
        self._lists.add(event)
        try:
            while not self._end.is_set():
                event.clear()
                yield api.ListAndWatchResponse(devices=self.devices)
                await self._note("listed", len(self.devices))
                await event.wait()
        finally:
            self._lists.discard(event)

    async def GetPreferredAllocation(self, request: Any, _context: Any) -> api.PreferredAllocationResponse:
        """Which ids it would take."""
        asked = request.container_requests[0]
        await self._note("prefer", asked)
        ids = self.prefer(asked)
        return api.PreferredAllocationResponse(
            container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=ids)]
        )

    async def Allocate(self, request: Any, context: Any) -> api.AllocateResponse:
        """What a container with these ids needs."""
        ids = list(request.container_requests[0].devices_ids)
        await self._note("allocate", ids)
        try:
            return api.AllocateResponse(container_responses=[self.answer(ids)])
        except Refusal as refusal:
            await context.abort(refusal.code, str(refusal))
            raise

    async def PreStartContainer(self, request: Any, context: Any) -> api.PreStartContainerResponse:
        """A container with these ids is about to start."""
        ids = list(request.devices_ids)
        await self._note("pre_start", ids)
        try:
            if self.pre_start:
                await self.pre_start(ids)
        except Refusal as refusal:
            await context.abort(refusal.code, str(refusal))
        return api.PreStartContainerResponse()


class RegistrySocket(registration_rpc.RegistrationServicer):
    """The socket that a plugin leaves in plugins_registry."""

    def __init__(self, *, path: Path, info: registration_api.PluginInfo) -> None:
        self.path = path
        self.info = info
        self.statuses: asyncio.Queue[registration_api.RegistrationStatus] = asyncio.Queue()
        self._server: aio.Server | None = None

    async def serve(self) -> None:
        """Listen."""
        self._server = aio.server()
        registration_rpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.path}")
        await self._server.start()

    async def stop(self) -> None:
        """Vanish, socket and all."""
        if self._server:
            await self._server.stop(grace=None)
        self.path.unlink(missing_ok=True)

    async def GetInfo(self, _request: Any, _context: Any) -> registration_api.PluginInfo:
        """Who it is."""
        return self.info

    async def NotifyRegistrationStatus(self, request: Any, _context: Any) -> Any:
        """Whether it was taken."""
        await self.statuses.put(request)
        return registration_api.RegistrationStatusResponse()
