"""The kubelet of this node as the agent asks it: its record from the file, its list over gRPC."""

from __future__ import annotations

from aliquot_agent.kubelet_view import Listed, Recorded
from aliquot_deviceplugin.checkpoint import CheckpointReader
from aliquot_deviceplugin.podresources import PodResources

# Within the kubelet's 30 s for a PreStart there must be time for a second question.
PATIENCE = 8.0


class Kubelet:
    """A `KubeletView` of the real thing, or of whatever serves the same file and socket."""

    def __init__(self, *, record: CheckpointReader, pod_resources: PodResources) -> None:
        self._record = record
        self._pod_resources = pod_resources

    async def recorded(self) -> tuple[Recorded, ...]:
        """The kubelet's own record as it is now; a file of some 100 kB, read only when it changed."""
        return self._record.read()

    async def listed(self) -> tuple[Listed, ...]:
        """What PodResources says; the answer is not older than the question."""
        return await self._pod_resources.list(patience=PATIENCE)
