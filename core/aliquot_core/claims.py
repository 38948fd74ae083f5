"""What a pod takes of each GPU over its whole life, and whether a grant is what its pod asked for.

A pod's claim on a GPU is the most it can hold there at one time: either an init container with the sidecars started
before it, or all app containers with all sidecars, whichever is more. Compute and memory are counted each by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot_core.grant import ContainerGrant, Grant, GrantError
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


def claims(pod: Pod, grant: Grant) -> dict[str, Claim]:
    """The pod's claim on each GPU of its grant, by uuid."""
    steady: dict[str, Claim] = {}  # what stays: sidecars started so far, at the end the app containers too
    most: dict[str, Claim] = {}
    for kind, container in kinds(pod):
        own = _of(grant.containers.get(container.name))
        if kind is Kind.INIT:
            _raise_to(most, _beside(steady, own))
        else:
            steady = _beside(steady, own)
    _raise_to(most, steady)
    return most


def _of(container: ContainerGrant | None) -> dict[str, Claim]:
    if container is None:
        return {}
    return {part.gpu: Claim(compute=part.compute, memory=part.memory, closes=part.whole) for part in container.slices}


def _beside(left: Mapping[str, Claim], right: Mapping[str, Claim]) -> dict[str, Claim]:
    return {gpu: left.get(gpu, NOTHING).beside(right.get(gpu, NOTHING)) for gpu in {**left, **right}}


def _raise_to(most: dict[str, Claim], level: Mapping[str, Claim]) -> None:
    for gpu, claim in level.items():
        most[gpu] = most.get(gpu, NOTHING).or_else(claim)


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
    return request


def _check_container(container: ContainerGrant, *, asked: ContainerRequest) -> None:
    where = f"grant of container {asked.name}"
    shares = sorted(((share.compute, share.limit) for share in asked.shares), reverse=True)
    granted = sorted(((part.compute, part.limit) for part in container.slices), reverse=True)
    if granted != shares:
        raise GrantError(f"compute {_text(granted)} where {_text(shares)} was asked", where=where)
    if asked.memory is None:
        return
    memories = sorted(part.memory for part in container.slices)
    wanted = sorted(share.memory for share in asked.shares if share.memory is not None)
    if memories != wanted:
        raise GrantError(
            f"memory {'+'.join(str(m.value) for m in memories)} MiB where "
            f"{'+'.join(str(m.value) for m in wanted)} MiB was asked",
            where=where,
        )


def _text(shares: list[tuple[Percent, Percent]]) -> str:
    return "+".join(
        f"{compute.value}" + (f"(to {limit.value})" if limit > compute else "") for compute, limit in shares
    )


def overdrawn(total: Claim, *, memory: MiB, holders: int) -> str | None:
    """Why these claims together are more than one GPU has; `holders` is how many pods they come from."""
    if total.closes and holders > 1:
        return f"granted whole to one of {holders} pods"
    if total.compute > WHOLE:
        return f"{total.compute} of {WHOLE} compute"
    if total.memory > memory:
        return f"{total.memory} of {memory} memory"
    return None
