"""What is installed for the Prometheus operator finds the pods and the ports that are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

MANIFESTS = Path(__file__).parents[3] / "daemonset" / "manifests"
Json = dict[str, Any]


def installed(kind: str) -> dict[str, Json]:
    """All objects of a kind by their names; `daemonset/render` made them of the chart, and a test compares."""
    files = sorted(MANIFESTS.glob("*.yaml"))
    objects = [one for file in files for one in yaml.safe_load_all(file.read_text()) if one]
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


MONITORS = installed("PodMonitor")
WORKLOADS = installed("DaemonSet") | installed("Deployment")


def chosen(monitor: Json) -> list[str]:
    """The workloads whose pods a monitor selects, by the names of those."""
    (how,) = monitor["spec"]["selector"]
    assert how == "matchLabels"
    wanted = monitor["spec"]["selector"][how].items()
    # Without a namespaceSelector a monitor looks into its own namespace only.
    assert "namespaceSelector" not in monitor["spec"]
    return [
        name
        for name, workload in WORKLOADS.items()
        if wanted <= workload["spec"]["template"]["metadata"]["labels"].items()
        and workload["metadata"]["namespace"] == monitor["metadata"]["namespace"]
    ]


def ports(workload: Json) -> set[str]:
    """The names of the ports that its containers have."""
    containers = workload["spec"]["template"]["spec"]["containers"]
    return {port["name"] for container in containers for port in container.get("ports", [])}


@pytest.mark.parametrize("name", ["aliquot-agent", "aliquot-scheduler"])
def test_each_part_that_tells_something_is_scraped_where_it_does(name: str) -> None:
    """Agents and centre each by the monitor of their name, at a port that their container has."""
    monitor = MONITORS[name]
    assert chosen(monitor) == [name]
    asked = {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]}
    assert asked
    assert asked <= ports(WORKLOADS[name])


def test_nothing_else_is_scraped() -> None:
    """The endpoint of a node tells its agent, opens no port, and no monitor would find it."""
    assert ports(WORKLOADS["aliquot-endpoint"]) == set()
    assert sorted(name for monitor in MONITORS.values() for name in chosen(monitor)) == sorted(MONITORS)
    assert set(MONITORS) == {"aliquot-agent", "aliquot-scheduler"}


def test_the_job_of_a_monitor_is_the_one_that_alerts_name() -> None:
    """The operator calls it by namespace and monitor, and AliquotAgentDown asks for it so."""
    rules = installed("PrometheusRule")["aliquot"]["spec"]["groups"]
    (asked,) = [rule["expr"] for group in rules for rule in group["rules"] if rule["alert"] == "AliquotAgentDown"]
    assert 'job=~".+/aliquot-agent"' in asked
    assert "aliquot-agent" in MONITORS
