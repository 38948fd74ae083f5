"""What the agent asks of the kubelet: who holds which device ids.

Two sources answer. The kubelet's own record (its device-manager checkpoint) has the pod's UID, ordinary init
containers, and the CDI name that it will hand to the runtime; it is a file of the kubelet's own, so it may be missing
or look different one day. PodResources is the published interface, but knows neither UIDs nor init containers.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from aliquot_core.errors import ClusterError


class KubeletViewError(ClusterError):
    """The kubelet can't be asked, or its answer not be read."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One container's ids as the kubelet recorded them, with the CDI names that it was answered."""

    uid: str
    container: str
    resource: str
    ids: frozenset[str]
    names: tuple[str, ...]


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One container's ids as PodResources lists them; a container that holds nothing is listed with no ids."""

    namespace: str
    name: str
    container: str
    ids: dict[str, frozenset[str]]


class KubeletView(Protocol):
    """The kubelet of this node."""

    async def recorded(self) -> tuple[Recorded, ...]:
        """The kubelet's own record as it is now."""
        ...

    async def listed(self) -> tuple[Listed, ...]:
        """What PodResources says; the answer is not older than the question."""
        ...
