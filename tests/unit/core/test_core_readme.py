"""The example in the core's README is true."""

from __future__ import annotations

import doctest
from pathlib import Path

import aliquot_core

README = Path(__file__).parents[3] / "core" / "README.md"


def test_the_example_does_what_it_says() -> None:
    """Every line of it is run."""
    failed, attempted = doctest.testfile(str(README), module_relative=False)
    assert failed == 0
    assert attempted > 15


def test_every_module_has_its_line() -> None:
    """A new module says its one job in the table."""
    text = README.read_text()
    modules = [path.name for path in Path(aliquot_core.__file__).parent.glob("[a-z]*.py")]
    assert modules
    assert [name for name in modules if f"| `{name}` |" not in text] == []
