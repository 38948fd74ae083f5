"""What the loop reads of pods, beyond what Aliquot itself reads of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot_core.objects import Pod, PodSpec
from aliquot_kube.resources import Resource


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False, omit_defaults=True):
    """Common settings."""


class Volume(_Part, frozen=True, kw_only=True):
    """Only whether it is a claim: those bind to nodes."""

    name: str = ""
    persistent_volume_claim: dict[str, Any] | None = None


class WaitingSpec(PodSpec, frozen=True, kw_only=True):
    """A pod's spec with what only a cluster can provide."""

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


PLACED_PODS = Resource(group="", version="v1", plural="pods", kind="Pod", type=PlacedPod)
