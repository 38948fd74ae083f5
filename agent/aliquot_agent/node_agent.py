"""The agent of one node, put together from its parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from aliquot_agent.door import AgentDoor
from aliquot_agent.health.context_notes import ContextNotes
from aliquot_agent.health.gpu_watch import GpuWatch
from aliquot_agent.health.marks import read_marks
from aliquot_agent.health.sick_notes import SickNotes
from aliquot_agent.health.xids import Policy
from aliquot_agent.isolation.ladder import Rung, Rungs
from aliquot_agent.isolation.live_limits import LiveLimits
from aliquot_agent.isolation.mode_watch import seats, watch_modes
from aliquot_agent.isolation.node_processes import NodeProcesses
from aliquot_agent.isolation.over_use import OverUse
from aliquot_agent.isolation.trespassers import Trespassers
from aliquot_agent.machine import Machine
from aliquot_agent.pods.node_mirrors import NodeMirrors
from aliquot_agent.pods.spec_collecting import collect_specs
from aliquot_agent.publishing.leaving import leave
from aliquot_agent.publishing.node_publisher import NodePublisher
from aliquot_agent.publishing.others import given_by_others, has_from_others
from aliquot_agent.publishing.signs_of_life import SignsOfLife
from aliquot_agent.settings import AgentSettings
from aliquot_agent.signal import Signal
from aliquot_agent.starting.complaints import Complaints
from aliquot_agent.starting.decision import Start
from aliquot_agent.starting.offer import Offer
from aliquot_agent.starting.slice_notes import REASON, ready_note
from aliquot_agent.starting.starter import Starter
from aliquot_agent.web.call_times import CallTimes
from aliquot_agent.web.pulse import Pulse
from aliquot_agent.web.usage_watch import UsageWatch
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError
from aliquot_core.held_on_sick import Held
from aliquot_core.inventory import Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Node
from aliquot_kube.client import KubeClient
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from aliquot_kube.questions import Transport
from aliquot_kube.reflector import Freshness

log = logging.getLogger(__name__)

# NVML may take 30 s to open and 5 s a call: a loop that did not turn for three minutes more than it means to, hangs.
ALLOWED_SILENCE = 180.0


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
        machine: Machine,
        transport: Transport,
        beat_transport: Transport,
        policy: Policy,
    ) -> None:
        """Put the parts together; the heart-beat has a transport of its own."""
        self._settings, self._names, self._clock, self._random = settings, names, clock, random
        self._machine = machine
        self._client = KubeClient(transport=transport)
        self.changed = Signal()
        self.pulse = Pulse(clock=clock, allowed={"gpus": ALLOWED_SILENCE, "usage": ALLOWED_SILENCE + settings.sample})
        self._api = NodeMirrors(
            node=self.name,
            transport=transport,
            clock=clock,
            random=random,
            changed=self.changed,
            tell=self._node_changed,
        )
        self.pods = self._api.pods
        self.gpus = self._gpu_watch(policy)
        self.usage = self._usage_watch()
        self.events = self._recorder()
        self.starter = self._starter()
        self.calls = CallTimes(self.starter, clock=clock)
        self.door = AgentDoor(path=settings.door, agent=identity, handler=self.calls, clock=clock, random=random)
        self._signs = self._signs_of_life(beat_transport, holder=identity)
        self._offer = self._offering()
        self._publisher = self._publishing()
        self._complaints = Complaints(
            names=names, clock=clock, client=self._client, events=self.events, pods=self.pods.by_uid.values
        )
        self.over_use = self._over_used()
        self.trespassers = self._trespassing()
        self.live_limits = self._changing_limits()
        self._context_notes, self._sick_notes = self._noting()

    # --- parts that take much to put together -------------------------------------------------------------------------
    def _recorder(self) -> EventRecorder:
        return EventRecorder(
            client=self._client,
            clock=self._clock,
            random=self._random,
            controller=self._names.of("agent"),
            instance=self.name,
            ledger=EventLedger(),
        )

    def _gpu_watch(self, policy: Policy) -> GpuWatch:
        return GpuWatch(
            driver=self._machine.driver,
            clock=self._clock,
            changed=self.changed,
            obstacle=self._obstacle,
            policy=policy,
            memory=self._machine.memory,
            beat=self.pulse.beat("gpus"),
            offer=self._machine.offer,
            context=self._settings.contexts(),
        )

    def _usage_watch(self) -> UsageWatch:
        return UsageWatch(
            driver=self._machine.driver,
            clock=self._clock,
            every=self._settings.sample,
            tell=self.gpus.sample,
            beat=self.pulse.beat("usage"),
        )

    def _starter(self) -> Starter:
        return Starter(
            node=self.name,
            names=self._names,
            clock=self._clock,
            view=self._machine.view,
            residents=self._machine.residents,
            specs=self._machine.specs,
            pods=self.pods,
            inventory=self._inventory,
            changed=self.changed,
            told=self._slice_ready,
            seats=lambda: seats(self._machine.mps, self._inventory()),
        )

    def _signs_of_life(self, transport: Transport, *, holder: str) -> SignsOfLife:
        return SignsOfLife(
            node=self.name,
            names=self._names,
            clock=self._clock,
            random=self._random,
            holder=holder,
            interval=self._settings.heartbeat,
            client=self._client,
            beat_transport=transport,
            kubelet=lambda: self.door.kubelet,
            changed=self.door.changed,
        )

    def _offering(self) -> Offer:
        return Offer(
            names=self._names,
            clock=self._clock,
            door=self.door,
            starter=self.starter,
            inventory=self._inventory,
            held=self._held,
            best_effort_slots=self._settings.best_effort_slots,
            changed=self.changed,
        )

    def _publishing(self) -> NodePublisher:
        return NodePublisher(
            node=self.name,
            names=self._names,
            client=self._client,
            clock=self._clock,
            random=self._random,
            seen=lambda: self.node,
            inventory=self._inventory,
            held=self._held,
            changed=self.changed,
        )

    def _over_used(self) -> OverUse:
        settings = self._settings
        return OverUse(
            names=self._names,
            clock=self._clock,
            client=self._client,
            events=self.events,
            pods=lambda: self.pods.by_uid,
            rungs=Rungs(
                top=Rung[settings.over_use.upper()],
                warn=settings.over_use_warn,
                throttle=settings.over_use_throttle,
                evict=settings.over_use_evict,
            ),
        )

    def _trespassing(self) -> Trespassers:
        return Trespassers(
            names=self._names,
            clock=self._clock,
            events=self.events,
            pods=lambda: self.pods.by_uid,
            processes=NodeProcesses(),
            stop=self._settings.ungranted == "stop",
            spared={self._names.namespace, *self._settings.ungranted_spared},
            has_from_others=lambda pod: has_from_others(pod, node=self.node),
        )

    # --- what is known ------------------------------------------------------------------------------------------------
    def _changing_limits(self) -> LiveLimits:
        return LiveLimits(
            names=self._names,
            events=self.events,
            pods=lambda: self.pods.by_uid,
            floor=lambda gpu: self._inventory().context(gpu),
        )

    def _noting(self) -> tuple[ContextNotes, SickNotes]:
        return (
            ContextNotes(
                node=self.name, clock=self._clock, events=self.events, inventory=self._inventory, changed=self.changed
            ),
            SickNotes(
                clock=self._clock,
                events=self.events,
                inventory=self._inventory,
                known=self.starter.known,
                changed=self.changed,
            ),
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

    # --- what is done -------------------------------------------------------------------------------------------------
    async def run(self, *beside: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do everything at once, and what is to run beside it, until cancelled; the first error of ours ends all."""
        work = (
            self.gpus.run(),
            self.usage.run(),
            self._sick_notes.run(),
            self._context_notes.run(),
            self._offer.run(),
            self.door.run(),
            *self._api.work(),
            self._publisher.run(),
            collect_specs(
                self._machine.specs,
                clock=self._clock,
                every=self._settings.collect,
                complete=lambda: self.pods.complete,
                holders=self.starter.holders,
            ),
            *self._signs.work(),
            self.events.run(),
            self._complaints.run(),
            self.over_use.run(),
            watch_modes(
                self._machine.mps,
                names=self._names,
                clock=self._clock,
                changed=self.changed,
                inventory=self._inventory,
                pods=lambda: self.pods.by_uid,
                standing=self.starter.standing,
            ),
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

    def _slice_ready(self, start: Start) -> None:
        self.events.tell(regarding=start.pod.reference, reason=REASON, action="Starting", note=ready_note(start))

    def _inventory(self) -> Inventory:
        return self.gpus.inventory

    def _held(self, inventory: Inventory) -> Mapping[str, Held] | None:
        return self.pods.on_sick(inventory, names=self._names)

    def _node_changed(self) -> None:
        if self.node is not None:
            self.gpus.mark(read_marks(self.node, names=self._names))
        self.gpus.refresh()
        self.changed.notify()

    def _obstacle(self) -> str:
        return given_by_others(self.node) or self._machine.missing_files()
