"""Which nodes `aliquot up` has: few on the full path, all others simulated in one process. Pure, but for one look."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec

from aliquot_agent.gpus.known_models import KnownModel
from aliquot_agent.gpus.spec import models_by_node, parse_gpu_spec
from aliquot_agent.settings import NVML
from aliquot_standalone.home import LONGEST_NODE

# What a machine without a GPU shows.
SIMULATED = "2x8xA100-80GB,4x4xL40S"
# Its driver lists the GPUs that it drives here.
_DRIVER = Path("/proc/driver/nvidia/gpus")


class NodeShape(msgspec.Struct, frozen=True, kw_only=True):
    """A node's name and its GPUs."""

    name: str
    # "nvml", or such as 8xA100-80GB.
    gpus: str

    @property
    def models(self) -> tuple[KnownModel, ...]:
        """Of GPUs that are to be simulated."""
        return models_by_node(parse_gpu_spec(self.gpus))[0]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes of one machine."""

    gpus: str
    full: tuple[NodeShape, ...] = ()
    simulated: tuple[NodeShape, ...] = ()

    @property
    def played_gpus(self) -> int:
        """How many there are on nodes that are simulated as a whole."""
        return sum(len(node.models) for node in self.simulated)

    @property
    def names(self) -> frozenset[str]:
        """Of all nodes."""
        return frozenset(node.name for node in (*self.full, *self.simulated))


def plan(gpus: str, *, full: int, host: str) -> Plan:
    """Lay the nodes out; of simulated ones the first `full` are on the full path."""
    if gpus == NVML:
        return Plan(gpus=gpus, full=(NodeShape(name=_node_name(host), gpus=NVML),))
    seen: Counter[str] = Counter()
    shapes: list[NodeShape] = []
    for models in models_by_node(parse_gpu_spec(gpus)):
        model = models[0]
        base = f"{model.card}-mig" if model.instances else model.key
        seen[base] += 1
        shapes.append(NodeShape(name=_node_name(f"{base}-{seen[base]}"), gpus=f"{len(models)}x{model.key}"))
    return Plan(gpus=gpus, full=tuple(shapes[:full]), simulated=tuple(shapes[full:]))


def gpus_here(*, driver: Path = _DRIVER) -> str:
    """What this machine has: its own GPUs, or some to simulate."""
    return NVML if driver.is_dir() and any(driver.iterdir()) else SIMULATED


def _node_name(text: str) -> str:
    name = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
    if len(name) > LONGEST_NODE:
        name = name[:LONGEST_NODE].rstrip("-")
    return name or "this-machine"
