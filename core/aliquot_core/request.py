"""What a pod asks for: limits and annotations in, one checked request out.

Nothing is guessed: what can't be meant is refused with the container, the value and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec

from aliquot_core.errors import UserError
from aliquot_core.membership import Group, parse_group, parse_queue
from aliquot_core.names import Names
from aliquot_core.objects import Container, Pod, Quantity, ResourceRequirements
from aliquot_core.patterns import Patterns, parse_patterns
from aliquot_core.quantities import MEBIBYTES, NO_COMPUTE, QUOTED, WHOLE, MiB, Percent, parse_count
from aliquot_core.shares import Share, divide

# More GPUs than one machine has: what lies above is a mistake.
MOST_GPUS = 64
# The value of the label by which a pod keeps out, whatever a LimitRange puts on its containers.
NO_USE = "none"

_MODE = re.compile(r"[a-z][a-z0-9-]{0,39}")


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
    queue: str = ""
    group: Group | None = None

    def of(self, container: str) -> ContainerRequest | None:
        """What the container of that name asks for."""
        return next((asked for asked in self.containers if asked.name == container), None)


def kinds(pod: Pod) -> Iterator[tuple[Kind, Container]]:
    """Every container of the pod with its kind, in the order in which they start."""
    for container in pod.spec.init_containers:
        yield (Kind.SIDECAR if container.restart_policy == "Always" else Kind.INIT), container
    for container in pod.spec.containers:
        yield Kind.APP, container


def declines(pod: Pod, *, names: Names) -> bool:
    """Whether the author wants no slice, so that what a LimitRange put on the containers is to be taken off."""
    use = pod.metadata.labels.get(names.use)
    if use not in {None, NO_USE}:
        raise RequestError(
            f"{use[:QUOTED]!r} is unknown", where=f"label {names.use}", remedy=f"write {NO_USE}, or drop the label"
        )
    return use == NO_USE


def parse_request(pod: Pod, *, names: Names) -> PodRequest:
    """Read what the pod asks for, or say what is wrong with it."""
    if declines(pod, names=names):
        return PodRequest()
    notes = pod.metadata.annotations
    gpus = _gpus(notes.get(names.gpus), where=f"annotation {names.gpus}")
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
        isolation=_mode(notes.get(names.isolation, ""), where=f"annotation {names.isolation}"),
        queue=parse_queue(pod.metadata, names=names),
        group=parse_group(pod.metadata, names=names),
    )


def _container(
    container: Container, *, kind: Kind, names: Names, gpus: int | None, limit: int | None
) -> ContainerRequest | None:
    where = f"container {container.name}"
    limits = container.resources.limits
    _check_requests(container.resources, where=where, names=names)
    if not any(name in limits for name in (names.compute, names.memory, names.best_effort)):
        return None
    asked_compute = _count(limits.get(names.compute), where=f"{where}, {names.compute}", unit="percent")
    asked_memory = _count(limits.get(names.memory), where=f"{where}, {names.memory}", unit=MEBIBYTES)
    _check_best_effort(limits, where=where, names=names)
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


def _check_requests(resources: ResourceRequirements, *, where: str, names: Names) -> None:
    """Requests follow from limits: one that stands alone would be no slice, one that differs is never allowed."""
    for name, unit in ((names.compute, "percent"), (names.memory, MEBIBYTES), (names.best_effort, "ids")):
        place = f"{where}, {name}"
        request, limit = resources.requests.get(name), resources.limits.get(name)
        if request is not None and limit is None:
            raise RequestError("is requested without a limit", where=place, remedy="write it under limits instead")
        same = str(request) == str(limit)
        if request is None or same or _count(request, where=place, unit=unit) == _count(limit, where=place, unit=unit):
            continue
        raise RequestError(
            f"request {str(request)[:QUOTED]} is not limit {str(limit)[:QUOTED]}",
            where=place,
            remedy="drop the request",
        )


def _check_best_effort(limits: Mapping[str, Quantity], *, where: str, names: Names) -> None:
    """One id calls us for a container without compute; beside compute the kubelet would call for both."""
    ids = _count(limits.get(names.best_effort), where=f"{where}, {names.best_effort}", unit="ids")
    if ids is None:
        return
    if names.compute in limits:
        raise RequestError(
            f"asks for {names.best_effort} beside {names.compute}", where=where, remedy="drop one of the two"
        )
    if names.memory not in limits:
        raise RequestError(
            "asks for neither compute nor memory",
            where=where,
            remedy=f"set {names.memory}, or {names.compute} instead of {names.best_effort}",
        )
    if ids != 1:
        raise RequestError(f"{ids} is not 1", where=f"{where}, {names.best_effort}", remedy="write 1, or leave it out")


def _check_division(compute: Percent, *, memory: int | None, gpus: int | None, where: str, names: Names) -> None:
    if compute.value > MOST_GPUS * WHOLE.value:
        raise RequestError(
            f"{compute} is more than {MOST_GPUS} GPUs",
            where=f"{where}, {names.compute}",
            remedy=f"write 1 to {MOST_GPUS * WHOLE.value}: {WHOLE.value} is one whole GPU",
        )
    if gpus is None:
        return
    if compute.value > gpus * WHOLE.value:
        raise RequestError(
            f"{compute} does not fit on {gpus} GPUs",
            where=where,
            remedy=f"ask for at most {gpus * WHOLE.value}, or raise {names.gpus} to {-(-compute.value // WHOLE.value)}",
        )
    if compute.value < gpus:
        raise RequestError(
            f"{compute} is less than 1 for each of {gpus} GPUs", where=where, remedy=f"lower {names.gpus}"
        )
    if memory is not None and memory < gpus:
        raise RequestError(
            f"{memory} MiB is less than 1 for each of {gpus} GPUs", where=where, remedy=f"lower {names.gpus}"
        )


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


def _gpus(text: str | None, *, where: str) -> int | None:
    gpus = _count(text, where=where, unit="GPUs")
    if gpus is not None and gpus > MOST_GPUS:
        raise RequestError(f"{gpus} GPUs are more than {MOST_GPUS}", where=where, remedy=f"write 1 to {MOST_GPUS}")
    return gpus


def _count(text: Quantity | None, *, where: str, unit: str) -> int | None:
    return None if text is None else parse_count(text, where=where, unit=unit)


def _placement(text: str, *, where: str) -> Placement:
    try:
        return Placement(text)
    except ValueError:
        raise RequestError(f"{text[:QUOTED]!r} is unknown", where=where, remedy="write pack or spread") from None


def _yes_or_no(text: str, *, where: str) -> bool:
    if text not in {"true", "false"}:
        raise RequestError(f"{text[:QUOTED]!r} is unknown", where=where, remedy='write "true" or "false"')
    return text == "true"


def _mode(text: str, *, where: str) -> str:
    """Which modes there are is said by the inventories; what can't be one is refused here."""
    if text and not _MODE.fullmatch(text):
        raise RequestError(
            f"{text[:QUOTED]!r} is no mode", where=where, remedy="write one word, or drop the annotation"
        )
    return text
