"""What a pod takes of each GPU over its whole life, and whether a grant is what its pod asked for.

A pod's claim on a GPU is the most it can hold there at one time: either an init container with the sidecars started
before it, or all app containers with all sidecars, whichever is more. Compute and memory are counted each by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_core.grant import ContainerGrant, Grant, GrantError, Slice, decode_grant
from aliquot_core.modes import MIG
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import NO_COMPUTE, NO_MEMORY, WHOLE, MiB, Percent
from aliquot_core.request import ContainerRequest, Kind, PodRequest, kinds, parse_request


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's part of one GPU; `closes` says that nobody else may be there."""

    compute: Percent = NO_COMPUTE
    memory: MiB = NO_MEMORY
    closes: bool = False

    def beside(self, other: Claim) -> Claim:
        """Both at the same time."""
        return Claim(
            compute=self.compute + other.compute,
            memory=self.memory + other.memory,
            closes=self.closes or other.closes,
        )

    def or_else(self, other: Claim) -> Claim:
        """One after the other: the most of each."""
        return Claim(
            compute=max(self.compute, other.compute),
            memory=max(self.memory, other.memory),
            closes=self.closes or other.closes,
        )


NOTHING = Claim()

# What is held of each GPU at one time.
Phase = dict[str, tuple[Slice, ...]]
# Compute, limit and memory on one GPU.
_Part = tuple[Percent, Percent, MiB]


def claims(pod: Pod, grant: Grant) -> dict[str, Claim]:
    """The pod's claim on each GPU of its grant, by uuid."""
    most: dict[str, Claim] = {}
    for phase in _phases(pod, grant):
        for gpu, parts in phase.items():
            most[gpu] = most.get(gpu, NOTHING).or_else(_sum(parts))
    return most


def _phases(pod: Pod, grant: Grant) -> Iterator[Phase]:
    """What is held at one time: beside each init container, and at the end."""
    steady: Phase = {}  # what stays: sidecars started so far, at the end the app containers too
    for kind, container in kinds(pod):
        own = grant.containers.get(container.name)
        if own is None:
            continue
        together = {**steady, **{part.gpu: (*steady.get(part.gpu, ()), part) for part in own.slices}}
        if kind is Kind.INIT:
            yield together
        else:
            steady = together
    yield steady


def _sum(parts: tuple[Slice, ...]) -> Claim:
    total = NOTHING
    for part in parts:
        total = total.beside(Claim(compute=part.compute, memory=part.memory, closes=part.whole))
    return total


class NoGrantError(ClusterError):
    """The pod was bound by somebody who does not know of slices."""

    def __init__(self, annotation: str) -> None:
        super().__init__(
            f"bound without a grant (annotation {annotation})",
            remedy="let Aliquot's scheduler place it: leave spec.nodeName empty and use its scheduler profile",
        )


def own_grant(pod: Pod, *, names: Names) -> Grant:
    """Read the pod's grant, which must be for it and for what it asked; raises an `AliquotError` that says why not."""
    text = pod.metadata.annotations.get(names.grant)
    if text is None:
        raise NoGrantError(names.grant)
    grant = decode_grant(text)
    check_grant(grant, pod=pod, names=names)
    return grant


def check_grant(grant: Grant, *, pod: Pod, names: Names) -> PodRequest:
    """Refuse a grant that is not its pod's, or not what the pod asked for; return what it asked."""
    if grant.pod != pod.metadata.uid:
        raise GrantError(f"belongs to another pod (uid {grant.pod}), this one is {pod.metadata.uid}")
    if grant.node != pod.spec.node_name:
        raise GrantError(f"is for node {grant.node}, the pod is bound to {pod.spec.node_name or 'none'}")
    request = parse_request(pod, names=names)
    asked = {container.name: container for container in request.containers}
    if strangers := sorted(grant.containers.keys() - asked.keys()):
        raise GrantError(f"names containers that ask for nothing: {', '.join(strangers)}")
    if forgotten := sorted(asked.keys() - grant.containers.keys()):
        raise GrantError(f"forgets containers that ask for a slice: {', '.join(forgotten)}")
    for name, container in grant.containers.items():
        _check_container(container, asked=asked[name])
    _check_gpus(grant, request=request)
    _check_phases(pod, grant)
    return request


def _check_container(container: ContainerGrant, *, asked: ContainerRequest) -> None:
    """Its slices are its shares, in any order; memory that was left out is the scheduler's to say.

    An instance of MIG is given whole: it may be more than was asked, never less.
    """
    free = asked.memory is None
    granted = sorted(((p.compute, p.limit, NO_MEMORY if free else p.memory) for p in container.slices), reverse=True)
    wanted = sorted(((s.compute, s.limit, s.memory or NO_MEMORY) for s in asked.shares), reverse=True)
    if granted == wanted or (container.isolation == MIG and _covers(granted, wanted)):
        return
    was, should = _computes(granted), _computes(wanted)
    if was == should:
        was, should = (f"memory {_memories(granted)} MiB", f"{_memories(wanted)} MiB")
    else:
        was = f"compute {was}"
    raise GrantError(
        f"{was} where {should} was asked",
        where=f"grant of container {asked.name}",
        remedy="undo what was changed of the pod's annotations since it was bound, or delete the pod",
    )


def _covers(granted: list[_Part], wanted: list[_Part]) -> bool:
    """Whether one instance was granted, and is no less than the one share that was asked; nothing bursts there."""
    if len(granted) != 1 or len(wanted) != 1:
        return False
    (compute, limit, memory), (least, burst, needed) = granted[0], wanted[0]
    return compute == limit and compute >= least == burst and memory >= needed


def _computes(parts: list[_Part]) -> str:
    return "+".join(
        f"{compute.value}" + (f"(to {limit.value})" if limit > compute else "") for compute, limit, _ in parts
    )


def _memories(parts: list[_Part]) -> str:
    return "+".join(str(memory.value) for _, _, memory in parts)


def _check_gpus(grant: Grant, *, request: PodRequest) -> None:
    for name, part in grant.slices():
        if not request.uuids.admits(part.gpu):
            raise GrantError(f"GPU {part.gpu} is not one that the pod allows", where=f"grant of container {name}")
    kind = {asked.name: asked.kind for asked in request.containers}
    apps = {part.gpu for name, part in grant.slices() if kind[name] is Kind.APP}
    for name, container in grant.containers.items():
        gpus = {part.gpu for part in container.slices}
        if kind[name] is Kind.INIT and not may_start_on(gpus, apps=apps):
            raise GrantError(
                "an init container runs on its app containers' GPUs, this one does not",
                where=f"grant of container {name}",
            )


def may_start_on(gpus: AbstractSet[object], *, apps: AbstractSet[object]) -> bool:
    """Whether an init container may run there whose app containers lie on these GPUs.

    The kubelet hands its ids on to them; one that asks for more GPUs holds more.
    """
    return gpus <= apps or gpus >= apps


def _check_phases(pod: Pod, grant: Grant) -> None:
    """No two containers hold more of a GPU at one time than there is, or share one that was given whole."""
    for phase in _phases(pod, grant):
        for gpu, parts in phase.items():
            together = _sum(parts)
            if together.closes and len(parts) > 1:
                raise GrantError(f"gives GPU {gpu} whole to one of {len(parts)} containers that hold it at one time")
            if together.compute > WHOLE:
                raise GrantError(f"{together.compute} of GPU {gpu} at one time")


def overdrawn(total: Claim, *, memory: MiB, holders: int, compute: Percent = WHOLE) -> str | None:
    """Why these claims together are more than one GPU has; `holders` is how many pods they come from."""
    if total.closes and holders > 1:
        return f"granted whole to one of {holders} pods"
    if total.compute > compute:
        return f"{total.compute} of {compute} compute"
    if total.memory > memory:
        return f"{total.memory} of {memory} memory"
    return None
