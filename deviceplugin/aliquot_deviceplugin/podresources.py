"""The kubelet's PodResources: who holds which device ids at this moment.

The kubelet allows 100 calls a second with a burst of 10, to everybody on the node together. So callers share: whoever
asks while a call is under way gets the answer of the *next* one, never of the present one. An answer must have been
asked for after the caller asked, or a container that was recorded in between would be missing in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grpc
import msgspec

from aliquot_agent.starting.kubelet_view import KubeletViewError, Listed
from aliquot_agent.waiting import settled
from aliquot_core.backoff import Backoff, Random
from aliquot_core.clock import Clock
from aliquot_proto import podresources_v1_pb2 as pb
from aliquot_proto import podresources_v1_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
BACKOFF = Backoff(first=0.01, longest=0.5)
# What the kubelet's own clients take; 110 pods of 800 ids are 1 MiB.
_OPTIONS = (
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    # A kubelet that restarts is back within a second; gRPC by itself would look for it less and less often.
    ("grpc.max_reconnect_backoff_ms", 200),
)
_TRANSIENT = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
# One try; the kubelet answers in milliseconds or is in trouble.
_TRY_SECONDS = 5.0


class PodResourcesError(KubeletViewError):
    """PodResources did not answer."""


class PodResourcesMissingError(PodResourcesError):
    """The kubelet serves no PodResources where we look."""


class _Round(msgspec.Struct, kw_only=True):
    """One call of List and those who wait for it."""

    answer: asyncio.Future[tuple[Listed, ...]]
    deadline: float
    # What the last try has met: who waits no longer is told of that rather than of silence.
    trouble: PodResourcesError | None = None


class PodResources:
    """A client that any number of callers share."""

    def __init__(self, *, socket: str = SOCKET, clock: Clock, random: Random) -> None:
        self._socket = socket
        self._clock = clock
        self._random = random
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._lister = pb_grpc.PodResourcesListerStub(self._channel)
        self._next: _Round | None = None
        self._worker: asyncio.Task[None] | None = None

    async def list(self, *, patience: float) -> tuple[Listed, ...]:
        """Every container that the kubelet lists, asked for after this call began."""
        deadline = self._clock.monotonic() + patience
        if self._next is None:
            self._next = _Round(answer=asyncio.get_running_loop().create_future(), deadline=deadline)
        mine = self._next
        mine.deadline = max(mine.deadline, deadline)
        if self._worker is None:
            self._worker = asyncio.ensure_future(self._work())
        if not await settled(mine.answer, seconds=patience, clock=self._clock):
            silence = f"no answer within {patience:g} s"
            raise mine.trouble or PodResourcesError(silence, where=self._socket, remedy="is the kubelet up?")
        return mine.answer.result()

    async def close(self) -> None:
        """Hang up; whoever still waits is told so."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        if self._next is not None:
            _fail(self._next, self._hung_up())
        await self._channel.close()

    async def _work(self) -> None:
        try:
            while self._next is not None:
                # Whoever asks in the same turn of the loop joins.
                await asyncio.sleep(0)
                turn, self._next = self._next, None
                await self._answer(turn)
        finally:
            self._worker = None

    async def _answer(self, turn: _Round) -> None:
        try:
            listed = await self._ask_until(turn)
        except PodResourcesError as error:
            _fail(turn, error)
        except asyncio.CancelledError:
            _fail(turn, self._hung_up())
            raise
        else:
            turn.answer.set_result(listed)

    async def _ask_until(self, turn: _Round) -> tuple[Listed, ...]:
        failures = 0
        while True:
            try:
                return merged(await self._lister.List(pb.ListPodResourcesRequest(), timeout=_TRY_SECONDS))
            except grpc.aio.AioRpcError as error:
                failures += 1
                turn.trouble = self._named(error)
                wait = BACKOFF.delay(failures=failures, random=self._random)
                if error.code() not in _TRANSIENT or self._clock.monotonic() + wait >= turn.deadline:
                    raise turn.trouble from error
            await self._clock.sleep(wait)

    def _hung_up(self) -> PodResourcesError:
        return PodResourcesError("the client was closed", where=self._socket)

    def _named(self, error: grpc.aio.AioRpcError) -> PodResourcesError:
        if error.code() is grpc.StatusCode.UNAVAILABLE and not Path(self._socket).exists():
            return PodResourcesMissingError(
                "there is no such socket", where=self._socket, remedy="mount the kubelet's pod-resources folder"
            )
        return PodResourcesError(f"{error.code().name}: {error.details()}", where=self._socket)


def _fail(turn: _Round, error: PodResourcesError) -> None:
    turn.answer.set_exception(error)
    # All who waited may have gone, and asyncio complains of errors that nobody looked at.
    turn.answer.exception()


def merged(response: pb.ListPodResourcesResponse) -> tuple[Listed, ...]:
    """One entry for each container; the kubelet gives a resource in several pieces, one for each NUMA node."""
    return tuple(_containers(response))


def _containers(response: pb.ListPodResourcesResponse) -> Iterator[Listed]:
    for pod in response.pod_resources:
        for container in pod.containers:
            ids: defaultdict[str, set[str]] = defaultdict(set)
            for piece in container.devices:
                ids[piece.resource_name].update(piece.device_ids)
            held = {resource: frozenset(some) for resource, some in ids.items()}
            yield Listed(namespace=pod.namespace, name=pod.name, container=container.name, ids=held)
