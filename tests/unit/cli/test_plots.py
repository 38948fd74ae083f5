"""Pictures of curves: round numbers at the axes, and what holds until the next instant drawn so."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_cli.plots import svg


def drawn(curve: dict[float, float], *, stepped: bool = False) -> str:
    """A picture of one curve."""
    return svg({"one": curve}, title="t", across="hours", up="%", stepped=stepped)


def corners(picture: str) -> list[tuple[float, float]]:
    """Where its line goes."""
    line = re.search(r'polyline points="([^"]*)"', picture)
    assert line
    return [(float(x), float(y)) for x, y in (one.split(",") for one in line[1].split())]


@pytest.mark.parametrize(
    ("last", "numbers"),
    [(7.3, ["0", "2", "4", "6", "8"]), (100.0, ["0", "20", "40", "60", "80", "100"]), (0.0, ["0", "0.2"])],
)
def test_an_axis_has_round_numbers_from_zero_on(last: float, numbers: list[str]) -> None:
    """Also where the first point lies later, or nothing was measured."""
    picture = drawn({last / 2: 1.0, last: 1.0})
    assert re.findall(r'text-anchor="middle">([^<]*)<', picture) == numbers


@given(st.dictionaries(st.floats(0, 1e9), st.floats(-1e6, 1e6), min_size=1, max_size=20), st.booleans())
def test_every_point_lies_inside_the_axes(curve: dict[float, float], stepped: bool) -> None:
    """Whatever was measured."""
    assert all(60 <= x <= 570 and 40 <= y <= 370 for x, y in corners(drawn(curve, stepped=stepped)))


def test_what_holds_until_the_next_instant_has_no_slopes() -> None:
    """Each line goes across or up."""
    found = corners(drawn({0.0: 0.0, 1.0: 50.0, 3.0: 20.0, 4.0: 20.0}, stepped=True))
    assert len(found) == 7
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(found))
