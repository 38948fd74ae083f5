"""Which device ids should the kubelet take? Advice, so that what it records names the GPUs that were granted.

The kubelet asks without saying for whom. Whoever is bound here with a grant, asks for so many ids and has none recorded
yet may be meant; when all of those agree on the GPUs, the answer is safe. When they don't, PodResources helps: the pod
being admitted is listed, and the only one that holds nothing. A wrong guess costs nothing but a name: the grant rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from aliquot_agent.starting.kubelet_view import Listed, Recorded
from aliquot_core.door import Prefer
from aliquot_core.grant import ContainerGrant, readable_grant
from aliquot_core.modes import MIG
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.problems import Problems
from aliquot_core.request import read_request


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A container for which the kubelet may be asking; `wanted` is how many ids of which GPU."""

    pod: str
    container: str
    wanted: tuple[tuple[str, int], ...]


def candidates(
    call: Prefer, *, pods: Iterable[Pod], recorded: Iterable[Recorded], names: Names
) -> tuple[Candidate, ...]:
    """Every container that waits for so many ids of this resource."""
    done = {(entry.uid, entry.container) for entry in recorded if entry.resource == call.resource}
    return tuple(
        Candidate(pod=pod.key, container=name, wanted=wanted)
        for pod in pods
        if not pod.ended
        for name, container in _granted(pod, names=names)
        if (pod.metadata.uid, name) not in done
        and (wanted := _wanted(name, container, pod=pod, resource=call.resource, names=names))
        and sum(count for _, count in wanted) == call.size
    )


def agreed(found: Iterable[Candidate]) -> dict[str, int] | None:
    """What all candidates want, if they want the same."""
    wishes = {candidate.wanted for candidate in found}
    return dict(wishes.pop()) if len(wishes) == 1 else None


def narrowed(found: Iterable[Candidate], *, listed: Iterable[Listed]) -> tuple[Candidate, ...]:
    """Only candidates of pods that the kubelet lists: those it has not begun to admit are not there yet."""
    empty = {f"{entry.namespace}/{entry.name}" for entry in listed if not any(entry.ids.values())}
    return tuple(candidate for candidate in found if candidate.pod in empty)


def _granted(pod: Pod, *, names: Names) -> Iterator[tuple[str, ContainerGrant]]:
    # One that can't be read is refused with its reason at PreStart; here it only can't be advised.
    if grant := readable_grant(pod.metadata.annotations.get(names.grant)):
        yield from grant.containers.items()


def _wanted(
    name: str, container: ContainerGrant, *, pod: Pod, resource: str, names: Names
) -> tuple[tuple[str, int], ...]:
    if resource == names.best_effort:
        return tuple((part.gpu, 1) for part in container.slices[:1]) if not container.compute else ()
    if container.isolation == MIG:
        # An instance may be more than was asked, and the kubelet counts what was. What is wrong is told at PreStart.
        asked = read_request(pod, names=names, problems=Problems()).of(name)
        return tuple((part.gpu, asked.compute.value) for part in container.slices) if asked else ()
    return tuple((part.gpu, part.compute.value) for part in container.slices if part.compute)
