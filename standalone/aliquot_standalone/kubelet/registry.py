"""The other way to register: a plugin leaves a socket in plugins_registry and the kubelet comes by itself.

The folder is looked at every 100 ms instead of watched; a real kubelet comes 6 to 9 ms after it has started.
"""

from __future__ import annotations

import asyncio
import logging
import stat
from pathlib import Path
from typing import NamedTuple, Protocol

import grpc
from grpc import aio

from aliquot_core.clock import Clock
from aliquot_proto import pluginregistration_v1_pb2 as api
from aliquot_proto import pluginregistration_v1_pb2_grpc as rpc
from aliquot_standalone.kubelet.errors import PluginError
from aliquot_standalone.kubelet.plugins import check_plugin
from aliquot_standalone.kubelet.settings import Settings, grpc_address

log = logging.getLogger(__name__)

PLUGIN_TYPE = "DevicePlugin"
_CALL_TIMEOUT = 5.0
_FIRST_RETRY = 0.5
_LONGEST_RETRY = 120.0


class Stamp(NamedTuple):
    """Tells a socket from a later one under the same path."""

    inode: int
    changed: int


class Connector(Protocol):
    """Who connects to plugins."""

    async def connect(self, resource: str, socket: Path) -> None:
        """Reach a plugin at its socket."""

    async def disconnect(self, resource: str) -> None:
        """Drop whoever is registered under this name now."""


class _Socket:
    """What is known of one socket in the registry."""

    def __init__(self, stamp: Stamp) -> None:
        self.stamp = stamp
        self.resource: str | None = None
        self.retry_at = 0.0
        self.pause = _FIRST_RETRY


class Registry:
    """Finds plugins in a folder and registers them."""

    def __init__(self, *, folder: Path, connector: Connector, clock: Clock, settings: Settings) -> None:
        self._folder = folder
        self._connector = connector
        self._clock = clock
        self._settings = settings
        self._sockets: dict[Path, _Socket] = {}

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await self.look()
            await self._clock.sleep(self._settings.registry_poll)

    async def look(self) -> None:
        """Register what is new, drop what is gone."""
        found = sockets_below(self._folder)
        for path in [path for path in self._sockets if path not in found]:
            gone = self._sockets.pop(path)
            if gone.resource:
                await self._connector.disconnect(gone.resource)
        for path, stamp in found.items():
            known = self._sockets.get(path)
            if known is None or known.stamp != stamp:
                known = self._sockets[path] = _Socket(stamp)
            if known.resource is None and self._clock.monotonic() >= known.retry_at:
                await self._register(path, known)

    async def _register(self, path: Path, known: _Socket) -> None:
        try:
            known.resource = await self._introduce(path)
        except (PluginError, aio.AioRpcError, TimeoutError) as error:
            log.warning("plugin in the registry not taken", extra={"socket": str(path), "why": str(error)})
            known.retry_at = self._clock.monotonic() + known.pause
            known.pause = min(known.pause * 2, _LONGEST_RETRY)

    async def _introduce(self, path: Path) -> str:
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        async with aio.insecure_channel(grpc_address(path), options=options) as channel:
            async with asyncio.timeout(self._settings.dial_timeout):
                await channel.channel_ready()
            stub: rpc.RegistrationAsyncStub = rpc.RegistrationStub(channel)
            info = await stub.GetInfo(api.InfoRequest(), timeout=_CALL_TIMEOUT)
            try:
                await self._take(info, path)
            except PluginError as error:
                await self._notify(stub, error=str(error))
                raise
            await self._notify(stub)
        return info.name

    async def _take(self, info: api.PluginInfo, path: Path) -> None:
        if info.type != PLUGIN_TYPE:
            raise PluginError(f"a plugin of type {info.type!r} is not served here, only {PLUGIN_TYPE}")
        check_plugin(resource=info.name, versions=list(info.supported_versions))
        await self._connector.connect(info.name, Path(info.endpoint) if info.endpoint else path)

    async def _notify(self, stub: rpc.RegistrationAsyncStub, *, error: str = "") -> None:
        status = api.RegistrationStatus(plugin_registered=not error, error=error)
        try:
            await stub.NotifyRegistrationStatus(status, timeout=_CALL_TIMEOUT)
        except aio.AioRpcError as failure:
            if failure.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise


def sockets_below(folder: Path) -> dict[Path, Stamp]:
    """All sockets in the folder and its sub-folders, hidden ones left out."""
    found: dict[Path, Stamp] = {}
    for entry in sorted(folder.rglob("*")):
        try:
            seen = entry.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISSOCK(seen.st_mode) and not entry.name.startswith("."):
            found[entry] = Stamp(inode=seen.st_ino, changed=seen.st_ctime_ns)
    return found
