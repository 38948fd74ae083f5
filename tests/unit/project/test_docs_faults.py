"""The fault tables of the documents name tests that are there: each line is a promise, and its tests prove it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
DOCS = TESTS.parent / "docs"
# Each table by its page and heading, and how many lines it has at least.
TABLES = {
    ("node.md", "## When something dies"): 26,
    ("centre.md", "## When something dies"): 11,
    ("centre.md", "## When somebody means no good"): 9,
    ("page.md", "## When somebody means no good"): 8,
}
# By which a table of tests calls a line of its own table.
_LINE_NAME = re.compile(r"[A-Z][0-9]+")
# One more sentence on the line above.
_MORE = "…"
# Longer lines are read by nobody.
_LONGEST = 600
_NAMED = re.compile(r"`([^`]+\.py::[^`]+)`")


def rows(page: str, heading: str) -> list[list[str]]:
    """What, what happens and what shows it; where the tests have a table of their own, joined by the line's name."""
    cells = cells_of(page, heading)
    if not _LINE_NAME.fullmatch(cells[0][0]):
        return cells
    faults: dict[str, list[str]] = {}
    for called, what, happens in cells:
        if what == _MORE:
            faults[called][1] += f". {happens}"
        else:
            assert called not in faults, called
            faults[called] = [what, happens, ""]
    for called, test in cells_of(page, f"#{heading}: shown by"):
        faults[called][2] += f" {test}"
    return list(faults.values())


def cells_of(page: str, heading: str) -> list[list[str]]:
    """The table's lines as cells, without its head and without the headings inside it."""
    section = (DOCS / page).read_text().partition(f"\n{heading}\n")[2].partition("\n##")[0]
    lines = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip(" |") for cell in line] for line in lines[2:]]
    return [line for line in cells if not line[0].startswith("**")]


def defined_in(path: Path) -> set[str]:
    """The tests that a file defines, as pytest names them."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {prefix + one.name for one in inside if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    return found


@pytest.mark.parametrize("row", [row for table in TABLES for row in rows(*table)], ids=lambda row: row[0])
def test_each_fault_names_tests_that_exist(row: list[str]) -> None:
    """What happens is said, and shown by at least one test below tests/."""
    fault, happens, shown_by = row
    assert fault
    assert happens
    named = _NAMED.findall(shown_by)
    assert named
    for test in named:
        file, _, name = test.partition("::")
        assert name.rpartition("::")[2].startswith("test_")
        assert name in defined_in(TESTS / file), test


@pytest.mark.parametrize("table", TABLES)
def test_the_table_is_there(table: tuple[str, str]) -> None:
    """A heading that is renamed must not leave nothing to check."""
    assert len(rows(*table)) >= TABLES[table]


def test_a_line_of_a_table_can_be_read() -> None:
    """A sentence, and not all that there is to say of it with the names of its tests."""
    lines = (DOCS / "centre.md").read_text().splitlines()
    assert [line[:60] for line in lines if len(line) > _LONGEST] == []
