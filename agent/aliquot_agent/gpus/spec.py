"""Reads what to simulate: `8xA100-80GB` is a node of eight, `2x8xA100-80GB,4x4xL40S` is two nodes and four others.

`2xA100-80GB:3g.40gb+2x1g.10gb` is a node of two, each cut into these instances of MIG.
"""

from __future__ import annotations

import re

import msgspec

from aliquot_agent.gpus.known_instances import CutError
from aliquot_agent.gpus.known_models import KNOWN_MODELS, KnownModel
from aliquot_core.errors import UserError

# A real node has 16 at most; more is a typing error, and would make more device ids than the kubelet should be sent.
MOST_GPUS_OF_A_NODE = 16
# Ten times what Kubernetes supports.
MOST_NODES = 50_000

_GROUP = re.compile(
    r"(?:(?:(?P<nodes>[0-9]{1,6})x)?(?P<gpus>[0-9]{1,6})x)?(?P<model>[A-Za-z][A-Za-z0-9-]*)(?::(?P<cut>.*))?"
)
_BY_LOWER_NAME = {key.lower(): model for key, model in KNOWN_MODELS.items()}
_EXAMPLE = "write [nodes x] gpus x model [:instances], such as 8xA100-80GB or 2x8xA100-80GB,4xA100-80GB:3g.40gb+1g.10gb"


class GpuSpecError(UserError):
    """A description of GPUs to simulate that can't be read."""


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """So many equal nodes with so many GPUs of one model each."""

    nodes: int
    gpus: int
    model: KnownModel


def parse_gpu_spec(text: str) -> tuple[NodeGroup, ...]:
    """Read a whole description, group by group."""
    groups = tuple(_group(part.strip(), whole=text) for part in text.split(","))
    if (nodes := sum(group.nodes for group in groups)) > MOST_NODES:
        raise GpuSpecError(f"{nodes} nodes are too many", where=_quoted(text), remedy=f"at most {MOST_NODES}")
    return groups


def models_by_node(groups: tuple[NodeGroup, ...]) -> list[tuple[KnownModel, ...]]:
    """The GPUs of each node, node after node."""
    return [(group.model,) * group.gpus for group in groups for _ in range(group.nodes)]


def _group(part: str, *, whole: str) -> NodeGroup:
    match = _GROUP.fullmatch(part)
    if match is None:
        raise GpuSpecError(f"{_quoted(part)} is not understood", where=_quoted(whole), remedy=_EXAMPLE)
    model = _BY_LOWER_NAME.get(match["model"].lower())
    if model is None:
        known = ", ".join(KNOWN_MODELS)
        raise GpuSpecError(
            f"no model {_quoted(match['model'])} is known", where=_quoted(whole), remedy=f"known: {known}"
        )
    nodes = _count(match["nodes"], most=MOST_NODES, what="nodes", whole=whole)
    gpus = _count(match["gpus"], most=MOST_GPUS_OF_A_NODE, what="GPUs of a node", whole=whole)
    return NodeGroup(nodes=nodes, gpus=gpus, model=_cut(model, match["cut"], whole=whole))


def _cut(model: KnownModel, text: str | None, *, whole: str) -> KnownModel:
    if text is None:
        return model
    try:
        return model.cut(text)
    except CutError as error:
        why = f"{model.key} can't be cut into {_quoted(text)}: {error.what}"
        raise GpuSpecError(why, where=_quoted(whole), remedy=error.remedy) from error


def _count(digits: str | None, *, most: int, what: str, whole: str) -> int:
    number = int(digits) if digits else 1
    if not 1 <= number <= most:
        raise GpuSpecError(f"{number} {what} can't be", where=_quoted(whole), remedy=f"write 1 to {most}")
    return number


def _quoted(text: str) -> str:
    return repr(text[:80])
