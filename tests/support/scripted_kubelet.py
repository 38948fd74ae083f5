"""A kubelet as a device plugin meets it, for tests of the endpoint: registers, listens, and misbehaves when told to.

It keeps one client per resource and, like the real one, disconnects the *newest* when any stream of that name ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from aliquot_proto import deviceplugin_v1beta1_pb2 as pb
from aliquot_proto import deviceplugin_v1beta1_pb2_grpc as pb_grpc

# The real one's receive limit is gRPC's default, and nothing raises it.
OPTIONS = (
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.default_authority", "localhost"),
)
PATIENCE = 60.0


class Client:
    """The kubelet's view of one registered plugin."""

    def __init__(self, path: str) -> None:
        self.channel = grpc.aio.insecure_channel(f"unix:{path}", options=OPTIONS)
        self.stub = pb_grpc.DevicePluginStub(self.channel)
        self.devices: list[pb.Device] = []
        self.messages = 0
        self.stream: asyncio.Task[None] | None = None


class ScriptedKubelet(pb_grpc.RegistrationServicer):
    """Start it, stop it, refuse with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "kubelet.sock"
        self.clients: dict[str, Client] = {}
        self.requests: list[pb.RegisterRequest] = []
        self.refusals = 0
        self.registering = 0
        self.most_registering = 0
        # Set to hold every Register call until it is set again.
        self.gate = asyncio.Event()
        self.gate.set()
        # Set by the first Register call that comes.
        self.asked = asyncio.Event()
        self.abandoned: dict[str, Client] = {}
        self._changed = asyncio.Condition()
        self._server: grpc.aio.Server | None = None
        self._streams: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Clean the folder of sockets as the real one does, then listen."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for entry in self.folder.iterdir():
            if entry.is_socket():
                entry.unlink()
        self._server = grpc.aio.server()
        pb_grpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self, *, keep_socket: bool = False) -> None:
        """Forget every plugin; `keep_socket` leaves the file as a SIGKILL does."""
        if keep_socket:
            kept = self.folder / "kept"
            os.link(self.socket, kept)
        for client in list(self.clients.values()):
            await client.channel.close()
        self.clients.clear()
        for stream in list(self._streams):
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(grace=None)
        if keep_socket:
            kept.rename(self.socket)

    async def forget_socket(self) -> None:
        """Make kubelet.sock anew while the old streams stay open: a kubelet whose end nobody noticed."""
        self.abandoned, self.clients = self.clients, {}
        server, self._server = self._server, None
        assert server is not None
        await server.stop(grace=None)
        await self.start()

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.Empty:
        """Connect back to the plugin, as the kubelet does before it answers."""
        self.registering += 1
        self.asked.set()
        self.most_registering = max(self.most_registering, self.registering)
        try:
            await self.gate.wait()
            self.requests.append(request)
            if self.refusals > 0:
                self.refusals -= 1
                await context.abort(grpc.StatusCode.UNKNOWN, "not today")
            await self.connect(request.resource_name, str(self.folder / request.endpoint))
        finally:
            self.registering -= 1
        return pb.Empty()

    async def connect(self, resource: str, path: str) -> Client:
        """Do what a registration leads to, whichever way it came."""
        client = Client(path)
        options = await client.stub.GetDevicePluginOptions(pb.Empty(), timeout=PATIENCE)
        assert options.pre_start_required
        assert options.get_preferred_allocation_available
        self.clients[resource] = client
        client.stream = asyncio.ensure_future(self._listen(resource, client))
        self._streams.add(client.stream)
        client.stream.add_done_callback(self._streams.discard)
        await self._notify()
        return client

    async def _listen(self, resource: str, client: Client) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for message in client.stub.ListAndWatch(pb.Empty()):
                client.devices = list(message.devices)
                client.messages += 1
                await self._notify()
        await self.disconnect(resource)

    async def disconnect(self, resource: str) -> None:
        """Drop whichever client is newest under this name."""
        if newest := self.clients.pop(resource, None):
            await newest.channel.close()
        await self._notify()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of this kubelet."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(holds)

    async def until_listed(self, resource: str, count: int) -> Client:
        """Wait until so many healthy devices of a resource are known; return the client."""

        def listed() -> bool:
            client = self.clients.get(resource)
            return client is not None and sum(d.health == "Healthy" for d in client.devices) == count

        await self.until(listed)
        return self.clients[resource]

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
