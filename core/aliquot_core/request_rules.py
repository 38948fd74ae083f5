"""Which numbers of a container's request fit each other, each refusal with what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

from aliquot_core.errors import UserError
from aliquot_core.names import Names
from aliquot_core.objects import Quantity, ResourceRequirements
from aliquot_core.quantities import QUOTED, WHOLE, Percent, parse_count

# More GPUs than one machine has: what lies above is a mistake.
MOST_GPUS = 64
# A pod is laid out container by container on each node that is in a state of its own, and the leader does nothing else
# meanwhile. So many take 1.5 s where 1,000 nodes are; 400 would take longer than it may be silent.
MOST_CONTAINERS = 32


class RequestError(UserError):
    """A request that can't be met as written."""


def count_of(text: Quantity | None, *, where: str, unit: str) -> int | None:
    """A positive whole number, or None where nothing is written."""
    return None if text is None else parse_count(text, where=where, unit=unit)


def check_request(resources: ResourceRequirements, name: str, *, where: str, unit: str) -> None:
    """Requests follow from limits: one that stands alone would be no slice, one that differs is never allowed."""
    place = f"{where}, {name}"
    request, limit = resources.requests.get(name), resources.limits.get(name)
    if request is not None and limit is None:
        raise RequestError("is requested without a limit", where=place, remedy="write it under limits instead")
    same = str(request) == str(limit)
    if request is None or same or count_of(request, where=place, unit=unit) == count_of(limit, where=place, unit=unit):
        return
    raise RequestError(
        f"request {str(request)[:QUOTED]} is not limit {str(limit)[:QUOTED]}", where=place, remedy="drop the request"
    )


def check_best_effort(limits: Mapping[str, Quantity], *, where: str, names: Names) -> None:
    """One id calls us for a container without compute; beside compute the kubelet would call for both."""
    ids = count_of(limits.get(names.best_effort), where=f"{where}, {names.best_effort}", unit="ids")
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


def check_division(compute: Percent, *, memory: int | None, gpus: int | None, where: str, names: Names) -> None:
    """Each of its GPUs gets something, and none more than it has."""
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


def limit_of(compute: Percent, *, limit: int | None, gpus: int | None, where: str) -> Percent:
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


def too_many_containers(count: int) -> RequestError:
    """What is wrong with a pod of so many that ask."""
    return RequestError(
        f"{count} containers that ask for a slice are more than {MOST_CONTAINERS}",
        where="spec",
        remedy="put them into several pods, or let those that work one after another share a container",
    )
