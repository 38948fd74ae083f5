"""What the endpoint keeps on disk: the last device tables and the names it gave.

With it the endpoint registers in its first milliseconds, long before the agent is up. It is a cache: without it the
endpoint waits for the agent's table, and nothing is lost but time.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from aliquot_agent.whole_file import read_file, replace_file
from aliquot_core.door import Device
from aliquot_core.errors import ClusterError

VERSION = 1
_REMEDY = "nothing to do: it is written anew when the agent connects"


class StateFileError(ClusterError):
    """The state file can't be read or does not say what it must."""


class State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the state file."""

    version: int = VERSION
    tables: dict[str, list[Device]] = {}
    names: dict[str, list[str]] = {}


class _Version(msgspec.Struct):
    version: int


def decode(raw: bytes, *, where: str) -> State:
    """Read a state, or raise `StateFileError` with what is wrong with it."""
    try:
        version = msgspec.json.decode(raw, type=_Version).version
        if version != VERSION:
            raise StateFileError(f"version {version}, this endpoint writes {VERSION}", where=where, remedy=_REMEDY)
        return msgspec.json.decode(raw, type=State)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StateFileError(f"not a state file: {error}", where=where, remedy=_REMEDY) from error


def read(path: Path) -> State | None:
    """Read the state file; None where there is none."""
    try:
        raw = read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateFileError(str(error.strerror), where=str(path), remedy=_REMEDY) from error
    return decode(raw, where=str(path))


def write(path: Path, state: State) -> None:
    """Replace the state file: after a crash at any instant it is the old one or the new one, whole."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, msgspec.json.encode(state), durable=True)
