"""Can this node keep what a grant promises, and now? Rules 3 and 5 of `starts`. Pure."""

from __future__ import annotations

from aliquot_agent.isolation.gpu_modes import Seat, Use, hindrance
from aliquot_agent.starting.decision import Known
from aliquot_core.grant import ContainerGrant, Grant, Slice
from aliquot_core.inventory import Gpu, Health
from aliquot_core.isolation import Keeping, holds_memory, keeping, offers, spans
from aliquot_core.modes import MPS
from aliquot_core.request import quality_of


def misfit(grant: Grant, *, known: Known) -> str:
    """Say why this node's GPUs can't keep what the grant promises; empty if they can."""
    if grant.node != known.node:
        return f"the grant is for node {grant.node}, this is {known.node}"
    for name, container in grant.containers.items():
        if problem := _unkept(container, known=known):
            return f"container {name}: {problem}"
    return ""


def _unkept(container: ContainerGrant, *, known: Known) -> str:
    mode = container.isolation
    for part in container.slices:
        gpu = known.inventory.gpu(part.gpu)
        problem = _unfit(part, gpu, mode=mode) if gpu else f"is not on node {known.node}"
        if problem:
            return f"GPU {part.gpu} {problem}"
    if not spans(mode, wholes=[part.whole for part in container.slices]):
        return f"isolation {mode} does not reach over parts of several GPUs"
    quality = quality_of(compute=container.compute, limit=container.limit)
    return f"isolation {mode} can't hold what is {quality}" if keeping(mode, quality) is Keeping.REFUSED else ""


def _unfit(part: Slice, gpu: Gpu, *, mode: str) -> str:
    """What is wrong with a GPU for a slice of it."""
    if gpu.health is Health.SICK:
        return f"is sick: {gpu.reason or 'no reason known'}"
    if not offers(gpu.isolation, mode):
        return f"does not hold isolation {mode}" if mode else f"is to be held in no mode, and offers {_modes(gpu)}"
    if gpu.instance and (part.compute, part.memory) != (gpu.compute, gpu.usable):
        return f"is an instance of MIG and given whole: {gpu.compute} and {gpu.usable}"
    context = gpu.context or 0
    if holds_memory(mode) and not gpu.instance and part.memory.value < context:
        # Bound by a centre of before contexts were known: a program would fail as it begins, in the driver's words.
        return (
            f"takes {context} MiB for a CUDA context, more than the {part.memory} granted there: no program could "
            "begin; delete the pod and ask for more, or let the operator measure [agent] context_mib of this GPU anew"
        )
    return ""


def _modes(gpu: Gpu) -> str:
    return f"{', '.join(gpu.isolation)}: only a centre that differs from this agent's version grants so"


def unready(grant: Grant, *, known: Known) -> str:
    """Say which GPU of the grant is not in the mode yet that its container needs; empty if all are."""
    for name, container in grant.containers.items():
        for part in container.slices:
            seat = known.seats.get(part.gpu, Seat(wanted=Use.FREE) if container.isolation == MPS else None)
            if seat is None:
                continue
            if problem := hindrance(seat, use=Use.EXCLUSIVE if part.whole else Use.SHARED):
                return f"container {name}: GPU {part.gpu}: {problem}"
    return ""
