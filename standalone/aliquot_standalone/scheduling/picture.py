"""All nodes, what they have, and what the pods on them ask of it. Pure.

What must always hold: a node's `used` is the sum of what the pods ask that are bound to it or assumed there and have
not ended. A pod is assumed from the choice until the watch shows it bound, or the binding is known to have failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot_core.objects import Node, Taint
from aliquot_standalone.scheduling.amounts import Amounts, asked_by, read
from aliquot_standalone.scheduling.objects import PlacedPod


class Seat(msgspec.Struct, kw_only=True):
    """One node, as pods see it."""

    name: str
    room: Amounts = {}
    used: Amounts = {}
    labels: Mapping[str, str] = {}
    taints: Sequence[Taint] = ()
    cordoned: bool = False
    ready: bool = False


class _Lying(msgspec.Struct, frozen=True, gc=False):
    node: str
    amounts: Amounts


class Picture:
    """The cluster, as the loop knows it."""

    def __init__(self) -> None:
        # A node that was not told of yet may have pods already: it is no seat, but it is counted for.
        self.seats: dict[str, Seat] = {}
        self._used: dict[str, Amounts] = {}
        self._lying: dict[str, _Lying] = {}
        self._assumed: set[str] = set()

    def node(self, place: Node) -> bool:
        """Take in a node as it is now; tell whether pods that fitted nowhere should be looked at again."""
        seat = _seat(place, used=self._used.setdefault(place.metadata.name, {}))
        changed = self.seats.get(seat.name) != seat
        self.seats[seat.name] = seat
        return changed

    def node_gone(self, name: str) -> None:
        """Take in that a node is gone; its pods are still counted for, should it come again."""
        self.seats.pop(name, None)

    def pod(self, pod: PlacedPod) -> bool:
        """Take in a pod as it is now; tell whether room became free."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if pod.ended:
            return self.pod_gone(uid)
        if not node:
            return False
        self._assumed.discard(uid)
        lies = self._lying.get(uid)
        if lies is not None and lies.node == node:
            return False
        self.pod_gone(uid)
        self._lay(uid, node, asked_by(pod))
        return lies is not None

    def pod_gone(self, uid: str) -> bool:
        """Take in that a pod asks nothing more; tell whether it did."""
        self._assumed.discard(uid)
        lies = self._lying.pop(uid, None)
        if lies is None:
            return False
        used = self._used[lies.node]
        for name, amount in lies.amounts.items():
            used[name] -= amount
        return True

    def assume(self, uid: str, *, node: str, amounts: Amounts) -> None:
        """Count a pod for a node to which it is about to be bound."""
        self._assumed.add(uid)
        self._lay(uid, node, amounts)

    def give_up(self, uid: str) -> None:
        """Count a pod no more that could not be bound; one that the watch has shown bound stays."""
        if uid in self._assumed:
            self.pod_gone(uid)

    def _lay(self, uid: str, node: str, amounts: Amounts) -> None:
        self._lying[uid] = _Lying(node, amounts)
        used = self._used.setdefault(node, {})
        for name, amount in amounts.items():
            used[name] = used.get(name, 0) + amount


def _seat(place: Node, *, used: Amounts) -> Seat:
    ready = next((one.status for one in place.status.conditions if one.type == "Ready"), "True")
    return Seat(
        name=place.metadata.name,
        room=read(place.status.allocatable),
        used=used,
        labels=place.metadata.labels,
        taints=place.spec.taints,
        cordoned=place.spec.unschedulable,
        ready=ready == "True",
    )
