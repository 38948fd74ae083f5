"""What is installed where: the locks agree with each other and with what is asked for."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).parents[3]
PIN = re.compile(r"^([a-z0-9-]+)==([^ ]+)", re.MULTILINE)


def pins(name: str) -> set[tuple[str, str]]:
    """The packages of a lock, and their versions."""
    return set(PIN.findall((REPO / "requirements" / f"{name}.lock").read_text()))


def asked_for() -> dict[str, Any]:
    """What the project says it needs."""
    project: dict[str, Any] = tomllib.loads((REPO / "pyproject.toml").read_text())
    return project


@pytest.mark.parametrize("name", ["run", "centre", "up"])
def test_what_runs_is_what_was_tested(name: str) -> None:
    """Each version of a smaller lock is that of the largest."""
    assert pins(name)
    assert pins(name) <= pins("dev")


def test_a_newcomer_gets_all_that_runs_and_no_tools() -> None:
    """`make run` installs what the commands need and what makes the checkout importable, but not what checks it."""
    project = asked_for()
    extras = chain.from_iterable(project["project"]["optional-dependencies"].values())
    needed = {re.split(r"[<>=]", one)[0] for one in [*project["project"]["dependencies"], *extras]}
    there = {name for name, _ in pins("up")}
    assert needed | {"hatchling", "editables"} <= there
    assert not there & {"pytest", "mypy", "ruff", "hypothesis", "grpcio-tools", "import-linter"}
