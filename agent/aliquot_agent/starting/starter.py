"""Answers the kubelet's questions: may this container start, and which ids should it take. The shell round `starts`.

A question whose answer is `Wait` is held here, and asked again whenever something changed, until the kubelet's patience
nears its end: waiting starts the container within milliseconds of what was missing, a refusal only after 12 s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from aliquot_agent.isolation.gpu_modes import Seat
from aliquot_agent.pods.bound_pods import BoundPods
from aliquot_agent.pods.residents import Residents
from aliquot_agent.pods.slice_holders import SliceHolders
from aliquot_agent.pods.standing import Standing
from aliquot_agent.signal import Signal
from aliquot_agent.starting.decision import Decision, Known, Refuse, Spec, Start, Wait
from aliquot_agent.starting.device_ids import choose
from aliquot_agent.starting.kubelet_view import KubeletView, KubeletViewError, Listed, Recorded
from aliquot_agent.starting.preferences import Candidate, agreed, candidates, narrowed
from aliquot_agent.starting.starts import decide
from aliquot_core.claims import Claim
from aliquot_core.clock import Clock
from aliquot_core.door import Prefer, PreStart
from aliquot_core.errors import AliquotError
from aliquot_core.impostors import sets_our_variables
from aliquot_core.inventory import Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod

log = logging.getLogger(__name__)

# The kubelet gives a PreStart up after 30 s, the endpoint after 28: the reason must be on its way before.
PATIENCE = 25.0
# The kubelet's record is a file: nobody tells us when it changes.
LOOK_AGAIN = 0.25
# The kubelet and we are told of a pod by watches of our own: it may ask for one that we are about to hear of.
HEARD_OF_WITHIN = 0.35


class SpecWriter(Protocol):
    """Where CDI specs go."""

    def write(self, *, pod: Pod, spec: Spec, claims: Mapping[str, Claim], inventory: Inventory) -> None:
        """Put the spec where the runtime will find it; raises an `AliquotError` if that can't be done."""
        ...

    def standing(self) -> dict[str, Standing]:
        """What pods held when their containers last started, by UID; what an agent before us wrote."""
        ...


class Starter:
    """One node's answers to the kubelet."""

    def __init__(
        self,
        *,
        node: str,
        names: Names,
        clock: Clock,
        view: KubeletView,
        residents: Residents,
        specs: SpecWriter,
        pods: BoundPods,
        inventory: Callable[[], Inventory],
        changed: Signal,
        told: Callable[[Start], None] = lambda _: None,
        seats: Callable[[], Mapping[str, Seat]] = dict,
    ) -> None:
        """`told` hears of each container that may start; `seats` says how GPUs stand that are shared by MPS."""
        self._told = told
        self._seats = seats
        self._node = node
        self._names = names
        self._clock = clock
        self._view = view
        self._specs = specs
        self._pods = pods
        self._inventory = inventory
        self._changed = changed
        self._slices = SliceHolders(clock=clock, residents=residents, memory=specs, pods=pods)

    async def may_start(self, call: PreStart) -> str | None:
        """Answer None once the container's slice is ready, or why it may not start."""
        deadline = self._clock.monotonic() + PATIENCE
        while True:
            decision = decide(call, known=await self._known(call))
            if not isinstance(decision, Wait):
                return self._carry_out(decision, call=call)
            left = deadline - self._clock.monotonic()
            if left <= 0:
                log.warning("a container waits for its slice", extra={"reason": decision.reason, "ids": len(call.ids)})
                return decision.reason
            await self._changed.wait(clock=self._clock, at_most=min(left, LOOK_AGAIN))

    async def prefer(self, call: Prefer) -> list[str]:
        """Ids that name the granted GPUs, or none if it can't be told for whom the kubelet asks."""
        found = await self._candidates(call)
        wanted = agreed(found)
        if wanted is None and found:
            wanted = agreed(narrowed(found, listed=await self._listed()))
        if wanted is None:
            return []
        return choose(
            available=call.available,
            must_include=call.must_include,
            size=call.size,
            wanted=wanted,
            inventory=self._inventory(),
        )

    async def _candidates(self, call: Prefer) -> tuple[Candidate, ...]:
        """Who may be meant; where nobody is, the next pod that we hear of may be it."""
        deadline = self._clock.monotonic() + HEARD_OF_WITHIN
        while True:
            recorded, _ = await self._recorded()
            found = candidates(call, pods=self._pods.by_uid.values(), recorded=recorded or (), names=self._names)
            left = deadline - self._clock.monotonic()
            if found or not await self._changed.wait(clock=self._clock, at_most=left):
                return found

    def holders(self) -> set[str]:
        """Pods whose slices may be in force, by UID: those bound here, and those of whom only processes are left."""
        return self._pods.by_uid.keys() | self._slices.current().keys()

    def standing(self) -> Mapping[str, Standing] | None:
        """What was let start and may live, by UID; None while what agents before us gave can't be read."""
        current = self._slices.current()
        return current if self._slices.remembered else None

    async def known(self) -> Known:
        """All that is known now, for reconciling and reporting."""
        known = await self.known_by_record()
        if known.recorded is not None:
            return known
        return self._knowledge(None, problem=known.record_problem, listed=await self._listed())

    async def known_by_record(self) -> Known:
        """The same for whoever can do without PodResources, which may keep us waiting for seconds."""
        recorded, problem = await self._recorded()
        return self._knowledge(recorded, problem=problem, listed=())

    async def _known(self, call: PreStart) -> Known:
        recorded, problem = await self._recorded()
        ids = frozenset(call.ids)
        found = recorded is not None and any(entry.ids == ids for entry in recorded)
        return self._knowledge(recorded, problem=problem, listed=() if found else await self._listed())

    def _knowledge(self, recorded: tuple[Recorded, ...] | None, *, problem: str, listed: tuple[Listed, ...]) -> Known:
        return Known(
            node=self._node,
            names=self._names,
            inventory=self._inventory(),
            pods=self._pods.by_uid,
            recorded=recorded,
            listed=listed,
            standing=self._slices.current(),
            coming=self._slices.coming,
            record_problem=problem,
            complete=self._pods.complete,
            remembered=self._slices.remembered,
            seats=self._seats(),
        )

    def _carry_out(self, decision: Decision, *, call: PreStart) -> str | None:
        if isinstance(decision, Start):
            try:
                for spec in decision.specs:
                    self._specs.write(pod=decision.pod, spec=spec, claims=decision.claims, inventory=self._inventory())
            except AliquotError as error:
                decision = Refuse(reason=str(error), pod=decision.pod)
        if isinstance(decision, Start):
            uid = decision.pod.metadata.uid
            if uid not in self._slices.current() and (vain := sets_our_variables(decision.pod, names=self._names)):
                log.warning("the slice's own variables win", extra={"pod": decision.pod.key, "set_in_vain": vain})
            self._slices.permit(uid, Standing(pod=decision.pod.key, claims=decision.claims))
            names = ", ".join(spec.container for spec in decision.specs)
            log.info("slice ready", extra={"pod": decision.pod.key, "uid": uid, "containers": names})
            self._told(decision)
            return None
        pod = decision.pod.key if isinstance(decision, Refuse) and decision.pod else "unknown"
        log.warning("container refused", extra={"pod": pod, "reason": decision.reason, "resource": call.resource})
        return decision.reason

    async def _recorded(self) -> tuple[tuple[Recorded, ...] | None, str]:
        try:
            return await self._view.recorded(), ""
        except KubeletViewError as error:
            return None, str(error)

    async def _listed(self) -> tuple[Listed, ...]:
        try:
            return await self._view.listed()
        except KubeletViewError as error:
            log.warning("PodResources does not answer", extra={"error": str(error)})
            return ()
