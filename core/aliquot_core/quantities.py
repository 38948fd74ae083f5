"""Percent of a GPU and MiB of its memory, as types of their own: adding one to the other is an error, not a bug.

Kubernetes hands quantities on as it likes to write them: 8000 comes back as `8k`, 1000000 as `1M`. Both are read. A
binary suffix is refused: `8Gi` of a resource that counts MiB is eight thousand million MiB, never what was meant.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import Self

import msgspec

from aliquot_core.errors import UserError

# 64 GPUs of 4 TiB in MiB: what lies above was meant in another unit, or is an attack on numpy's int64.
LARGEST = 2**28
# The unit of memory as it is written in advice.
MEBIBYTES = "MiB"
# What is quoted of a value in an error.
QUOTED = 40

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
}
_BINARY_SUFFIXES = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
# Three digits of exponent keep the exact arithmetic below small.
_PLAIN = 9
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


def parse_count(text: str | float, *, where: str, unit: str) -> int:
    """Read a positive whole number as a person or Kubernetes writes it; `unit` is for the advice."""
    written = str(text).strip()
    # Nearly all are so, and the centre reads each pod several times: a sixth of the time.
    if len(written) <= _PLAIN and written.isascii() and written.isdigit() and 1 <= (count := int(written)) <= LARGEST:
        return count
    number = _exact(written, where=where, unit=unit)
    quoted = written[:QUOTED]
    if number.denominator != 1:
        raise QuantityError(f"{quoted} is not a whole number", where=where, remedy=f"write whole {unit}")
    if number < 1:
        raise QuantityError(f"{quoted} is less than 1", where=where, remedy="write at least 1, or leave it out")
    if number > LARGEST:
        remedy = _if_bytes(quoted, number=number, unit=unit)
        raise QuantityError(f"{quoted} is more than any machine has", where=where, remedy=remedy)
    return int(number)


def factor_of(suffix: str) -> Fraction | None:
    """What a suffix of Kubernetes multiplies by; None if there is none such."""
    if suffix in _BINARY_SUFFIXES:
        return Fraction(1024) ** _BINARY_SUFFIXES[suffix]
    return _SUFFIXES.get(suffix)


def _exact(text: str, *, where: str, unit: str) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    suffix = match["suffix"] if match else ""
    try:
        number = Fraction(match["number"] if match else "")
        if suffix in _BINARY_SUFFIXES:
            raise QuantityError(
                f"{text[:QUOTED]} has a unit of its own, but the number counts {unit} already",
                where=where,
                remedy=_in_mib(text[:QUOTED], number=number * 1024 ** _BINARY_SUFFIXES[suffix], unit=unit),
            )
        return number * _SUFFIXES[suffix]
    except (ValueError, KeyError):
        raise QuantityError(
            f"{text[:QUOTED]!r} is not a number", where=where, remedy=f"write whole {unit} in digits"
        ) from None


def _in_mib(quoted: str, *, number: Fraction, unit: str) -> str:
    """The number that was probably meant: `8Gi` of memory is 8192 MiB."""
    meant = number / 2**20
    if unit != MEBIBYTES or not 0 < meant <= LARGEST:
        return f"write whole {unit} in digits"
    return f"write {ceil(meant)} for {quoted}"


def _if_bytes(quoted: str, *, number: Fraction, unit: str) -> str:
    """`8G`, which is also what Kubernetes makes of 8000000000, counts bytes if anything."""
    meant = number / 2**20
    if unit != MEBIBYTES or meant > LARGEST:
        return f"write the number of {unit}"
    return f"write {ceil(meant)} if {quoted} counts bytes{_if_binary(quoted, number=number)}"


def _if_binary(quoted: str, *, number: Fraction) -> str:
    """`8192M`, by who thinks in MiB, is 8192 of them."""
    suffix = quoted[-1:]
    if f"{suffix}i" not in _BINARY_SUFFIXES:
        return ""
    meant = number / _SUFFIXES[suffix] * 1024 ** _BINARY_SUFFIXES[f"{suffix}i"] / 2**20
    return f", or {ceil(meant)} if it means {quoted}i" if meant <= LARGEST else ""
