"""What the kubelet calls: one servicer for each resource.

Allocate and GetPreferredAllocation always answer, at once and without anybody's help: an error there, or in a pod's
admission a wait, fails the pod or holds all others. Whatever may wait or refuse does so in PreStartContainer, where the
kubelet tries again (facts: 12 s of refusals, and the pod ran).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc
import msgspec

from aliquot_agent.waiting import settled
from aliquot_core.clock import Clock
from aliquot_core.door import Prefer, PreStart
from aliquot_core.names import Names
from aliquot_deviceplugin.endpoint.agent_calls import AgentCalls
from aliquot_deviceplugin.endpoint.given_names import GivenNames
from aliquot_deviceplugin.endpoint.preference import acceptable, choose_alone
from aliquot_deviceplugin.endpoint.table import Listener, Table
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb
from aliquot_proto import deviceplugin_v1beta1_pb2_grpc as pb_grpc

# The sentence must reach the kubelet before the kubelet's own deadline does.
MARGIN = 1.5
# gRPC carries the sentence in a header, each odd byte as three; headers may be 8 KiB in all.
LONGEST_SENTENCE = 2000

Context = grpc.aio.ServicerContext[Any, Any]


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long the agent is waited for, in seconds."""

    prestart: float
    preference: float


class Service(pb_grpc.DevicePluginServicer):
    """Serves one resource."""

    def __init__(
        self,
        *,
        resource: str,
        table: Table,
        calls: AgentCalls,
        given: GivenNames,
        names: Names,
        token: Callable[[], str],
        patience: Patience,
        awaited: Callable[[], str],
        on_given: Callable[[], None],
        on_listening: Callable[[Listener], None],
        on_deaf: Callable[[Listener], None],
    ) -> None:
        """`awaited` says in a sentence what a container waits for that got no answer."""
        self._resource = resource
        self._table = table
        self._calls = calls
        self._given = given
        self._names = names
        self._token = token
        self._patience = patience
        self._awaited = awaited
        self._on_given = on_given
        self._on_listening = on_listening
        self._on_deaf = on_deaf
        self._starts: set[asyncio.Task[Any]] = set()

    async def told(self, *, at_most: float, clock: Clock) -> None:
        """Wait until nobody waits for the answer to a start any more, at most so many seconds."""
        if self._starts:
            await settled(asyncio.gather(*self._starts, return_exceptions=True), seconds=at_most, clock=clock)

    async def GetDevicePluginOptions(self, _request: pb.Empty, _context: Context) -> pb.DevicePluginOptions:
        """Ask to be called before each start and for preferences."""
        return pb.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    async def ListAndWatch(self, _request: pb.Empty, _context: Context) -> AsyncIterator[pb.ListAndWatchResponse]:
        """Tell the devices, and tell them again whenever they change."""
        with self._table.listen() as listener:
            self._on_listening(listener)
            try:
                while (message := await listener.next()) is not None:
                    yield message
            finally:
                self._on_deaf(listener)

    async def Allocate(self, request: pb.AllocateRequest, _context: Context) -> pb.AllocateResponse:
        """Answer a CDI name that was never used before; what it means is decided in PreStartContainer."""
        return pb.AllocateResponse(
            container_responses=[self._allocated(asked.devices_ids) for asked in request.container_requests]
        )

    async def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, _context: Context
    ) -> pb.PreferredAllocationResponse:
        """Advise which ids to take: the agent's choice, or one of our own."""
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(deviceIDs=await self._preferred(asked))
                for asked in request.container_requests
            ]
        )

    async def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: Context
    ) -> pb.PreStartContainerResponse:
        """Let the container start when the agent says so; wait for the agent as long as the kubelet waits for us."""
        self._under_way()
        ids = list(request.devices_ids)
        names = self._given.names(resource=self._resource, ids=ids)
        question = PreStart(call=0, resource=self._resource, ids=ids, names=names)
        answer = await self._calls.may_start(question, patience=self._time_for(context))
        if answer is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, self._awaited())
        elif answer.refused is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, _shortened(answer.refused))
        return pb.PreStartContainerResponse()

    def _under_way(self) -> None:
        # gRPC's own task: it ends when the answer has been sent.
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)

    def _allocated(self, ids: Any) -> pb.ContainerAllocateResponse:
        # A fresh name each time: the runtime's CDI cache can't serve an old spec under it, and an init and an app
        # container that share their ids are told apart by it.
        name = self._names.cdi_name(self._token())
        self._given.remember(resource=self._resource, ids=ids, name=name)
        self._on_given()
        return pb.ContainerAllocateResponse(cdi_devices=[pb.CDIDevice(name=name)])

    async def _preferred(self, asked: pb.ContainerPreferredAllocationRequest) -> list[str]:
        question = Prefer(
            call=0,
            resource=self._resource,
            available=list(asked.available_deviceIDs),
            must_include=list(asked.must_include_deviceIDs),
            size=asked.allocation_size,
        )
        answer = await self._calls.preference(question, patience=self._patience.preference)
        if answer is not None and acceptable(answer.ids, asked=question):
            return answer.ids
        return choose_alone(question)

    def _time_for(self, context: Context) -> float:
        # A caller without a deadline gives None, whatever the stubs say.
        left = cast("float | None", context.time_remaining())
        return self._patience.prestart if left is None else max(0.0, min(self._patience.prestart, left - MARGIN))


def _shortened(sentence: str) -> str:
    return sentence.encode()[:LONGEST_SENTENCE].decode(errors="ignore")
