"""What a kubelet that starts again must know of its pods' processes: one small file per pod."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import msgspec

from aliquot_agent.whole_file import replace_file
from aliquot_core.objects import Container, ObjectMeta, Pod, PodSpec
from aliquot_kube.errors import NOT_JSON
from aliquot_standalone.kubelet.lifecycle import Life

log = logging.getLogger(__name__)


class PodMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's containers as they were last seen."""

    uid: str
    namespace: str
    name: str
    grace: float
    started_at: float
    lives: dict[str, Life] = {}

    def pod_of_that_time(self) -> Pod:
        """Enough of a pod to end it when the API server has it no more."""
        metadata = ObjectMeta(uid=self.uid, namespace=self.namespace, name=self.name)
        return Pod(metadata=metadata, spec=PodSpec(containers=[Container(name=name) for name in self.lives]))


class Memories:
    """The files below one folder; a pod's own sub-folder also holds its exit codes and its working directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folder(self, uid: str) -> Path:
        """Where a pod keeps what belongs to it alone."""
        return self._folder / uid

    def exit_file(self, uid: str, container: str, start: int) -> Path:
        """Where a container's leader writes the exit code of its n-th start."""
        return self.folder(uid) / f"{container}.{start}.exit"

    def write(self, memory: PodMemory) -> None:
        """Replace a pod's file in one step."""
        folder = self.folder(memory.uid)
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / "pod.json", msgspec.json.encode(memory))

    def read_all(self) -> dict[str, PodMemory]:
        """All pods remembered, by uid; what can't be read is said and left out."""
        memories: dict[str, PodMemory] = {}
        for path in self._folder.glob("*/pod.json"):
            try:
                memory = msgspec.json.decode(path.read_bytes(), type=PodMemory)
            except (OSError, *NOT_JSON) as error:
                log.warning("a pod's memory can't be read", extra={"path": str(path), "why": str(error)})
                continue
            memories[memory.uid] = memory
        return memories

    def forget(self, uid: str) -> None:
        """Remove all that belonged to a pod alone."""
        shutil.rmtree(self.folder(uid), ignore_errors=True)
