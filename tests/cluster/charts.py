"""What Helm makes of daemonset/chart."""

from __future__ import annotations

import json
import runpy
import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from cluster.harness import binaries
from cluster.harness.api import Json
from cluster.installed import SYSTEM
from cluster.product_image import ROOT

CHART = ROOT / "daemonset" / "chart"
RENDER = ROOT / "daemonset" / "render"


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
