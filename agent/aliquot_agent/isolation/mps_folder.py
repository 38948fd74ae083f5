"""What agent and keeper of MPS daemons tell each other: files below /run, by GPU. Either may be away; a reboot clears.

- `keeper.lock`: held by the keeper while it lives; there since it first ran after the boot.
- `keeper.pulse`: touched by the keeper as long as it gets on (`pulse_file`).
- `<uuid>/wanted`: written by the agent, the mode that it asks for.
- `<uuid>/told`: written by the keeper, how far that is.
- `<uuid>/pipe/`: the daemon's own, mounted into containers; it is emptied but never replaced.
- `<uuid>/log/`: the daemon's own.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path

import msgspec

from aliquot_agent.isolation.gpu_modes import Seat, Told, Use
from aliquot_agent.whole_file import read_file, replace_file
from aliquot_core.errors import ClusterError, NotAdmittedError

_UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,80}")
_LOCK = "keeper.lock"
_PULSE = "keeper.pulse"
# Containers of any user speak to the daemon; only root may put files where it listens.
_FOLDER_MODE = 0o755


class MpsFolderError(ClusterError):
    """The folder of MPS daemons can't be used."""


class AnotherKeeperError(NotAdmittedError):
    """Another process keeps this node's MPS daemons."""


class MpsFolder:
    """One node's folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    # --- the agent's side ---------------------------------------------------------------------------------------------
    def want(self, gpu: str, use: Use) -> None:
        """Ask for a mode; raises an `MpsFolderError`."""
        try:
            self._own(gpu).mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
            replace_file(self._own(gpu) / "wanted", use.value.encode())
        except OSError as error:
            raise MpsFolderError(f"a mode can't be asked for: {error}", where=str(self._own(gpu))) from error

    def seat(self, gpu: str) -> Seat:
        """How the GPU stands."""
        return Seat(wanted=self.wanted(gpu), told=self._told(gpu), kept=self.kept())

    def kept(self) -> bool:
        """Whether a keeper lives."""
        try:
            descriptor = os.open(self._root / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            # Shared: agents that look at the same instant must not take each other for the keeper.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def was_kept(self) -> bool:
        """Whether a keeper has run since the boot: it is then expected back."""
        return (self._root / _LOCK).exists()

    # --- the keeper's side --------------------------------------------------------------------------------------------
    def hold(self) -> int:
        """Become the keeper until this process ends; the descriptor holds it.

        What an earlier one has told is taken back before this one is seen to live: its daemons may have died with it,
        or with the machine where the folder outlives a reboot, and a container that starts without one has no limits.
        """
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
            descriptor = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise MpsFolderError(f"can't be used: {error}", where=str(self._root)) from error
        # As one that looks, so nobody takes it for a keeper yet.
        self._lock(descriptor, fcntl.LOCK_SH)
        try:
            for gpu in self.gpus():
                self.forget(gpu)
        except MpsFolderError:
            os.close(descriptor)
            raise
        self._lock(descriptor, fcntl.LOCK_EX)
        return descriptor

    def _lock(self, descriptor: int, kind: int) -> None:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise AnotherKeeperError(
                "another process keeps this node's MPS daemons, or was asked about just now",
                where=str(self._root / _LOCK),
                remedy="stop it, or start this one again",
            ) from None

    def gpus(self) -> list[str]:
        """The GPUs of which the agent wants something; raises an `MpsFolderError`."""
        try:
            return sorted(path.name for path in self._root.iterdir() if _UUID.fullmatch(path.name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise MpsFolderError(f"can't be read: {error}", where=str(self._root)) from error

    def wanted(self, gpu: str) -> Use:
        """The mode that was asked for; nothing readable is nothing asked."""
        try:
            return Use(read_file(self._own(gpu) / "wanted", most=100).decode())
        except (OSError, ValueError):
            return Use.FREE

    def tell(self, gpu: str, told: Told) -> None:
        """Say how far it is; raises an `MpsFolderError`."""
        try:
            replace_file(self._own(gpu) / "told", msgspec.json.encode(told))
        except OSError as error:
            raise MpsFolderError(f"can't be told: {error}", where=str(self._own(gpu))) from error

    def forget(self, gpu: str) -> None:
        """Say nothing of it any more: what stood there may not be so. Raises an `MpsFolderError`."""
        try:
            (self._own(gpu) / "told").unlink(missing_ok=True)
        except OSError as error:
            raise MpsFolderError(
                f"what was told can't be taken back: {error}",
                where=str(self._own(gpu)),
                remedy="make the folder writable; until then nothing is changed on this GPU",
            ) from error

    def pulse(self) -> Path:
        """What the keeper touches while it gets on."""
        return self._root / _PULSE

    def pipe(self, gpu: str) -> Path:
        """Where the GPU's daemon listens."""
        return self._own(gpu) / "pipe"

    def log(self, gpu: str) -> Path:
        """Where it writes its log."""
        return self._own(gpu) / "log"

    def clear(self, gpu: str) -> None:
        """Make room for a fresh daemon; the folder itself stays, for containers have it mounted."""
        try:
            for folder in (self.pipe(gpu), self.log(gpu)):
                folder.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
            for left in self.pipe(gpu).iterdir():
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        except OSError as error:
            raise MpsFolderError(f"can't be cleared: {error}", where=str(self._own(gpu))) from error

    def _told(self, gpu: str) -> Told | None:
        try:
            return msgspec.json.decode(read_file(self._own(gpu) / "told", most=10_000), type=Told)
        except (OSError, msgspec.DecodeError):
            return None

    def _own(self, gpu: str) -> Path:
        if not _UUID.fullmatch(gpu):
            raise MpsFolderError(f"{gpu[:80]!r} is no uuid of a GPU", where=str(self._root))
        return self._root / gpu
