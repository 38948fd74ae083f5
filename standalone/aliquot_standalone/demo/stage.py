"""What the demonstration does to a machine that is up, and how it waits to see what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError
from aliquot_core.grant import Slice, decode_grant
from aliquot_core.inventory import Gpu, decode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ConflictError, NotFoundError
from aliquot_kube.questions import Question, Transport
from aliquot_kube.resources import NODES, PODS
from aliquot_standalone.demo.cast import MARK, Json
from aliquot_standalone.manifests import Manifests

_LOOK_AGAIN = 0.05
# A busy machine takes its time; the demonstration then goes on and says so.
PATIENCE = 20.0


class Stage:
    """One machine, by its API alone."""

    def __init__(self, *, transport: Transport, names: Names, clock: Clock) -> None:
        self.names = names
        self.clock = clock
        self._transport = transport
        self._client = KubeClient(transport=transport)
        self._manifests = Manifests(transport=transport)

    async def have(self, *manifests: Json) -> None:
        """Have these be there."""
        for one in manifests:
            await self._manifests.apply(one)

    async def submit(self, *manifests: Json) -> None:
        """Create pods, all at once."""
        await asyncio.gather(*(self._manifests.create(one) for one in manifests))

    async def pods(self) -> list[Pod]:
        """All of the demonstration's."""
        return await self._client.list(PODS, label_selector=MARK)

    async def until(self, holds: Callable[[Sequence[Pod]], bool]) -> tuple[list[Pod], float]:
        """Wait until the pods are so; also gives how long it took. What never comes is not waited for for ever."""
        began = self.clock.monotonic()
        while True:
            pods, took = await self.pods(), self.clock.monotonic() - began
            if holds(pods) or took > PATIENCE:
                return pods, took
            await self.clock.sleep(_LOOK_AGAIN)

    async def until_gpu(self, node: str, index: int, *, holds: Callable[[Gpu], bool]) -> Gpu:
        """Wait until a GPU is told of as being so."""
        deadline = self.clock.monotonic() + PATIENCE
        while True:
            gpu = (await self.gpus(node))[index]
            if holds(gpu) or self.clock.monotonic() > deadline:
                return gpu
            await self.clock.sleep(_LOOK_AGAIN)

    async def gpus(self, node: str) -> list[Gpu]:
        """A node's GPUs, as it tells of them."""
        found = await self._client.get(NODES, name=node)
        return list(decode_inventory(found.metadata.annotations[self.names.inventory]).gpus)

    async def printed(self, pod: Pod) -> str:
        """The first that a pod has said; a process says it a moment after it runs."""
        path = PODS.path(namespace=pod.metadata.namespace, name=pod.metadata.name, subresource="log")
        for _ in range(100):
            try:
                if text := (await self._transport.request(Question(method="GET", path=path))).body.decode().strip():
                    return text
            except AliquotError:
                pass  # nothing is printed yet
            await self.clock.sleep(_LOOK_AGAIN)
        return "(nothing)"

    async def remove(self, pods: Sequence[Pod]) -> None:
        """Delete pods; who is gone already is no error."""
        await asyncio.gather(*(self._remove(pod) for pod in pods))

    async def clear(self) -> None:
        """Remove what an earlier demonstration has left."""
        await self.remove(await self.pods())
        await self.until(lambda pods: not pods)

    def slices(self, pod: Pod) -> list[Slice]:
        """What a pod was granted; nothing before that."""
        text = pod.metadata.annotations.get(self.names.grant)
        return [one for part in decode_grant(text).containers.values() for one in part.slices] if text else []

    async def _remove(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.delete(PODS, namespace=meta.namespace, name=meta.name, uid=meta.uid)
        except (NotFoundError, ConflictError):
            return


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How the pods of a part of the story stand."""

    running: int
    waiting: int


def tally(pods: Sequence[Pod], *, beginning: str) -> Tally:
    """Count the pods whose name begins so."""
    ours = [pod for pod in pods if pod.metadata.name.startswith(beginning)]
    return Tally(
        running=sum(pod.status.phase == "Running" for pod in ours),
        waiting=sum(not pod.spec.node_name for pod in ours),
    )
