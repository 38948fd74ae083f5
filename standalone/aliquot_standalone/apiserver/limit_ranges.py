"""LimitRange: what it puts on the containers of its namespace, and what it refuses of them.

As a cluster has it: defaults reach every container, sidecars and pods that want no GPU too; `min` and `max` of type
Container hold for each container, those of type Pod for the sum. Volumes' claims are not served here.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import msgspec

from . import amounts, names
from .failures import Cause, forbidden, forbidden_field
from .rules import Rules
from .shapes import Metadata, Quantities, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .acts import Act
    from .store import Json, Store

_ANNOTATION = "kubernetes.io/limit-ranger"
_LISTS = ("default", "defaultRequest", "max", "maxLimitRequestRatio", "min")
TABLE = "limitranges"


class _Item(Shape, frozen=True):
    type: Literal["Container", "Pod", "PersistentVolumeClaim"]
    default: Quantities = msgspec.field(default_factory=dict)
    default_request: Quantities = msgspec.field(default_factory=dict)
    max: Quantities = msgspec.field(default_factory=dict)
    max_limit_request_ratio: Quantities = msgspec.field(default_factory=dict)
    min: Quantities = msgspec.field(default_factory=dict)


class _Spec(Shape, frozen=True):
    limits: tuple[_Item, ...] = ()


class _LimitRange(Shape, frozen=True):
    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()


class LimitRangeRules(Rules):
    """Limit ranges fill in what follows from what they say."""

    shape = _LimitRange

    def prepare_new(self, obj: Json, *, now: float) -> None:  # noqa: ARG002 - a rule's signature
        """Let a container's `max` be its default, the default its default request, and `min` that where none is."""
        for item in obj.get("spec", {}).get("limits", []):
            if item["type"] == "Container":
                _inherit(item, "default", "max")
                _inherit(item, "defaultRequest", "default")
                _inherit(item, "defaultRequest", "min")

    def prepare_update(self, new: Json, old: Json) -> None:  # noqa: ARG002 - a rule's signature
        """Fill in the same."""
        self.prepare_new(new, now=0.0)

    def causes(self, obj: Json) -> list[Cause]:
        """Check metadata and that no bound contradicts another."""
        found = super().causes(obj)
        for index, item in enumerate(obj.get("spec", {}).get("limits", [])):
            for part in _LISTS:
                names.rewrite_quantities(item.get(part, {}))
            at = f"spec.limits[{index}]"
            if item["type"] == "Pod":
                found += [
                    forbidden_field(f"{at}.{part}", "may not be specified when `type` is 'Pod'")
                    for part in ("default", "defaultRequest")
                    if item.get(part)
                ]
            found += _contradictions(item, at=at)
        return found


def _inherit(item: Json, part: str, source: str) -> None:
    for name, amount in item.get(source, {}).items():
        item.setdefault(part, {}).setdefault(name, amount)


def _contradictions(item: Json, *, at: str) -> Iterator[Cause]:
    read = {part: amounts.read(item.get(part, {})) for part in _LISTS}
    for low, high in (("min", "max"), ("min", "default"), ("default", "max"), ("min", "defaultRequest")):
        for name, amount in read[low].items():
            if name in read[high] and amount > read[high][name]:
                why = f"{low} value {item[low][name]} is greater than {high} value {item[high][name]}"
                yield Cause(f"{at}.{low}[{name}]", "FieldValueInvalid", f'Invalid value: "{item[low][name]}": {why}')
    for name, amount in read["defaultRequest"].items():
        for high in ("default", "max"):
            if name in read[high] and amount > read[high][name]:
                why = f"default request value {item['defaultRequest'][name]} is greater than {high} value"
                yield Cause(f"{at}.defaultRequest[{name}]", "FieldValueInvalid", f"Invalid value: {why}")


def _items(store: Store, act: Act) -> list[Json]:
    found = store.snapshot(TABLE, prefix=f"{act.target.namespace}/")
    return [item for one in found for item in one.decode().get("spec", {}).get("limits", [])]


def _containers(spec: Json) -> Iterator[tuple[str, Json]]:
    for kind, part in (("init container", "initContainers"), ("container", "containers")):
        for container in spec.get(part, []):
            yield kind, container


def fill_in(store: Store, act: Act) -> None:
    """Put the defaults of the namespace on a new pod's containers, and say so in its annotations."""
    items = [item for item in _items(store, act) if item["type"] == "Container"]
    if not items:
        return
    said = []
    for kind, container in _containers(act.fresh["spec"]):
        resources = container.setdefault("resources", {})
        for part, source, word in (("requests", "defaultRequest", "request"), ("limits", "default", "limit")):
            if given := _given(resources, part, [item.get(source, {}) for item in items]):
                said.append(f"{', '.join(given)} {word} for {kind} {container.get('name', '')}")
    if said:
        act.fresh["metadata"].setdefault("annotations", {})[_ANNOTATION] = f"LimitRanger plugin set: {'; '.join(said)}"


def _given(resources: Json, part: str, defaults: list[Json]) -> list[str]:
    given = []
    for one in defaults:
        for name, amount in one.items():
            if name not in resources.get(part, {}):
                resources.setdefault(part, {})[name] = amount
                given.append(name)
    return sorted(given)


def check(store: Store, act: Act) -> None:
    """Refuse a new pod that leaves the bounds of its namespace."""
    spec, troubles = act.fresh["spec"], list[str]()
    for item in _items(store, act):
        if item["type"] == "Container":
            for _, container in _containers(spec):
                resources = container.get("resources", {})
                asked = {part: amounts.read(resources.get(part, {})) for part in ("requests", "limits")}
                troubles += _troubles(item, asked["requests"], asked["limits"])
        elif item["type"] == "Pod":
            troubles += _troubles(item, amounts.of_pod(spec, "requests"), amounts.of_pod(spec, "limits"))
    if troubles:
        raise forbidden(act.resource, act.name, troubles[0] if len(troubles) == 1 else f"[{', '.join(troubles)}]")


def _troubles(item: Json, requests: amounts.Amounts, limits: amounts.Amounts) -> Iterator[str]:
    kind = item["type"]
    for name, text in item.get("min", {}).items():
        head = f"minimum {name} usage per {kind} is {text}"
        yield from _outside(head, name, text, (("request", requests), ("limit", limits)), sign=-1)
    for name, text in item.get("max", {}).items():
        head = f"maximum {name} usage per {kind} is {text}"
        yield from _outside(head, name, text, (("limit", limits), ("request", requests)), sign=1)
    for name, text in item.get("maxLimitRequestRatio", {}).items():
        head = f"{name} max limit to request ratio per {kind} is {text}"
        yield from _beyond_ratio(head, amounts.read({name: text})[name], requests.get(name), limits.get(name))


def _outside(
    head: str, name: str, text: str, asked: tuple[tuple[str, amounts.Amounts], ...], *, sign: int
) -> Iterator[str]:
    """The first of the two must be there; each that is there must be inside."""
    bound = amounts.read({name: text})[name]
    if name not in asked[0][1]:
        yield f"{head}.  No {asked[0][0]} is specified"
        return
    for word, values in asked:
        if name in values and sign * (values[name] - bound) > 0:
            yield f"{head}, but {word} is {amounts.written(values[name], like=text)}"
            return


def _beyond_ratio(head: str, most: Fraction, request: Fraction | None, limit: Fraction | None) -> Iterator[str]:
    if not request:
        yield f"{head}, but no request is specified or request is 0"
    elif not limit:
        yield f"{head}, but no limit is specified or limit is 0"
    elif limit / request > most:
        yield f"{head}, but provided ratio is {float(limit / request):f}"
