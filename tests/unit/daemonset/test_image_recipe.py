"""The image can't be built in these tests; what can be read of its recipe fits the project."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from aliquot_agent.isolation.slice_files import NVML_LIBRARY
from aliquot_agent.settings import AgentSettings

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DAEMONSET = ROOT / "daemonset"


def test_the_recipe_is_given_each_package_of_the_wheel() -> None:
    """A folder that the ignore file hides would be missing from the wheel, and be noticed when a command is run."""
    given = {line.removeprefix("!") for line in (DAEMONSET / "Dockerfile.dockerignore").read_text().splitlines()}
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {package.split("/")[0] for package in packages} <= given


def test_the_image_brings_the_interposer_where_the_agent_looks_for_it() -> None:
    """Built in a stage with a compiler, from a folder that the ignore file lets through."""
    recipe = (DAEMONSET / "Dockerfile").read_text()
    default = AgentSettings().interposer
    built = re.search(r"^FROM gcc:\S+ AS (\w+)\nCOPY isolation \S+\nRUN make -C \S+ OUT=(\S+)$", recipe, re.MULTILINE)
    assert built is not None
    for library in (Path(default).name, NVML_LIBRARY):
        assert f"COPY --from={built[1]} {built[2]}/{library} {Path(default).with_name(library)}\n" in recipe
    assert "!isolation" in (DAEMONSET / "Dockerfile.dockerignore").read_text().splitlines()


def test_everything_names_the_image_of_this_version() -> None:
    """So that a release can't leave one of them behind."""
    images = {
        name
        for file in DAEMONSET.rglob("*.yaml")
        for name in re.findall(r"^ *image: (aliquot:\S+)$", file.read_text(), re.MULTILINE)
    }
    assert images == {f"aliquot:{PROJECT['project']['version']}"}
