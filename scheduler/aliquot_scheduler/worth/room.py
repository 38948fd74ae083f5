"""What nodes have free, as placement looks at it: cores, and percent of each GPU's compute and memory.

GPU-major: a row for each place of a node, a column for each node. What is asked of a node's GPUs together is then a few
steps along long rows (the least of each node: 3 us for 1,000 nodes instead of 60).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from aliquot_core.quantities import WHOLE

Reals = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_FULL = WHOLE.value
# Entries of a table by percent, 0 among them.
STEPS = _FULL + 1


class Room:
    """Free cores by node; by place and node percent free and the kind of GPU. No GPU, nothing free."""

    def __init__(self, *, cores: Reals, compute: Ints, memory: Ints, kinds: Ints) -> None:
        self.cores = cores
        self.compute = compute
        self.memory = memory
        self.kinds = kinds

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return len(self.cores)

    @cached_property
    def free(self) -> Ints:
        """Percent of each GPU that can be given away on both axes."""
        free: Ints = np.minimum(self.compute, self.memory)
        return free

    @cached_property
    def place(self) -> Ints:
        """Where each GPU is in a flat table by percent of compute and of memory free."""
        place: Ints = self.compute * STEPS + self.memory
        return place

    @cached_property
    def mixed(self) -> bool:
        """Whether some node has GPUs of several kinds."""
        return bool(np.any((self.kinds != self.kinds[0]) & (self.free > 0)))

    @cached_property
    def total(self) -> Ints:
        """Percent free of a node's GPUs together."""
        total: Ints = self.free.sum(axis=0)
        return total

    @cached_property
    def idle(self) -> Bools:
        """GPUs that nobody holds anything of."""
        idle: Bools = np.equal(self.free, _FULL)
        return idle

    @cached_property
    def idle_count(self) -> Ints:
        """How many of a node's GPUs are idle."""
        count: Ints = self.idle.sum(axis=0)
        return count

    @property
    def node_kinds(self) -> Ints:
        """A node's kind is its first GPU's: nodes with several are rare, and lose some exactness alone."""
        kinds: Ints = self.kinds[0]
        return kinds
