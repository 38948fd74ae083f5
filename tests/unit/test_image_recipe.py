"""The image can't be built in these tests; what can be read of its recipe fits the project."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DAEMONSET = ROOT / "daemonset"


def test_the_recipe_is_given_each_package_of_the_wheel() -> None:
    """A folder that the ignore file hides would be missing from the wheel, and be noticed when a command is run."""
    given = {line.removeprefix("!") for line in (DAEMONSET / "Dockerfile.dockerignore").read_text().splitlines()}
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {package.split("/")[0] for package in packages} <= given


def test_everything_names_the_image_of_this_version() -> None:
    """So that a release can't leave one of them behind."""
    images = {
        name
        for file in DAEMONSET.rglob("*.yaml")
        for name in re.findall(r"^ *image: (aliquot:\S+)$", file.read_text(), re.MULTILINE)
    }
    assert images == {f"aliquot:{PROJECT['project']['version']}"}
