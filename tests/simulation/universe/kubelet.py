"""The kubelet of a node: the small kubelet's pure parts (device table, record, life cycle), and the rest simulated.

It sees pods later than the API server has them and not when the agent sees them; admits one at a time; asks PreStart
before each start and again after a refusal; forgets a pod deleted by force while its processes may live on; and may be
stopped at any time: then its record and the processes are what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from aliquot_agent.starting.kubelet_view import KubeletViewError, Listed, Recorded
from aliquot_core import door
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_deviceplugin.checkpoint import decode_checkpoint
from aliquot_kube.resources import NODES
from aliquot_standalone.apiserver.store import Change
from aliquot_standalone.kubelet import checkpoint, lifecycle
from aliquot_standalone.kubelet.choosing import Allocate, Answer, Device, Options, Prefer
from aliquot_standalone.kubelet.devices import DeviceTable
from aliquot_standalone.kubelet.errors import AdmissionError, PluginError
from aliquot_standalone.kubelet.holdings import Holding, HoldingKey
from aliquot_standalone.kubelet.lifecycle import Life as ContainerLife
from aliquot_standalone.kubelet.nodestatus import needs_of
from aliquot_standalone.kubelet.podresources import listed_containers
from simulation.universe.api import ApiServer
from simulation.universe.chance import Chance
from simulation.universe.endpoint import SimEndpoint
from simulation.universe.life import Life
from simulation.universe.loop import LoopClock, VirtualLoop
from simulation.universe.pod_worker import PodWorker
from simulation.universe.reporter import Reporter
from simulation.universe.runtime import Plan, SimRuntime

# Measured: kubelet.sock appears 0.3 to 0.5 s after exec, the first pods are admitted 0.84 to 0.94 s later.
SOCKET_AFTER = 0.4
SETTLE = 0.9


class SimKubelet:
    """One node's kubelet over all its lives."""

    def __init__(
        self,
        *,
        node: str,
        names: Names,
        loop: VirtualLoop,
        clock: LoopClock,
        api: ApiServer,
        endpoint: SimEndpoint,
        runtime: SimRuntime,
        chance: Chance,
        plan_of: Callable[[str, str], Plan],
        trace: Callable[[str], None],
        status_every: float = 10.0,
    ) -> None:
        self.node = node
        self.clock = clock
        self.endpoint = endpoint
        self.runtime = runtime
        self.chance = chance
        self.plan_of = plan_of
        self.trace = trace
        self.reporter = Reporter(api=api, loop=loop, clock=clock)
        # The record on disk; None while there is none.
        self.record: bytes | None = None
        self._saved: tuple[tuple[HoldingKey, Holding], ...] = ()
        self._saved_resources: tuple[str, ...] = ()
        self.lives: dict[str, tuple[Pod, dict[str, ContainerLife]]] = {}
        self.failed_at_admission: dict[str, str] = {}
        # Of them those in whose way was what pods hold by the record that nobody knows any more, right after a start.
        self.crowded_out: set[str] = set()
        self._unknown: set[str] = set()
        self.lag = 0.01
        self._names = names
        self._loop = loop
        self._api = api
        self._status_every = status_every
        self._tasks: list[asyncio.Task[None]] = []
        self._arrived: asyncio.Queue[tuple[float, Pod, bool]] = asyncio.Queue()
        self._workers: dict[str, PodWorker] = {}
        self._pods: dict[str, Pod] = {}
        self._synced = False
        self._fresh_table()
        api.subscribe(self._stored)
        runtime.on_end = self._process_ended
        endpoint.on_devices = self._listed

    # --- lives -------------------------------------------------------------------------------------------------------
    @property
    def up(self) -> bool:
        """Whether the process runs."""
        return bool(self._tasks)

    def start(self) -> None:
        """Run, with what the disk has; nothing new where it runs."""
        if self.up:
            return
        self._fresh_table()
        for key, holding in self._saved:
            self.table.holdings.record(key, holding)
        self.table.remembered(self._saved_resources, now=self.clock.monotonic())
        self._arrived = asyncio.Queue()
        self._synced = False
        self._tasks = [self._loop.spawn(self._follow(), name="kubelet"), self._loop.spawn(self._tell_node())]

    def stop(self) -> None:
        """Die; processes live on."""
        self._connected = False
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for worker in self._workers.values():
            worker.stop()
        self._workers.clear()
        self._pods.clear()
        self.endpoint.listened(())

    def register(self) -> None:
        """Let the endpoint register, as it does within milliseconds of our socket or of its own start."""
        if not self._connected or not self.endpoint.up or not self.endpoint.tables:
            return
        for resource, devices in self.endpoint.tables.items():
            self.table.connected(resource, Options(pre_start=True, preferred=True))
            self._listed(resource, devices)
        self.endpoint.listened(tuple(self.endpoint.tables))

    def plugin_gone(self) -> None:
        """The endpoint's streams have ended."""
        for resource in self.endpoint.tables:
            self.table.gone(resource, now=self.clock.monotonic())

    def _fresh_table(self) -> None:
        self.table = DeviceTable(order=sorted)
        self._connected = False

    def _listed(self, resource: str, devices: list[door.Device]) -> None:
        if not self.up:
            return
        if resource not in self.endpoint._listening:
            if not self._connected:
                return
            self.table.connected(resource, Options(pre_start=True, preferred=True))
            self.endpoint.listened((*self.endpoint._listening, resource))
        self.table.listed(resource, [Device(id=one.id, healthy=one.healthy) for one in devices])
        self._save()

    def _save(self) -> None:
        """Write the record as kubelets do, without the checksum, which takes most of the time and nobody here reads."""
        self._saved, self._saved_resources = tuple(self.table.holdings), tuple(self.table.registered())
        entries = [checkpoint._entry(key, held) for key, held in self._saved]
        self.record = msgspec.json.encode({"Data": {"PodDeviceEntries": entries}})

    # --- pods --------------------------------------------------------------------------------------------------------
    def _stored(self, table: str, change: Change) -> None:
        """Something was written: we hear of it a little later, in order."""
        if table != "pods" or not self.up or not self._synced:
            return
        pod = msgspec.json.decode(change.revision.raw, type=Pod)
        if pod.spec.node_name == self.node:
            due = self.clock.monotonic() + self.chance.about(self.lag)
            self._arrived.put_nowait((due, pod, change.type == "DELETED"))

    async def _follow(self) -> None:
        await asyncio.sleep(SOCKET_AFTER)
        self._connected = True
        self.register()
        await asyncio.sleep(SETTLE)
        # In this order, and without a pause between: what is written from now on comes through the queue.
        first = self._api.pods(self.node)
        self._synced = True
        self._unknown = {key.pod for key, _ in self.table.holdings} - {pod.metadata.uid for pod in first}
        for pod in sorted(first, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.key)):
            await self._take(pod, first=True)
        for uid in [uid for uid in self.lives if uid not in self._workers]:
            self._end_orphan(uid)
        while True:
            due, pod, gone = await self._arrived.get()
            await asyncio.sleep(max(0.0, due - self.clock.monotonic()))
            if gone:
                self._lose(pod)
            else:
                await self._take(pod)

    async def _take(self, pod: Pod, *, first: bool = False) -> None:
        uid = pod.metadata.uid
        worker = self._workers.get(uid)
        self._pods[uid] = pod
        if worker is not None:
            worker.update(pod)
        elif pod.ended or (pod.metadata.deletion_timestamp and uid not in self.lives):
            if pod.metadata.deletion_timestamp:
                self.reporter.report(pod, phase="", remove=True)
        else:
            await self._admit(pod, first=first)

    async def _admit(self, pod: Pod, *, first: bool) -> None:
        uid = pod.metadata.uid
        lives = dict(self.lives[uid][1]) if uid in self.lives else {}
        running = [name for name, life in lives.items() if isinstance(life.state, lifecycle.Running)]
        if not first:
            self.table.free_all_but(self.active())
        try:
            await self._give_devices(pod, running=running if first else [])
            refused = ""
        except (AdmissionError, PluginError) as error:
            refused = str(error)
            self.failed_at_admission[uid] = refused
            # Only once all were taken does a kubelet free what pods hold that were deleted while it was down.
            if first and self._is_kept_by_unknown(pod):
                self.crowded_out.add(uid)
            self.trace(f"{pod.key} refused at admission: {refused}")
        self._save()
        worker = PodWorker(pod=pod, house=self, lives=lives, refused=bool(refused))
        self._workers[uid] = worker
        worker.start(self._loop)

    def _is_kept_by_unknown(self, pod: Pod) -> bool:
        """Whether anything that it asks is held by the record for pods that nobody knows."""
        held = {key.resource for key, _ in self.table.holdings if key.pod in self._unknown}
        return any(held & need.resources.keys() for need in needs_of(pod))

    async def _give_devices(self, pod: Pod, *, running: list[str]) -> None:
        steps = self.table.admit(pod=pod.metadata.uid, needs=needs_of(pod), running=running)
        try:
            question = next(steps)
            while True:
                question = steps.send(await self._ask(question))
        except StopIteration:
            return
        finally:
            steps.close()

    async def _ask(self, question: Prefer | Allocate) -> Answer:
        if isinstance(question, Allocate):
            await asyncio.sleep(self.chance.about(0.002))
            return Answer(response=self.endpoint.allocate(question.resource, question.ids))
        asked = door.Prefer(
            call=0,
            resource=question.resource,
            available=question.available,
            must_include=question.must_include,
            size=question.size,
        )
        return Answer(ids=tuple(await self.endpoint.prefer(asked)))

    def _lose(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._pods.pop(uid, None)
        worker = self._workers.get(uid)
        if worker is not None and not worker.over:
            worker.go(grace=_grace(pod))
        else:
            self.forget(uid)

    def _end_orphan(self, uid: str) -> None:
        pod, lives = self.lives[uid]
        worker = PodWorker(pod=pod, house=self, lives=dict(lives), refused=False)
        self._workers[uid] = worker
        worker.go(grace=_grace(pod))
        worker.start(self._loop)

    def is_gone(self, uid: str) -> bool:
        """Whether the API server has the pod no more, as far as we know."""
        return uid not in self._pods

    def forget(self, uid: str) -> None:
        """A pod is over and gone."""
        self._workers.pop(uid, None)
        self.lives.pop(uid, None)
        self.failed_at_admission.pop(uid, None)
        self.runtime.forget(uid)

    def active(self) -> list[str]:
        """Pods that hold what they hold: known to the API server and not over."""
        return [uid for uid, pod in self._pods.items() if not self._is_over(uid, pod)]

    def _is_over(self, uid: str, pod: Pod) -> bool:
        worker = self._workers.get(uid)
        return worker.over if worker else pod.ended

    def _process_ended(self, process: str, _: int) -> None:
        uid = process.partition("/")[0]
        if worker := self._workers.get(uid):
            worker.wake()

    # --- the node ----------------------------------------------------------------------------------------------------
    async def _tell_node(self) -> None:
        while True:
            await asyncio.sleep(self._status_every)
            await self.tell_node_once()

    async def tell_node_once(self) -> None:
        """Make the node's object where there is none, and have it say what plugins offer."""
        node = self._api.node(self.node)
        if node is None:
            await self._api.create(NODES, {"metadata": {"name": self.node}})
            return
        totals = self.table.totals(now=self.clock.monotonic())
        capacity = {name: str(count) for name, count in totals.capacity.items()}
        capacity |= dict.fromkeys(totals.removed, "0")
        memory = node.status.capacity.get(self._names.memory, "0")
        allocatable = {name: str(count) for name, count in totals.allocatable.items()}
        await self.reporter.node_status(node, capacity=capacity, allocatable=allocatable | {self._names.memory: memory})

    # --- what the agent asks -----------------------------------------------------------------------------------------
    def listed(self) -> tuple[Listed, ...]:
        """PodResources: active pods, sidecars and app containers, their ids."""
        return tuple(
            Listed(
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                container=container.name,
                ids={name: held.ids for name, held in self.table.holdings.of(uid, container.name).items()},
            )
            for uid in self.active()
            for pod in [self._pods[uid]]
            for container in listed_containers(pod)
        )


def _grace(pod: Pod) -> float:
    seconds = pod.spec.termination_grace_period_seconds
    return 30.0 if seconds is None else float(seconds)


class ViewOf:
    """The kubelet as one agent asks it."""

    def __init__(self, kubelet: SimKubelet, life: Life, eyes: Eyes) -> None:
        self._kubelet = kubelet
        self._life = life
        self._eyes = eyes
        self._read: tuple[bytes, tuple[Recorded, ...]] = (b"", ())

    async def recorded(self) -> tuple[Recorded, ...]:
        """The record as it is on disk."""
        self._life.act("read the record")
        raw = self._kubelet.record
        if raw is None or self._eyes.blind_to_record:
            raise KubeletViewError("there is no record that could be read")
        if raw is not self._read[0]:
            self._read = (raw, decode_checkpoint(raw))
        return self._read[1]

    async def listed(self) -> tuple[Listed, ...]:
        """What PodResources says."""
        self._life.act("ask PodResources")
        await asyncio.sleep(self._eyes.slowness)
        if not self._kubelet.up or self._eyes.exhausted:
            raise KubeletViewError("PodResources does not answer")
        return self._kubelet.listed()


class Eyes:
    """What is the matter with the agent's view of the kubelet."""

    def __init__(self) -> None:
        self.blind_to_record = False
        self.exhausted = False
        self.slowness = 0.003
