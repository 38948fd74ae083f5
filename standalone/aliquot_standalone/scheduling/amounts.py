"""What a pod asks of CPU, memory and the rest, in whole thousandths: sums over many pods stay cheap and exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import ceil

from aliquot_core.objects import Container, Pod
from aliquot_standalone.apiserver.quantities import parse
from aliquot_standalone.scheduling.objects import PlacedPod

Amounts = dict[str, int]
PODS = "pods"
ONE = 1000


@lru_cache(maxsize=4096)
def thousandths(text: str) -> int:
    """Read a quantity, rounded up; what is no quantity is nothing (the API server refuses those)."""
    amount = parse(text)
    return ceil(amount * ONE) if amount is not None else 0


def read(amounts: Mapping[str, object]) -> Amounts:
    """Read a resource list."""
    return {name: thousandths(str(text)) for name, text in amounts.items()}


def asked_by(pod: PlacedPod) -> Amounts:
    """Give what a pod asks, with what its sandbox takes."""
    return together(asked_at_once(pod), read(pod.spec.overhead))


def asked_at_once(pod: Pod) -> Amounts:
    """Give what a pod's containers ask at any instant, at most, and one place among a node's pods.

    Ordinary init containers run one after another, each beside the sidecars that stand before it.
    """
    running: Amounts = {}
    most: Amounts = {}
    for container in pod.spec.init_containers:
        asked = requests(container)
        if container.restart_policy == "Always":
            running = together(running, asked)
            asked = {}
        most = either(most, together(running, asked))
    for container in pod.spec.containers:
        running = together(running, requests(container))
    return {**either(most, running), PODS: ONE}


def requests(container: Container) -> Amounts:
    """Limits stand for requests that are not named."""
    return read({**container.resources.limits, **container.resources.requests})


def together(one: Amounts, other: Amounts) -> Amounts:
    """Add two."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in _names(one, other)}


def either(one: Amounts, other: Amounts) -> Amounts:
    """Take the larger of each."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in _names(one, other)}


def _names(one: Amounts, other: Amounts) -> Iterable[str]:
    return dict.fromkeys((*one, *other))
