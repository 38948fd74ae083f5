"""Which of the available ids the kubelet should take: checks the agent's answer, and chooses where there is none.

The kubelet takes an error here for a failed admission and fails the pod for good, so there is always an answer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from aliquot_core.door import Prefer

_DIGITS = re.compile(r"(\d+)")


def acceptable(answer: Sequence[str], *, asked: Prefer) -> bool:
    """Whether the kubelet can use an answer: of the size asked, available, with all that must be in it."""
    chosen = set(answer)
    return (
        len(answer) == len(chosen) == asked.size
        and chosen <= set(asked.available)
        and chosen >= set(asked.must_include)
    )


def choose_alone(asked: Prefer) -> list[str]:
    """Choose ids on as few GPUs as possible; the same question always gets the same answer.

    What must be in comes first, then its GPUs' other ids. Of the others, the GPU that the rest fits on most tightly;
    where it fits on none, the emptiest is taken whole and the question asked again.
    """
    chosen = sorted(set(asked.must_include), key=_natural)
    free = _by_gpu(set(asked.available) - set(chosen))
    touched = list(dict.fromkeys(gpu_of(device) for device in chosen))
    while (needed := asked.size - len(chosen)) > 0 and free:
        gpu = next((known for known in touched if known in free), None) or _next_gpu(free, needed)
        chosen += free.pop(gpu)[:needed]
    return chosen


def gpu_of(device: str) -> str:
    """Name the GPU of an id: what stands before its last dash."""
    return device.rpartition("-")[0]


def _next_gpu(free: dict[str, list[str]], needed: int) -> str:
    """Name the tightest GPU that holds all that is needed, else the one with most."""

    def waste(gpu: str) -> tuple[bool, int, list[tuple[int, str]]]:
        spare = len(free[gpu]) - needed
        return (spare < 0, abs(spare), _natural(gpu))

    return min(free, key=waste)


def _by_gpu(devices: Iterable[str]) -> dict[str, list[str]]:
    grouped = defaultdict(list)
    for device in sorted(devices, key=_natural):
        grouped[gpu_of(device)].append(device)
    return dict(grouped)


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key under which `3-9` comes before `3-10`."""
    parts = _DIGITS.split(text)
    return [(int(part), part) if part.isdecimal() and part.isascii() else (-1, part) for part in parts]
