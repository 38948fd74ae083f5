"""What the loop reads of pods and nodes, beyond what Aliquot itself reads of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot_core.objects import Node, NodeSpec, Pod, PodSpec, Quantity
from aliquot_kube.resources import Resource


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False, omit_defaults=True):
    """Common settings."""


class Toleration(_Part, frozen=True, kw_only=True):
    """A taint that the pod does not mind."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Taint(_Part, frozen=True, kw_only=True):
    """Keeps pods off a node, or would rather."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}" if self.value else self.key


class Requirement(_Part, frozen=True, kw_only=True):
    """One test of a node's label, or of its name."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class Term(_Part, frozen=True, kw_only=True):
    """Tests that must all hold."""

    match_expressions: list[Requirement] = []
    match_fields: list[Requirement] = []


class Preference(_Part, frozen=True, kw_only=True):
    """What would be good, and how good."""

    weight: int = 0
    preference: Term = Term()


class _Terms(_Part, frozen=True, kw_only=True):
    node_selector_terms: list[Term] = []


class NodeAffinity(_Part, frozen=True, kw_only=True):
    """Which nodes the pod must or would have."""

    required: _Terms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[Preference] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Part, frozen=True, kw_only=True):
    """All that draws a pod to nodes and other pods."""

    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class Volume(_Part, frozen=True, kw_only=True):
    """Only whether it is a claim: those bind to nodes."""

    name: str = ""
    persistent_volume_claim: dict[str, Any] | None = None


class WaitingSpec(PodSpec, frozen=True, kw_only=True):
    """A pod's spec with what decides where it may go."""

    tolerations: tuple[Toleration, ...] = ()
    overhead: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[Mapping[str, Any], ...] = ()


class PlacedPod(Pod, frozen=True, kw_only=True):
    """A pod that is to be placed, or was."""

    spec: WaitingSpec = WaitingSpec()

    @property
    def waits(self) -> bool:
        """Whether it is to be given a node now."""
        meta, spec = self.metadata, self.spec
        return not (spec.node_name or spec.scheduling_gates or meta.deletion_timestamp or self.ended)


class TaintedSpec(NodeSpec, frozen=True, kw_only=True):
    """A node's spec with its taints."""

    taints: tuple[Taint, ...] = ()


class Place(Node, frozen=True, kw_only=True):
    """A node that pods may be placed on."""

    spec: TaintedSpec = TaintedSpec()


PLACED_PODS = Resource(group="", version="v1", plural="pods", kind="Pod", type=PlacedPod)
PLACES = Resource(group="", version="v1", plural="nodes", kind="Node", type=Place, namespaced=False)
