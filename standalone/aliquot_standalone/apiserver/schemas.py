"""Structural schemas of custom kinds: what they drop, what they fill in, what they refuse.

The part of OpenAPI that a cluster allows in a definition, without `x-kubernetes-validations`, `format`, and the
`allOf`, `anyOf`, `oneOf` and `not` of values: a definition that needs these is told so when it is created.
"""

from __future__ import annotations

import re
from copy import deepcopy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .failures import Cause, required, too_long, unsupported, wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .store import Json

_KEEP_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
# What would be passed over in silence.
UNHEARD = ("x-kubernetes-validations", "allOf", "anyOf", "oneOf", "not")
# The server's own at the top of every object.
_HEAD = frozenset({"apiVersion", "kind", "metadata"})


def prune(value: Any, schema: Json, *, top: bool = False) -> None:
    """Take out what the schema does not know, in place."""
    for holder, key, _ in list(_strangers(value, schema, top=top)):
        del holder[key]


def unknown(value: Any, schema: Json, *, top: bool = False) -> list[str]:
    """Where there is what the schema does not know."""
    return [path for _, _, path in _strangers(value, schema, top=top)]


def _strangers(value: Any, schema: Json, *, top: bool, at: str = "") -> Iterator[tuple[Json, str, str]]:
    """Each in what, by which key, and by its path."""
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from _strangers(one, schema.get("items", {}), top=False, at=f"{at}[{index}]")
    if not isinstance(value, dict):
        return
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for key, one in value.items():
        if key in known and not (top and key in _HEAD):
            yield from _strangers(one, known[key], top=False, at=_below(at, key))
        elif isinstance(others, dict):
            yield from _strangers(one, others, top=False, at=_below(at, key))
        elif not (others or schema.get(_KEEP_UNKNOWN) or (top and key in _HEAD)):
            yield value, key, _below(at, key)


def fill(value: Any, schema: Json) -> None:
    """Fill in defaults, in place, from the outside in."""
    if isinstance(value, list):
        for one in value:
            fill(one, schema.get("items", {}))
    if not isinstance(value, dict):
        return
    known = schema.get("properties", {})
    for key, inner in known.items():
        if key not in value and "default" in inner:
            value[key] = deepcopy(inner["default"])
    others = schema.get("additionalProperties")
    for key, one in value.items():
        fill(one, known.get(key) or (others if isinstance(others, dict) else {}))


def causes(value: Any, schema: Json, *, at: str = "") -> Iterator[Cause]:
    """Name what of a value the schema does not allow."""
    if value is None and schema.get("nullable"):
        return
    if not _is_of_type(value, schema):
        wanted = "integer or string" if schema.get(_INT_OR_STRING) else schema["type"]
        yield Cause(
            at or "<root>",
            "FieldValueTypeInvalid",
            f'Invalid value: "{_type_name(value)}": {at} in body must be of type {wanted}: "{_type_name(value)}"',
        )
        return
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        yield unsupported(at, value, [str(one) for one in schema["enum"]])
    if isinstance(value, dict):
        yield from _object_causes(value, schema, at=at)
    elif isinstance(value, list):
        yield from _list_causes(value, schema, at=at)
    elif isinstance(value, str):
        yield from _text_causes(value, schema, at=at)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_causes(value, schema, at=at)


_TYPES = MappingProxyType(
    {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
    }
)


def _is_of_type(value: Any, schema: Json) -> bool:
    if schema.get(_INT_OR_STRING):
        return isinstance(value, str) or _is_whole(value)
    wanted = schema.get("type")
    if wanted is None:
        return True
    if wanted == "integer":
        return _is_whole(value)
    if wanted == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, _TYPES.get(wanted, object))


def _is_whole(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _same(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) is isinstance(right, bool)


def _object_causes(value: Json, schema: Json, *, at: str) -> Iterator[Cause]:
    for name in schema.get("required", []):
        if name not in value:
            yield required(_below(at, name))
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        yield _too_many(at, len(value), most, "properties")
    if least is not None and len(value) < least:
        yield wrong(at, len(value), f"{at} in body should have at least {least} properties")
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for key, one in value.items():
        inner = known.get(key) or (others if isinstance(others, dict) else None)
        if inner is not None:
            yield from causes(one, inner, at=_below(at, key))


def _list_causes(value: list[Any], schema: Json, *, at: str) -> Iterator[Cause]:
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        yield _too_many(at, len(value), most, "items")
    if least is not None and len(value) < least:
        yield wrong(at, len(value), f"{at} in body should have at least {least} items")
    for index, one in enumerate(value):
        yield from causes(one, schema.get("items", {}), at=f"{at}[{index}]")


def _text_causes(value: str, schema: Json, *, at: str) -> Iterator[Cause]:
    most, least, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if most is not None and len(value) > most:
        yield too_long(at, most)
    if least is not None and len(value) < least:
        yield wrong(at, value, f"{at} in body should be at least {least} chars long")
    if pattern is not None and not re.search(pattern, value):
        yield wrong(at, value, f"{at} in body should match '{pattern}'")


def _number_causes(value: float, schema: Json, *, at: str) -> Iterator[Cause]:
    most, least, step = schema.get("maximum"), schema.get("minimum"), schema.get("multipleOf")
    if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
        yield wrong(at, value, f"{at} in body should be less than or equal to {most}")
    if least is not None and (value < least or (schema.get("exclusiveMinimum") and value == least)):
        yield wrong(at, value, f"{at} in body should be greater than or equal to {least}")
    if step and value % step:
        yield wrong(at, value, f"{at} in body should be a multiple of {step}")


def _too_many(at: str, found: int, most: int, what: str) -> Cause:
    return Cause(at, "FieldValueTooMany", f"Too many: {found}: must have at most {most} {what}")


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
