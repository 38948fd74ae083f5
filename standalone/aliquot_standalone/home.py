"""The one folder in which `aliquot up` keeps everything, and who may be found there.

Beside it there is only the runtime folder: unix sockets need short paths (107 bytes), so where the folder's own path
is long they lie below the user's runtime folder, or below /tmp in one that nobody else can enter.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from aliquot_agent.whole_file import replace_file
from aliquot_core.errors import ClusterError, UserError
from aliquot_core.names import Names
from aliquot_core.settings import LONGEST_SOCKET
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from aliquot_kube.errors import NOT_JSON
from aliquot_standalone.kubelet.births import birth
from aliquot_standalone.kubelet.settings import Folders
from aliquot_standalone.whereabouts import FOLDER_VARIABLE, Running, Whereabouts

# What tells a folder of ours from any other: nothing is removed where it is missing.
_MARK = ".made-by-aliquot-up"
# A node's name may have so many bytes and its sockets still fit.
LONGEST_NODE = 24
# NVIDIA's daemon has this one beside `control`.
_MPS_SOCKET = f"mps/GPU-{'0' * 36}/pipe/control_privileged"


_OTHER = f"name another folder with --folder or ${FOLDER_VARIABLE}"


class FolderUnfitError(UserError):
    """The folder can't be used."""


class FolderFullError(ClusterError):
    """There is no room in the folder, or it can't be written for another reason."""


class Home(Whereabouts):
    """The paths of one folder, and what is kept there."""

    @property
    def journal(self) -> Path:
        """All objects of the API server; its lock lies beside it."""
        return self.folder / "journal"

    @property
    def lock(self) -> Path:
        """Held by the one process that uses this folder."""
        return self.folder / "lock"

    @property
    def centre(self) -> Path:
        """The centre's certificates."""
        return self.folder / "centre"

    @property
    def logs(self) -> Path:
        """What our own processes log."""
        return self.folder / "logs"

    def node(self, name: str) -> Path:
        """What belongs to one node."""
        return self.folder / "nodes" / name

    def nodes(self) -> list[Path]:
        """The folders of all nodes that there have been."""
        return sorted(self.node("").glob("*/"))

    @property
    def runtime(self) -> Path:
        """Where sockets lie: in the folder if they fit, else in a short one of the user's own."""
        inside = self.folder / "run"
        if longest_socket(inside) <= LONGEST_SOCKET:
            return inside
        name = f"aliquot-{hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:8]}"
        users = self._environment.get("XDG_RUNTIME_DIR", "")
        beside = Path(users) / name
        if users and Path(users).is_dir() and longest_socket(beside) <= LONGEST_SOCKET:
            return beside
        return Path("/tmp") / f"{name}-{os.getuid()}"  # noqa: S108 - `create` refuses one that is not ours alone

    @property
    def mps(self) -> Path:
        """Where agent and keeper of MPS daemons meet, and where daemons listen."""
        return self.runtime / "mps"

    @property
    def is_ours(self) -> bool:
        """Whether an `aliquot up` has made it."""
        return self._mark.is_file()

    def create(self) -> None:
        """Make the folders, for this user alone."""
        _make(self.folder)
        self._claim()
        for folder in (self.centre, self.logs, self.runtime):
            _make(folder)
        found = self.runtime.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise FolderUnfitError("others can write there", where=str(self.runtime), remedy="remove it")

    def _claim(self) -> None:
        if self.is_ours:
            return
        try:
            strangers = sorted(path.name for path in self.folder.iterdir())
        except OSError as error:
            raise FolderUnfitError(f"can't be read: {error.strerror}", where=str(self.folder), remedy=_OTHER) from error
        if strangers:
            what = f"is not empty ({strangers[0]!r} is there), and no `aliquot up` made it"
            raise FolderUnfitError(what, where=str(self.folder), remedy=_OTHER)
        with self.writing():
            self._mark.touch()

    def announce(self, *, api: str, page: str, now: float) -> Running:
        """Say that this process serves here."""
        pid = os.getpid()
        started = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
        running = Running(pid=pid, born=birth(pid) or "", api=api, page=page, started=started)
        with self.writing():
            replace_file(self.up_file, msgspec.json.encode(running))
        return running

    def remember(self, gpus: str) -> None:
        """Keep what this run was given, for the next one that is given nothing."""
        with self.writing():
            replace_file(self._last, msgspec.json.encode(_Last(gpus=gpus)))

    def remembered(self) -> str:
        """The GPUs of the last run; empty where there was none."""
        try:
            return msgspec.json.decode(self._last.read_bytes(), type=_Last).gpus
        except (OSError, *NOT_JSON):
            return ""

    def purge(self) -> list[Path]:
        """Remove all that is ours; what is left in the folder is somebody else's."""
        if not self.folder.is_dir():
            return []
        if not self.is_ours:
            what = "no `aliquot up` made this folder, so nothing was removed"
            raise FolderUnfitError(what, where=str(self.folder), remedy="name the one that `aliquot up` was given")
        for folder in (self.runtime, self.centre, self.logs, self.folder / "nodes"):
            shutil.rmtree(folder, ignore_errors=True)
        set_aside = self.folder.glob("journal.cut-at-*")
        with self.writing():
            for path in (self.kubeconfig, self.up_file, self._last, *set_aside, *self._journals, self.lock):
                path.unlink(missing_ok=True)
            # Last of all, so that one who was broken off can go on.
            self._mark.unlink()
            left = sorted(self.folder.iterdir())
            if not left:
                self.folder.rmdir()
        return left

    @property
    def _mark(self) -> Path:
        return self.folder / _MARK

    @property
    def _journals(self) -> list[Path]:
        return [self.journal, self.journal.with_name("journal.new")]

    @property
    def _last(self) -> Path:
        return self.folder / "last.json"

    def token(self) -> str:
        """By what our own clients are known, and nobody else on this machine; kept, so that copies stay good."""
        try:
            found = msgspec.json.decode(self.kubeconfig.read_bytes(), type=_Kubeconfig)
        except (OSError, *NOT_JSON):
            return secrets.token_urlsafe(24)
        tokens = [one.user.token for one in found.users if one.user.token]
        return tokens[0] if tokens else secrets.token_urlsafe(24)

    def write_kubeconfig(self, content: bytes) -> None:
        """Say how clients reach the API server."""
        with self.writing():
            replace_file(self.kubeconfig, content)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Say in one line why something of ours could not be written there: the disk is full, as a rule."""
        try:
            yield
        except OSError as error:
            where = str(error.filename or self.folder)
            remedy = f"make room there, or name another folder with --folder or ${FOLDER_VARIABLE}"
            raise FolderFullError(f"can't be written: {error.strerror}", where=where, remedy=remedy) from error

    def retract(self) -> None:
        """Say no more that somebody serves here."""
        self.up_file.unlink(missing_ok=True)


class _Last(msgspec.Struct, frozen=True, kw_only=True):
    gpus: str


class _User(msgspec.Struct, frozen=True, kw_only=True):
    token: str = ""


class _NamedUser(msgspec.Struct, frozen=True, kw_only=True):
    user: _User


class _Kubeconfig(msgspec.Struct, frozen=True, kw_only=True):
    users: tuple[_NamedUser, ...]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FolderUnfitError(f"can't be made: {error.strerror}", where=str(folder), remedy=_OTHER) from error


def longest_socket(runtime: Path) -> int:
    """How many bytes the longest path of a socket below this folder can have: a device plugin's, or an MPS daemon's."""
    sockets = Folders(root=runtime / ("n" * LONGEST_NODE)).device_plugins / EndpointSettings().socket_folder
    plugins = [sockets / f"{Path(name).name}.sock" for name in Names().resources()]
    return max(len(os.fsencode(path)) for path in (*plugins, runtime / _MPS_SOCKET))
