"""CPU, memory and the like of nodes: how Kubernetes writes them, and what a pod requests, as kube-scheduler counts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from fractions import Fraction
from functools import lru_cache
from math import ceil

from aliquot_core.names import Names
from aliquot_core.objects import ContainerStatus, Pod, PodStatus, Quantity, ResourceRequirements
from aliquot_core.quantities import QUOTED, QuantityError, factor_of
from aliquot_core.request import Kind, kinds, most_at_once

_QUANTITY = re.compile(r"(?P<number>\d{1,30}(\.\d{0,30})?([eE][+-]?\d{1,2})?)(?P<suffix>[A-Za-z]{0,2})")
_NOTHING = Fraction(0)
Texts = tuple[str, ...]
_HUGE_PAGES = "hugepages-"
# What changes of a pod while it runs; a pod says for all its containers together only these, and huge pages.
_RESIZED = frozenset({"cpu", "memory"})
# The condition, and its reason, by which a kubelet says that a pod will never have what it asks by now.
RESIZE_PENDING, INFEASIBLE = "PodResizePending", "Infeasible"
# More than any node has, exact as a float, and sums over a thousand nodes stay within 64 bits: the API server takes
# 7Ei of memory in each of a pod's containers.
MOST = 2**53


def quantity(text: str | float, *, where: str) -> Fraction:
    """A quantity of CPU or host memory, exactly."""
    match = _QUANTITY.fullmatch(str(text).strip())
    factor = factor_of(match["suffix"]) if match else None
    if match is None or factor is None:
        raise QuantityError(
            f"{str(text)[:QUOTED]!r} is no quantity", where=where, remedy="write one such as 64, 500m or 512Gi"
        )
    return Fraction(match["number"]) * factor


def host_request(pod: Pod) -> tuple[int, int]:
    """CPU in thousandths and memory in bytes that the pod requests of its node, at most `MOST`."""
    return min(MOST, requested(pod, "cpu", scale=1000)), min(MOST, requested(pod, "memory", scale=1))


def own_request(pod: Pod, *, names: Names) -> tuple[int, int, int]:
    """Percent, MiB and places for best effort as kube-scheduler counts them: what is left out is nothing to it."""
    compute, memory, best_effort = (min(MOST, requested(pod, name, scale=1)) for name in names.resources())
    return compute, memory, best_effort


def is_extended(resource: str) -> bool:
    """Whether a resource is one that only some nodes have: what of it a node does not tell of is not there."""
    return "/" in resource or resource.startswith(_HUGE_PAGES)


def extended_request(pod: Pod, *, but: Collection[str]) -> tuple[tuple[str, int], ...]:
    """What it requests of such resources `but` these, by name."""
    asked = filter(is_extended, named(pod))
    amounts = ((name, min(MOST, requested(pod, name, scale=1))) for name in sorted({*asked}.difference(but)))
    return tuple((name, amount) for name, amount in amounts if amount)


def named(pod: Pod) -> set[str]:
    """The resources that its containers, or the pod for all of them, say anything of."""
    said = [pod.spec.resources or ResourceRequirements(), *(container.resources for _, container in kinds(pod))]
    return {name for resources in said for name in (*resources.requests, *resources.limits)}


def requested(pod: Pod, name: str, *, scale: int) -> int:
    """How many of a unit, of which `scale` are one, the pod requests at any instant: its sandbox's share included.

    What the pod says of all its containers counts in the place of their sum, be it more or less. While it is resized
    the most counts of what it asks, what the kubelet has let it have and what is in force.
    """
    overhead = pod.spec.overhead.get(name)
    most = _most(_texts(pod, name), scale)
    return most if overhead is None else most + ceil(scale * _read(str(overhead)))


def _texts(pod: Pod, name: str) -> tuple[tuple[Kind, Texts], ...]:
    if (of_all := _of_all(pod, name)) is not None:
        return ((Kind.APP, _in_force(of_all, pod.status, name=name, pod=pod)),)
    if name in _RESIZED and (pod.status.container_statuses or pod.status.init_container_statuses):
        return tuple(_texts_in_force(pod, name))
    return tuple((kind, _written(_asked(one.resources, name))) for kind, one in kinds(pod))


def _texts_in_force(pod: Pod, name: str) -> Iterator[tuple[Kind, Texts]]:
    actual = {one.name: one for one in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    for kind, one in kinds(pod):
        # Of an init container that ends nothing is resized.
        fares = None if kind is Kind.INIT else actual.get(one.name)
        yield kind, _in_force(_asked(one.resources, name), fares, name=name, pod=pod)


def _of_all(pod: Pod, name: str) -> Quantity | None:
    if (whole := pod.spec.resources) is None or not (name in _RESIZED or name.startswith(_HUGE_PAGES)):
        return None
    asked = whole.requests.get(name)
    # As the API server fills it in: a limit is what is asked where no container says how much it asks.
    if asked is None and all(_asked(one.resources, name) is None for _, one in kinds(pod)):
        return whole.limits.get(name)
    return asked


def _asked(resources: ResourceRequirements, name: str) -> Quantity | None:
    return resources.requests.get(name, resources.limits.get(name))


def _written(asked: Quantity | None) -> Texts:
    return () if asked is None else (str(asked),)


def _in_force(asked: Quantity | None, actual: ContainerStatus | PodStatus | None, *, name: str, pod: Pod) -> Texts:
    """The texts of which the largest counts."""
    if actual is None or actual.resources is None or name not in _RESIZED:
        return _written(asked)
    texts = [actual.resources.requests.get(name), actual.allocated_resources.get(name)]
    if not any(one.type == RESIZE_PENDING and one.reason == INFEASIBLE for one in pod.status.conditions):
        texts.append(asked)
    return tuple({str(text): None for text in texts if text is not None})


# Asked several times for each pod, and few pods differ in it: to add exactly takes 15 us.
@lru_cache(maxsize=4096)
def _most(texts: tuple[tuple[Kind, Texts], ...], scale: int) -> int:
    amounts = ((kind, max(map(_read, some), default=_NOTHING)) for kind, some in texts)
    return ceil(scale * most_at_once(amounts, nothing=_NOTHING))


@lru_cache(maxsize=4096)
def _read(text: str) -> Fraction:
    try:
        return quantity(text, where="request")
    except QuantityError:
        # The API server took it, so it is some way of writing that is not worth failing a pod for.
        return _NOTHING
