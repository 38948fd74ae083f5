"""In which modes each GPU can hold a slice: as its node was told, as far as what holds it is there. Pure.

A mode that can't be had is not offered, and the reason is said where the modes are: a pod that asks for it is then
refused at filter and never at start. What only watches is on offer everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import msgspec

from aliquot_agent.gpus.model import GpuFacts
from aliquot_core.inventory import model_names
from aliquot_core.modes import INTERPOSER, MIG, MPS, OBSERVE
from aliquot_core.settings import UnusableValueError

_VOLTA = [7, 0]
_ELSE = f"choose another mode for it ([agent] isolation_of, such as 0={INTERPOSER})"
_LINE = re.compile(rf"(\S.*)=({OBSERVE}|{INTERPOSER}|{MPS})")


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """The modes of one GPU, and why they are fewer than its node was told."""

    modes: tuple[str, ...] = (OBSERVE,)
    lack: str = ""


# What a GPU offers, asked at each look at it.
Offer = Callable[[GpuFacts], Offered]


def by_hardware(offer: Offer) -> Offer:
    """The same offer, and of instances of MIG that the hardware holds them, whatever the node was told of its GPUs."""
    return lambda gpu: Offered(modes=(MIG,)) if gpu.instance else offer(gpu)


def only_observed(_: GpuFacts) -> Offered:
    """The offer of a node that holds nothing back."""
    return Offered()


def check_lines(lines: Sequence[str]) -> None:
    """Refuse what is no line of the table, as settings do."""
    for line in lines:
        if line.rpartition("=")[2] == MIG:
            raise UnusableValueError(
                f"{line[:80]!r} chooses {MIG}, which nobody chooses: a GPU's instances offer it by themselves",
                remedy="cut the GPU (nvidia-smi mig), and leave the line out",
            )
        if not _LINE.fullmatch(line):
            raise UnusableValueError(
                f"{line[:80]!r} is no line of the table",
                remedy=f"write lines such as *L40S*={INTERPOSER}, 0={OBSERVE} or GPU-4a1b*={OBSERVE}",
            )


def told_of(gpu: GpuFacts, *, lines: Sequence[str], otherwise: str) -> str:
    """What the node was told of a GPU: by the first line `PATTERN=…` that names its uuid, model or index."""
    names = [name.casefold() for name in (gpu.uuid, str(gpu.index), *model_names(gpu.model))]
    for line in lines:
        pattern, _, said = line.rpartition("=")
        if any(fnmatchcase(name, pattern.casefold()) for name in names):
            return said
    return otherwise


def offered(gpu: GpuFacts, *, mode: str, obstacle: Callable[[GpuFacts], str]) -> Offered:
    """That mode and the weaker one, unless something is in its way; a GPU of MPS is open to its clients alone."""
    if mode == OBSERVE:
        return Offered()
    if lack := obstacle(gpu):
        return Offered(lack=f"{mode} is not offered: {lack}")
    return Offered(modes=(MPS,) if mode == MPS else (OBSERVE, mode))


def lacks_mps(gpu: GpuFacts, *, was_kept: bool) -> str:
    """What keeps a GPU from being shared by MPS. A keeper that is away is expected back: its daemon may be up."""
    if gpu.mig_enabled:
        return f"MIG is enabled: switch it off (nvidia-smi -mig 0), or {_ELSE}"
    if [int(part) for part in gpu.compute_capability.split(".") if part.isdecimal()] < _VOLTA:
        shared = "its clients would share one address space"
        return f"compute capability {gpu.compute_capability} is below 7.0, and {shared}: {_ELSE}"
    return (
        ""
        if was_kept
        else "no process keeps MPS daemons on this node: start `aliquot mps` there, the chart's own DaemonSet"
    )
