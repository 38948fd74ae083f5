"""What a node's object should say, and the smallest patches that make it say so. Pure.

Three things are written: the inventory annotation and the labels (metadata), and the memory resource (status). Each is
compared with what stands there, so that a node that is right is not written to. The kubelet copies capacity to
allocatable, keeps ours over a restart, and loses it only with its checkpoint or the node's object: reconciling heals.

An operator's `clear-health` is removed, for it was taken in when the node was seen. Should they have written more
meanwhile, the resource version makes the write fail, and it is tried again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot_core.held_on_sick import NOTHING_HELD, Held
from aliquot_core.inventory import Health, Inventory, encode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Node
from aliquot_core.quantities import MEBIBYTES, MiB, QuantityError, parse_count

# Kubernetes' rule for label values.
_LABEL_LENGTH = 63
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._-]+")


class Patches(msgspec.Struct, frozen=True, kw_only=True):
    """Merge patches for the node's metadata and its status; None where nothing is to be written."""

    metadata: dict[str, Any] | None
    status: dict[str, Any] | None


def patches(
    node: Node, *, inventory: Inventory, names: Names, held: Mapping[str, Held] | None = NOTHING_HELD
) -> Patches:
    """What to write so that the node says what the inventory says, and what pods hold on GPUs that are sick.

    Before it is known what is held (None), no amount is written: it might be less for a moment.
    """
    annotations = _changed(node.metadata.annotations, {names.inventory: encode_inventory(inventory)})
    taken_in = names.clear_health in node.metadata.annotations
    if taken_in:
        annotations[names.clear_health] = None
    wanted = labels(inventory, names=names)
    stale = {name: None for name in node.metadata.labels if name.startswith(names.of("gpu.")) and name not in wanted}
    changed = _changed(node.metadata.labels, wanted) | stale
    metadata: dict[str, Any] = {
        field: value for field, value in (("annotations", annotations), ("labels", changed)) if value
    }
    if taken_in:
        metadata["resourceVersion"] = node.metadata.resource_version
    return Patches(
        metadata={"metadata": metadata} if metadata else None,
        status=None if held is None else _of_memory(node, inventory=inventory, names=names, held=held),
    )


def _of_memory(node: Node, *, inventory: Inventory, names: Names, held: Mapping[str, Held]) -> dict[str, Any] | None:
    memory = MiB(inventory.memory.value + sum(one.memory for one in held.values()))
    if _says(node.status.capacity.get(names.memory), memory):
        return None
    return {"status": {"capacity": {names.memory: str(memory.value)}}}


def withdrawal(node: Node, *, names: Names) -> Patches:
    """What takes back all that was written, for a node that Aliquot leaves; operators' own annotations stay.

    The device plugin's resources are the kubelet's, but it never removes them (`withdrawing`).
    """
    annotations = {name: None for name in node.metadata.annotations if name == names.inventory}
    stale = {name: None for name in node.metadata.labels if name.startswith(names.of("gpu."))}
    metadata = {field: value for field, value in (("annotations", annotations), ("labels", stale)) if value}
    ours = (names.memory, names.compute, names.best_effort)
    capacity = {name: None for name in ours if name in node.status.capacity}
    return Patches(
        metadata={"metadata": metadata} if metadata else None,
        status={"status": {"capacity": capacity}} if capacity else None,
    )


def labels(inventory: Inventory, *, names: Names) -> dict[str, str]:
    """Labels in the style of GPU feature discovery, for node selectors and for people."""
    usable = [gpu for gpu in inventory.gpus if gpu.health is not Health.SICK]
    if not usable:
        return {names.of("gpu.count"): "0"}
    model, _ = Counter(gpu.model for gpu in usable).most_common(1)[0]
    first = next(gpu for gpu in usable if gpu.model == model)
    major, _, minor = first.capability.partition(".")
    told = {
        "gpu.count": str(len(usable)),
        "gpu.product": _label(model),
        "gpu.memory": str(first.memory),
        "gpu.compute.major": _label(major),
        "gpu.compute.minor": _label(minor),
        "gpu.driver": _label(inventory.driver),
        "gpu.cuda": _label(inventory.cuda),
        "gpu.mig.capable": "true" if any(gpu.instance for gpu in usable) else "false",
    }
    return {names.of(name): value for name, value in told.items() if value}


def _label(text: str) -> str:
    return _NOT_IN_LABELS.sub("-", text)[:_LABEL_LENGTH].strip("-._")


def _changed(have: dict[str, str], want: dict[str, str]) -> dict[str, str | None]:
    return {name: value for name, value in want.items() if have.get(name) != value}


def _says(text: str | None, memory: MiB) -> bool:
    """Kubernetes writes 655360 as it came, but 640000 as `640k`; 0, which nobody can ask for, is a text only."""
    try:
        return text is not None and parse_count(text, where="capacity", unit=MEBIBYTES) == memory.value
    except QuantityError:
        return text == str(memory.value)
