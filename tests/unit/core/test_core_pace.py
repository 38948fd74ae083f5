"""How often nodes beat, among how many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.pace import LONGEST, SHORTEST, interval_for, read_interval, write_interval


@pytest.mark.parametrize(
    ("nodes", "seconds"), [(0, 5), (1, 5), (500, 5), (501, 6), (600, 6), (1000, 10), (5000, 50), (100_000, 600)]
)
def test_interval_is_that_of_the_design(nodes: int, seconds: float) -> None:
    """Every 5 s up to 500 nodes, then as seldom as 100 writes a second in all need."""
    assert interval_for(nodes) == seconds


@given(st.integers(0, 60_000))
def test_all_nodes_together_never_write_more_than_the_most(nodes: int) -> None:
    """And no node beats faster than it must, but for the whole second."""
    assert nodes / interval_for(nodes) <= 100
    assert interval_for(nodes) < max(5.0, nodes / 100) + 1


@given(st.integers(0, 10**7))
def test_what_the_centre_writes_agents_read(nodes: int) -> None:
    """To the last digit."""
    assert read_interval(write_interval(interval_for(nodes))) == interval_for(nodes)


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-5", "0", "4.9", "600.1", "1e9", "5 s"])
def test_nonsense_is_not_followed(text: str) -> None:
    """An agent that beat every millisecond, or never, would be worse than one that goes on as it did."""
    assert read_interval(text) is None
    assert (read_interval(str(SHORTEST)), read_interval(str(LONGEST))) == (5.0, 600.0)
