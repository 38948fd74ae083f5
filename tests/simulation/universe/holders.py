"""What pods hold of a GPU at one time, by the simulation's own arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from aliquot_core.hosts import quantity
from aliquot_core.objects import Pod, Quantity
from aliquot_core.request import Kind, kinds
from simulation.universe.judge import WHOLE
from simulation.universe.runtime import Part

Parts = dict[str, tuple[Part, ...]]
Holder = tuple[Pod, Parts]


def overfull(gpu: str, holders: Sequence[Holder], *, memory: int) -> bool:
    """Whether these pods hold more of a GPU than there is."""
    claims = [claim for holder in holders if (claim := held_most(holder, gpu)) is not None]
    closed = any(whole for _, _, whole in claims)
    return (
        sum(compute for compute, _, _ in claims) > WHOLE
        or sum(held for _, held, _ in claims) > memory
        or (closed and len(claims) > 1)
        or any(compute > WHOLE for compute, _, _ in claims)
        or any(_shares_whole(holder, gpu) for holder in holders)
    )


def held_most(holder: Holder, gpu: str) -> tuple[int, int, bool] | None:
    """The most that a pod holds of a GPU at one time, and whether it has it whole; None if it never holds any."""
    sums = _held_together(holder, gpu)
    if not any(sums):
        return None
    return (
        max(sum(part.compute for part in held) for held in sums),
        max(sum(part.memory for part in held) for held in sums),
        any(part.compute == WHOLE for held in sums for part in held),
    )


def told_amount(amounts: Mapping[str, Quantity], resource: str) -> int:
    """So much as the API server writes it: 9000 as 9k."""
    return _amount(amounts.get(resource, 0), resource)


@cache  # a placer asks for the same few a thousand times a minute
def _amount(told: Quantity, resource: str) -> int:
    return int(quantity(told, where=resource))


def asked_in_all(pod: Pod, resource: str) -> int:
    """What a pod counts for: the most that its containers ask at one time."""
    most = steady = 0
    for kind, container in kinds(pod):
        own = told_amount(container.resources.limits, resource)
        most = max(most, steady + own)
        if kind is not Kind.INIT:
            steady += own
    return most


def _shares_whole(holder: Holder, gpu: str) -> bool:
    """Whether one of the pod's containers has the GPU whole while another of them is there too."""
    together = _held_together(holder, gpu)
    return any(len(held) > 1 and any(part.compute == WHOLE for part in held) for held in together)


def _held_together(holder: Holder, gpu: str) -> list[list[Part]]:
    """What a pod's containers hold of a GPU at one time, step by step of its life."""
    pod, parts = holder
    steps: list[list[Part]] = []
    steady: list[Part] = []
    for kind, container in kinds(pod):
        own = [part for part in parts.get(container.name, ()) if part.gpu == gpu]
        steps.append(steady + own)
        if kind is not Kind.INIT:
            steady = steady + own
    return steps
