"""CPU, memory and the like of nodes: how Kubernetes writes them, and what a pod requests, as kube-scheduler counts."""

from __future__ import annotations

import re
from collections.abc import Collection
from fractions import Fraction
from functools import lru_cache
from math import ceil

from aliquot_core.names import Names
from aliquot_core.objects import Container, Pod
from aliquot_core.quantities import QUOTED, QuantityError, factor_of
from aliquot_core.request import Kind, kinds, most_at_once

_QUANTITY = re.compile(r"(?P<number>\d{1,30}(\.\d{0,30})?([eE][+-]?\d{1,2})?)(?P<suffix>[A-Za-z]{0,2})")
_NOTHING = Fraction(0)
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
    return "/" in resource or resource.startswith("hugepages-")


def extended_request(pod: Pod, *, but: Collection[str]) -> tuple[tuple[str, int], ...]:
    """What it requests of such resources `but` these, by name."""
    texts = (container.resources for _, container in kinds(pod))
    asked = {name for resources in texts for name in (*resources.requests, *resources.limits) if is_extended(name)}
    amounts = ((name, min(MOST, requested(pod, name, scale=1))) for name in sorted(asked.difference(but)))
    return tuple((name, amount) for name, amount in amounts if amount)


def requested(pod: Pod, name: str, *, scale: int) -> int:
    """How many of a unit, of which `scale` are one, the pod requests at any instant: its sandbox's share included."""
    overhead = pod.spec.overhead.get(name)
    most = _most(tuple((kind, _text(container, name)) for kind, container in kinds(pod)), scale)
    return most if overhead is None else most + ceil(scale * _read(str(overhead)))


def _text(container: Container, name: str) -> str | None:
    resources = container.resources
    text = resources.requests.get(name, resources.limits.get(name))
    return None if text is None else str(text)


# Asked several times for each pod, and few pods differ in it: to add exactly takes 15 us.
@lru_cache(maxsize=4096)
def _most(texts: tuple[tuple[Kind, str | None], ...], scale: int) -> int:
    amounts = ((kind, _NOTHING if text is None else _read(text)) for kind, text in texts)
    return ceil(scale * most_at_once(amounts, nothing=_NOTHING))


@lru_cache(maxsize=4096)
def _read(text: str) -> Fraction:
    try:
        return quantity(text, where="request")
    except QuantityError:
        # The API server took it, so it is some way of writing that is not worth failing a pod for.
        return _NOTHING
