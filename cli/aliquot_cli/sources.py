"""Where settings come from when a process starts: the one place that reads environment and file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aliquot_core.settings import PREFIX, SettingsError, Sources, read_toml

FILE_VARIABLE = "ALIQUOT_CONFIG"
DEFAULT_FILE = Path("/etc/aliquot/aliquot.toml")
# Variables of ours that belong to no section.
_NO_SETTINGS = frozenset({FILE_VARIABLE, "ALIQUOT_HOME"})


def gather(
    *,
    file: str | None = None,
    flags: Mapping[str, Mapping[str, Any]] | None = None,
    spelt: Mapping[str, str] = MappingProxyType({}),
    whole: bool = False,
) -> Sources:
    """Read the environment and the settings file, and refuse names that no component knows.

    Flags go by section; `spelt` are those that are called otherwise than their settings. `whole` refuses values of all
    sections, for who starts processes that read the others: these could only die of them.
    """
    chosen = file or os.environ.get(FILE_VARIABLE)
    path = Path(chosen) if chosen else DEFAULT_FILE
    table = read_toml(_text(path), name=str(path)) if chosen or path.exists() else {}
    sources = Sources(flags=flags or {}, spelt=spelt, environment=dict(os.environ), file=table, file_name=str(path))
    if table or any(name.startswith(PREFIX) and name not in _NO_SETTINGS for name in sources.environment):
        # All structs of all components take 0.03 s to make, which nobody waits for who has set nothing.
        from aliquot_cli.sections import SECTIONS

        sources.check_names(SECTIONS)
        if whole:
            sources.check_values(SECTIONS)
    return sources


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"can't be read: {error}", where=str(path), remedy=f"check --config / {FILE_VARIABLE}"
        ) from error
