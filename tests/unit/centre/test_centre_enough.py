"""Whether a node has enough left: asked of one node by its amounts, and of all at once."""

from __future__ import annotations

import numpy as np
import pytest

from aliquot_scheduler.picture.host_room import enough, enough_rows

# What is asked, what is left, whether that is enough.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], bool]] = {
    "nothing is asked": ((), (), True),
    "more than is asked": ((2, 3), (4, 4), True),
    "just that": ((2, 3), (2, 3), True),
    "the first is short": ((2, 3), (1, 3), False),
    "the last is": ((2, 3), (2, 2), False),
    "less than nothing is left of what is not asked": ((0, 3), (-1, 3), True),
    "and of what is": ((1, 3), (-1, 3), False),
    "more than an array of 32 bits holds": ((2**40, 0), (2**41, 0), True),
}


@pytest.mark.parametrize("case", CASES)
def test_there_is_enough_where_each_amount_that_is_asked_is_left(case: str) -> None:
    """The same of one node and of rows."""
    asked, left, expected = CASES[case]
    assert enough(asked, left) is expected
    plenty = np.full(len(asked), 2**62, dtype=np.int64)
    rows = np.array([left, plenty], dtype=np.int64)
    assert enough_rows(asked, rows).tolist() == [expected, True]


def test_of_rows_the_first_columns_may_be_asked_alone() -> None:
    """Whatever is left of those that follow."""
    rows = np.array([(5, -3), (4, 9)], dtype=np.int64)
    assert enough_rows((5,), rows).tolist() == [True, False]
