"""What stands between a pod that is bound here and its start: the agent's own decision, without the kubelet's gRPC.

A kubelet hands out device ids and the agent finds the pod by them; here each container has one id that is its name.
All that the agent checks of a grant is checked by the same function as on a real node.
"""

from __future__ import annotations

from collections.abc import Callable

from aliquot_agent.pods.standing import Standing
from aliquot_agent.starting.decision import Known, Start
from aliquot_agent.starting.kubelet_view import Recorded
from aliquot_agent.starting.starts import decide
from aliquot_core.door import PreStart
from aliquot_core.grant import Slice
from aliquot_core.inventory import Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Container, Pod
from aliquot_core.request import kinds
from aliquot_standalone.kubelet.errors import StartError


class Gate:
    """One node's record of who holds what, and its word on who may start."""

    def __init__(self, *, node: str, names: Names, inventory: Callable[[], Inventory]) -> None:
        self._node = node
        self._names = names
        self._inventory = inventory
        self._pods: dict[str, Pod] = {}
        self._recorded: dict[str, tuple[Recorded, ...]] = {}
        self._standing: dict[str, Standing] = {}

    def admit(self, pod: Pod) -> None:
        """Take a pod down that is bound here, or as it is now."""
        uid = pod.metadata.uid
        self._pods[uid] = pod
        if uid not in self._recorded:
            self._recorded[uid] = tuple(self._entry(pod, one) for _, one in kinds(pod) if self._resource(one))

    def forget(self, uid: str) -> None:
        """Nothing of the pod runs any more."""
        for book in (self._pods, self._recorded, self._standing):
            book.pop(uid, None)

    def start(self, pod: Pod, container: str) -> tuple[Slice, ...]:
        """Give the container's slices, or raise a `StartError` with what the agent says."""
        uid = pod.metadata.uid
        entry = next((one for one in self._recorded.get(uid, ()) if one.container == container), None)
        if entry is None:
            return ()
        call = PreStart(call=0, resource=entry.resource, ids=sorted(entry.ids))
        decision = decide(call, known=self._known())
        if not isinstance(decision, Start):
            raise StartError(decision.reason, reason="RunContainerError", where=container)
        self._standing[uid] = Standing(pod=pod.key, claims=decision.claims)
        return tuple(part for spec in decision.specs for part in spec.grant.slices)

    def _known(self) -> Known:
        return Known(
            node=self._node,
            names=self._names,
            inventory=self._inventory(),
            pods=self._pods,
            recorded=tuple(entry for entries in self._recorded.values() for entry in entries),
            standing=self._standing,
        )

    def _entry(self, pod: Pod, container: Container) -> Recorded:
        uid = pod.metadata.uid
        return Recorded(
            uid=uid,
            container=container.name,
            resource=self._resource(container),
            ids=frozenset({f"{uid}/{container.name}"}),
            names=(self._names.cdi_name(f"{uid}-{container.name}"),),
        )

    def _resource(self, container: Container) -> str:
        """Give the one by which the kubelet would call the agent; empty if it would not."""
        ours = (self._names.compute, self._names.best_effort)
        return next((name for name in ours if name in container.resources.limits), "")
