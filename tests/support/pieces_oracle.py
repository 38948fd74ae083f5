"""Whether pods fit on cards if all of them may be laid anew: found by trying everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Ask(NamedTuple):
    """What one pod asks of one card."""

    compute: int
    memory: int


def fits(asks: Sequence[Ask], *, cards: int, memory: int) -> bool:
    """Whether each has a card with room for it; a whole card is nobody else's."""
    return _laid(sorted(asks, reverse=True), [Ask(100, memory)] * cards)


def _laid(asks: Sequence[Ask], left: Sequence[Ask]) -> bool:
    if not asks:
        return True
    first, *others = asks
    # Cards with the same left are the same card.
    return any(
        _laid(others, [*left[:at], _without(left[at], first), *left[at + 1 :]])
        for at in range(len(left))
        if left[at] not in left[:at] and first.compute <= left[at].compute and first.memory <= left[at].memory
    )


def _without(left: Ask, ask: Ask) -> Ask:
    if ask.compute == left.compute == 100:
        return Ask(0, 0)
    return Ask(left.compute - ask.compute, left.memory - ask.memory)
