"""The part of CEL that admission conditions use, compiled to closures.

Understood: literals, lists, maps, members (`a.b`, `a["b"]`) and optional ones (`a.?b`, `a[?b]`), `orValue`, `hasValue`,
`has()`, `size`, `startsWith`, `endsWith`, `contains`, `matches`, `exists`, `all`, `filter`, `map`; `! + < <= > >= ==
!= in && || ?:`. Not understood, and refused when it is compiled: types, times, quantities, arithmetic but `+`.
As in CEL, `false && error` is false and `true || error` is true, on either side.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NoReturn

from .cel_values import METHODS, CelError, Maybe, added, contains, maybe_member, member, ordered, same, size, truth

__all__ = ["CelError", "Program", "compile_cel"]

Names = Mapping[str, Any]
Value = Callable[[Names], Any]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<text>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[-+!<>()\[\]{}.,?:]))"
)
_LONGEST, _DEEPEST = 10_000, 60
_ORDERS = MappingProxyType({"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge})
_WORDS: MappingProxyType[str, Any] = MappingProxyType({"true": True, "false": False, "null": None})
_MACROS = frozenset({"exists", "all", "filter", "map"})


class Program:
    """A condition ready to be evaluated."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def holds(self, names: Names) -> bool:
        """Tell whether it is true of these values."""
        return truth(self._value(names))


@lru_cache(maxsize=512)
def compile_cel(text: str) -> Program:
    """Compile a condition; raises `CelError` where it can't be understood."""
    if len(text) > _LONGEST:
        raise CelError("the condition is too long")
    parser = _Parser(_tokens(text))
    value = parser.condition()
    parser.end()
    return Program(value)


def _tokens(text: str) -> list[tuple[str, str]]:
    found, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise CelError(f"can't be understood from here: {text[position:].strip()[:40]}")
        found.append((str(match.lastgroup), match[str(match.lastgroup)]))
        position = match.end()
    return found


class _Parser:
    """Recursive descent, one method per level of binding, from the loosest."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def end(self) -> None:
        if self._at < len(self._tokens):
            self._fail()

    def condition(self) -> Value:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise CelError("nested too deep")
        test = self._either()
        if self._took("?"):
            yes = self.condition()
            self._expect(":")
            no = self.condition()
            chosen, test = test, lambda names: yes(names) if truth(chosen(names)) else no(names)
        self._depth -= 1
        return test

    def _either(self) -> Value:
        value = self._both()
        while self._took("||"):
            value = _joined(value, self._both(), decisive=True)
        return value

    def _both(self) -> Value:
        value = self._relation()
        while self._took("&&"):
            value = _joined(value, self._relation(), decisive=False)
        return value

    def _relation(self) -> Value:
        value = self._sum()
        while (sign := self._peek()) in {"==", "!=", "in", *_ORDERS}:
            self._at += 1
            value = _related(sign, value, self._sum())
        return value

    def _sum(self) -> Value:
        value = self._negated()
        while self._took("+"):
            value = _sum_of(value, self._negated())
        return value

    def _negated(self) -> Value:
        if self._took("!"):
            inner = self._negated()
            return lambda names: not truth(inner(names))
        if self._took("-"):
            kind, text = self._next()
            if kind != "number":
                self._fail()
            number = -_number(text)
            return lambda _: number
        return self._members()

    def _members(self) -> Value:
        value = self._primary()
        while True:
            if self._took("."):
                value = self._after_dot(value)
            elif self._took(".?"):
                value = _reached(value, _constant(self._name()), maybe_member)
            elif self._peek() in {"[", "[?"}:
                reach = member if self._next()[1] == "[" else maybe_member
                value = _reached(value, self.condition(), reach)
                self._expect("]")
            else:
                return value

    def _after_dot(self, value: Value) -> Value:
        name = self._name()
        if not self._took("("):
            return _reached(value, _constant(name), member)
        if name in _MACROS:
            variable = self._name()
            self._expect(",")
            body = self.condition()
            self._expect(")")
            return _macro(name, value, variable, body)
        if name not in METHODS:
            raise CelError(f"{name}() is not understood")
        given = self._listed(")")
        method = METHODS[name]
        return lambda names: _called(name, method, value(names), *(one(names) for one in given))

    def _primary(self) -> Value:
        kind, text = self._next()
        if kind == "number":
            return _constant(_number(text))
        if kind == "text":
            return _constant(re.sub(r"\\(.)", r"\1", text[1:-1]))
        if text == "(":
            value = self.condition()
            self._expect(")")
            return value
        if text == "[":
            items = self._listed("]")
            return lambda names: [one(names) for one in items]
        if text == "{":
            return self._map()
        if kind != "name":
            self._fail()
        return self._named(text)

    def _map(self) -> Value:
        entries: list[tuple[Value, Value]] = []
        while not self._took("}"):
            if entries:
                self._expect(",")
            key = self.condition()
            self._expect(":")
            entries.append((key, self.condition()))
        return lambda names: {key(names): value(names) for key, value in entries}

    def _named(self, name: str) -> Value:
        if name in _WORDS:
            return _constant(_WORDS[name])
        if not self._took("("):
            return lambda names: member(names, name)
        given = self._listed(")")
        if len(given) != 1 or name not in {"has", "size"}:
            raise CelError(f"{name}() is not understood")
        return _has(given[0]) if name == "has" else lambda names: size(given[0](names))

    def _listed(self, closing: str) -> list[Value]:
        found: list[Value] = []
        while not self._took(closing):
            if found:
                self._expect(",")
            found.append(self.condition())
        return found

    def _peek(self) -> str:
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        return "" if kind == "text" else text

    def _took(self, sign: str) -> bool:
        if self._peek() != sign:
            return False
        self._at += 1
        return True

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            self._fail()
        self._at += 1
        return self._tokens[self._at - 1]

    def _name(self) -> str:
        kind, text = self._next()
        if kind != "name":
            self._fail()
        return text

    def _expect(self, sign: str) -> None:
        if not self._took(sign):
            self._fail()

    def _fail(self) -> NoReturn:
        rest = " ".join(text for _, text in self._tokens[max(0, self._at - 1) :][:8])
        raise CelError(f"can't be understood near: {rest or 'the end'}")


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _constant(value: Any) -> Value:
    return lambda _: value


def _reached(value: Value, key: Value, reach: Callable[[Any, Any], Any]) -> Value:
    return lambda names: reach(value(names), key(names))


def _sum_of(left: Value, right: Value) -> Value:
    return lambda names: added(left(names), right(names))


def _related(sign: str, left: Value, right: Value) -> Value:
    if sign == "==":
        return lambda names: same(left(names), right(names))
    if sign == "!=":
        return lambda names: not same(left(names), right(names))
    if sign == "in":
        return lambda names: contains(left(names), right(names))
    compare = _ORDERS[sign]
    return lambda names: ordered(left(names), right(names), compare)


def _joined(left: Value, right: Value, *, decisive: bool) -> Value:
    def value(names: Names) -> bool:
        try:
            if truth(left(names)) is decisive:
                return decisive
        except CelError:
            # The other side may decide it alone.
            if truth(right(names)) is decisive:
                return decisive
            raise
        return truth(right(names))

    return value


def _has(value: Value) -> Value:
    def there(names: Names) -> bool:
        try:
            value(names)
        except CelError:
            return False
        return True

    return there


def _called(name: str, method: Callable[..., Any], *given: Any) -> Any:
    try:
        return method(*given)
    except TypeError as error:
        raise CelError(f"{name}() takes other values") from error


def _macro(name: str, value: Value, variable: str, body: Value) -> Value:
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
