"""The chart's alerts over time, evaluated by Prometheus' own promtool: each fires when it should, and not before."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.alert_scenes import OF_NODES, Scene
from cluster.alert_scenes_of_the_centre import OF_THE_CENTRE
from cluster.charts import CHART
from cluster.harness import binaries
from support.require import skip_or_fail

ALERTS = CHART / "files" / "alerts.yaml"
SCENES = (*OF_NODES, *OF_THE_CENTRE)


@pytest.fixture(scope="module")
def promtool() -> Path:
    """Skip, or fail where the cluster is required, unless it is there."""
    found = binaries.find("promtool")
    if found is None:
        skip_or_fail("cluster", "promtool is not built: run tests/cluster/binaries/build prometheus")
    assert found is not None
    return found


def firing(alert: str) -> str:
    """How many of an alert are firing, whatever they are of."""
    return f'count by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}})'


def written(one: Scene) -> dict[str, Any]:
    """As promtool reads it."""
    expected = [
        {
            "expr": firing(one.alert),
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": f'{{alertname="{one.alert}"}}', "value": count}] if count else [],
        }
        for minute, count in one.firing.items()
    ]
    series = [{"series": name, "values": values} for name, values in one.told.items()]
    return {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": expected}],
    }


@pytest.mark.parametrize("one", SCENES, ids=lambda one: f"{one.alert}: {one.what}")
def test_it_fires_when_it_should(one: Scene, promtool: Path, tmp_path: Path) -> None:
    """By the rules as they are installed."""
    scene = tmp_path / "scene.yaml"
    scene.write_text(yaml.safe_dump(written(one)))
    told = subprocess.run(
        [str(promtool), "test", "rules", str(scene)], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr


def test_each_alert_is_seen_to_fire_and_to_be_silent() -> None:
    """No rule is left out of the table, and none only ever silent or only ever firing."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    named = {rule["alert"] for group in groups for rule in group["rules"]}
    fired = {one.alert for one in SCENES if any(one.firing.values())}
    silent = {one.alert for one in SCENES if not all(one.firing.values())}
    assert fired == silent == named


def test_they_are_rules_to_prometheus(promtool: Path) -> None:
    """Their expressions, and what is filled into their words."""
    command = [str(promtool), "check", "rules", "--lint=all", "--lint-fatal", str(ALERTS)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
