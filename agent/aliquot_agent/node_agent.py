"""The agent of one node, put together from its parts, and its housekeeping."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Protocol

from aliquot_agent.door import AgentDoor
from aliquot_agent.gpus.driver import GpuDriver
from aliquot_agent.health.gpu_watch import GpuWatch
from aliquot_agent.health.health_memory import HealthMemory
from aliquot_agent.health.marks import read_marks
from aliquot_agent.health.sick_notes import SickNotes
from aliquot_agent.health.xids import Policy
from aliquot_agent.pods.bound_pods import BoundPods
from aliquot_agent.pods.residents import Residents
from aliquot_agent.publishing.life_sign import LifeSign
from aliquot_agent.publishing.node_publisher import NodePublisher
from aliquot_agent.publishing.others import given_by_others
from aliquot_agent.publishing.pace import Pace
from aliquot_agent.settings import AgentSettings
from aliquot_agent.signal import Signal
from aliquot_agent.starting.complaints import Complaints
from aliquot_agent.starting.kubelet_view import KubeletView
from aliquot_agent.starting.offer import Offer
from aliquot_agent.starting.starter import SpecWriter, Starter
from aliquot_agent.web.call_times import CallTimes
from aliquot_agent.web.pulse import Pulse
from aliquot_agent.web.usage_watch import UsageWatch
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError
from aliquot_core.names import PACE_LEASE, Names
from aliquot_core.objects import Node
from aliquot_kube.changes import Change
from aliquot_kube.client import KubeClient
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from aliquot_kube.heartbeat import HEART_BEAT_TIMEOUTS, HeartBeat
from aliquot_kube.lease import LeaseKeeper
from aliquot_kube.mirror import Mirror
from aliquot_kube.reflector import Freshness
from aliquot_kube.resources import NODES, PODS
from aliquot_kube.transport import Transport

log = logging.getLogger(__name__)

# NVML may take 30 s to open and 5 s a call: a loop that did not turn for three minutes more than it means to, hangs.
ALLOWED_SILENCE = 180.0


class SliceSpecs(SpecWriter, Protocol):
    """Where CDI specs go, and where they are collected from."""

    def collect(self, *, living_pods: Collection[str]) -> int:
        """Remove the specs of pods that are gone; tell how many."""
        ...


class NodeAgent:
    """Everything the agent does; `run` ends only by being cancelled or by an error that a restart can't mend."""

    def __init__(
        self,
        *,
        settings: AgentSettings,
        names: Names,
        clock: Clock,
        random: Random,
        identity: str,
        driver: GpuDriver,
        transport: Transport,
        beat_transport: Transport,
        view: KubeletView,
        residents: Residents,
        specs: SliceSpecs,
        missing_files: Callable[[], str],
        policy: Policy,
        memory: HealthMemory,
    ) -> None:
        """Put the parts together.

        `missing_files` says what of the driver's files containers would lack; empty if nothing. The heart-beat has a
        transport of its own, so that it never waits behind other requests.
        """
        self._settings = settings
        self._names = names
        self._clock = clock
        self._specs = specs
        self._missing_files = missing_files
        self.changed = Signal()
        self.pulse = Pulse(clock=clock, allowed={"gpus": ALLOWED_SILENCE, "usage": ALLOWED_SILENCE + settings.sample})
        node = settings.node_name
        client = KubeClient(transport=transport)
        self.pods = BoundPods(changed=self.changed)
        self._pod_mirror = Mirror(
            transport=transport, clock=clock, random=random, resource=PODS, field_selector=f"spec.nodeName={node}"
        )
        self._pod_mirror.subscribe(self.pods.take)
        self._node_mirror = Mirror(
            transport=transport, clock=clock, random=random, resource=NODES, field_selector=f"metadata.name={node}"
        )
        self._node_mirror.subscribe(self._node_changed)
        self.gpus = GpuWatch(
            driver=driver,
            clock=clock,
            changed=self.changed,
            obstacle=self._obstacle,
            policy=policy,
            memory=memory,
            beat=self.pulse.beat("gpus"),
        )
        self.usage = UsageWatch(
            driver=driver, clock=clock, every=settings.sample, tell=self.gpus.sample, beat=self.pulse.beat("usage")
        )
        self.starter = Starter(
            node=node,
            names=names,
            clock=clock,
            view=view,
            residents=residents,
            specs=specs,
            pods=self.pods,
            inventory=lambda: self.gpus.inventory,
            changed=self.changed,
        )
        self.calls = CallTimes(self.starter, clock=clock)
        self.door = AgentDoor(path=settings.door, agent=identity, handler=self.calls, clock=clock, random=random)
        self._beat = HeartBeat(
            keeper=LeaseKeeper(
                client=KubeClient(transport=beat_transport, timeouts=HEART_BEAT_TIMEOUTS),
                namespace=names.namespace,
                name=names.lease(node),
            ),
            clock=clock,
            random=random,
            holder=identity,
            interval=settings.heartbeat,
        )
        self._pace = Pace(
            beat=self._beat,
            keeper=LeaseKeeper(client=client, namespace=names.namespace, name=PACE_LEASE),
            names=names,
            clock=clock,
            random=random,
        )
        self.life_sign = LifeSign(
            beat=self._beat, names=names, clock=clock, kubelet=lambda: self.door.kubelet, changed=self.door.changed
        )
        self._offer = Offer(
            names=names,
            clock=clock,
            door=self.door,
            starter=self.starter,
            inventory=lambda: self.gpus.inventory,
            best_effort_slots=settings.best_effort_slots,
            changed=self.changed,
        )
        self.events = EventRecorder(
            client=client,
            clock=clock,
            random=random,
            controller=names.of("agent"),
            instance=node,
            ledger=EventLedger(),
        )
        self._complaints = Complaints(
            names=names, clock=clock, client=client, events=self.events, pods=self.pods.by_uid.values
        )
        self._sick_notes = SickNotes(
            clock=clock,
            events=self.events,
            inventory=lambda: self.gpus.inventory,
            known=self.starter.known,
            changed=self.changed,
        )
        self._publisher = NodePublisher(
            node=node,
            names=names,
            client=client,
            clock=clock,
            random=random,
            seen=lambda: self.node,
            inventory=lambda: self.gpus.inventory,
            changed=self.changed,
        )

    @property
    def node(self) -> Node | None:
        """Our node as the API server has it."""
        return self._node_mirror.objects.get(self._settings.node_name)

    @property
    def name(self) -> str:
        """Our node's name."""
        return self._settings.node_name

    @property
    def mirrors(self) -> dict[str, Freshness]:
        """How old what we know from the API server is."""
        return {"pods": self._pod_mirror.freshness(), "nodes": self._node_mirror.freshness()}

    @property
    def heartbeat_age(self) -> float | None:
        """Seconds since the API server last took our sign of life."""
        return self._beat.age

    async def run(self, *beside: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do everything at once, and what is to run beside it, until cancelled; the first error of ours ends all."""
        work = (
            self.gpus.run(),
            self.usage.run(),
            self._sick_notes.run(),
            self._offer.run(),
            self.door.run(),
            self._pod_mirror.run(),
            self._node_mirror.run(),
            self._publisher.run(),
            self._collect(),
            self._beat.run(),
            self._pace.run(),
            self.life_sign.run(),
            self.events.run(),
            self._complaints.run(),
            *(run() for run in beside),
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in work:
                    tasks.create_task(part)
        except* AliquotError as group:
            raise group.exceptions[0] from None

    async def drain(self) -> None:
        """Say that we leave, and give pods that were bound before that was known the time to be admitted."""
        deadline = self._clock.monotonic() + self._settings.drain
        try:
            async with asyncio.timeout(self._settings.drain):
                await self.life_sign.leave()
        except TimeoutError:
            log.warning("leaving unannounced: the API server did not take our lease")
        while (waiting := await self._not_admitted()) and self._clock.monotonic() < deadline:
            log.info("pods are still to be admitted", extra={"pods": waiting})
            await self.changed.wait(clock=self._clock, at_most=0.5)

    async def _not_admitted(self) -> list[str]:
        known = await self.starter.known_by_record()
        recorded = {entry.uid for entry in known.recorded or ()}
        return [
            pod.key
            for uid, pod in known.pods.items()
            if uid not in recorded and not pod.ended and self._names.grant in pod.metadata.annotations
        ]

    def _node_changed(self, _: Change[Node]) -> None:
        if self.node is not None:
            self.gpus.mark(read_marks(self.node, names=self._names))
        self.gpus.refresh()
        self.changed.notify()

    def _obstacle(self) -> str:
        return given_by_others(self.node) or self._missing_files()

    async def _collect(self) -> None:
        """Remove specs of pods that are gone from the API server and have no process left.

        The kubelet's record is not asked: it keeps a pod that is gone until it admits another.
        """
        while True:
            await self._clock.sleep(self._settings.collect)
            if not self.pods.complete:
                continue  # half blind, nothing is thrown away
            try:
                self._specs.collect(living_pods=self.starter.holders())
            except AliquotError as error:
                log.warning("specs could not be collected", extra={"error": str(error)})
