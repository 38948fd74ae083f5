"""Expressions in CEL, compiled to functions of the values that their names have.

Understood: literals, lists, maps, members (`a.b`, `a["b"]`) and optional ones (`a.?b`, `a[?b]`), `orValue`, `hasValue`,
`has()`, `size`, `startsWith`, `endsWith`, `contains`, `matches`, `exists`, `all`, `filter`, `map`, `int()`, `double()`,
`string()`; `! - * / % + < <= > >= == != in && || ?:`. Not understood, and refused when it is compiled: types, times,
quantities. As in CEL, `false && error` is false and `true || error` is true, on either side.

What must always hold: whatever is written and whatever the names are, it has a value or fails by a `CelError`.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import Any

from aliquot_core.cel.forms import (
    MACROS,
    ORDERS,
    PRODUCTS,
    SUMS,
    Names,
    Value,
    called,
    chosen,
    constant,
    has,
    joined,
    macro,
    named,
    reached,
    reckoned,
    related,
)
from aliquot_core.cel.tokens import Tokens, number_of, text_of
from aliquot_core.cel.values import FUNCTIONS, METHODS, CelError, mapped, maybe_member, member, negated, truth

__all__ = ["CelError", "Program", "compile_cel"]

_LONGEST, _DEEPEST = 10_000, 60
_TOO_DEEP = "nested too deep"
_WORDS: MappingProxyType[str, Any] = MappingProxyType({"true": True, "false": False, "null": None})


class Program:
    """An expression ready to be evaluated."""

    def __init__(self, value: Value, *, reads: frozenset[tuple[str, ...]]) -> None:
        """`reads` are the names that it uses, each with what it takes of it by name, two steps deep at most."""
        self._value = value
        self.reads = reads

    def holds(self, names: Names) -> bool:
        """Tell whether it is true of these values."""
        return truth(self.value(names))

    def value(self, names: Names) -> Any:
        """What comes of it."""
        try:
            return self._value(names)
        except RecursionError:
            # A chain such as 1 + 1 + … is as deep as it is long.
            raise CelError(_TOO_DEEP) from None


@lru_cache(maxsize=512)
def compile_cel(text: str) -> Program:
    """Compile an expression; raises `CelError` where it can't be understood."""
    if len(text) > _LONGEST:
        raise CelError("the expression is too long")
    tokens = Tokens(text)
    parser = _Parser(tokens)
    value = parser.expression()
    tokens.end()
    return Program(value, reads=frozenset(parser.reads))


class _Parser:
    """Recursive descent, one method per level of binding, from the loosest."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._depth = 0
        # Variables of macros, which nobody gives.
        self._bound: list[str] = []
        self.reads: set[tuple[str, ...]] = set()

    def expression(self) -> Value:
        self._deeper()
        test = self._either()
        if self._tokens.took("?"):
            yes = self.expression()
            self._tokens.expect(":")
            test = chosen(test, yes, self.expression())
        self._depth -= 1
        return test

    def _either(self) -> Value:
        parts = [self._both()]
        while self._tokens.took("||"):
            parts.append(self._both())
        return joined(parts, decisive=True) if len(parts) > 1 else parts[0]

    def _both(self) -> Value:
        parts = [self._relation()]
        while self._tokens.took("&&"):
            parts.append(self._relation())
        return joined(parts, decisive=False) if len(parts) > 1 else parts[0]

    def _relation(self) -> Value:
        value = self._sum()
        while (sign := self._tokens.peek()) in {"==", "!=", "in", *ORDERS}:
            self._tokens.next()
            value = related(sign, value, self._sum())
        return value

    def _sum(self) -> Value:
        value = self._product()
        while (sign := self._tokens.peek()) in SUMS:
            self._tokens.next()
            value = reckoned(value, self._product(), SUMS[sign])
        return value

    def _product(self) -> Value:
        value = self._unary()
        while (sign := self._tokens.peek()) in PRODUCTS:
            self._tokens.next()
            value = reckoned(value, self._unary(), PRODUCTS[sign])
        return value

    def _unary(self) -> Value:
        if (sign := self._tokens.peek()) not in {"!", "-"}:
            return self._members()
        self._tokens.next()
        self._deeper()
        inner = self._unary()
        self._depth -= 1
        if sign == "-":
            return lambda names: negated(inner(names))
        return lambda names: not truth(inner(names))

    def _members(self) -> Value:
        value = self._primary()
        while True:
            if self._tokens.took("."):
                value = self._after_dot(value)
            elif self._tokens.took(".?"):
                value = reached(value, constant(self._tokens.name()), maybe_member)
            elif self._tokens.peek() in {"[", "[?"}:
                reach = member if self._tokens.next()[1] == "[" else maybe_member
                value = reached(value, self.expression(), reach)
                self._tokens.expect("]")
            else:
                return value

    def _after_dot(self, value: Value) -> Value:
        name = self._tokens.name()
        if not self._tokens.took("("):
            return reached(value, constant(name), member)
        if name in MACROS:
            variable = self._tokens.name()
            self._tokens.expect(",")
            self._bound.append(variable)
            body = self.expression()
            self._bound.pop()
            self._tokens.expect(")")
            return macro(name, value, variable, body)
        if name not in METHODS:
            raise CelError(f"{name}() is not understood")
        return called(name, METHODS[name], value, *self._listed(")"))

    def _primary(self) -> Value:
        kind, text = self._tokens.next()
        if kind == "number":
            return constant(number_of(text))
        if kind == "text":
            return constant(text_of(text))
        if text == "(":
            value = self.expression()
            self._tokens.expect(")")
            return value
        if text == "[":
            items = self._listed("]")
            return lambda names: [one(names) for one in items]
        if text == "{":
            return self._map()
        if kind != "name":
            self._tokens.fail()
        return self._named(text)

    def _map(self) -> Value:
        entries: list[tuple[Value, Value]] = []
        while not self._tokens.took("}"):
            if entries:
                self._tokens.expect(",")
            key = self.expression()
            self._tokens.expect(":")
            entries.append((key, self.expression()))
        return lambda names: mapped([(key(names), value(names)) for key, value in entries])

    def _named(self, name: str) -> Value:
        if name in _WORDS:
            return constant(_WORDS[name])
        if not self._tokens.took("("):
            if name not in self._bound:
                self.reads.add((name, *self._tokens.members_ahead()))
            return named(name)
        given = self._listed(")")
        if len(given) != 1 or (name != "has" and name not in FUNCTIONS):
            raise CelError(f"{name}() is not understood")
        return has(given[0]) if name == "has" else called(name, FUNCTIONS[name], given[0])

    def _listed(self, closing: str) -> list[Value]:
        found: list[Value] = []
        while not self._tokens.took(closing):
            if found:
                self._tokens.expect(",")
            found.append(self.expression())
        return found

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise CelError(_TOO_DEEP)
