"""The node's image holds requirements/run.lock and nothing more: what only the centre needs is not there."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())
CENTRE_ONLY = [needed.split(">")[0] for needed in PROJECT["project"]["optional-dependencies"]["scheduler"]]
PROBE = """
import sys

sys.modules.update(dict.fromkeys(sys.argv[2].split(",")))  # None there: importing it fails
sys.argv[1:] = [sys.argv[1], "--help"]
from aliquot_cli.main import main

main()
"""


@pytest.mark.parametrize("command", ["agent", "endpoint", "mps", "config"])
def test_a_command_of_the_node_starts_without_what_the_centre_needs(command: str) -> None:
    """Settings of all parts are known to every command, so an import there is one everywhere."""
    probe = [sys.executable, "-c", PROBE, command, ",".join(CENTRE_ONLY)]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout
