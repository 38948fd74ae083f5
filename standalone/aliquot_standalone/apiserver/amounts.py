"""What a pod asks in all, as Kubernetes adds it up. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from . import quantities
from .names import is_extended

if TYPE_CHECKING:
    from .store import Json

Amounts = dict[str, Fraction]
NOTHING = Fraction(0)


def read(amounts: Mapping[str, object]) -> Amounts:
    """Read a resource list; its quantities were checked when it was stored."""
    return {name: quantities.parse(str(text)) or NOTHING for name, text in amounts.items()}


def written(amount: Fraction, *, like: str = "") -> str:
    """Write an amount as the API does: in powers of 1024 where the text that it stands beside has them."""
    if like.endswith("i") and amount.denominator == 1 and amount % 1024 == 0:
        text = f"{amount // 1024}Ki"
    elif amount.denominator == 1:
        text = str(amount.numerator)
    else:
        text = f"{-(-amount.numerator * 1000 // amount.denominator)}m"
    return quantities.canonical(text) or text


def add(total: Amounts, more: Mapping[str, Fraction], *, sign: int = 1) -> None:
    """Add to a total, in place."""
    for name, amount in more.items():
        total[name] = total.get(name, NOTHING) + sign * amount


def of_pod(spec: Json, part: str) -> Amounts:
    """Give what a pod asks at any instant, at most: `part` is requests or limits.

    What it says for all its containers counts in the place of their sum.
    """
    most = of_containers(spec, part) | read(spec.get("resources", {}).get(part, {}))
    add(most, read(spec.get("overhead", {})) if most else {})
    return most


def of_containers(spec: Json, part: str) -> Amounts:
    """Give the same of its containers alone.

    Ordinary init containers run one after another, each beside the sidecars that stand before it.
    """
    running: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers", []):
        asked = read(container.get("resources", {}).get(part, {}))
        if container.get("restartPolicy") == "Always":
            add(running, asked)
            asked = {}
        _raise_to(most, {name: running.get(name, NOTHING) + asked.get(name, NOTHING) for name in {*running, *asked}})
    for container in spec.get("containers", []):
        add(running, read(container.get("resources", {}).get(part, {})))
    _raise_to(most, running)
    return most


def _raise_to(most: Amounts, other: Mapping[str, Fraction]) -> None:
    for name, amount in other.items():
        most[name] = max(most.get(name, NOTHING), amount)


def counted_names(spec: Json) -> Amounts:
    """Give what a pod asks under the names that quotas use: `limits.X` of extended resources counts nowhere."""
    found: Amounts = {}
    for name, amount in of_pod(spec, "requests").items():
        found[f"requests.{name}"] = amount
        if not is_extended(name):
            found[name] = amount
    for name, amount in of_pod(spec, "limits").items():
        if not is_extended(name):
            found[f"limits.{name}"] = amount
    return found
