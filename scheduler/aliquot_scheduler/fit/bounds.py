"""Where alone a pod may lie, beyond what it asks itself: by its group, its queue, or who waits for a node."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot_core.patterns import Patterns
from aliquot_core.request import PodRequest
from aliquot_scheduler.fit.demand import Demand


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """`node` is the only one that will do, `gpus` its only GPUs, `but` the nodes that won't; empty says nothing.

    Of `off`, patterns of models, no GPU will do.
    """

    node: str = ""
    gpus: tuple[str, ...] = ()
    but: frozenset[str] = frozenset()
    off: tuple[str, ...] = ()

    @property
    def everywhere(self) -> bool:
        """Whether any node will do."""
        return not (self.node or self.but)

    def admits(self, node: str) -> bool:
        """Whether the pod may lie on this node."""
        return node not in self.but and (not self.node or node == self.node)

    def among(self, nodes: Sequence[str]) -> Sequence[str]:
        """Those of these nodes that will do."""
        return nodes if self.everywhere else [node for node in nodes if self.admits(node)]

    def narrowed(self, demand: Demand) -> Demand:
        """What is asked, of the GPUs that will do; of what is narrowed so already, the same."""
        if not self.gpus and not self.off:
            return demand
        request = without_models(demand.request, self.off)
        if not self.gpus:
            return msgspec.structs.replace(demand, request=request)
        both = tuple(gpu.casefold() for gpu in self.gpus if request.uuids.admits(gpu))
        # No GPU has an empty name, where an empty list would allow all.
        uuids = Patterns(allowed=both or ("",), forbidden=request.uuids.forbidden)
        return msgspec.structs.replace(demand, request=msgspec.structs.replace(request, uuids=uuids))


def without_models(request: PodRequest, off: Sequence[str]) -> PodRequest:
    """The same, but on no GPU of these models."""
    more = tuple(pattern for pattern in off if pattern not in request.models.forbidden)
    models = Patterns(allowed=request.models.allowed, forbidden=(*request.models.forbidden, *more))
    return msgspec.structs.replace(request, models=models)


ANYWHERE = Bounds()
