"""Who else gives this node's GPUs away: a GPU has one master, or two pods believe it theirs."""

from __future__ import annotations

from aliquot_core.objects import Node, Pod

NVIDIA = "nvidia.com/"


def given_by_others(node: Node | None) -> str:
    """Why none of the node's GPUs can be ours, if another device plugin offers them.

    Which GPU is behind which of its ids, another plugin does not say; so all of them are out.
    """
    if node is None:
        return ""
    offered = sorted(name for name, count in node.status.allocatable.items() if _is_gpu(name) and count != "0")
    if not offered:
        return ""
    return (
        f"another device plugin offers this node's GPUs as {', '.join(offered)}; "
        "keep it off this node (a node selector on its DaemonSet), then Aliquot takes over by itself"
    )


def has_from_others(pod: Pod, *, node: Node | None) -> bool:
    """Whether a pod may have its GPU from another plugin, as all may while that offers them.

    Who has asked it for one keeps that when the plugin leaves the node.
    """
    if given_by_others(node):
        return True
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return any(_is_gpu(name) for one in containers for name in (*one.resources.limits, *one.resources.requests))


def _is_gpu(name: str) -> bool:
    return name.startswith(NVIDIA) and name.removeprefix(NVIDIA).startswith(("gpu", "mig-"))
