"""Expressions in CEL, compiled to functions of the values that their names have.

Understood: literals, lists, maps, members (`a.b`, `a["b"]`) and optional ones (`a.?b`, `a[?b]`), `orValue`, `hasValue`,
`has()`, `size`, `startsWith`, `endsWith`, `contains`, `matches`, `exists`, `all`, `filter`, `map`, `int()`, `double()`,
`string()`; `! - * / % + < <= > >= == != in && || ?:`. Not understood, and refused when it is compiled: types, times,
quantities. As in CEL, `false && error` is false and `true || error` is true, on either side.

What must always hold: whatever is written and whatever the names are, it has a value or fails by a `CelError`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NoReturn

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
from aliquot_core.cel.values import FUNCTIONS, METHODS, CelError, mapped, maybe_member, member, negated, truth, within

__all__ = ["CelError", "Program", "compile_cel"]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<text>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[-+*/%!<>()\[\]{}.,?:]))"
)
_LONGEST, _DEEPEST = 10_000, 60
# More digits are too large a number, and take long to read.
_MOST_DIGITS = 19
# Of what a name stands for, and of a member of that.
_STEPS = 2
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
    parser = _Parser(_tokens(text))
    value = parser.expression()
    parser.end()
    return Program(value, reads=frozenset(parser.reads))


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
        # Variables of macros, which nobody gives.
        self._bound: list[str] = []
        self.reads: set[tuple[str, ...]] = set()

    def end(self) -> None:
        if self._at < len(self._tokens):
            self._fail()

    def expression(self) -> Value:
        self._deeper()
        test = self._either()
        if self._took("?"):
            yes = self.expression()
            self._expect(":")
            test = chosen(test, yes, self.expression())
        self._depth -= 1
        return test

    def _either(self) -> Value:
        parts = [self._both()]
        while self._took("||"):
            parts.append(self._both())
        return joined(parts, decisive=True) if len(parts) > 1 else parts[0]

    def _both(self) -> Value:
        parts = [self._relation()]
        while self._took("&&"):
            parts.append(self._relation())
        return joined(parts, decisive=False) if len(parts) > 1 else parts[0]

    def _relation(self) -> Value:
        value = self._sum()
        while (sign := self._peek()) in {"==", "!=", "in", *ORDERS}:
            self._at += 1
            value = related(sign, value, self._sum())
        return value

    def _sum(self) -> Value:
        value = self._product()
        while (sign := self._peek()) in SUMS:
            self._at += 1
            value = reckoned(value, self._product(), SUMS[sign])
        return value

    def _product(self) -> Value:
        value = self._unary()
        while (sign := self._peek()) in PRODUCTS:
            self._at += 1
            value = reckoned(value, self._unary(), PRODUCTS[sign])
        return value

    def _unary(self) -> Value:
        if (sign := self._peek()) not in {"!", "-"}:
            return self._members()
        self._at += 1
        self._deeper()
        inner = self._unary()
        self._depth -= 1
        if sign == "-":
            return lambda names: negated(inner(names))
        return lambda names: not truth(inner(names))

    def _members(self) -> Value:
        value = self._primary()
        while True:
            if self._took("."):
                value = self._after_dot(value)
            elif self._took(".?"):
                value = reached(value, constant(self._name()), maybe_member)
            elif self._peek() in {"[", "[?"}:
                reach = member if self._next()[1] == "[" else maybe_member
                value = reached(value, self.expression(), reach)
                self._expect("]")
            else:
                return value

    def _after_dot(self, value: Value) -> Value:
        name = self._name()
        if not self._took("("):
            return reached(value, constant(name), member)
        if name in MACROS:
            variable = self._name()
            self._expect(",")
            self._bound.append(variable)
            body = self.expression()
            self._bound.pop()
            self._expect(")")
            return macro(name, value, variable, body)
        if name not in METHODS:
            raise CelError(f"{name}() is not understood")
        return called(name, METHODS[name], value, *self._listed(")"))

    def _primary(self) -> Value:
        kind, text = self._next()
        if kind == "number":
            return constant(_number(text))
        if kind == "text":
            return constant(_text(text))
        if text == "(":
            value = self.expression()
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
            key = self.expression()
            self._expect(":")
            entries.append((key, self.expression()))
        return lambda names: mapped([(key(names), value(names)) for key, value in entries])

    def _named(self, name: str) -> Value:
        if name in _WORDS:
            return constant(_WORDS[name])
        if not self._took("("):
            if name not in self._bound:
                self.reads.add((name, *self._members_ahead()))
            return named(name)
        given = self._listed(")")
        if len(given) != 1 or (name != "has" and name not in FUNCTIONS):
            raise CelError(f"{name}() is not understood")
        return has(given[0]) if name == "has" else called(name, FUNCTIONS[name], given[0])

    def _members_ahead(self) -> list[str]:
        """The members that are taken next, as far as their names are written there and they are no methods."""
        found: list[str] = []
        at = self._at
        while len(found) < _STEPS:
            (_, sign), (kind, text), (_, after) = [*self._tokens[at : at + 3], *[("", "")] * 3][:3]
            if sign in {".", ".?"} and kind == "name" and after != "(":
                found.append(text)
                at += 2
            elif sign in {"[", "[?"} and kind == "text" and after == "]":
                found.append(_text(text))
                at += 3
            else:
                break
        return found

    def _listed(self, closing: str) -> list[Value]:
        found: list[Value] = []
        while not self._took(closing):
            if found:
                self._expect(",")
            found.append(self.expression())
        return found

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise CelError(_TOO_DEEP)

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


def _text(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted[1:-1])


def _number(text: str) -> float:
    if "." in text:
        return float(text)
    if len(text.lstrip("0")) > _MOST_DIGITS:
        raise CelError("a whole number is too large")
    number: int = within(int(text))
    return number
