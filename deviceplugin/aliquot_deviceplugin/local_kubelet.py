"""The kubelet of this node as the agent asks it: its checkpoint and its PodResources."""

from __future__ import annotations

from aliquot_agent.starting.kubelet_view import Listed, Recorded
from aliquot_deviceplugin.checkpoint import CheckpointReader
from aliquot_deviceplugin.podresources import PodResources

# PreStart and Allocate hang on it; the kubelet answers in 2 to 5 ms, and after a restart within a second.
PATIENCE = 5.0


class LocalKubelet:
    """Answers `KubeletView` from a file and a socket."""

    def __init__(self, *, checkpoint: CheckpointReader, podresources: PodResources, patience: float = PATIENCE) -> None:
        self._checkpoint = checkpoint
        self._podresources = podresources
        self._patience = patience

    async def recorded(self) -> tuple[Recorded, ...]:
        """The kubelet's own record as it is now."""
        return self._checkpoint.read()

    async def listed(self) -> tuple[Listed, ...]:
        """What PodResources says; the answer is not older than the question."""
        return await self._podresources.list(patience=self._patience)
