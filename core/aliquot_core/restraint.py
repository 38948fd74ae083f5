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


class OutOfBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What of a restraint is not to be had, and why; empty where it is."""

    memory: str = ""
    compute: str = ""


def out_of_bounds(
    said: Restraint, *, memory: int | None, limit: int, compute: int, contexts: int, has: str = "was granted"
) -> OutOfBounds:
    """Judge what is said of one container, over all its GPUs, by what it `has` of them; None is memory not known yet.

    `contexts` are the MiB that a CUDA context takes, on all of them.
    """
    return OutOfBounds(
        memory=_memory_of(said.memory, most=memory, least=contexts, has=has),
        compute=_compute_of(said.compute, most=limit, least=compute),
    )


def _memory_of(said: int | None, *, most: int | None, least: int, has: str) -> str:
    if said is None:
        return ""
    if most is not None and said > most:
        return f"{said} MiB are more than the {most} that it {has}"
    return f"{said} MiB are less than the {least} that a CUDA context takes" if said < least else ""


def _compute_of(said: int | None, *, most: int, least: int) -> str:
    if said is None:
        return ""
    if said > most:
        return f"{said} % are more than its limit of {most}"
    return f"{said} % are less than its compute of {least}, which nobody takes from it" if said < least else ""
