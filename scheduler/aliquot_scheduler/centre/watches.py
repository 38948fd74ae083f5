"""Live copies of all that the leader has to know, and whether they can be trusted at this instant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_core.objects import Lease, Namespace, Node, Pod, Queue
from aliquot_kube.mirror import Mirror
from aliquot_kube.reflector import Freshness
from aliquot_kube.resources import LEASES, NAMESPACES, NODES, PODS, queues_of
from aliquot_kube.transport import Transport

# Seconds, or twice as long as is deafness. Nodes that were not heard for as long are out meanwhile, and in again as
# soon as the new watch tells of them.
BEATS_SILENT = 15.0
# So long after that a watch that was asked for anew tells.
_TOLD_ANEW = 3.0


class Watches:
    """One mirror for each kind of objects; whoever made this runs them, in the order that it needs."""

    def __init__(self, *, transport: Transport, clock: Clock, random: Random, names: Names, deaf: float) -> None:
        """`deaf`: how long without a word of any Lease is deafness."""
        self._deaf = deaf
        following: dict[str, Any] = {"transport": transport, "clock": clock, "random": random}
        self.nodes = Mirror[Node](**following, resource=NODES)
        self.pods = Mirror[Pod](**following, resource=PODS)
        silent = max(BEATS_SILENT, 2 * deaf)
        # Who does not lead can't tell a server that hangs from a cluster without a leader before that.
        self.surely_deaf = silent + _TOLD_ANEW
        self.leases = Mirror[Lease](**following, resource=LEASES, namespace=names.namespace, silence=silent)
        self.queues = Mirror[Queue](**following, resource=queues_of(names), may_be_absent=True)
        self.namespaces = Mirror[Namespace](**following, resource=NAMESPACES)

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """What is written on a namespace, as far as it is known."""
        known = self.namespaces.objects.get(namespace)
        return known.metadata.labels if known else {}

    def freshness(self) -> dict[str, Freshness]:
        """How old our knowledge is, by what it is of."""
        return {
            "nodes": self.nodes.freshness(),
            "pods": self.pods.freshness(),
            "heart-beats": self.leases.freshness(),
            "queues": self.queues.freshness(),
            "namespaces": self.namespaces.freshness(),
        }

    def silence(self) -> float | None:
        """How long ago anything was heard of any heart-beat, the leader's own among them."""
        return self.leases.freshness().contact_age

    def why_deaf(self, *, after: float | None = None) -> str:
        """That the API server is not heard, and for how long; empty if it was within `after` seconds."""
        age, after = self.silence(), self._deaf if after is None else after
        return f"the API server has not been heard for {age:.0f} s" if age is not None and age > after else ""

    def why_blind(self, *, stale: float) -> str:
        """Why nothing may be decided by them, if anything was silent for more than `stale` seconds; empty if it may."""
        for what, freshness in self.freshness().items():
            if not freshness.synced:
                return f"not all {what} are known yet"
            if freshness.contact_age is not None and freshness.contact_age > stale:
                return f"nothing was heard of {what} for {freshness.contact_age:.0f} s"
        return ""
