"""Several container edits made into one, as a runtime would apply them one after another.

A runtime lets the later one win where two name the same device node, place in the container or variable. Merging does
the same beforehand, so that the file that is written holds each thing once and reads as what the container gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from aliquot_deviceplugin.cdi.spec import ContainerEdits, DeviceNode, Mount

T = TypeVar("T")


def merge_edits(parts: Iterable[ContainerEdits]) -> ContainerEdits:
    """One set of edits; what came first keeps its place, what came last its content."""
    edits = list(parts)
    return ContainerEdits(
        env=_last_of_each((entry for part in edits for entry in part.env), key=_variable),
        device_nodes=_last_of_each((node for part in edits for node in part.device_nodes), key=_path),
        mounts=_last_of_each((mount for part in edits for mount in part.mounts), key=_place),
        # Hooks have no place of their own: only the same hook twice is one too many.
        hooks=tuple(dict.fromkeys(hook for part in edits for hook in part.hooks)),
        additional_gids=tuple(dict.fromkeys(gid for part in edits for gid in part.additional_gids)),
    )


def _variable(entry: str) -> str:
    return entry.partition("=")[0]


def _path(node: DeviceNode) -> str:
    return node.path


def _place(mount: Mount) -> str:
    return mount.container_path


def _last_of_each(items: Iterable[T], *, key: Callable[[T], str]) -> tuple[T, ...]:
    return tuple({key(item): item for item in items}.values())
