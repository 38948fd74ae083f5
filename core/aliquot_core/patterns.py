"""Lists of what is allowed and what is forbidden, as annotations write them: `A100*,!A100-PCIE*`.

A name passes when it matches no forbidden pattern and, if any pattern allows, one of those. Case does not count:
drivers and people differ in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from aliquot_core.errors import UserError

LONGEST = 4096


class PatternError(UserError):
    """A list of patterns that says nothing."""


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    """What is allowed (empty: everything) and what is forbidden."""

    allowed: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def admits(self, *names: str) -> bool:
        """Whether a GPU will do that goes by these names: any one may allow it, any one may forbid it."""
        if not (self.allowed or self.forbidden):
            return True
        folded = [name.casefold() for name in names]
        if _matches(folded, self.forbidden):
            return False
        return not self.allowed or _matches(folded, self.allowed)


def _matches(names: Iterable[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def parse_patterns(text: str, *, where: str) -> Patterns:
    """Read a comma-separated list; `!` before a pattern forbids."""
    if len(text) > LONGEST:
        raise PatternError(
            f"{len(text)} characters are more than {LONGEST}", where=where, remedy="use wildcards, or fewer patterns"
        )
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if any(not word.lstrip("!").strip() for word in words):
        raise PatternError(f"{text[:80]!r} has an empty entry", where=where, remedy="write patterns between the commas")
    if twice := next((word for word in words if word.replace(" ", "").startswith("!!")), None):
        raise PatternError(f"{twice[:80]!r} forbids twice", where=where, remedy="write one ! before a pattern")
    if strange := next((word for word in words if not word.isprintable()), None):
        what = f"{strange[:80]!r} has a character that is in no name"
        raise PatternError(what, where=where, remedy="write letters, digits, - and wildcards")
    folded = [word.casefold() for word in words]
    return Patterns(
        allowed=tuple(word for word in folded if not word.startswith("!")),
        forbidden=tuple(word[1:].strip() for word in folded if word.startswith("!")),
    )
