"""What a condition's values can do. They are of JSON's types, and the optional of CEL beside them."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_PATTERN = 500


class CelError(ValueError):
    """A condition that can't be read, or not be evaluated on this request."""


class Maybe(msgspec.Struct, frozen=True):
    """A value that may be missing: what `.?field` gives."""

    value: Any = None
    there: bool = False


NOTHING = Maybe()


def same(left: Any, right: Any) -> bool:
    """Compare as CEL does: `true` is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Maybe) and isinstance(right, Maybe):
        return left.there == right.there and same(left.value, right.value)
    return bool(left == right)


def contains(item: Any, holder: Any) -> bool:
    """`item in holder`: of a map its keys, of a list its items."""
    if isinstance(holder, dict):
        return item in holder
    if isinstance(holder, list):
        return any(same(item, one) for one in holder)
    raise CelError(f"`in` needs a list or a map, not {_kind(holder)}")


def member(value: Any, key: Any) -> Any:
    """`value.key` or `value[key]`; what is missing is an error."""
    found = maybe_member(value, key)
    if not found.there:
        raise CelError(f"no such key: {key}")
    return found if isinstance(value, Maybe) else found.value


def maybe_member(value: Any, key: Any) -> Maybe:
    """`value.?key` or `value[?key]`; what is missing is an optional without a value."""
    if isinstance(value, Maybe):
        return maybe_member(value.value, key) if value.there else NOTHING
    if isinstance(value, dict):
        return Maybe(value[key], True) if key in value else NOTHING
    if isinstance(value, list) and isinstance(key, int):
        return Maybe(value[key], True) if 0 <= key < len(value) else NOTHING
    raise CelError(f"{_kind(value)} has no members")


def truth(value: Any) -> bool:
    """Give a value that must be true or false."""
    if not isinstance(value, bool):
        raise CelError(f"expected true or false, not {_kind(value)}")
    return value


def added(left: Any, right: Any) -> Any:
    """`left + right`, of numbers, texts or lists."""
    if _are(left, right, str) or _are(left, right, list) or (_is_number(left) and _is_number(right)):
        return left + right
    raise CelError(f"{_kind(left)} + {_kind(right)} has no meaning")


def ordered(left: Any, right: Any, compare: Callable[[Any, Any], bool]) -> bool:
    """`left < right` and its like."""
    if _are(left, right, str) or (_is_number(left) and _is_number(right)):
        return compare(left, right)
    raise CelError(f"{_kind(left)} and {_kind(right)} have no order")


def size(value: Any) -> int:
    """How long a text, a list or a map is."""
    if isinstance(value, str | list | dict):
        return len(value)
    raise CelError(f"{_kind(value)} has no size")


def _or_value(value: Any, other: Any) -> Any:
    if not isinstance(value, Maybe):
        raise CelError("orValue is of optional values")
    return value.value if value.there else other


def _of_text(name: str, test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def method(value: Any, other: Any) -> bool:
        if not _are(value, other, str):
            raise CelError(f"{name} is of texts")
        return test(value, other)

    return method


def _matches(value: str, pattern: str) -> bool:
    if len(pattern) > _LONGEST_PATTERN:
        raise CelError("the pattern is too long")
    try:
        return re.search(pattern, value) is not None
    except re.error as error:
        raise CelError(f"no pattern: {error}") from error


METHODS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType(
    {
        "startsWith": _of_text("startsWith", str.startswith),
        "endsWith": _of_text("endsWith", str.endswith),
        "contains": _of_text("contains", str.__contains__),
        "matches": _of_text("matches", _matches),
        "orValue": _or_value,
        "hasValue": lambda value: isinstance(value, Maybe) and value.there,
        "size": size,
    }
)


def _are(left: Any, right: Any, kind: type) -> bool:
    return isinstance(left, kind) and isinstance(right, kind)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
