"""What an expression's parts become: functions of the values that its names have."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from aliquot_core.cel.values import (
    CelError,
    Maybe,
    added,
    contains,
    divided,
    multiplied,
    ordered,
    rest,
    same,
    subtracted,
    truth,
)

Names = Mapping[str, Any]
Value = Callable[[Names], Any]

ORDERS = MappingProxyType({"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge})
SUMS = MappingProxyType({"+": added, "-": subtracted})
PRODUCTS = MappingProxyType({"*": multiplied, "/": divided, "%": rest})
MACROS = frozenset({"exists", "all", "filter", "map"})


def constant(value: Any) -> Value:
    """It is what it is."""
    return lambda _: value


def named(name: str) -> Value:
    """What is given by that name."""

    def value(names: Names) -> Any:
        try:
            return names[name]
        except KeyError:
            raise CelError(f"no such name: {name}") from None

    return value


def reached(value: Value, key: Value, reach: Callable[[Any, Any], Any]) -> Value:
    """A member of it."""
    return lambda names: reach(value(names), key(names))


def reckoned(left: Value, right: Value, reckon: Callable[[Any, Any], Any]) -> Value:
    """Two of them taken together."""
    return lambda names: reckon(left(names), right(names))


def related(sign: str, left: Value, right: Value) -> Value:
    """How two of them stand to each other."""
    if sign == "==":
        return lambda names: same(left(names), right(names))
    if sign == "!=":
        return lambda names: not same(left(names), right(names))
    if sign == "in":
        return lambda names: contains(left(names), right(names))
    compare = ORDERS[sign]
    return lambda names: ordered(left(names), right(names), compare)


def chosen(test: Value, yes: Value, no: Value) -> Value:
    """`test ? yes : no`."""
    return lambda names: yes(names) if truth(test(names)) else no(names)


def joined(parts: Sequence[Value], *, decisive: bool) -> Value:
    """All of them, or any: one that is decisive decides alone, whatever the others fail at."""

    def value(names: Names) -> bool:
        trouble = None
        for part in parts:
            try:
                if truth(part(names)) is decisive:
                    return decisive
            except CelError as error:
                trouble = trouble or error
        if trouble:
            raise trouble
        return not decisive

    return value


def has(value: Value) -> Value:
    """Whether it can be said at all."""

    def there(names: Names) -> bool:
        try:
            value(names)
        except CelError:
            return False
        return True

    return there


def called(name: str, method: Callable[..., Any], *given: Value) -> Value:
    """A function of them."""

    def value(names: Names) -> Any:
        values = [one(names) for one in given]
        try:
            return method(*values)
        except TypeError as error:
            raise CelError(f"{name}() takes other values") from error

    return value


def macro(name: str, value: Value, variable: str, body: Value) -> Value:
    """`exists`, `all`, `filter` or `map`, over the items of a list or the keys of a map."""

    def over(names: Names) -> Any:
        items = value(names)
        if isinstance(items, Maybe) or not isinstance(items, list | dict):
            raise CelError(f"{name}() is of lists and maps")
        within = (body({**names, variable: one}) for one in items)
        match name:
            case "exists":
                return any(truth(one) for one in within)
            case "all":
                return all(truth(one) for one in within)
            case "filter":
                return [one for one, kept in zip(items, within, strict=True) if truth(kept)]
        return list(within)

    return over
