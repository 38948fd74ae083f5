"""The folder in which each interposed container has its limits and its account; they are mounted into it from there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from aliquot_agent.isolation.accounts_room import FILLING, Filling
from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.isolation.limits_file import ACCOUNT_BYTES, WHOLE, GpuLimits, encode_limits
from aliquot_core.errors import ClusterError
from aliquot_core.grant import ContainerGrant

LIBRARY, NVML_LIBRARY = "libcuda.so.1", "libnvidia-ml.so.1"
LIMITS, ACCOUNT = "limits", "account"
_NO_CONTAINERS = {LIBRARY, NVML_LIBRARY, FILLING}
# The agent's own note, which no container sees.
OWNER = "owner"
MIB = 1024 * 1024
PERCENT = WHOLE // 100
# Everybody in a container may use its GPU; only the agent may say how much.
_LIMITS_MODE, _ACCOUNT_MODE, _LIBRARY_MODE = 0o644, 0o666, 0o755
# A container's files and folder take 280 KiB on a tmpfs; a library, what it is and a part of a page.
_OF_A_CONTAINER, _BESIDE = ACCOUNT_BYTES + 64 * 1024, 64 * 1024


class IsolationFolderError(ClusterError):
    """The folder of limits can't be written."""


class SliceFiles:
    """One node's folder."""

    def __init__(self, *, folder: Path, library: Path) -> None:
        """`library` is the interposer as the agent's image has it."""
        self._folder = folder
        self._source = library
        self._filling = Filling(folder)

    @property
    def library(self) -> Path:
        """The interposer where containers mount it from."""
        return self._folder / LIBRARY

    @property
    def nvml(self) -> Path | None:
        """What tells the container's tools of its slice; None where the image has none."""
        path = self._folder / NVML_LIBRARY
        return path if path.is_file() else None

    def prepare(self) -> str:
        """Put the interposer where containers can mount it from; say why that can't be, if so."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Containers that run keep the file that they have mapped; those that start get the new one.
            self._bring(self._source, name=LIBRARY)
            if (nvml := self._source.with_name(NVML_LIBRARY)).is_file():
                self._bring(nvml, name=NVML_LIBRARY)
        except OSError as error:
            return f"the interposer can't be mounted into containers: {error}"
        return ""

    def _bring(self, source: Path, *, name: str) -> None:
        content = source.read_bytes()
        with self._filling.lent(len(content) + _BESIDE):
            _replace(self._folder / name, content, mode=_LIBRARY_MODE)

    def obstacle(self) -> str:
        """Why containers can't mount it, if so; whatever was in the way may be gone, or have come."""
        return "" if self.library.is_file() else self.prepare()

    def write(
        self, *, token: str, owner: Owner, grant: ContainerGrant, driver: str, contexts: Mapping[str, int]
    ) -> Path:
        """Fresh files for a container that is about to start; where they are.

        `contexts` is what a CUDA context takes of each GPU, in MiB.
        """
        gpus = [
            GpuLimits(
                uuid=part.gpu,
                memory=part.memory.value * MIB,
                context=contexts[part.gpu] * MIB,
                guarantee=part.compute.value * PERCENT,
                rate=part.compute.value * PERCENT,
                limit=part.limit.value * PERCENT,
            )
            for part in grant.slices
        ]
        own = self.folder_of(token)
        try:
            with self._filling.lent(_OF_A_CONTAINER):
                own.mkdir(parents=True, exist_ok=True)
                _replace(own / OWNER, msgspec.json.encode(owner), mode=_LIMITS_MODE)
                # The account last: by it whoever has these files open knows that they are others.
                _replace(own / LIMITS, encode_limits(gpus, driver=driver), mode=_LIMITS_MODE)
                _replace(own / ACCOUNT, bytes(ACCOUNT_BYTES), mode=_ACCOUNT_MODE)
        except OSError as error:
            raise IsolationFolderError(f"limits can't be written: {error}", where=str(own)) from error
        return own

    def folder_of(self, token: str) -> Path:
        """Where a container's files lie."""
        return self._folder / token

    def tokens(self) -> list[str]:
        """What may be a container's folder, by name: a look at each took a third of a beat."""
        try:
            return sorted(name for name in os.listdir(self._folder) if name not in _NO_CONTAINERS)  # noqa: PTH208 - the same
        except OSError:
            return []

    def containers(self) -> Iterator[Path]:
        """The folder of each container."""
        yield from (self._folder / name for name in self.tokens() if (self._folder / name / LIMITS).is_file())

    def collect(self, *, tokens: Collection[str]) -> None:
        """Remove what belongs to none of these containers."""
        for own in list(self.containers()):
            if own.name not in tokens:
                shutil.rmtree(own, ignore_errors=True)
        self._filling.fill()

    def in_use(self, *, booted: float) -> bool:
        """Whether containers that run have their files here: an agent writes their limits all the time."""
        return any((own / LIMITS).stat().st_mtime > booted for own in self.containers())


def owner_of(own: Path) -> Owner | None:
    """Whose a container's folder is; None while it is being made or removed."""
    try:
        return msgspec.json.decode((own / OWNER).read_bytes(), type=Owner)
    except (OSError, msgspec.DecodeError):
        return None


def _replace(path: Path, content: bytes, *, mode: int) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        draft.chmod(mode)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
