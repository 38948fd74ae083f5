"""Quantities as the API server writes them back: `1000m` becomes `1`, `1024Mi` becomes `1Gi`, `8000` becomes `8k`.

Clients must read what comes back, so the embedded server rewrites them too; otherwise a parser that can't read `8k`
would pass here and fail on a cluster.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_NUMBER = r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
# For those who check a text's form where it is decoded.
PATTERN = f"^{_NUMBER}$"
_SHAPE = re.compile(_NUMBER)
_BINARY = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_NAMES = {power: name for name, power in _DECIMAL.items()}
_NANO = 10**9
_MILLI = 10**3
_LONGEST = 64


@lru_cache(maxsize=4096)
def parse(text: str) -> Fraction | None:
    """Give the amount, to a billionth and rounded up as the API does, or nothing where the text is no quantity."""
    found = _SHAPE.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    sign, digits, suffix = found[1], found[2], found[3] or ""
    amount = Fraction(digits.rstrip(".")) * _scale(suffix)
    nano = -((-amount.numerator * _NANO) // amount.denominator)
    return Fraction(-nano if sign == "-" else nano, _NANO)


def _scale(suffix: str) -> Fraction:
    if suffix in _BINARY:
        return Fraction(1024 ** (_BINARY.index(suffix) + 1))
    if suffix in _DECIMAL:
        return Fraction(10) ** _DECIMAL[suffix]
    return Fraction(10) ** int(suffix[1:])


@lru_cache(maxsize=4096)
def canonical(text: str, *, thousandths: bool = False) -> str | None:
    """Give the one way in which the API writes this quantity; in pods it is rounded up to thousandths."""
    amount = parse(text)
    if amount is None:
        return None
    if thousandths:
        amount = Fraction(-((-amount.numerator * _MILLI) // amount.denominator), _MILLI)
    if amount == 0:
        return "0"
    suffix = _SHAPE.fullmatch(text)[3] or ""  # type: ignore[index]  # parse() has matched it already
    if suffix in _BINARY and abs(amount) >= 1024 and amount.denominator == 1:  # noqa: PLR2004 - below, decimal is shorter
        return _reduced(int(amount), 1024, ["", *_BINARY])
    mantissa, power = _thousands(amount)
    if suffix[:1] in {"e", "E"} and len(suffix) > 1:
        return f"{mantissa}{suffix[0]}{power}" if power else str(mantissa)
    extra = max(0, power - 18) // 3
    return f"{mantissa * 1000**extra}{_NAMES[power - 3 * extra]}"


def _reduced(amount: int, base: int, names: list[str]) -> str:
    step = 0
    while amount % base == 0 and step < len(names) - 1:
        amount //= base
        step += 1
    return f"{amount}{names[step]}"


def _thousands(amount: Fraction) -> tuple[int, int]:
    nano, power = int(amount * _NANO), -9
    while nano % 1000 == 0:
        nano //= 1000
        power += 3
    return nano, power
