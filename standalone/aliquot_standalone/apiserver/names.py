"""What may be a name, a label, an annotation or a quantity in an object."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from . import quantities
from .failures import Cause, bad_request, too_long, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED_END = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LONGEST_NAME = 253
_ANNOTATIONS_MOST = 256 * 1024


def is_label(name: str) -> bool:
    """Tell whether a name is one DNS label: a container, a namespace."""
    return _LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Tell whether a name is DNS labels joined by dots: a pod, a node."""
    return len(name) <= _LONGEST_NAME and _SUBDOMAIN.fullmatch(name) is not None


def rule_of(name: str) -> str:
    """Say how a name has to look that can't stand, whichever of the rules above its kind has."""
    if len(name) > _LONGEST_NAME:
        return f"a name has at most {_LONGEST_NAME} characters"
    if is_subdomain(name):
        return "a name of this kind has at most 63 small letters, digits and '-', with a letter or digit at each end"
    return "a name is small letters, digits, '-' and '.', with a letter or digit at each end and beside each '.'"


def is_path_segment(name: str) -> bool:
    """Tell whether a name can stand in an address: the loosest rule."""
    return name not in {"", ".", ".."} and "/" not in name and "%" not in name


@lru_cache(maxsize=4096)
def is_qualified(name: str) -> bool:
    """Tell whether a name is `name` or `domain/name`: a label key, a resource, a gate."""
    domain, slash, end = name.rpartition("/")
    if slash and not is_subdomain(domain):
        return False
    return _QUALIFIED_END.fullmatch(end) is not None


def label_causes(labels: dict[str, str], *, at: str) -> list[Cause]:
    """Check keys and values of labels."""
    causes = [
        wrong(at, key, "a key is [domain/]name, at most 63 characters after the slash")
        for key in labels
        if not is_qualified(key)
    ]
    causes += [
        wrong(at, value, "a value is at most 63 letters, digits, '-', '_' or '.', with a letter or digit at each end")
        for value in labels.values()
        if not _LABEL_VALUE.fullmatch(value)
    ]
    return causes


def annotation_causes(annotations: dict[str, str], *, at: str) -> list[Cause]:
    """Check keys and the total size of annotations."""
    causes = [wrong(at, key, "a key is [domain/]name") for key in annotations if not is_qualified(key.lower())]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_MOST:
        causes.append(too_long(at, _ANNOTATIONS_MOST))
    return causes


def rewrite_quantities(amounts: dict[str, Any], *, thousandths: bool = False) -> None:
    """Bring every quantity of a resource list into its one form, in place; texts that are none never come so far."""
    for name, value in amounts.items():
        written = quantities.canonical(str(value), thousandths=thousandths)
        if written is None:
            # A number that is: 1e100.
            raise bad_request(f"{value} of {name!r} is beyond what a quantity can be")
        amounts[name] = written


def is_extended(resource: str) -> bool:
    """Tell whether a resource is none of Kubernetes's own: counted in whole things."""
    domain, slash, _ = resource.rpartition("/")
    return bool(slash) and not (domain == "kubernetes.io" or domain.endswith(".kubernetes.io"))


def whole_causes(amounts: dict[str, str], *, at: Callable[[str], str]) -> list[Cause]:
    """Check that extended resources are whole numbers."""
    found = []
    for name, amount in amounts.items():
        value = quantities.parse(amount)
        if value is not None and is_extended(name) and value.denominator != 1:
            found.append(wrong(at(name), amount, "must be an integer"))
    return found
