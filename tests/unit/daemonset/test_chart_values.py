"""Every value of the chart is explained where it is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DAEMONSET = Path(__file__).parents[3] / "daemonset"
VALUES: dict[str, Any] = yaml.safe_load((DAEMONSET / "chart" / "values.yaml").read_text())
_ROW = re.compile(r"^\| (`[^|]*`) \|([^|]*)\|", re.MULTILINE)
# What is a mapping, or may become one, and is one value all the same.
WHOLE = {"node.settings", "centre.settings", "monitoring.labels", "monitoring.dashboardLabels"}


def keys(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Each value that can be set, by its whole name."""
    for key, value in values.items():
        name = f"{above}{key}"
        if isinstance(value, dict) and name not in WHOLE:
            yield from keys(value, f"{name}.")
        else:
            yield name, value


def told() -> dict[str, str]:
    """What the table of README.md says each is where nothing else is said."""
    text = (DAEMONSET / "README.md").read_text().partition("| value | default |")[2].partition("\n\n")[0]
    return {name: default.strip() for names, default in _ROW.findall(text) for name in re.findall(r"`([^`]+)`", names)}


def test_every_value_has_a_row_and_every_row_a_value() -> None:
    """Or it can be found by reading the chart only, or not at all."""
    assert set(told()) == {name for name, _ in keys(VALUES)}


def test_defaults_are_as_told() -> None:
    """What the chart has, as YAML writes it; nothing where there is nothing."""
    for name, value in keys(VALUES):
        said = told()[name].strip("`")
        assert (yaml.safe_load(said) or None) == (value or None), name
