"""PodResources v1: tells anybody on the node which container holds which devices; 100 calls a second, burst 10."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import grpc
from grpc import aio

from aliquot_core.clock import Clock
from aliquot_core.objects import Container, Pod
from aliquot_proto import podresources_v1_pb2 as api
from aliquot_proto import podresources_v1_pb2_grpc as rpc
from aliquot_standalone.kubelet.choosing import Device
from aliquot_standalone.kubelet.holdings import NO_NUMA, Holding
from aliquot_standalone.kubelet.settings import Folders, Settings, grpc_address


class HolderView(Protocol):
    """What the server reads of the node."""

    def active_pods(self) -> list[Pod]:
        """Pods that have not ended, the one being admitted among them."""

    def holdings_of(self, pod_uid: str, container: str) -> dict[str, Holding]:
        """What a container holds, by resource; what ended pods held is free by then."""

    def healthy_devices(self) -> dict[str, list[Device]]:
        """All devices that could be given out if nobody held any."""


class TokenBucket:
    """So many calls at once, so many a second in the long run. Pure."""

    def __init__(self, *, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._then = now

    def take(self, now: float) -> bool:
        """Whether one more call may pass."""
        self._tokens = min(self._burst, self._tokens + (now - self._then) * self._rate)
        self._then = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class _Limit(aio.ServerInterceptor):
    """Turns callers away beyond the limit; all methods share it."""

    def __init__(self, *, bucket: TokenBucket, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock
        self._refusal: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(_refuse)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        if not self._bucket.take(self._clock.monotonic()):
            return self._refusal
        return await continuation(handler_call_details)


async def _refuse(_request: Any, context: Any) -> Any:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls to PodResources")


class PodResources(rpc.PodResourcesListerServicer):
    """The service and its server."""

    def __init__(self, *, folders: Folders, settings: Settings, view: HolderView, clock: Clock) -> None:
        self._folders = folders
        self._settings = settings
        self._view = view
        self._clock = clock
        self._server: aio.Server | None = None

    async def start(self) -> None:
        """Serve."""
        self._folders.pod_resources_socket.unlink(missing_ok=True)
        settings = self._settings
        bucket = TokenBucket(
            rate=settings.pod_resources_rate, burst=settings.pod_resources_burst, now=self._clock.monotonic()
        )
        self._server = aio.server(interceptors=[_Limit(bucket=bucket, clock=self._clock)])
        rpc.add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(grpc_address(self._folders.pod_resources_socket))
        await self._server.start()

    async def stop(self) -> None:
        """Serve no more."""
        if self._server:
            await self._server.stop(grace=None)

    async def List(self, _request: Any, _context: Any) -> api.ListPodResourcesResponse:
        """All active pods."""
        return api.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in self._view.active_pods()])

    async def Get(self, request: api.GetPodResourcesRequest, context: Any) -> api.GetPodResourcesResponse:
        """One pod by its name."""
        for pod in self._view.active_pods():
            if (pod.metadata.namespace, pod.metadata.name) == (request.pod_namespace, request.pod_name):
                return api.GetPodResourcesResponse(pod_resources=self._pod(pod))
        context.set_code(grpc.StatusCode.UNKNOWN)
        context.set_details(f"no pod {request.pod_namespace}/{request.pod_name} on this node")
        return api.GetPodResourcesResponse()

    async def GetAllocatableResources(self, _request: Any, _context: Any) -> api.AllocatableResourcesResponse:
        """All healthy devices."""
        entries = [
            entry
            for resource, devices in self._view.healthy_devices().items()
            for device in devices
            for entry in _entries(resource, device.id, device.numa)
        ]
        return api.AllocatableResourcesResponse(devices=entries)

    def _pod(self, pod: Pod) -> api.PodResources:
        listed = [self._container(pod, container) for container in listed_containers(pod)]
        return api.PodResources(name=pod.metadata.name, namespace=pod.metadata.namespace, containers=listed)

    def _container(self, pod: Pod, container: Container) -> api.ContainerResources:
        entries = [
            entry
            for resource, held in self._view.holdings_of(pod.metadata.uid, container.name).items()
            for node, ids in held.ids_by_numa.items()
            for one in ids
            for entry in _entries(resource, one, () if node == NO_NUMA else (node,))
        ]
        return api.ContainerResources(name=container.name, devices=entries)


def listed_containers(pod: Pod) -> list[Container]:
    """Sidecars, then app containers; ordinary init containers are not listed."""
    sidecars = [container for container in pod.spec.init_containers if container.restart_policy == "Always"]
    return [*sidecars, *pod.spec.containers]


def _entries(resource: str, one: str, nodes: Iterable[int]) -> list[api.ContainerDevices]:
    """One entry per device and NUMA node, as the kubelet writes them: readers must merge."""
    entries = [
        api.ContainerDevices(
            resource_name=resource,
            device_ids=[one],
            topology=api.TopologyInfo(nodes=[api.NUMANode(ID=node)]),
        )
        for node in nodes
    ]
    return entries or [api.ContainerDevices(resource_name=resource, device_ids=[one])]
