"""The words and signs of an expression in CEL, taken one after the other."""

from __future__ import annotations

import re
from typing import NoReturn

from aliquot_core.cel.values import CelError, within

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<text>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[-+*/%!<>()\[\]{}.,?:]))"
)
# More digits are too large a number, and take long to read.
_MOST_DIGITS = 19
# Of what a name stands for, and of a member of that.
_STEPS = 2


class Tokens:
    """Those of one text, from the first to the last; what does not follow as it must fails by a `CelError`."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def end(self) -> None:
        """Nothing may follow."""
        if self._at < len(self._tokens):
            self.fail()

    def peek(self) -> str:
        """The sign, name or number that follows; nothing at the end and before a text."""
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        return "" if kind == "text" else text

    def took(self, sign: str) -> bool:
        """Whether this follows; then it is taken."""
        if self.peek() != sign:
            return False
        self._at += 1
        return True

    def next(self) -> tuple[str, str]:
        """Take what follows: what it is, and as it is written."""
        if self._at >= len(self._tokens):
            self.fail()
        self._at += 1
        return self._tokens[self._at - 1]

    def name(self) -> str:
        """Take a name."""
        kind, text = self.next()
        if kind != "name":
            self.fail()
        return text

    def expect(self, sign: str) -> None:
        """Take just this."""
        if not self.took(sign):
            self.fail()

    def fail(self) -> NoReturn:
        """Say that what was taken last, or follows, can't stand there."""
        rest = " ".join(text for _, text in self._tokens[max(0, self._at - 1) :][:8])
        raise CelError(f"can't be understood near: {rest or 'the end'}")

    def members_ahead(self) -> list[str]:
        """The members that are taken next, as far as their names are written there and they are no methods."""
        found: list[str] = []
        at = self._at
        while len(found) < _STEPS:
            (_, sign), (kind, text), (_, after) = [*self._tokens[at : at + 3], *[("", "")] * 3][:3]
            if sign in {".", ".?"} and kind == "name" and after != "(":
                found.append(text)
                at += 2
            elif sign in {"[", "[?"} and kind == "text" and after == "]":
                found.append(text_of(text))
                at += 3
            else:
                break
        return found


def _tokens(text: str) -> list[tuple[str, str]]:
    found, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise CelError(f"can't be understood from here: {text[position:].strip()[:40]}")
        found.append((str(match.lastgroup), match[str(match.lastgroup)]))
        position = match.end()
    return found


def text_of(quoted: str) -> str:
    """What a text says, without its quotes."""
    return re.sub(r"\\(.)", r"\1", quoted[1:-1])


def number_of(text: str) -> float:
    """A number as it is written, within what CEL can count."""
    if "." in text:
        return float(text)
    if len(text.lstrip("0")) > _MOST_DIGITS:
        raise CelError("a whole number is too large")
    number: int = within(int(text))
    return number
