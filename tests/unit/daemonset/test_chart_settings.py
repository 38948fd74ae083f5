"""The chart takes the settings that there are, each of what its type takes, and none that it sets itself."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import yaml

from aliquot_agent.isolation.mps_settings import MpsSettings
from aliquot_agent.settings import AgentSettings
from aliquot_cli.sections import SECTIONS
from aliquot_scheduler.web.settings import WebSettings

DAEMONSET = Path(__file__).parents[3] / "daemonset"
SCRIPT = runpy.run_path(str(DAEMONSET / "settings-schema"))
SCHEMA: dict[str, Any] = json.loads((DAEMONSET / "chart" / "values.schema.json").read_text())
# Read by no process that the chart installs, or set for all of them by the domain and the release's namespace.
ELSEWHERE = {"names", "up", "run"}
# Where the chart sets one of its own only if the values do not.
CHOSEN = {("queues", "user_label")}
_VARIABLE = re.compile(r"ALIQUOT_([A-Z]+)_([A-Z_]+)$")


def settings(part: str) -> dict[str, Any]:
    """The sections that a part takes, and what is taken of each."""
    found: dict[str, Any] = SCHEMA["$defs"][part]["properties"]
    return found


def set_by(template: str) -> set[tuple[str, str]]:
    """Sections and names of the variables that a template gives its containers."""
    text = (DAEMONSET / "chart" / "templates" / template).read_text()
    found = (_VARIABLE.match(name) for name in re.findall(r"name: (ALIQUOT_\w+)", text))
    return {(match[1].lower(), match[2].lower()) for match in found if match} - CHOSEN


def test_the_schema_says_what_the_types_say() -> None:
    """Of new settings too, and of those that take something else: `daemonset/settings-schema` writes it."""
    assert SCRIPT["FILE"].read_text() == SCRIPT["text"]()


def test_every_section_is_some_part_s() -> None:
    """Or it could not be set at all."""
    assert {*settings("nodeSettings"), *settings("centreSettings")} == set(SECTIONS) - ELSEWHERE


def test_what_is_withheld_are_settings() -> None:
    """A name that was changed would let what it stood for in."""
    for sections in SCRIPT["SET"].values():
        for section, withheld in sections.items():
            assert withheld <= set(SECTIONS[section].__struct_fields__), section


def test_no_variable_is_set_twice() -> None:
    """What a template gives a container, values can't give it otherwise."""
    for part, templates in (
        ("nodeSettings", ("30-endpoint.yaml", "35-mps.yaml", "40-agent.yaml")),
        ("centreSettings", ("50-centre.yaml",)),
    ):
        given = {each for template in templates for each in set_by(template)}
        assert given, part
        for section, name in given:
            assert name not in settings(part)[section]["properties"], (section, name)


def test_no_part_moves_what_ports_and_mounts_lead_to() -> None:
    """Nor is a default of these another than the one that the templates write."""
    agent, web = AgentSettings(), WebSettings()
    objects = [
        each
        for file in ("40-agent.yaml", "50-centre.yaml")
        for each in yaml.safe_load_all((DAEMONSET / "manifests" / file).read_text())
        if each and each["kind"] in {"DaemonSet", "Deployment"}
    ]
    (node,), (centre,) = (each["spec"]["template"]["spec"]["containers"] for each in objects)
    ports = {each["name"]: each["containerPort"] for each in centre["ports"]}
    assert ports == {"https": web.port, "http": web.status_port}
    assert [each["containerPort"] for each in node["ports"]] == [agent.http_port]
    assert agent.mps_folder == MpsSettings().folder
    assert {"port", "status_port"}.isdisjoint(settings("centreSettings")["web"]["properties"])
    assert "http_port" not in settings("nodeSettings")["agent"]["properties"]
