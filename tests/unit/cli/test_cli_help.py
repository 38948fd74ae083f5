"""The help of every command, as a newcomer reads it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from aliquot_cli.main import COMMANDS, main

# What each command that shows something can be printed as; of the others nothing is to be read by a program.
ALL = frozenset({"json", "yaml", "wide", "name"})
DATA = frozenset({"json", "yaml"})
FORMS = {
    **dict.fromkeys(("ps", "stop", "queue", "explain", "top", "run", "config"), ALL),
    # Reports of one run: they name nothing that another command could take.
    **dict.fromkeys(("simulate", "snapshot"), DATA),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_shown_has_every_form(name: str) -> None:
    """So that scripts need to learn it once."""
    command = main.get_command(click.Context(main), name)
    options = command.params if command else []
    forms = [set(one.type.choices) for one in options if "-o" in one.opts and isinstance(one.type, click.Choice)]
    assert [found & ALL for found in forms] == ([FORMS[name]] if name in FORMS else [])


def test_a_log_has_no_form() -> None:
    """Whoever asks for one is told what there is instead."""
    done = CliRunner().invoke(main, ["logs", "-o", "json", "trainer"])
    assert (done.exit_code, "`aliquot ps -o json` tells of its pod" in done.output) == (2, True)


def test_a_run_that_is_followed_has_no_form() -> None:
    """What is printed is what its program prints."""
    done = CliRunner().invoke(main, ["run", "-o", "json", "--", "true"])
    assert (done.exit_code, "-o goes with --detach" in done.output) == (2, True)


def test_settings_are_printed_in_every_form() -> None:
    """The same settings for people, programs and other commands."""
    told = {form: CliRunner().invoke(main, ["config", "-o", form]).output for form in ("table", "json", "yaml", "name")}
    names = told["name"].splitlines()
    assert "run.compute" in names
    assert [line.split()[0] for line in told["table"].splitlines()[1:] if line] == names
    assert [f"{row['section']}.{row['name']}" for row in yaml.safe_load(told["yaml"])] == names
    assert yaml.safe_load(told["yaml"]) == json.loads(told["json"])
    assert told["yaml"].startswith("- section: ")


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_has_an_example_on_a_line_of_its_own(command: list[str]) -> None:
    """So that it can be copied; click runs lines together where its mark is spelt out."""
    told = CliRunner().invoke(main, [*command, "--help"]).output.splitlines()
    assert not [line for line in told if "\\b" in line]
    example = next(number for number, line in enumerate(told) if line.strip() in {"Example:", "Examples:"})
    assert any(
        line.strip().startswith("aliquot ") or "=" in line.split()[0] for line in told[example + 1 : example + 3]
    )


def test_what_fair_shares_leave_out_is_told_as_in_the_document() -> None:
    """In the same words, so that neither stays behind when the shares learn to count more."""
    document = " ".join((Path(__file__).parents[3] / "docs/queues.md").read_text().split())
    told = " ".join(CliRunner().invoke(main, ["queue", "--help"]).output.split())
    _, said, rest = told.partition("It leaves out ")
    sentence = said + rest.partition(". ")[0]
    assert len(sentence) > len(said) + 20
    assert sentence in document
