"""What a pod demands of its node: one pod read once, then held against many nodes. Pure.

Whatever needs a cluster's own machinery (other pods' places, volumes, devices of drivers) is named, never passed over:
a pod that spreads its copies would else lie anywhere and believe itself spread.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from aliquot_core.node_rules import Affinity, Preference, Wanted, affinity_of, wanted_by
from aliquot_core.objects import Toleration
from aliquot_standalone.scheduling.amounts import Amounts, asked_by
from aliquot_standalone.scheduling.objects import PlacedPod


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod demands and prefers."""

    amounts: Amounts
    wanted: Wanted
    preferences: Sequence[Preference]
    tolerations: Sequence[Toleration]
    # Whether the extender has a say.
    extended: bool
    # What it asks that only a cluster has; empty if nothing.
    beyond: str = ""


def demand_of(pod: PlacedPod, *, managed: Collection[str], tolerations: Sequence[Toleration] | None = None) -> Demand:
    """Read a pod; `managed` are the resources that are the extender's business."""
    affinity = affinity_of(pod)
    amounts = asked_by(pod)
    return Demand(
        amounts=amounts,
        wanted=wanted_by(pod),
        preferences=affinity.node_affinity.preferred,
        tolerations=pod.spec.tolerations if tolerations is None else tolerations,
        extended=not amounts.keys().isdisjoint(managed),
        beyond=_beyond(pod, affinity),
    )


def _beyond(pod: PlacedPod, affinity: Affinity) -> str:
    spec = pod.spec
    asked = {
        "topologySpreadConstraints": spec.topology_spread_constraints,
        "affinity.podAffinity": affinity.pod_affinity,
        "affinity.podAntiAffinity": affinity.pod_anti_affinity,
        "resourceClaims": spec.resource_claims,
        "volumes[].persistentVolumeClaim": any(one.persistent_volume_claim is not None for one in spec.volumes),
    }
    return ", ".join(f"spec.{field}" for field, there in asked.items() if there)
