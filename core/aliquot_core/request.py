"""What a pod asks for: limits and annotations in, one checked request out.

Nothing is guessed: what can't be meant is refused with the container, the value and what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from fractions import Fraction
from functools import partial
from typing import TypeVar

import msgspec

from aliquot_core.errors import UserError
from aliquot_core.membership import Group, parse_group, parse_queue
from aliquot_core.names import Names
from aliquot_core.node_rules import check_affinity
from aliquot_core.objects import Container, Pod
from aliquot_core.patterns import Patterns
from aliquot_core.problems import Problems
from aliquot_core.quantities import MEBIBYTES, NO_COMPUTE, QUOTED, WHOLE, MiB, Percent
from aliquot_core.request_notes import Placement, gpus_of, mode_of, note, patterns_of, placement_of, yes_or_no
from aliquot_core.request_rules import (
    MOST_CONTAINERS,
    RequestError,
    check_best_effort,
    check_division,
    check_request,
    count_of,
    limit_of,
    too_many_containers,
)
from aliquot_core.shares import Share, divide

# The value of the label by which a pod keeps out, whatever a LimitRange puts on its containers.
NO_USE = "none"

N = TypeVar("N", int, Fraction)


class Kind(StrEnum):
    """How a container takes part in its pod's life; claims are counted by it."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class Quality(StrEnum):
    """Quality of service, as Kubernetes has it for CPU."""

    GUARANTEED = "guaranteed"
    BURSTABLE = "burstable"
    BEST_EFFORT = "best-effort"


def quality_of(*, compute: Percent, limit: Percent) -> Quality:
    """The class of who asked for, or was granted, so much."""
    if not compute:
        return Quality.BEST_EFFORT
    return Quality.BURSTABLE if limit > compute else Quality.GUARANTEED


class ContainerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one container asks for."""

    name: str
    kind: Kind
    compute: Percent
    limit: Percent
    memory: MiB | None
    gpus: int | None = None

    @property
    def quality(self) -> Quality:
        """Its class when GPUs are contended."""
        return quality_of(compute=self.compute, limit=self.limit)

    @property
    def shares(self) -> tuple[Share, ...]:
        """What it asks of each of its GPUs."""
        return divide(compute=self.compute, limit=self.limit, memory=self.memory, gpus=self.gpus)


class PodRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod asks for; no containers means that it does not use Aliquot."""

    containers: tuple[ContainerRequest, ...] = ()
    models: Patterns = Patterns()
    uuids: Patterns = Patterns()
    placement: Placement = Placement.BEST
    preemptible: bool = True
    isolation: str = ""
    queue: str = ""
    group: Group | None = None

    @property
    def qualities(self) -> frozenset[Quality]:
        """The classes of its containers."""
        return frozenset(one.quality for one in self.containers)

    @property
    def wholes(self) -> tuple[bool, ...]:
        """One GPU, or several and whether all of them whole: not every isolation reaches over two (`spans`).

        Of several containers the one that is hardest to hold counts.
        """
        # Most have one GPU, and queues ask at each decision: only who has several is divided.
        several = [one for one in self.containers if (one.gpus or 0) > 1 or one.compute.value > WHOLE.value]
        if not several:
            return (False,)
        return (all(one.shares[-1].compute == WHOLE for one in several),) * 2

    @property
    def least(self) -> tuple[int, int]:
        """Percent and MiB that it holds at one time, at the least: memory left out is known only with the card."""
        compute = ((one.kind, one.compute.value) for one in self.containers)
        memory = ((one.kind, one.memory.value if one.memory else 0) for one in self.containers)
        return most_at_once(compute, nothing=0), most_at_once(memory, nothing=0)

    def of(self, container: str) -> ContainerRequest | None:
        """What the container of that name asks for."""
        return next((asked for asked in self.containers if asked.name == container), None)


def kinds(pod: Pod) -> Iterator[tuple[Kind, Container]]:
    """Every container of the pod with its kind, in the order in which they start."""
    for container in pod.spec.init_containers:
        yield (Kind.SIDECAR if container.restart_policy == "Always" else Kind.INIT), container
    for container in pod.spec.containers:
        yield Kind.APP, container


def most_at_once(amounts: Iterable[tuple[Kind, N]], *, nothing: N) -> N:
    """The most that containers in their order hold at one time: beside each init container, and at the end."""
    steady = most = nothing
    for kind, amount in amounts:
        if kind is Kind.INIT:
            most = max(most, steady + amount)
        else:
            steady += amount
    return max(most, steady)


def asks(pod: Pod, *, names: Names) -> bool:
    """Whether any container names one of our resources, well or badly."""
    ours = set(names.resources())
    return any(
        not ours.isdisjoint((*container.resources.limits, *container.resources.requests)) for _, container in kinds(pod)
    )


def declines(pod: Pod, *, names: Names) -> bool:
    """Whether the author wants no slice, so that what a LimitRange put on the containers is to be taken off."""
    use = pod.metadata.labels.get(names.use)
    if use not in {None, NO_USE}:
        raise RequestError(
            f"{use[:QUOTED]!r} is unknown", where=f"label {names.use}", remedy=f"write {NO_USE}, or drop the label"
        )
    return use == NO_USE


def parse_request(pod: Pod, *, names: Names) -> PodRequest:
    """Read what the pod asks for, or say what is wrong with it: the first thing, if there are several."""
    problems = Problems()
    request = read_request(pod, names=names, problems=problems)
    if problems.found:
        raise problems.found[0]
    return request


def read_request(pod: Pod, *, names: Names, problems: Problems) -> PodRequest:
    """Read what the pod asks for, gathering all that is wrong with it; what has a problem is left out."""
    if problems.reading(lambda: declines(pod, names=names), otherwise=False):
        return PodRequest()
    containers = _containers(pod, names=names, problems=problems)
    if containers:
        problems.reading(lambda: check_affinity(pod), otherwise=None)
    return PodRequest(
        containers=containers,
        models=problems.reading(lambda: patterns_of(pod, names.gpu_model), otherwise=Patterns()),
        uuids=problems.reading(lambda: patterns_of(pod, names.gpu_uuid), otherwise=Patterns()),
        placement=problems.reading(lambda: placement_of(pod, names.placement), otherwise=Placement.BEST),
        preemptible=problems.reading(lambda: yes_or_no(pod, names.preemptible), otherwise=True),
        isolation=problems.reading(lambda: mode_of(pod, names.isolation), otherwise=""),
        queue=problems.reading(lambda: parse_queue(pod.metadata, names=names), otherwise=""),
        group=problems.reading(lambda: parse_group(pod.metadata, names=names), otherwise=None),
    )


def _containers(pod: Pod, *, names: Names, problems: Problems) -> tuple[ContainerRequest, ...]:
    text = pod.metadata.annotations.get(names.compute_limit)
    gpus = problems.reading(lambda: gpus_of(pod, names.gpus), otherwise=None)
    limit = problems.reading(
        lambda: count_of(text, where=note(names.compute_limit), unit="percent"),
        otherwise=None,
    )
    containers = tuple(
        asked
        for kind, container in kinds(pod)
        if (asked := _container(container, kind=kind, names=names, gpus=gpus, limit=limit, problems=problems))
    )
    if len(containers) > MOST_CONTAINERS:
        problems.found.append(too_many_containers(len(containers)))
        return ()
    # Beside another problem it might only be the container that could not be read.
    if gpus is not None and containers and not problems.found and not any(asked.compute for asked in containers):
        stray = RequestError(
            "divides compute over GPUs, but no container asks for compute",
            where=note(names.gpus),
            remedy=f"set {names.compute} on a container, or drop the annotation",
        )
        problems.found.append(stray)
    return containers


def _container(
    container: Container, *, kind: Kind, names: Names, gpus: int | None, limit: int | None, problems: Problems
) -> ContainerRequest | None:
    amounts = _amounts(container, names=names, problems=problems)
    if amounts is None:
        return None
    compute, memory = amounts
    try:
        return _asked(container.name, compute, memory, kind=kind, names=names, gpus=gpus, limit=limit)
    except UserError as problem:
        problems.found.append(problem)
        return None


def _amounts(container: Container, *, names: Names, problems: Problems) -> tuple[Percent, MiB | None] | None:
    """Its compute and memory; None if it asks for neither, or what it asks can't be read."""
    where, limits, before = f"container {container.name}", container.resources.limits, len(problems.found)

    def count(name: str, unit: str) -> int | None:
        return problems.reading(lambda: count_of(limits.get(name), where=f"{where}, {name}", unit=unit), otherwise=None)

    for name, unit in ((names.compute, "percent"), (names.memory, MEBIBYTES), (names.best_effort, "ids")):
        problems.reading(partial(check_request, container.resources, name, where=where, unit=unit), otherwise=None)
    if not any(name in limits for name in names.resources()):
        return None
    compute, memory = count(names.compute, "percent"), count(names.memory, MEBIBYTES)
    problems.reading(lambda: check_best_effort(limits, where=where, names=names), otherwise=None)
    if len(problems.found) > before:
        return None
    return Percent(compute) if compute else NO_COMPUTE, MiB(memory) if memory else None


def _asked(
    name: str, compute: Percent, memory: MiB | None, *, kind: Kind, names: Names, gpus: int | None, limit: int | None
) -> ContainerRequest:
    where = f"container {name}"
    gpus = gpus if compute else None
    check_division(compute, memory=memory.value if memory else None, gpus=gpus, where=where, names=names)
    return ContainerRequest(
        name=name,
        kind=kind,
        compute=compute,
        limit=limit_of(compute, limit=limit, gpus=gpus, where=f"{where}, {note(names.compute_limit)}"),
        memory=memory,
        gpus=gpus,
    )
