"""Percent of a GPU and MiB of its memory, as types of their own: adding one to the other is an error, not a bug.

Kubernetes hands quantities on as it likes to write them: 8000 comes back as `8k`, 1000000 as `1M`. Both are read. A
binary suffix is refused: `8Gi` of a resource that counts MiB is eight thousand million MiB, never what was meant.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Self

import msgspec

from aliquot_core.errors import UserError

# Nothing real comes near; what lies above is a mistake or an attack, and would overflow numpy's int64 once multiplied.
LARGEST = 2**40

_DECIMAL_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY_SUFFIXES = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_QUANTITY = re.compile(r"(?P<number>[+-]?[0-9]{0,30}\.?[0-9]{0,30}([eE][+-]?[0-9]{1,3})?)(?P<suffix>[A-Za-z]{0,2})")


class QuantityError(UserError):
    """A quantity that can't be what was meant."""


class Amount(msgspec.Struct, frozen=True, order=True, gc=False):
    """A whole number of something; only amounts of the same thing meet."""

    value: int

    def __add__(self, other: Self) -> Self:
        return type(self)(self.value + self._same(other))

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.value - self._same(other))

    def __bool__(self) -> bool:
        return self.value != 0

    def _same(self, other: Self) -> int:
        if type(other) is not type(self):
            raise TypeError(f"{type(self).__name__} does not mix with {type(other).__name__}")
        return other.value


class Percent(Amount, frozen=True, order=True, gc=False):
    """Percent of one GPU's compute: 100 is a whole one, 250 two and a half."""

    def __str__(self) -> str:
        return f"{self.value} %"


class MiB(Amount, frozen=True, order=True, gc=False):
    """Mebibytes of GPU memory."""

    def __str__(self) -> str:
        return f"{self.value} MiB"


WHOLE = Percent(100)
NO_COMPUTE = Percent(0)
NO_MEMORY = MiB(0)


def parse_count(text: str | int, *, where: str, unit: str) -> int:
    """Read a positive whole number as a person or Kubernetes writes it; `unit` is for the advice."""
    number = _decimal(str(text).strip(), where=where, unit=unit)
    if number != number.to_integral_value():
        raise QuantityError(f"{text} is not a whole number", where=where, remedy=f"write whole {unit}")
    if number < 1:
        raise QuantityError(f"{text} is less than 1", where=where, remedy="write at least 1, or leave it out")
    if number > LARGEST:
        raise QuantityError(f"{text} is more than any GPU has", where=where, remedy=f"write the number of {unit}")
    return int(number)


def _decimal(text: str, *, where: str, unit: str) -> Decimal:
    match = _QUANTITY.fullmatch(text)
    suffix = match["suffix"] if match else ""
    if suffix in _BINARY_SUFFIXES:
        raise QuantityError(
            f"{text[:40]} has a unit of its own, but the number counts {unit} already",
            where=where,
            remedy=_plain_number(text, suffix=suffix, unit=unit),
        )
    if suffix == "m":
        raise QuantityError(f"{text[:40]} is a fraction", where=where, remedy=f"write whole {unit}")
    try:
        return Decimal(match["number"] if match else "") * _DECIMAL_SUFFIXES[suffix]
    except (InvalidOperation, KeyError):
        raise QuantityError(f"{text[:40]!r} is not a number", where=where, remedy=f"write whole {unit}") from None


def _plain_number(text: str, *, suffix: str, unit: str) -> str:
    """Tell the number that was probably meant: `8Gi` of memory is 8192 MiB."""
    if unit != "MiB":
        return f"write whole {unit}"
    try:
        meant = Decimal(text.removesuffix(suffix)) * 1024 ** _BINARY_SUFFIXES[suffix] / 1024**2
    except InvalidOperation:
        return f"write whole {unit}"
    return f"write {max(1, int(meant.to_integral_value()))} for {text[:40]}"
