"""How far a pod that runs holds itself back: it may say so, and something else, at any time, since it asks for less.

Each of its containers then has no more than so much memory, and bursts no further; what was granted stays its own, is
charged for, and is there again when nothing is said.
"""

from __future__ import annotations

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MEBIBYTES
from aliquot_core.request_rules import count_of


class Restraint(msgspec.Struct, frozen=True, kw_only=True):
    """Of each container, over all its GPUs: MiB, and percent of a GPU; None is as granted."""

    memory: int | None = None
    compute: int | None = None


def restraint_of(pod: Pod, *, names: Names) -> Restraint:
    """Read what a pod says; raises QuantityError where that is no amount."""
    notes = pod.metadata.annotations

    def count(name: str, unit: str) -> int | None:
        return count_of(notes.get(name), where=f"annotation {name}", unit=unit)

    return Restraint(memory=count(names.memory_now, MEBIBYTES), compute=count(names.compute_now, "percent"))
