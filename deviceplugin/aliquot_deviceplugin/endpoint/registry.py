"""Registration the other way: a socket in plugins_registry, which the kubelet finds by itself and calls.

Nothing has to be noticed when the kubelet restarts: it looks through the folder before it admits pods (facts: served 6
to 9 ms after kubelet.sock). Only when it lost us and lives on must the socket be made anew, since it comes for new
sockets only.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import grpc

from aliquot_deviceplugin.endpoint.plugin import make_folder
from aliquot_deviceplugin.endpoint.registrar import RegistrationError
from aliquot_proto import pluginregistration_v1_pb2 as pb
from aliquot_proto import pluginregistration_v1_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class _Registration(pb_grpc.RegistrationServicer):
    """Answers who we are."""

    def __init__(self, *, resource: str, endpoint: Path) -> None:
        self._resource = resource
        self._endpoint = endpoint

    async def GetInfo(self, _request: pb.InfoRequest, _context: Context) -> pb.PluginInfo:
        """Say what we are and where we serve."""
        return pb.PluginInfo(
            type="DevicePlugin", name=self._resource, endpoint=str(self._endpoint), supported_versions=["v1beta1"]
        )

    async def NotifyRegistrationStatus(
        self, request: pb.RegistrationStatus, _context: Context
    ) -> pb.RegistrationStatusResponse:
        """Hear how it went; the kubelet tries again by itself."""
        if not request.plugin_registered:
            log.warning("the kubelet refused us: %s", request.error, extra={"resource": self._resource})
        return pb.RegistrationStatusResponse()


class RegistryOffer:
    """One resource's socket in plugins_registry."""

    def __init__(self, *, folder: Path, resource: str, endpoint: Path) -> None:
        self._path = folder / f"{resource.replace('/', '-')}.sock"
        self._registration = _Registration(resource=resource, endpoint=endpoint)
        self._server: grpc.aio.Server | None = None

    async def renew(self) -> None:
        """Make the socket, anew where there is one."""
        await self.close()
        self._server = grpc.aio.server()
        pb_grpc.add_RegistrationServicer_to_server(self._registration, self._server)
        try:
            make_folder(self._path.parent)
            self._server.add_insecure_port(f"unix:{self._path}")
            await self._server.start()
        except (OSError, RuntimeError) as error:
            raise RegistrationError(f"can't listen: {error}", where=str(self._path)) from error

    async def close(self) -> None:
        """Take the offer back."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(grace=None)
