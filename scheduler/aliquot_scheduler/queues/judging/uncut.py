"""How many cards pieces need at the least that can't be cut: three of 60 % need three, though two cards have enough.

By a bound that is never too high. With k + 1 for a divisor, a piece counts as what it takes of k equal parts of a card,
rounded down, because no more than k such pieces go onto one card: for k = 1 each piece above a half takes a card, for
k = 2 each above a third takes half of one, and so on. Pieces that are such a part exactly count as what they are.
"""

from __future__ import annotations

from collections.abc import Sequence

# Of more pieces on a card it is seldom more than their sum says.
_MOST_PARTS = 8


def cards_needed(pieces: Sequence[int], *, card: int) -> int:
    """No fewer cards of this size take all of these."""
    if not card:
        return 0
    by_sum = -(-sum(pieces) // card)
    return max(by_sum, *(_by_parts(pieces, card=card, parts=parts) for parts in range(1, _MOST_PARTS + 1)))


def _by_parts(pieces: Sequence[int], *, card: int, parts: int) -> int:
    counted = 0
    for piece in pieces:
        whole, rest = divmod((parts + 1) * piece, card)
        counted += whole * card if rest else parts * piece
    return -(-counted // (parts * card))
