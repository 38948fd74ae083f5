"""How many cards are needed for pieces that can't be cut: never more than there are that take them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_scheduler.queues.judging.uncut import cards_needed


def taken(pieces: list[int], *, card: int, cards: int) -> bool:
    """Whether so many cards take them, tried out."""
    loads = [0] * cards

    def laid(rest: list[int]) -> bool:
        if not rest:
            return True
        # On one of several equal cards it is as good as on another.
        for place in {load: place for place, load in enumerate(loads)}.values():
            if loads[place] + rest[0] <= card:
                loads[place] += rest[0]
                if laid(rest[1:]):
                    return True
                loads[place] -= rest[0]
        return False

    return laid(sorted(pieces, reverse=True))


def fewest(pieces: list[int], *, card: int) -> int:
    """The fewest cards that take them."""
    return next(cards for cards in range(len(pieces) + 1) if taken(pieces, card=card, cards=cards))


@given(st.lists(st.integers(0, 20), max_size=8))
def test_no_card_is_asked_for_that_is_not_needed(pieces: list[int]) -> None:
    """Whatever the pieces: as many cards as are needed take them, by trying all ways to lay them."""
    assert cards_needed(pieces, card=20) <= fewest(pieces, card=20)


@pytest.mark.parametrize(
    ("pieces", "needed"),
    [
        ([60] * 3, 3),
        ([40] * 5, 3),
        ([30] * 7, 3),
        ([50] * 4, 2),
        ([34, 34, 34], 2),
        ([100, 1], 2),
        ([70, 30, 60, 40], 2),
        ([], 0),
    ],
)
def test_what_people_ask_is_told_exactly(pieces: list[int], needed: int) -> None:
    """Equal pieces above a half, a third, a quarter, and sums."""
    assert cards_needed(pieces, card=100) == needed == fewest(pieces, card=100)


def test_where_there_are_no_cards_none_would_do() -> None:
    """Of cards without memory nothing is told; that there are none is told otherwise."""
    assert cards_needed([1, 2], card=0) == 0
