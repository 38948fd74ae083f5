"""Lists of what is allowed and what is forbidden, as annotations write them: `A100*,!A100-PCIE*`.

A name passes when it matches no forbidden pattern and, if any pattern allows, one of those. Case does not count:
drivers and people differ in it.

Whoever may create a pod writes them, and they are asked of every GPU of the cluster. So there may be few; plain names
are looked up; and the others are one regular expression, in which `*` never looks twice at what it has passed by.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache

import msgspec

from aliquot_core.errors import UserError

LONGEST = 4096
# Of 8,000 GPUs the worst so many take 0.15 s, once for each list; 1,300 took 4 s at each look.
MOST = 64

_WILD = re.compile(r"[*?\[]")


class PatternError(UserError):
    """A list of patterns that says nothing, or too much."""


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    """What is allowed (empty: everything) and what is forbidden."""

    allowed: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def admits(self, *names: str) -> bool:
        """Whether a GPU will do that goes by these names: any one may allow it, any one may forbid it."""
        if not (self.allowed or self.forbidden):
            return True
        folded = [name.casefold() for name in names]
        if self.forbidden and _among(self.forbidden).match_any(folded):
            return False
        return not self.allowed or _among(self.allowed).match_any(folded)


class _Among(msgspec.Struct, frozen=True):
    """A list made ready to be asked of many names."""

    plain: frozenset[str]
    wild: re.Pattern[str] | None

    def match_any(self, names: list[str]) -> bool:
        """Whether any of these names is in the list."""
        if not self.plain.isdisjoint(names):
            return True
        return self.wild is not None and any(map(self.wild.match, names))


# To make one ready takes up to 20 ms, and pods are read again and again.
@lru_cache(maxsize=128)
def _among(patterns: tuple[str, ...]) -> _Among:
    wild = [translate(pattern) for pattern in patterns if _WILD.search(pattern)]
    plain = frozenset(pattern for pattern in patterns if not _WILD.search(pattern))
    return _Among(plain, re.compile("|".join(wild)) if wild else None)


def parse_patterns(text: str, *, where: str) -> Patterns:
    """Read a comma-separated list; `!` before a pattern forbids."""
    if len(text) > LONGEST:
        raise PatternError(
            f"{len(text)} characters are more than {LONGEST}", where=where, remedy="use wildcards, or fewer patterns"
        )
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if len(words) > MOST:
        what = f"{len(words)} patterns are more than {MOST}"
        raise PatternError(what, where=where, remedy="use wildcards, or fewer patterns")
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
