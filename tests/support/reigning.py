"""A leader that reigns over an API server in the same process, which counts what the leader writes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from aliquot_core.instants import second_time
from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock
from aliquot_kube.election import ElectionSettings
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import NAMESPACES, PODS
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_standalone.apiserver.direct import DirectTransport
from aliquot_standalone.apiserver.embedded import seeded_fresh
from aliquot_standalone.apiserver.exchange import Request
from aliquot_standalone.apiserver.frontend import Call, Frontend
from support.large_cluster import NAMES, NAMESPACE, Json, lease_manifest, node_manifest
from support.server_apart import LEASES

CENTRE = "centre"


class AheadClock(SystemClock):
    """The machine's time, and as much later as a test says: as if nothing had been heard for so long."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        """Seconds since some instant."""
        return super().monotonic() + self.ahead


class Reigning:
    """A cluster that a test makes, and the leader under test."""

    def __init__(self, settings: CentreSettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self.clock = AheadClock()
        self.leads = True
        chance = random.Random(7)
        # By object: what the leader asked of it other than to read it.
        self.writes: dict[str, list[str]] = {}
        # What it read by itself; lists, and watches that it keeps open, are read at its start.
        self.reads = Counter[str]()
        self._frontend = Frontend(fresh=seeded_fresh(chance), now=self._clock.wall(), guard=self._count)
        for name in (NAMES.namespace, NAMESPACE):
            self.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self._client = KubeClient(transport=DirectTransport(frontend=self._frontend, clock=self._clock))
        self.reign = self.new_reign()

    def new_reign(self, *, led_until: float | None = None) -> Reign:
        """Of whoever begins to lead now, after another that beat last at an instant, or nobody."""
        return Reign(
            transport=DirectTransport(frontend=self._frontend, clock=self._clock, user=CENTRE),
            clock=self.clock,
            random=lambda: 0.5,
            names=NAMES,
            settings=self._settings,
            queues=QueueSettings(),
            leads=lambda: self.leads,
            settled=lambda: None,
            led_until=led_until,
            renew=ElectionSettings().renew,
        )

    def create(self, path: str, manifest: Json) -> Json:
        """Create an object as a user or an agent would."""
        request = Request(
            method="POST",
            path=tuple(path.strip("/").split("/")),
            query={},
            content_type="application/json",
            body=msgspec.json.encode(manifest),
        )
        answer: Any = self._frontend.handle(request, now=self._clock.wall())
        assert answer.code == 201, answer.body
        return dict(msgspec.json.decode(answer.body))

    def join(self, name: str, *, cards: int = 8) -> None:
        """Let a node join, with its agent."""
        self.create("/api/v1/nodes", node_manifest(name, cards=cards))
        self.create(LEASES, lease_manifest(name))

    async def place(self, name: str) -> str:
        """Be kube-scheduler to a pod that has no gate: where it is bound now."""
        pod = await self._client.get(PODS, namespace=NAMESPACE, name=name)
        room = self.reign.binder.filter(pod, list(self.reign.picture.nodes)).nodes
        grades = dict(zip(room, self.reign.binder.prioritize(pod, room), strict=True))
        # Others ask meanwhile.
        await asyncio.sleep(0)
        node = max(grades, key=grades.__getitem__)
        why = await self.reign.binder.bind(namespace=NAMESPACE, name=name, uid=pod.metadata.uid, node=node)
        assert not why, why
        return node

    async def label_namespace(self, name: str, labels: Mapping[str, str | None]) -> None:
        """As an operator does; None takes a label off."""
        patch = merge_patch({"metadata": {"labels": dict(labels)}})
        await self._client.patch(NAMESPACES, name=name, patch=patch)

    async def nominate(self, name: str, *, node: str) -> None:
        """As kube-scheduler does that would evict others there."""
        await self._tell_status(name, {"nominatedNodeName": node})

    async def evict_by_priority(self, name: str, *, at: float) -> None:
        """As kube-scheduler tells its victim, at an instant, before it deletes it."""
        said = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        await self._tell_status(name, {"conditions": [{**said, "lastTransitionTime": second_time(at)}]})

    async def _tell_status(self, name: str, status: Json) -> None:
        patch = merge_patch({"status": status})
        await self._client.patch(PODS, namespace=NAMESPACE, name=name, patch=patch, subresource="status")

    async def nominated(self, name: str) -> str:
        """The node for which kube-scheduler keeps a pod's room."""
        return (await self._client.get(PODS, namespace=NAMESPACE, name=name)).status.nominated_node_name

    async def slices_per_gpu(self) -> Counter[int]:
        """How many GPUs bear how many slices, as the grants say."""
        pods = await self._client.list(PODS)
        held = Counter(gpu for pod in pods for gpu in self.reign.picture.grants.held(pod) or ())
        return Counter(held.values())

    def _count(self, call: Call) -> None:
        if call.user != CENTRE:
            return
        target = call.target
        what = "/".join(part for part in (target.resource.plural, target.subresource) if part)
        if call.method == "GET":
            self.reads[what] += 1
        else:
            self.writes.setdefault(target.key, []).append(f"{call.method} {what}")


@asynccontextmanager
async def reigning(**settings: float) -> AsyncIterator[Reigning]:
    """Reign as long as the block lasts, by the centre's settings."""
    made = Reigning(msgspec.structs.replace(CentreSettings(), **settings))
    async with runs(made.reign):
        yield made


@asynccontextmanager
async def runs(reign: Reign) -> AsyncIterator[None]:
    """Let a leader reign as long as the block lasts."""
    running = asyncio.ensure_future(reign.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(look: Callable[[], bool]) -> None:
    """Let everybody go on until something is so; the test's own time limit ends a wait in vain."""
    while not look():  # noqa: ASYNC110 - it is the leader's own work that is waited for, which has no event for tests
        await asyncio.sleep(0)
