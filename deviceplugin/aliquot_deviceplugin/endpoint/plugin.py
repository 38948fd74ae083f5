"""One resource as the kubelet sees it: its socket, its device list, its registration."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_deviceplugin.endpoint import registration as reg
from aliquot_deviceplugin.endpoint.registrar import Registrar
from aliquot_deviceplugin.endpoint.service import Service
from aliquot_deviceplugin.endpoint.table import Listener, Table
from aliquot_proto import deviceplugin_v1beta1_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

# A GetPreferredAllocation names all free ids; 16 GPUs have 1,600.
_OPTIONS = (("grpc.max_receive_message_length", 16 * 1024 * 1024),)
# How long a call that can answer yet may take when the endpoint leaves; only a kubelet that is stuck needs all of it.
_GRACE = 2.0


class PluginSocketError(ClusterError):
    """Our own socket can't be made."""


MakeService = Callable[[Table, Callable[[Listener], None], Callable[[Listener], None]], Service]


class Plugin:
    """Serves and registers one resource."""

    def __init__(
        self,
        *,
        resource: str,
        socket: Path,
        table: Table,
        make_service: MakeService,
        register: Callable[[], Awaitable[None]],
        pace: reg.Pace,
        on_change: Callable[[], None],
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        self.resource = resource
        self.table = table
        self._clock = clock
        self._socket = socket
        self._service = make_service(table, self._listening, self._deaf)
        self._registrar = Registrar(
            resource=resource,
            pace=pace,
            register=register,
            end_streams=self._end_streams,
            on_change=on_change,
            clock=clock,
            chance=chance,
        )
        self._numbers = itertools.count(1)
        self._streams: dict[Listener, int] = {}
        self._server: grpc.aio.Server | None = None
        self._inode = 0

    @property
    def state(self) -> reg.State:
        """Where the registration stands."""
        return self._registrar.state

    async def serve(self) -> None:
        """Listen on our socket; gRPC replaces one that a killed endpoint left behind."""
        self._server = grpc.aio.server(options=_OPTIONS)
        pb_grpc.add_DevicePluginServicer_to_server(self._service, self._server)
        try:
            make_folder(self._socket.parent)
            self._server.add_insecure_port(f"unix:{self._socket}")
            await self._server.start()
            self._inode = self._socket.stat().st_ino
        except (OSError, RuntimeError) as error:
            raise PluginSocketError(
                f"can't listen: {error}", where=str(self._socket), remedy="check the folder and its permissions"
            ) from error

    def kubelet_seen(self, socket: reg.SocketId | None) -> None:
        """Hear whether the kubelet's socket is there, and which."""
        self._registrar.tell(reg.SocketSeen(socket) if socket else reg.SocketGone())

    async def renew_if_lost(self) -> None:
        """Serve anew if somebody deleted our socket: the kubelet could not connect to it again.

        This ends the kubelet's stream, and so leads to another registration.
        """
        if _inode(self._socket) == self._inode:
            return
        log.warning("our socket was deleted; it is made anew", extra={"resource": self.resource})
        await self._stop_serving(grace=None)
        await self.serve()

    async def close(self) -> None:
        """Stop registering, then serving."""
        await self._registrar.close()
        # With a stream the kubelet ends its connection, and whatever is on its way there.
        await self._service.told(at_most=_GRACE, clock=self._clock)
        self._end_streams(frozenset(self._streams.values()))
        await self._stop_serving(grace=_GRACE)

    async def _stop_serving(self, *, grace: float | None) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(grace)

    def _listening(self, listener: Listener) -> None:
        self._streams[listener] = next(self._numbers)
        self._registrar.tell(reg.StreamOpened(self._streams[listener]))

    def _deaf(self, listener: Listener) -> None:
        self._registrar.tell(reg.StreamEnded(self._streams.pop(listener)))

    def _end_streams(self, streams: frozenset[int]) -> None:
        for listener, number in self._streams.items():
            if number in streams:
                listener.end()


def make_folder(folder: Path) -> None:
    """Make a folder below the kubelet's, which may not be there yet; as closed as the kubelet would make it."""
    for part in [*reversed(folder.parents), folder]:
        part.mkdir(mode=0o750, exist_ok=True)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
