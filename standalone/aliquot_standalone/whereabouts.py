"""Where the one folder of `aliquot up` is, and who serves from it: what other commands ask before anything else.

They pay for what is imported here each time somebody calls them, so it stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec

from aliquot_kube.errors import NOT_JSON
from aliquot_standalone.kubelet.births import birth

FOLDER_VARIABLE = "ALIQUOT_HOME"


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """The `aliquot up` of a folder, written when it is ready."""

    pid: int
    # When the process was born, so that another one of that number is not taken for it.
    born: str
    api: str
    page: str
    started: str


class Whereabouts:
    """A folder, and how whoever serves from it is found."""

    def __init__(self, folder: Path, *, environment: Mapping[str, str]) -> None:
        self.folder = folder.absolute()
        self._environment = environment

    @classmethod
    def of(cls, said: str, *, environment: Mapping[str, str]) -> Self:
        """The folder that was named, else the one that the environment names, else the user's own."""
        chosen = said or environment.get(FOLDER_VARIABLE, "")
        return cls(Path(chosen).expanduser() if chosen else _usual(environment), environment=environment)

    @property
    def kubeconfig(self) -> Path:
        """How clients reach the API server."""
        return self.folder / "kubeconfig"

    @property
    def up_file(self) -> Path:
        """Who runs here, and where."""
        return self.folder / "up.json"

    def running(self) -> Running | None:
        """Whoever is ready to serve from this folder now."""
        try:
            running = msgspec.json.decode(self.up_file.read_bytes(), type=Running)
        except (OSError, *NOT_JSON):
            return None
        return running if birth(running.pid) == running.born else None


def _usual(environment: Mapping[str, str]) -> Path:
    states = environment.get("XDG_STATE_HOME", "")
    return (Path(states) if states.startswith("/") else Path.home() / ".local" / "state") / "aliquot"
