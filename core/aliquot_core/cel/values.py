"""What values of CEL can do. They are of JSON's types, and the optional of CEL beside them.

Milder than CEL in one thing: whole numbers and others may meet in arithmetic, and give one that is not whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import msgspec

_LONGEST_PATTERN = 500
# As large as CEL's whole numbers are; so are no sums that take long.
_LARGEST = 2**63


class CelError(ValueError):
    """An expression that can't be read, or has no value where it is asked for one."""


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
        return _as_key(item) in holder
    if isinstance(holder, list):
        return any(same(item, one) for one in holder)
    raise CelError(f"`in` needs a list or a map, not {_kind(holder)}")


def member(value: Any, key: Any) -> Any:
    """`value.key` or `value[key]`; what is missing is an error."""
    if isinstance(value, dict) and isinstance(key, str) and key in value:
        # By far the commonest, and three times as fast.
        return value[key]
    found = maybe_member(value, key)
    if not found.there:
        raise CelError(f"no such key: {key}")
    return found if isinstance(value, Maybe) else found.value


def maybe_member(value: Any, key: Any) -> Maybe:
    """`value.?key` or `value[?key]`; what is missing is an optional without a value."""
    if isinstance(value, Maybe):
        return maybe_member(value.value, key) if value.there else NOTHING
    if isinstance(value, dict):
        return Maybe(value[key], True) if _as_key(key) in value else NOTHING
    if isinstance(value, list) and isinstance(key, int):
        return Maybe(value[key], True) if 0 <= key < len(value) else NOTHING
    raise CelError(f"{_kind(value)} has no members")


def mapped(entries: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """`{key: value}`."""
    return {_as_key(key): value for key, value in entries}


def truth(value: Any) -> bool:
    """Give a value that must be true or false."""
    if not isinstance(value, bool):
        raise CelError(f"expected true or false, not {_kind(value)}")
    return value


def ordered(left: Any, right: Any, compare: Callable[[Any, Any], bool]) -> bool:
    """`left < right` and its like."""
    if _are(left, right, str) or (is_number(left) and is_number(right)):
        return compare(left, right)
    raise CelError(f"{_kind(left)} and {_kind(right)} have no order")


def size(value: Any) -> int:
    """How long a text, a list or a map is."""
    if isinstance(value, str | list | dict):
        return len(value)
    raise CelError(f"{_kind(value)} has no size")


def is_number(value: Any) -> bool:
    """Whether it is one; `true` is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- arithmetic ------------------------------------------------------------------------------------------------------


def within(value: Any) -> Any:
    """A number that CEL has too."""
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise CelError("a whole number is too large")
    return value


def added(left: Any, right: Any) -> Any:
    """`left + right`, of numbers, texts or lists."""
    if _are(left, right, str) or _are(left, right, list):
        return left + right
    return _of_numbers("+", left, right, lambda a, b: a + b)


def subtracted(left: Any, right: Any) -> Any:
    """`left - right`."""
    return _of_numbers("-", left, right, lambda a, b: a - b)


def multiplied(left: Any, right: Any) -> Any:
    """`left * right`."""
    return _of_numbers("*", left, right, lambda a, b: a * b)


def divided(left: Any, right: Any) -> Any:
    """`left / right`: of whole numbers the whole part, towards nothing."""
    return _of_numbers("/", left, right, _quotient)


def rest(left: Any, right: Any) -> Any:
    """`left % right`, of whole numbers; its sign is that of `left`."""
    if not (isinstance(left, int) and isinstance(right, int)):
        raise CelError("% is of whole numbers")
    return _of_numbers("%", left, right, lambda a, b: a - b * _quotient(a, b))


def negated(value: Any) -> Any:
    """`-value`."""
    return subtracted(0, value)


def _of_numbers(sign: str, left: Any, right: Any, reckon: Callable[[Any, Any], Any]) -> Any:
    if not (is_number(left) and is_number(right)):
        raise CelError(f"{_kind(left)} {sign} {_kind(right)} has no meaning")
    return within(reckon(left, right))


def _quotient(left: Any, right: Any) -> Any:
    if not right:
        raise CelError("something is divided by nothing")
    if isinstance(left, int) and isinstance(right, int):
        whole = abs(left) // abs(right)
        return whole if (left < 0) == (right < 0) else -whole
    return left / right


# --- functions -------------------------------------------------------------------------------------------------------


def _double(value: Any) -> float:
    read: float = _read(value, float)
    return float(read)


def _int(value: Any) -> Any:
    read = _read(value, int)
    if isinstance(read, float) and not math.isfinite(read):
        raise CelError("a whole number is too large")
    return within(int(read))


def _read(value: Any, kind: Callable[[str], float]) -> Any:
    if is_number(value):
        return value
    if not isinstance(value, str):
        raise CelError(f"{_kind(value)} is no number")
    try:
        return kind(value)
    except ValueError:
        raise CelError(f"{value[:40]!r} is no number") from None


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_number(value):
        return f"{value:g}" if isinstance(value, float) else str(value)
    raise CelError(f"{_kind(value)} is no text")


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
    except (re.error, OverflowError) as error:
        raise CelError(f"no pattern: {error}") from error


FUNCTIONS: MappingProxyType[str, Callable[[Any], Any]] = MappingProxyType(
    {"size": size, "int": _int, "double": _double, "string": _string}
)

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


def _as_key(value: Any) -> Any:
    if isinstance(value, str | int | float):
        return value
    raise CelError(f"{_kind(value)} is no key")


def _are(left: Any, right: Any, kind: type) -> bool:
    return isinstance(left, kind) and isinstance(right, kind)


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
