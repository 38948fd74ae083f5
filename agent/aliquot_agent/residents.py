"""Do processes of a pod still live on this node? For pods whose object is gone while their containers may not be.

After a forced deletion neither the API server nor PodResources knows the pod any more, and the kubelet's record keeps
pods that ended long ago. The processes themselves tell: their cgroup names the pod's UID (underscores for dashes under
systemd), and where the kubelet makes no cgroups for pods, the mounts it gives each container do: each has a file of the
pod's folder mounted somewhere of its own. The node's own processes see the pod's volumes too, but at the kubelet's
place for them, and until the kubelet has cleaned up; they tell nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

# A container's mounts take some 10 kB; a file that is longer is cut, not trusted less.
_LONGEST = 1024 * 1024


class Residents(Protocol):
    """Who lives on the node."""

    def alive(self, uids: Collection[str]) -> set[str]:
        """Those of these pods that have a living process."""
        ...


class ProcResidents:
    """Looks through /proc; the agent must see the host's processes there."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def alive(self, uids: Collection[str]) -> set[str]:
        """Those of these pods that have a living process; takes some 20 ms with a thousand processes."""
        missing = set(uids)
        found: set[str] = set()
        for folder in self._proc.glob("[0-9]*"):
            if not missing:
                break
            cgroup, mounts = _text(folder / "cgroup"), _text(folder / "mountinfo")
            found |= {uid for uid in missing if _in_cgroup(cgroup, uid) or _in_container(mounts, uid)}
            missing -= found
        return found


def _in_cgroup(text: str, uid: str) -> bool:
    return f"pod{uid}" in text or f"pod{uid.replace('-', '_')}" in text


def _in_container(text: str, uid: str) -> bool:
    mark = f"/pods/{uid}/"
    return mark in text and any(_is_given(line, mark) for line in text.splitlines())


def _is_given(line: str, mark: str) -> bool:
    """Whether this mount is of a file below the mark, at a place that is not; see proc(5) for the fields."""
    _id, _parent, _device, root, place, *_ = *line.split(" ", 5), *[""] * 5
    return mark in root and mark not in place


def _text(path: Path) -> str:
    """A process may end between two looks."""
    try:
        with path.open(errors="replace") as file:
            return file.read(_LONGEST)
    except OSError:
        return ""
