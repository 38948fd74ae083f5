"""Nodes with the driver's files and with NVIDIA's CDI spec, right or changed, and what is found there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from aliquot_deviceplugin.cdi.driver_files import DriverFiles, DriverGpu
from aliquot_deviceplugin.cdi.finding import DriverSettings, DriverSource, find_driver_files
from aliquot_deviceplugin.cdi.spec import ContainerEdits
from support.cdi import GPUS
from support.golden import GOLDEN
from support.nodes import FakeNode, with_driver

SPEC = "/etc/cdi/nvidia.yaml"
FIRST, SECOND = (DriverGpu(uuid=uuid, index=index, minor=index) for index, uuid in enumerate(GPUS))


def nvidia_yaml() -> bytes:
    """The hand-written spec."""
    return (GOLDEN / "nvidia.yaml").read_bytes()


def changed(change: Callable[[Any], object]) -> bytes:
    """The hand-written spec with one thing different, as JSON."""
    raw = yaml.safe_load(nvidia_yaml())
    change(raw)
    return json.dumps(raw).encode()


def node_with_spec(content: bytes | None = None, *, path: str = SPEC) -> FakeNode:
    """A node with driver, toolkit and CDI spec."""
    node = with_driver()
    node.file("/usr/bin/nvidia-cdi-hook")
    node.device(
        "/dev/dri/card1", "/dev/dri/renderD128", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"
    )
    node.file(path, nvidia_yaml() if content is None else content)
    return node


def found(node: FakeNode, source: DriverSource = DriverSource.AUTO) -> DriverFiles:
    """The driver files by the usual settings."""
    return find_driver_files(
        node, settings=DriverSettings(source=source), is_ours=lambda name: name.startswith("aliquot")
    )


def paths(edits: ContainerEdits) -> list[str]:
    """The device nodes' paths."""
    return [node.path for node in edits.device_nodes]


def as_text(edits: ContainerEdits) -> str:
    """For golden files."""
    return json.dumps(msgspec.to_builtins(edits), indent=2) + "\n"
