"""What Helm makes of daemonset/chart."""

from __future__ import annotations

import json
import runpy
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from cluster.harness import binaries
from cluster.harness.api import Json
from cluster.installed import SYSTEM
from cluster.product_image import ROOT

CHART = ROOT / "daemonset" / "chart"
RENDER = ROOT / "daemonset" / "render"
WORKLOADS = ("DaemonSet", "Deployment")
EXPRESSIONS = [
    {"name": "a", "cost": "size([1, 2]) == 2 ? 0.1 : 0.0", "why": 'it\'s "far"'},
    {"name": "b", "refuse": "false"},
]
RULES = {"expressions": EXPRESSIONS}
# Values of every kind.
EVERYTHING: dict[str, Any] = {
    "domain": "gpus.example.org",
    "makeNamespace": True,
    "images": {"node": "registry.example:5000/aliquot:1", "pullPolicy": "Always", "pullSecrets": ["mine"]},
    "node": {
        "simulatedGpus": "4xH100-80GB",
        "isolation": "interposer",
        "isolationOf": ["*T4*=observe", "0=interposer"],
        "contextMib": 300,
        "contextMibOf": ["*A100*=600", "1=450"],
        "ungranted": "stop",
        "settings": {"health": {"xids": ["31=degraded", "other=ignored"]}},
    },
    "centre": {
        "replicas": 3,
        "callers": ["10.0.0.0/28"],
        "settings": {"scheduler": {"promise": 60}, "admission": {"least_memory": 0}, "rules": RULES},
    },
    "certificates": "cert-manager",
    "waysRound": "Deny",
    "evictionByPriority": "Deny",
    "criticalClasses": "Deny",
    "kubeSchedulerUsers": ["system:kube-scheduler", "gke:scheduler"],
    "monitoring": {"enabled": True, "labels": {"release": "prometheus"}},
}


def helm(*arguments: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Run helm; values go in as a file of JSON, if it takes any."""
    command = [str(binaries.path_of("helm")), *arguments, *([] if values is None else ["--values=-"])]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, timeout=120, check=False)


def template(values: Mapping[str, Any] | None = None, *, namespace: str = SYSTEM, kubernetes: str = "") -> list[Json]:
    """The objects that an installation with these values has, on a Kubernetes of this version."""
    return list(_parsed(json.dumps(values or {}), namespace, kubernetes))


@cache
def _rendered(values: str, namespace: str, kubernetes: str) -> str:
    version = [f"--kube-version={kubernetes}"] if kubernetes else []
    told = helm("template", "aliquot", str(CHART), f"--namespace={namespace}", *version, values=json.loads(values))
    if told.returncode:
        raise ValueError(told.stderr)
    return told.stdout


def _parsed(values: str, namespace: str, kubernetes: str) -> list[Json]:
    return [each for each in yaml.safe_load_all(_rendered(values, namespace, kubernetes)) if each]


def stale_manifests() -> list[str]:
    """The files that `daemonset/render` would write otherwise than they are."""
    files = runpy.run_path(str(RENDER))["rendered"](str(binaries.path_of("helm")))
    return [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]


def of_kind(objects: list[Json], *kinds: str) -> dict[str, Json]:
    """Those objects by their names."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] in kinds}


def containers(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    """The container of each workload, and the workload's name."""
    for name, each in of_kind(objects, *WORKLOADS).items():
        (container,) = each["spec"]["template"]["spec"]["containers"]
        yield name, container


def environment(container: Json) -> dict[str, str]:
    """Its variables; of those that the kubelet fills in, nothing but that they are there."""
    return {each["name"]: each.get("value", "filled-in") for each in container.get("env", [])}
