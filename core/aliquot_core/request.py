"""What a pod asks for: limits and annotations in, one checked request out.

Nothing is guessed: what can't be meant is refused with the container, the value and what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from aliquot_core.errors import UserError
from aliquot_core.names import Names
from aliquot_core.objects import Container, Pod
from aliquot_core.patterns import Patterns, parse_patterns
from aliquot_core.quantities import NO_COMPUTE, WHOLE, MiB, Percent, parse_count
from aliquot_core.shares import Share, divide

# More GPUs than one machine has: what lies above is a mistake.
MOST_GPUS = 64


class RequestError(UserError):
    """A request that can't be met as written."""


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


class Placement(StrEnum):
    """Where the author wants the pod: wherever it is best, close to others, or away from them."""

    BEST = ""
    PACK = "pack"
    SPREAD = "spread"


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
        if not self.compute:
            return Quality.BEST_EFFORT
        return Quality.BURSTABLE if self.limit > self.compute else Quality.GUARANTEED

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

    def of(self, container: str) -> ContainerRequest | None:
        """What the container of that name asks for."""
        return next((asked for asked in self.containers if asked.name == container), None)


def kinds(pod: Pod) -> Iterator[tuple[Kind, Container]]:
    """Every container of the pod with its kind, in the order in which they start."""
    for container in pod.spec.init_containers:
        yield (Kind.SIDECAR if container.restart_policy == "Always" else Kind.INIT), container
    for container in pod.spec.containers:
        yield Kind.APP, container


def parse_request(pod: Pod, *, names: Names) -> PodRequest:
    """Read what the pod asks for, or say what is wrong with it."""
    notes = pod.metadata.annotations
    gpus = _count(notes.get(names.gpus), where=f"annotation {names.gpus}", unit="GPUs")
    if gpus is not None and gpus > MOST_GPUS:
        raise RequestError(f"{gpus} GPUs are more than {MOST_GPUS}", where=f"annotation {names.gpus}")
    limit = _count(notes.get(names.compute_limit), where=f"annotation {names.compute_limit}", unit="percent")
    containers = tuple(
        asked
        for kind, container in kinds(pod)
        if (asked := _container(container, kind=kind, names=names, gpus=gpus, limit=limit))
    )
    if gpus is not None and containers and not any(asked.compute for asked in containers):
        raise RequestError(
            "divides compute over GPUs, but no container asks for compute",
            where=f"annotation {names.gpus}",
            remedy=f"set {names.compute} on a container, or drop the annotation",
        )
    return PodRequest(
        containers=containers,
        models=parse_patterns(notes.get(names.gpu_model, ""), where=f"annotation {names.gpu_model}"),
        uuids=parse_patterns(notes.get(names.gpu_uuid, ""), where=f"annotation {names.gpu_uuid}"),
        placement=_placement(notes.get(names.placement, ""), where=f"annotation {names.placement}"),
        preemptible=_yes_or_no(notes.get(names.preemptible, "true"), where=f"annotation {names.preemptible}"),
        isolation=notes.get(names.isolation, ""),
    )


def _container(
    container: Container, *, kind: Kind, names: Names, gpus: int | None, limit: int | None
) -> ContainerRequest | None:
    limits = container.resources.limits
    where = f"container {container.name}"
    if not any(name in limits for name in (names.compute, names.memory, names.best_effort)):
        return None
    asked_compute = _count(limits.get(names.compute), where=f"{where}, {names.compute}", unit="percent")
    asked_memory = _count(limits.get(names.memory), where=f"{where}, {names.memory}", unit="MiB")
    if asked_compute is None and asked_memory is None:
        raise RequestError(
            "neither compute nor memory is asked for",
            where=where,
            remedy=f"set {names.memory}, or {names.compute}, or both",
        )
    compute = Percent(asked_compute) if asked_compute else NO_COMPUTE
    gpus = gpus if compute else None
    _check_division(compute, memory=asked_memory, gpus=gpus, where=where, names=names)
    return ContainerRequest(
        name=container.name,
        kind=kind,
        compute=compute,
        limit=_limit(compute, limit=limit, gpus=gpus, where=f"{where}, annotation {names.compute_limit}"),
        memory=MiB(asked_memory) if asked_memory else None,
        gpus=gpus,
    )


def _check_division(compute: Percent, *, memory: int | None, gpus: int | None, where: str, names: Names) -> None:
    if compute.value > MOST_GPUS * WHOLE.value:
        raise RequestError(f"{compute} is more than {MOST_GPUS} GPUs", where=f"{where}, {names.compute}")
    if gpus is None:
        return
    if compute.value > gpus * WHOLE.value:
        raise RequestError(
            f"{compute} does not fit on {gpus} GPUs",
            where=where,
            remedy=f"ask for at most {gpus * WHOLE.value}, or raise {names.gpus} to {-(-compute.value // WHOLE.value)}",
        )
    if min(compute.value, compute.value if memory is None else memory) < gpus:
        raise RequestError(f"less than 1 for each of {gpus} GPUs", where=where, remedy=f"lower {names.gpus}")


def _limit(compute: Percent, *, limit: int | None, gpus: int | None, where: str) -> Percent:
    """A container without compute may use what is idle, up to a whole GPU, unless it says less."""
    if limit is None:
        return compute or WHOLE
    most = (gpus or max(1, -(-compute.value // WHOLE.value))) * WHOLE.value
    if limit < compute.value:
        raise RequestError(
            f"{limit} is less than the {compute} asked for", where=where, remedy=f"write {compute.value} to {most}"
        )
    if limit > most:
        raise RequestError(f"{limit} is more than its GPUs have", where=where, remedy=f"write at most {most}")
    return Percent(limit)


def _count(text: str | int | None, *, where: str, unit: str) -> int | None:
    return None if text is None else parse_count(text, where=where, unit=unit)


def _placement(text: str, *, where: str) -> Placement:
    try:
        return Placement(text)
    except ValueError:
        raise RequestError(f"{text[:40]!r} is unknown", where=where, remedy="write pack or spread") from None


def _yes_or_no(text: str, *, where: str) -> bool:
    if text not in {"true", "false"}:
        raise RequestError(f"{text[:40]!r} is unknown", where=where, remedy='write "true" or "false"')
    return text == "true"
