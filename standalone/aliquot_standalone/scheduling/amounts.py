"""What a pod asks of CPU, memory and the rest, in whole thousandths: sums over many pods stay cheap and exact."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import ceil

from aliquot_core.hosts import named, requested
from aliquot_core.objects import Pod
from aliquot_standalone.apiserver.quantities import parse

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


def asked_by(pod: Pod) -> Amounts:
    """Give what a pod asks at any instant, at most, and one place among a node's pods."""
    names = sorted(named(pod) | pod.spec.overhead.keys())
    return {name: requested(pod, name, scale=ONE) for name in names} | {PODS: ONE}
