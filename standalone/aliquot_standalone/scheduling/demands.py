"""What a pod demands of its node: one pod read once, then held against many nodes. Pure.

Whatever needs a cluster's own machinery (other pods' places, volumes, devices of drivers) is named, never passed over:
a pod that spreads its copies would else lie anywhere and believe itself spread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from aliquot_standalone.scheduling.amounts import Amounts, asked_by
from aliquot_standalone.scheduling.objects import Affinity, PlacedPod, Preference, Term, Toleration


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod demands and prefers."""

    amounts: Amounts
    selector: Mapping[str, str]
    # One of these must hold; None where any node will do.
    terms: list[Term] | None
    preferences: list[Preference]
    tolerations: Sequence[Toleration]
    # Whether the extender has a say.
    extended: bool
    # What it asks that only a cluster has; empty if nothing.
    beyond: str = ""


class UnreadableError(ValueError):
    """An affinity that is none."""


def demand_of(pod: PlacedPod, *, managed: Collection[str], also: Sequence[Toleration] = ()) -> Demand:
    """Read a pod; `managed` are the resources that are the extender's business, `also` is tolerated besides."""
    affinity = _affinity(pod)
    required = affinity.node_affinity.required
    amounts = asked_by(pod)
    return Demand(
        amounts=amounts,
        selector=pod.spec.node_selector,
        terms=None if required is None else required.node_selector_terms,
        preferences=affinity.node_affinity.preferred,
        tolerations=(*pod.spec.tolerations, *also),
        extended=not amounts.keys().isdisjoint(managed),
        beyond=_beyond(pod, affinity),
    )


def _affinity(pod: PlacedPod) -> Affinity:
    try:
        return msgspec.convert(pod.spec.affinity or {}, Affinity)
    except msgspec.ValidationError as error:
        raise UnreadableError(f"spec.affinity can't be read: {error}") from error


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
