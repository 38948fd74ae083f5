"""The room of bodies: all that are coming share it, and small ones need none of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_scheduler.web.bodies import SMALL, BodyRoom, NoRoomError


@given(
    sizes=st.lists(st.lists(st.integers(min_value=1, max_value=3 * SMALL), max_size=5), max_size=8),
    most=st.integers(min_value=0, max_value=3 * SMALL),
)
def test_no_more_is_taken_than_there_is_and_all_comes_back(sizes: list[list[int]], most: int) -> None:
    """However bodies grow, one inside the other; and a refusal takes nothing."""
    room = BodyRoom(most)

    def nested(left: list[list[int]], held: int) -> None:
        if not left:
            return
        with room.taken() as grown:
            size = 0
            for more in left[0]:
                beyond = max(0, size + more - SMALL)
                if held + beyond > most:
                    with pytest.raises(NoRoomError):
                        grown(size + more)
                    break
                size += more
                grown(size)
            nested(left[1:], held + max(0, size - SMALL))

    nested(sizes, 0)
    with room.taken() as grown:
        grown(SMALL + most)
        with pytest.raises(NoRoomError):
            grown(SMALL + most + 1)
