"""What a Queue says, as its author writes it, read with every problem of it at once.

`compute` counts percent of a GPU and `memory` counts MiB, as pods do. What is left out is not promised and not limited:

| field | of compute, memory and each model | left out |
|---|---|---|
| `guarantee` | what the queue gets whenever it asks | what its children are guaranteed; nothing of its own |
| `limit` | what it never exceeds | no limit |
| `weight` | its part of what is left beyond guarantees; 0 borrows nothing | 1 |
| `lendingLimit` | how much of an idle guarantee others may use; 0 keeps all of it | all |
| `borrowingLimit` | how much it may use beyond its guarantee | no limit |
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from aliquot_core.errors import UserError
from aliquot_core.hosts import quantity
from aliquot_core.problems import Problems
from aliquot_core.quantities import QUOTED
from aliquot_scheduler.queues.said.expected import expected, written

# More than 10**10 GPUs: what lies above was meant in another unit.
LARGEST_QUOTA = 10**12
LARGEST_WEIGHT = 10**6

Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_QUOTA)]
Weight = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_WEIGHT)]
Priority = Annotated[int, msgspec.Meta(ge=-(10**9), le=10**9)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=366 * 24 * 3600)]
Minutes = Annotated[int, msgspec.Meta(ge=1, le=7 * 24 * 60)]
QUEUE_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
# Empty is the root, as in the definition of Queue.
Parent = Annotated[str, msgspec.Meta(max_length=63, pattern=rf"^({QUEUE_NAME})?$")]
Glob = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class QueueError(UserError):
    """A queue that can't be as it is written."""


class _Written(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Common settings of what is read from a custom resource."""


class Quota(_Written, frozen=True, kw_only=True):
    """What a queue may have of one thing."""

    guarantee: Count | None = None
    limit: Count | None = None
    weight: Weight = 1
    lending_limit: Count | None = None
    borrowing_limit: Count | None = None


class ModelQuota(_Written, frozen=True, kw_only=True):
    """The same, of GPUs of one model alone."""

    compute: Quota = Quota()
    memory: Quota = Quota()


class HostLimits(_Written, frozen=True, kw_only=True):
    """What the queue's pods may request of their nodes' CPU and memory, in Kubernetes' quantities."""

    cpu: str | int | None = None
    memory: str | int | None = None


class Preemption(_Written, frozen=True, kw_only=True):
    """Who has to go for whom; what is left out is as the queue above has it."""

    # Whose pods of lower priority make room in the queue: of the same user, of anybody, or none (so at the root).
    within_queue: Literal["", "SameUser", "AnyUser", "Never"] = ""
    # Whether it takes back what it lent of its guarantee (so at the root).
    reclaim: Literal["", "Borrowed", "Never"] = ""
    # So long its own pods run before they have to go for others; at the root 0.
    min_run_seconds: Seconds | None = None


class QueueSpec(_Written, frozen=True, kw_only=True):
    """A queue as its custom resource carries it."""

    parent: Parent = ""
    compute: Quota = Quota()
    memory: Quota = Quota()
    # By a pattern of the model's name.
    models: dict[Glob, ModelQuota] = {}
    hosts: HostLimits = HostLimits()
    # Between siblings: who is higher is given of what is left first.
    priority: Priority = 0
    # Of a queue that is held pods wait; of one that is drained new ones are refused too. Nobody who is in has to go.
    stop: Literal["", "hold", "drain"] = ""
    # Namespaces whose pods may name this queue, beside those whose label makes it their default.
    namespaces: tuple[Glob, ...] = ()
    # Within its quota but without room, its pods are shown to a cluster autoscaler for so long.
    autoscale: bool = False
    autoscale_minutes: Minutes = 15
    preemption: Preemption = Preemption()
    # How far its pods are taken that use more than granted; left out, as the queue above has it, else as their node.
    over_use: Literal["", "note", "warn", "throttle", "evict"] = ""


def read_queue(raw: Mapping[str, Any], *, name: str, problems: Problems) -> QueueSpec:
    """Read a queue's spec; what has a problem is as if left out."""
    spec: QueueSpec = _read(QueueSpec, raw, where=f"queue {name}, spec", problems=problems)
    where = f"queue {name}, spec.hosts"
    hosts = HostLimits(
        cpu=_checked(spec.hosts.cpu, where=f"{where}.cpu", problems=problems),
        memory=_checked(spec.hosts.memory, where=f"{where}.memory", problems=problems),
    )
    return msgspec.structs.replace(spec, hosts=hosts)


def _checked(text: str | int | None, *, where: str, problems: Problems) -> str | int | None:
    before = len(problems.found)
    if text is not None:
        problems.reading(lambda: quantity(text, where=where), otherwise=Fraction(0))
    return text if len(problems.found) == before else None


def _read(kind: type[Any], raw: Any, *, where: str, problems: Problems) -> Any:
    """One struct, field by field, so that one bad field does not hide the next."""
    if not isinstance(raw, Mapping):
        problems.found.append(QueueError("is not an object", where=where, remedy="write fields and values"))
        return kind()
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for stranger in sorted(str(key) for key in raw if key not in fields):
        remedy = _meant(stranger, fields)
        problems.found.append(QueueError(f"unknown field {stranger[:QUOTED]!r}", where=where, remedy=remedy))
    values = {
        field.name: _value(field.type, raw[key], where=f"{where}.{key}", problems=problems, otherwise=field.default)
        for key, field in fields.items()
        if key in raw
    }
    return kind(**values)


def _meant(stranger: str, fields: Collection[str]) -> str:
    if close := difflib.get_close_matches(stranger, fields, n=1):
        return f"did you mean {close[0]}?"
    quotas = [field.encode_name for field in msgspec.structs.fields(Quota)]
    if "compute" in fields and (close := difflib.get_close_matches(stranger, quotas, n=1)):
        return f"write {close[0]} below compute or memory"
    return f"known are {', '.join(fields)}"


def _value(kind: Any, raw: Any, *, where: str, problems: Problems, otherwise: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, _Written):
        return _read(kind, raw, where=where, problems=problems)
    if get_origin(kind) is dict and isinstance(raw, Mapping):
        inner = get_args(kind)[1]
        return {
            str(key): _value(inner, value, where=f"{where}[{str(key)[:QUOTED]}]", problems=problems, otherwise=inner())
            for key, value in raw.items()
            if _is_pattern(key, where=where, problems=problems)
        }
    return problems.reading(
        lambda: _converted(kind, raw, where=where), otherwise={} if otherwise is msgspec.NODEFAULT else otherwise
    )


def _is_pattern(key: object, *, where: str, problems: Problems) -> bool:
    if isinstance(key, str) and key.strip() and not key.startswith("!") and "," not in key:
        return True
    remedy = "name one such as '*H100*'; what is said of all GPUs stands below compute and memory"
    if isinstance(key, str) and key.strip():
        remedy = "write an entry for each model that it is said of: '*H100*': {...}; there are no lists, and no '!'"
    problems.found.append(QueueError(f"{written(key)} is no pattern of a model", where=where, remedy=remedy))
    return False


def _converted(kind: Any, raw: Any, *, where: str) -> Any:
    try:
        return msgspec.convert(raw, kind, strict=True)
    except msgspec.ValidationError:
        raise QueueError(
            f"{written(raw)} will not do", where=where, remedy=f"write {expected(kind)}; or leave it out"
        ) from None
