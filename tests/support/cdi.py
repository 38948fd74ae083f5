"""Parts of CDI specs that several tests start from, and a folder whose operations fail on command."""

from __future__ import annotations

import errno
import os

from aliquot_core.grant import ContainerGrant, Slice
from aliquot_core.names import Names
from aliquot_core.quantities import MiB, Percent
from aliquot_deviceplugin.cdi.driver_files import DriverGpu, SimulatedDriverFiles, edits_of_grant
from aliquot_deviceplugin.cdi.slice_spec import SliceOwner, slice_spec
from aliquot_deviceplugin.cdi.spec import Spec

NAMES = Names()
GPUS = ("GPU-5f1e4d5c-0000-4000-8000-000000000000", "GPU-5f1e4d5c-1111-4000-8000-000000000001")
OWNER = SliceOwner(pod_uid="11111111-2222-4333-8444-555555555555", namespace="team-a", pod="train-0", container="main")


def granted(*computes: int, memory: int = 4000, isolation: str = "observe") -> ContainerGrant:
    """A slice of each GPU in turn, of so many percent."""
    slices = tuple(
        Slice(gpu=gpu, compute=Percent(compute), limit=Percent(compute), memory=MiB(memory))
        for gpu, compute in zip(GPUS, computes, strict=False)
    )
    return ContainerGrant(slices=slices, isolation=isolation)


def simulated_spec(*, token: str, owner: SliceOwner = OWNER, grant: ContainerGrant | None = None) -> Spec:
    """The spec of a slice of simulated GPUs."""
    grant = grant or granted(40)
    gpus = {uuid: DriverGpu(uuid=uuid, index=index, minor=index) for index, uuid in enumerate(GPUS)}
    edits = edits_of_grant(grant, gpus=gpus, driver_files=SimulatedDriverFiles())
    return slice_spec(names=NAMES, token=token, owner=owner, grant=grant, driver_edits=edits)


class FailingFolder:
    """A folder in memory; `fails` names the operation that fails next and with which error."""

    def __init__(self, *, fails: dict[str, int] | None = None) -> None:
        self.contents: dict[str, bytes] = {}
        self.fails = fails or {}
        self.writes = 0

    def __str__(self) -> str:
        return "/run/cdi"

    def files(self) -> list[str]:
        """What lies in it."""
        self._may_fail("files")
        return list(self.contents)

    def read(self, file: str) -> bytes | None:
        """What a file holds."""
        self._may_fail("read")
        return self.contents.get(file)

    def write(self, file: str, content: bytes) -> None:
        """As on a full disk, half the content is there when writing fails."""
        self.writes += 1
        self.contents[file] = content[: len(content) // 2]
        self._may_fail("write")
        self.contents[file] = content

    def rename(self, file: str, to: str) -> None:
        """Replaces."""
        self._may_fail("rename")
        self.contents[to] = self.contents.pop(file)

    def remove(self, file: str) -> bool:
        """Whether it was there."""
        self._may_fail("remove")
        return self.contents.pop(file, None) is not None

    def _may_fail(self, operation: str) -> None:
        if number := self.fails.get(operation):
            raise OSError(number, os.strerror(number))


FULL = errno.ENOSPC
READ_ONLY = errno.EROFS
