"""Which of the things that queues count lie within which: GPUs of a model are GPUs, and patterns lie within wider ones.

A limit of all GPUs is one of each model's too, so nobody is guaranteed more of a model than that. By hand, a pattern
lies within another one if every GPU that it takes there is taken by the other; or, whatever GPUs are there, if the
other one takes the pattern as it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from aliquot_scheduler.queues.said.things import ALL_CARDS, KINDS, Kinds

# Of what stands in a pattern for some character, it can't be told what it would take of another pattern.
_UNSURE = frozenset("?[")


def wider_than(pattern: str, patterns: Sequence[str], *, kinds: Kinds) -> list[str]:
    """Those within which a pattern of models lies, all GPUs first; `kinds` are the models there that each takes."""
    if pattern == ALL_CARDS:
        return []
    others, own = (one for one in patterns if one not in {ALL_CARDS, pattern}), kinds.get(pattern, frozenset())
    return [
        ALL_CARDS,
        *(one for one in others if _takes_all(one, pattern) or (own and own <= kinds.get(one, frozenset()))),
    ]


def within(patterns: Sequence[str], *, kinds: Kinds) -> tuple[tuple[int, ...], ...]:
    """The same by dimensions: compute and memory of each pattern, in that order."""
    places = {pattern: len(KINDS) * at for at, pattern in enumerate(patterns)}
    wider = [wider_than(pattern, patterns, kinds=kinds) for pattern in patterns]
    return tuple(tuple(places[one] + kind for one in found) for found in wider for kind in range(len(KINDS)))


def _takes_all(wide: str, pattern: str) -> bool:
    # What stands in brackets is one character of several, and none that is in a name as it is written.
    if _UNSURE & set(wide) or ("[" in pattern and wide.strip("*")):
        return False
    return fnmatchcase(pattern.casefold(), wide.casefold())
