"""Bars, lines and columns of `aliquot top`: whatever is in them, they are as wide as they are to be."""

from __future__ import annotations

import unicodedata

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aliquot_cli.tables import table, tame
from aliquot_cli.top.bars import CUT, FREE, GRANTED, UNKNOWN, USED, Part, cut_bar, level_bar
from aliquot_cli.top.columns import Column, laid_out
from aliquot_cli.top.ink import Span, Tone, cells, coloured, fit, plain, row

PARTS = st.lists(st.tuples(st.integers(0, 60), st.none() | st.integers(0, 60)), max_size=40)


def text(parts: list[tuple[int, int | None]], *, width: int) -> str:
    """A bar without its colours."""
    made = [Part(granted, used, Tone.PLAIN) for granted, used in parts]
    return "".join(span.text for span in cut_bar(made, whole=100, width=width))


@given(PARTS, st.integers(1, 80))
def test_a_bar_is_as_wide_as_it_is_to_be_and_shows_everybody(parts: list[tuple[int, int | None]], width: int) -> None:
    """However many share a GPU: each has its cut while there is a cell for it, and none takes another's."""
    bar = text(parts, width=width)
    assert len(bar) == width
    assert bar.count(CUT) == min(len(parts), width)
    assert set(bar) <= {CUT, USED, GRANTED, UNKNOWN, FREE}


def test_what_is_used_granted_and_free_can_be_told_apart() -> None:
    """Also without colour."""
    assert text([(30, 15), (50, 50)], width=20) == "▏███░░▏█████████····".replace("███░░", "██░░░", 1)
    assert text([(30, None)], width=10) == "▏▓▓·······"
    assert text([(100, 0)], width=10) == "▏░░░░░░░░░"
    assert text([], width=5) == "·····"


def test_who_uses_anything_shows_it() -> None:
    """One percent of a large slice is not nothing; and nobody uses more than the bar has."""
    assert text([(100, 1)], width=10) == "▏█░░░░░░░░"
    assert text([(50, 99)], width=10) == "▏████·····"


@given(st.integers(0, 500), st.integers(0, 500), st.none() | st.integers(0, 900), st.integers(0, 400))
def test_a_queue_s_bar_is_as_wide_as_it_is_to_be(used: int, guarantee: int, fair: int | None, whole: int) -> None:
    """Also where guarantees are more than there is, or there is nothing."""
    bar = level_bar(used=used, guarantee=guarantee, fair=fair, whole=whole, width=30, tone=Tone.PLAIN)
    assert sum(cells(span.text) for span in bar) == 30


def test_a_queue_s_bar_shows_guarantee_borrowed_and_kept() -> None:
    """What it uses of its own, what it borrows, what is kept for it, where its due ends."""

    def bar(used: int, guarantee: int, fair: int | None) -> str:
        drawn = level_bar(used=used, guarantee=guarantee, fair=fair, whole=100, width=10, tone=Tone.PLAIN)
        return "".join(span.text for span in drawn)

    assert bar(60, 40, None) == "████▓▓····"
    assert bar(20, 40, None) == "██░░······"
    assert bar(20, 40, 70) == "██░░···│··"


@given(st.text(max_size=60), st.integers(0, 30), st.booleans())
def test_a_cell_has_its_width_whatever_is_in_it(words: str, width: int, right: bool) -> None:
    """Wide signs and marks included."""
    assert cells(fit(words, width, right=right)) == width


def test_wide_signs_take_two_cells() -> None:
    """And a mark on another sign takes none."""
    assert (cells("ab"), cells("漢字"), cells("e\u0301")) == (2, 4, 1)
    assert fit("漢字漢字", 6) == "漢字… "


@given(st.text(alphabet=st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Co", "Cn"]), min_size=1, max_size=20))
def test_nothing_that_a_terminal_obeys_comes_through(words: str) -> None:
    """Escapes, and marks that turn the writing round."""
    assert all(unicodedata.category(one)[0] != "C" for one in tame(f"a{words}b"))


def test_tables_are_tame_too() -> None:
    """What is listed, printed and explained was written by others."""
    assert table([("A", "WHY"), ("x", "\033]0;gone\a")]).splitlines()[1] == "x  ?]0;gone?"


def test_colours_are_only_what_we_say() -> None:
    """A name that holds an escape is shown with a mark in its place."""
    line = row([Span("\033[31mred", Tone.GOOD)], 20)
    made = (Span(tame(line[0].text), Tone.GOOD),)
    assert coloured(made) == "\033[32m?[31mred\033[0m"
    assert plain(made, ascii_only=True) == "?[31mred"


COLUMNS = [
    Column(title="A", least=5, most=9),
    Column(title="B", least=10, spare=1),
    Column(title="C", least=10, spare=2),
]


@pytest.mark.parametrize(
    ("width", "widths"), [(80, [9, 10, 10]), (28, [5, 10, 10]), (27, [9, 10, 0]), (16, [9, 0, 0]), (6, [5, 0, 0])]
)
def test_columns_give_way_in_their_order(width: int, widths: list[int]) -> None:
    """The spare ones first; who stays takes the room."""
    assert laid_out(COLUMNS, width=width).widths == widths


@given(st.integers(1, 100))
def test_a_line_is_never_wider_than_the_terminal(width: int) -> None:
    """Or it would break, and push all others down."""
    layout = laid_out(COLUMNS, width=width)
    line = layout.line([Span("x" * 50), Span("y"), Span("z" * 50)])
    assert sum(cells(span.text) for span in line) == width
