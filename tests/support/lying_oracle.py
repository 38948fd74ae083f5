"""Whether members of a group can lie on some nodes at all, by trying every way."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

from aliquot_core.inventory import Gpu
from aliquot_core.membership import Topology
from aliquot_scheduler.fit.links import islands
from aliquot_scheduler.queues.waiting.waiter import Waiter


class _Left(NamedTuple):
    """A card, and what of its compute and memory is left."""

    gpu: Gpu
    compute: int
    memory: int


def can_lie(members: Sequence[Waiter], *, nodes: Sequence[Sequence[Gpu]], models: Sequence[str] = ()) -> bool:
    """Whether there is any way to lay these on all nodes, were they empty, as their group wants to lie.

    Each on GPUs of its model in `models`, if any are given.
    """
    only = models or [""] * len(members)
    topology = members[0].group.topology if members[0].group else Topology.ANY
    empty = [[_Left(gpu, 100, gpu.usable.value) for gpu in cards] for cards in nodes]
    match topology:
        case Topology.NODE:
            return any(_lie(members, [cards], only=only) for cards in empty)
        case Topology.NVLINK:
            joined = [
                [one for one in cards if one.gpu.uuid in island]
                for cards in empty
                for island in islands([one.gpu for one in cards])
            ]
            return any(_lie(members, [island], only=only) for island in joined)
        case _:
            return _lie(members, empty, only=only, apart=topology is Topology.SPREAD)


def _lie(
    members: Sequence[Waiter], nodes: Sequence[Sequence[_Left]], *, only: Sequence[str], apart: bool = False
) -> bool:
    """Each in turn on any cards of any node, and all that come after it too."""
    if not members:
        return True
    request, parts = members[0].demand.request, members[0].demand.pieces or ()
    for number, cards in enumerate(nodes):
        for chosen in permutations(range(len(cards)), len(parts)):
            left, fits = list(cards), True
            for at, part in zip(chosen, parts, strict=True):
                gpu, compute, memory = cards[at]
                asked = part.memory_on(gpu.usable.value)
                fits &= only[0] in {"", gpu.model}
                fits &= compute >= part.compute and memory >= asked and request.models.admits(*gpu.model_names)
                fits &= not part.whole or (compute, memory) == (100, gpu.usable.value)
                # A whole card is closed to those who ask memory alone, too.
                left[at] = _Left(gpu, compute - part.compute, -1 if part.whole else memory - asked)
            others = [*nodes[:number], *([] if apart else [left]), *nodes[number + 1 :]]
            if fits and _lie(members[1:], others, only=only[1:], apart=apart):
                return True
    return False
