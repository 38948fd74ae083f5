"""Where settings come from when a process starts: the one place that reads environment and file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from aliquot_agent.health.xids import HealthSettings
from aliquot_agent.settings import AgentSettings
from aliquot_cli.settings import RunSettings
from aliquot_core.logs import LogSettings
from aliquot_core.names import Names
from aliquot_core.settings import SettingsError, Sources, read_toml
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from aliquot_kube.election import ElectionSettings
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.certificates.settings import CertificateSettings
from aliquot_scheduler.page.settings import PageSettings
from aliquot_scheduler.queues.settings import QueueSettings
from aliquot_scheduler.web.settings import WebSettings
from aliquot_standalone.home import UpSettings

FILE_VARIABLE = "ALIQUOT_CONFIG"
DEFAULT_FILE = Path("/etc/aliquot/aliquot.toml")

SECTIONS: dict[str, type[msgspec.Struct]] = {
    "names": Names,
    "log": LogSettings,
    "agent": AgentSettings,
    "health": HealthSettings,
    "endpoint": EndpointSettings,
    "scheduler": CentreSettings,
    "queues": QueueSettings,
    "web": WebSettings,
    "election": ElectionSettings,
    "certificates": CertificateSettings,
    "admission": AdmissionSettings,
    "page": PageSettings,
    "up": UpSettings,
    "run": RunSettings,
}


def gather(*, file: str | None = None, flags: Mapping[str, Mapping[str, Any]] | None = None) -> Sources:
    """Read the environment and the settings file, and refuse names that no component knows; flags go by section."""
    chosen = file or os.environ.get(FILE_VARIABLE)
    path = Path(chosen) if chosen else DEFAULT_FILE
    table = read_toml(_text(path), name=str(path)) if chosen or path.exists() else {}
    sources = Sources(flags=flags or {}, environment=dict(os.environ), file=table, file_name=str(path))
    sources.check_names(SECTIONS)
    return sources


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"can't be read: {error}", where=str(path), remedy=f"check --config / {FILE_VARIABLE}"
        ) from error
