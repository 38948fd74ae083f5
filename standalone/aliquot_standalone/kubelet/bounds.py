"""What a container's limits of CPU and memory are in the files of its cgroup. Pure."""

from __future__ import annotations

from fractions import Fraction

from aliquot_core.objects import Container
from aliquot_standalone.apiserver.quantities import parse

CONTROLLERS = ("memory", "cpu")
# As the kubelet has them: each tenth of a second anew, and no less than a thousandth of one, which the kernel refuses.
_PERIOD, _SHORTEST = 100_000, 1_000


def bounds_of(container: Container) -> dict[str, str]:
    """What to write to which file; nothing for what is not limited."""
    memory, cpu = (_limit(container, name) for name in CONTROLLERS)
    found: dict[str, str] = {}
    if memory is not None:
        # All of it goes at once, as in a cluster: a program that lost a part of itself would hang.
        found |= {"memory.max": str(int(memory)), "memory.oom.group": "1"}
    if cpu is not None:
        found["cpu.max"] = f"{max(_SHORTEST, int(cpu * _PERIOD))} {_PERIOD}"
    return found


def _limit(container: Container, name: str) -> Fraction | None:
    said = container.resources.limits.get(name)
    return None if said is None else parse(str(said)) or None
