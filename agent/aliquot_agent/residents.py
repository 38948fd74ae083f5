"""Do processes of a pod still live on this node? For pods whose object is gone while their containers may not be.

After a forced deletion neither the API server nor PodResources knows the pod any more, and the kubelet's record keeps
pods that ended long ago. The processes themselves tell: their cgroup names the pod's UID (underscores for dashes under
systemd), and where the kubelet makes no cgroups for pods, the mounts it gives each container do.
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
            text = _text(folder / "cgroup") + _text(folder / "mountinfo")
            found |= {uid for uid in missing if _names(text, uid)}
            missing -= found
        return found


def _names(text: str, uid: str) -> bool:
    return f"pod{uid}" in text or f"pod{uid.replace('-', '_')}" in text or f"/pods/{uid}/" in text


def _text(path: Path) -> str:
    """A process may end between two looks."""
    try:
        with path.open(errors="replace") as file:
            return file.read(_LONGEST)
    except OSError:
        return ""
