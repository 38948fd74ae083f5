"""Which requests the cluster sees, and how often: what the worth of everything else is worked out from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec

from aliquot_core.patterns import Patterns
from aliquot_core.quantities import WHOLE

# Rarer shapes than these change no decision, and each costs time.
MOST_SHAPES = 400


# Bounds of what is read back; nothing is checked of what the code makes itself.
Cores = Annotated[float, msgspec.Meta(ge=0, le=10_000)]
Part = Annotated[int, msgspec.Meta(ge=0, le=WHOLE.value)]
Gpus = Annotated[int, msgspec.Meta(ge=0, le=1_000)]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod asks for, as far as placement tells requests apart: cores, and percent of each of so many GPUs."""

    cores: Cores = 0.0
    compute: Part = 0
    memory: Part = 0
    gpus: Gpus = 0
    models: Patterns = Patterns()

    @property
    def size(self) -> int:
        """Percent of a GPU that it takes: of compute or of memory, whichever is more."""
        return max(self.compute, self.memory)

    @property
    def whole(self) -> bool:
        """Whether nobody else may be on its GPUs."""
        return self.compute == WHOLE.value


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    """Shapes, the commonest first, and how much of all requests each is; together 1."""

    shapes: tuple[Shape, ...] = ()
    shares: tuple[float, ...] = ()
    # From how many it was learnt: what was not seen among so many may still come.
    requests: float = math.inf

    @classmethod
    def of(cls, counts: Mapping[Shape, float], *, requests: float = math.inf) -> Mix:
        """The mix that was counted so."""
        there = sorted(((count, shape) for shape, count in counts.items() if count > 0), key=_order)[:MOST_SHAPES]
        total = sum(count for count, _ in there)
        return cls(
            shapes=tuple(shape for _, shape in there),
            shares=tuple(count / total for count, _ in there),
            requests=requests,
        )

    @property
    def with_gpus(self) -> list[tuple[Shape, float]]:
        """Those that ask for GPUs; together 1 again."""
        asking = [(shape, share) for shape, share in zip(self.shapes, self.shares, strict=True) if shape.gpus]
        total = sum(share for _, share in asking)
        return [(shape, share / total) for shape, share in asking]


def _order(counted: tuple[float, Shape]) -> tuple[object, ...]:
    """The commonest first; equals in an order that does not depend on who came first."""
    count, one = counted
    return -count, one.cores, one.compute, one.memory, one.gpus, one.models.allowed, one.models.forbidden
