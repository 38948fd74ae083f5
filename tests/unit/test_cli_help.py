"""The help of every command, as a newcomer reads it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from aliquot_cli.main import COMMANDS, main


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_has_an_example_on_a_line_of_its_own(command: list[str]) -> None:
    """So that it can be copied; click runs lines together where its mark is spelt out."""
    told = CliRunner().invoke(main, [*command, "--help"]).output.splitlines()
    assert not [line for line in told if "\\b" in line]
    example = next(number for number, line in enumerate(told) if line.strip() in {"Example:", "Examples:"})
    assert any(
        line.strip().startswith("aliquot ") or "=" in line.split()[0] for line in told[example + 1 : example + 3]
    )
