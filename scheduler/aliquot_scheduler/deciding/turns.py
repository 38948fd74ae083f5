"""What the desk asks of those who say whose turn it is: first come first served now, the queues later."""

from __future__ import annotations

from typing import Protocol

from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import Promise


class Turns(Protocol):
    """Who may be placed now."""

    def why_not(self, pod: Pod) -> str:
        """Why it is not the pod's turn; empty if it is."""
        ...

    def promised(self, promise: Promise) -> None:
        """Room was found for a pod whose turn it is, or may be."""
        ...

    def missed(self, pod: Pod, *, now: float) -> None:
        """The pod's turn has led to nothing: no binding in time, or no room any more."""
        ...

    def overdue(self, now: float) -> list[str]:
        """Whose turns have lasted too long (UIDs), whatever came between."""
        ...

    def pod_gone(self, uid: str) -> None:
        """The pod needs no turn any more."""
        ...
