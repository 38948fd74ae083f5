"""What is replayed: machines, the shapes of the pods, and the order in which they arrive."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]

# A GPU and a core have so many parts.
MILLI = 1000


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it is empty; memory in MiB, `card` is the memory of each of its GPUs (0: not known)."""

    name: str
    cores: int
    memory: int
    gpus: int = 0
    model: str = ""
    card: int = 0
    # Name and value of each, for rules.
    labels: tuple[tuple[str, str], ...] = ()


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod asks for: milli of a core, MiB, and of each of `gpus` GPUs so many milli and (0: its share) MiB."""

    cores: int
    memory: int
    gpus: int = 0
    milli: int = 0
    card: int = 0
    # As the list has them: the paper tells two lists of the same models apart.
    models: tuple[str, ...] = ()

    @property
    def shared(self) -> bool:
        """Whether it leaves room on its GPU."""
        return self.gpus == 1 and self.milli < MILLI

    @property
    def total(self) -> int:
        """Milli of all its GPUs together."""
        return self.gpus * self.milli


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Machines, distinct needs, which need each pod of the list has, and the pods as they arrive."""

    machines: tuple[Machine, ...]
    needs: tuple[Need, ...]
    pods: Longs
    arrivals: Longs

    @property
    def capacity(self) -> int:
        """Milli of all GPUs."""
        return MILLI * sum(machine.gpus for machine in self.machines)
