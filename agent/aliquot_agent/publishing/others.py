"""Who else gives this node's GPUs away: a GPU has one master, or two pods believe it theirs."""

from __future__ import annotations

from aliquot_core.objects import Node

NVIDIA = "nvidia.com/"


def given_by_others(node: Node | None) -> str:
    """Why none of the node's GPUs can be ours, if another device plugin offers them.

    Which GPU is behind which of its ids, another plugin does not say; so all of them are out.
    """
    if node is None:
        return ""
    offered = sorted(
        name
        for name, count in node.status.allocatable.items()
        if name.startswith(NVIDIA) and (name.removeprefix(NVIDIA).startswith(("gpu", "mig-"))) and count != "0"
    )
    if not offered:
        return ""
    return (
        f"another device plugin offers this node's GPUs as {', '.join(offered)}; "
        "keep it off this node (a node selector on its DaemonSet), then Aliquot takes over by itself"
    )
