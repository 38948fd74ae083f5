"""What a field of a Queue takes, in the words of who writes YAML; and what was written there, as they wrote it."""

from __future__ import annotations

import json
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from aliquot_core.quantities import QUOTED


def written(value: object) -> str:
    """`true` and not `True`."""
    try:
        return json.dumps(value, ensure_ascii=False)[:QUOTED]
    except (TypeError, ValueError):
        return repr(value)[:QUOTED]


def expected(kind: Any) -> str:
    """Of one that is read by msgspec."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return " or ".join(expected(one) for one in inside if one is not NoneType)
    if origin is Annotated:
        return _within(expected(inside[0]), inside[1])
    if origin is Literal:
        return f"one of {', '.join(one for one in inside if one)}"
    if origin is tuple:
        return f"a list, each of it {expected(inside[0])}"
    return {bool: "true or false", int: "a whole number", str: "a text"}.get(kind, "an object")


def _within(said: str, bounds: msgspec.Meta) -> str:
    if bounds.ge is not None and bounds.le is not None:
        return f"{said} from {bounds.ge} to {bounds.le}, without a unit or quotes"
    if bounds.pattern:
        return "a name of a-z, 0-9, - and . alone, as queues have"
    return f"{said} of at most {bounds.max_length} characters, and not empty" if bounds.min_length else said
