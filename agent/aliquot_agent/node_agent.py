"""The agent of one node, put together from its parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from aliquot_agent.door import AgentDoor
from aliquot_agent.gpus.driver import GpuDriver
from aliquot_agent.health.gpu_watch import GpuWatch
from aliquot_agent.health.health_memory import HealthMemory
from aliquot_agent.health.marks import read_marks
from aliquot_agent.health.sick_notes import SickNotes
from aliquot_agent.health.xids import Policy
from aliquot_agent.pods.node_mirrors import NodeMirrors
from aliquot_agent.pods.residents import Residents
from aliquot_agent.pods.spec_collecting import Collectable, collect_specs
from aliquot_agent.publishing.leaving import leave
from aliquot_agent.publishing.node_publisher import NodePublisher
from aliquot_agent.publishing.others import given_by_others
from aliquot_agent.publishing.signs_of_life import SignsOfLife
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
from aliquot_core.names import Names
from aliquot_core.objects import Node
from aliquot_kube.client import KubeClient
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from aliquot_kube.reflector import Freshness
from aliquot_kube.transport import Transport

log = logging.getLogger(__name__)

# NVML may take 30 s to open and 5 s a call: a loop that did not turn for three minutes more than it means to, hangs.
ALLOWED_SILENCE = 180.0


class SliceSpecs(SpecWriter, Collectable, Protocol):
    """Where CDI specs go, and where they are collected from."""


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
        transport of its own.
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
        self._api = NodeMirrors(
            node=node, transport=transport, clock=clock, random=random, changed=self.changed, tell=self._node_changed
        )
        self.pods = self._api.pods
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
        self._signs = SignsOfLife(
            node=node,
            names=names,
            clock=clock,
            random=random,
            holder=identity,
            interval=settings.heartbeat,
            client=client,
            beat_transport=beat_transport,
            kubelet=lambda: self.door.kubelet,
            changed=self.door.changed,
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
        return self._api.node

    @property
    def name(self) -> str:
        """Our node's name."""
        return self._settings.node_name

    @property
    def mirrors(self) -> dict[str, Freshness]:
        """How old what we know from the API server is."""
        return self._api.freshness

    @property
    def heartbeat_age(self) -> float | None:
        """Seconds since the API server last took our sign of life."""
        return self._signs.age

    async def run(self, *beside: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do everything at once, and what is to run beside it, until cancelled; the first error of ours ends all."""
        work = (
            self.gpus.run(),
            self.usage.run(),
            self._sick_notes.run(),
            self._offer.run(),
            self.door.run(),
            *self._api.work(),
            self._publisher.run(),
            collect_specs(
                self._specs,
                clock=self._clock,
                every=self._settings.collect,
                complete=lambda: self.pods.complete,
                holders=self.starter.holders,
            ),
            *self._signs.work(),
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
        """Say that we leave, and wait for pods on their way."""
        await leave(
            patience=self._settings.drain,
            clock=self._clock,
            names=self._names,
            announce=self._signs.leave,
            known=self.starter.known_by_record,
            changed=self.changed,
        )

    def _node_changed(self) -> None:
        if self.node is not None:
            self.gpus.mark(read_marks(self.node, names=self._names))
        self.gpus.refresh()
        self.changed.notify()

    def _obstacle(self) -> str:
        return given_by_others(self.node) or self._missing_files()
