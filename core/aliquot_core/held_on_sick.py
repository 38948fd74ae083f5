"""What pods hold on GPUs that are sick, as kube-scheduler and the kubelet count it. Pure.

A sick GPU gives nothing any more, and its pods count on until they end: of a node that told of its healthy GPUs only,
as much of those would be out of reach as is held on the sick ones. So that much is told beside them, and less with each
pod there that ends. Which GPU a pod gets the grant decides, and none is granted on a sick one. One that is not there is
sick as well: an agent that starts does not find a GPU that was lost before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple

from aliquot_core.claims import claims, own_grant
from aliquot_core.errors import AliquotError
from aliquot_core.grant import Grant, decode_grant
from aliquot_core.hosts import own_request
from aliquot_core.inventory import Health, Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod


class Held(NamedTuple):
    """Percent, MiB and places for best effort."""

    compute: int = 0
    memory: int = 0
    best_effort: int = 0

    def beside(self, *others: Held) -> Held:
        """All of them together."""
        return Held(*(sum(column) for column in zip(self, *others, strict=True)))


NOTHING_HELD: Mapping[str, Held] = MappingProxyType({})


def held_on_sick(pods: Iterable[Pod], *, inventory: Inventory, names: Names) -> Mapping[str, Held]:
    """By the uuid of each GPU that is not well, what is counted of the pods that were granted it."""
    well = {gpu.uuid for gpu in inventory.gpus if gpu.health is not Health.SICK}
    sums: defaultdict[str, Held] = defaultdict(Held)
    for pod in pods:
        if not pod.ended:
            for uuid, held in _held(pod, well, names=names):
                sums[uuid] = sums[uuid].beside(held)
    return sums


def _held(pod: Pod, well: AbstractSet[str], *, names: Names) -> Iterable[tuple[str, Held]]:
    """No more in all than it asks: a grant may have more memory, of which kube-scheduler knows nothing."""
    try:
        # Of few pods there is anything to tell, and to check a grant takes five times as long as to read it.
        if _gpus(decode_grant(pod.metadata.annotations.get(names.grant, ""))) <= well:
            return
        grant = own_grant(pod, names=names)
    except AliquotError:
        return
    left, claimed = Held(*own_request(pod, names=names)), claims(pod, grant)
    for uuid in sorted(claimed.keys() - well):
        amounts = claimed[uuid].compute.value, claimed[uuid].memory.value, _places(grant, uuid)
        held = Held(*(min(pair) for pair in zip(left, amounts, strict=True)))
        left = Held(*(before - less for before, less in zip(left, held, strict=True)))
        yield uuid, held


def _gpus(grant: Grant) -> set[str]:
    return {part.gpu for container in grant.containers.values() for part in container.slices}


def _places(grant: Grant, uuid: str) -> int:
    """How many containers are on it for best effort."""
    slices = (part for container in grant.containers.values() for part in container.slices)
    return sum(part.gpu == uuid and not part.compute.value for part in slices)
