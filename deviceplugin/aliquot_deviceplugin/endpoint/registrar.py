"""Carries out what the registration's state machine decides, for one resource."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import grpc

from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_deviceplugin.endpoint import registration as reg
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb
from aliquot_proto import deviceplugin_v1beta1_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

# Before it answers, the kubelet connects back to us and takes up to 10 s for it.
REGISTER_DEADLINE = 12.0


class RegistrationError(ClusterError):
    """The kubelet did not take our registration."""


class Registrar:
    """One resource's registration: events in, calls and waits out."""

    def __init__(
        self,
        *,
        resource: str,
        pace: reg.Pace,
        register: Callable[[], Awaitable[None]],
        end_streams: Callable[[frozenset[int]], None],
        on_change: Callable[[], None],
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        """`register` makes the call and raises `RegistrationError`; `on_change` hears of every new state."""
        self.state = reg.State()
        self._resource = resource
        self._pace = pace
        self._register = register
        self._end_streams = end_streams
        self._on_change = on_change
        self._clock = clock
        self._chance = chance
        # One slot for the call or the wait under way: there can't be two.
        self._doing: asyncio.Task[None] | None = None
        self._closed = False

    def tell(self, event: reg.Event) -> None:
        """Take an event, and do what follows from it."""
        if self._closed:
            return
        before = self.state
        self.state, actions = reg.step(before, event, pace=self._pace, chance=self._chance())
        if self.state.phase is not before.phase:
            facts = {"resource": self._resource, "was": before.phase.value, "registrations": self.state.registrations}
            log.info("%s", self.state.phase.value, extra=facts)
        for action in actions:
            self._do(action)
        if self.state != before:
            self._on_change()

    async def close(self) -> None:
        """Stop whatever is under way, and hear of nothing more."""
        self._closed = True
        if self._doing is not None:
            self._doing.cancel()
            await asyncio.gather(self._doing, return_exceptions=True)

    def _do(self, action: reg.Action) -> None:
        match action:
            case reg.Register(epoch=epoch):
                self._start(self._call(epoch))
            case reg.Wait(epoch=epoch, seconds=seconds):
                self._start(self._wait(epoch, seconds))
            case reg.GiveUp():
                self._start(None)
            case reg.EndStreams(streams=streams):
                self._end_streams(streams)

    def _start(self, work: Coroutine[Any, Any, None] | None) -> None:
        doing = self._doing
        if doing is not None and doing is not asyncio.current_task():
            doing.cancel()
        self._doing = asyncio.ensure_future(work) if work else None

    async def _call(self, epoch: int) -> None:
        try:
            await self._register()
        except RegistrationError as error:
            log.info("not registered: %s", error, extra={"resource": self._resource})
            self.tell(reg.RegisterFailed(epoch))
        else:
            self.tell(reg.Registered(epoch))

    async def _wait(self, epoch: int, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self.tell(reg.TimerFired(epoch))


async def register_at_socket(kubelet_socket: str, *, endpoint: str, resource: str) -> None:
    """Call the kubelet's Register once; `endpoint` is our socket's path relative to its folder."""
    request = pb.RegisterRequest(
        version="v1beta1",
        endpoint=endpoint,
        resource_name=resource,
        options=pb.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True),
    )
    async with grpc.aio.insecure_channel(f"unix:{kubelet_socket}") as channel:
        try:
            await pb_grpc.RegistrationStub(channel).Register(request, timeout=REGISTER_DEADLINE)
        except grpc.aio.AioRpcError as error:
            raise RegistrationError(
                f"{error.code().name}: {error.details()}", where=kubelet_socket, remedy="it is tried again"
            ) from error
