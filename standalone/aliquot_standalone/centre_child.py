"""The centre of one machine: `aliquot scheduler` as a child process, and how to know that it decides."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_standalone.certificates import CentreFiles
from aliquot_standalone.children import Command
from aliquot_standalone.ports import LOOPBACK
from aliquot_standalone.probing import NobodyThereError, is_well

CENTRE_PROCESS = "scheduler"
# What a parent's variables set for all processes: sections, and of nodes' agents what the operator wants of them. Where
# things lie, and who meets whom, is ours to say.
_SHARED = (
    "ALIQUOT_AGENT_BEST_EFFORT_SLOTS",
    "ALIQUOT_AGENT_CONTEXT_MIB",
    "ALIQUOT_AGENT_ISOLATION",
    "ALIQUOT_AGENT_OVER_USE",
    "ALIQUOT_AGENT_SAMPLE",
    "ALIQUOT_AGENT_UNGRANTED",
    "ALIQUOT_MPS_",
    "ALIQUOT_NAMES_",
    "ALIQUOT_LOG_",
    "ALIQUOT_HEALTH_",
    "ALIQUOT_QUEUES_",
    "ALIQUOT_ADMISSION_",
    "ALIQUOT_CONFIG",
)
_LOOK_AGAIN = 0.02
_PATIENCE = 30.0


class CentreError(ClusterError):
    """The centre did not come up."""


class CentrePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where the centre listens."""

    port: int
    status_port: int

    @property
    def url(self) -> str:
        """Of extender and webhook."""
        return f"https://{LOOPBACK}:{self.port}"

    @property
    def page(self) -> str:
        """What a person opens."""
        return f"http://{LOOPBACK}:{self.status_port}/"


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """A parent's environment without the settings that are each process's own."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("ALIQUOT_") or name.startswith(_SHARED)
    }


def centre_command(place: CentrePlace, *, files: CentreFiles, kubeconfig: Path, usage: Sequence[str]) -> Command:
    """How the centre is started; `usage` are the addresses where its page hears what is used."""
    settings = {
        "SCHEDULER_NAME": "this machine",
        "SCHEDULER_KUBECONFIG": str(kubeconfig),
        "WEB_ADDRESS": LOOPBACK,
        "WEB_PORT": str(place.port),
        "WEB_STATUS_ADDRESS": LOOPBACK,
        "WEB_STATUS_PORT": str(place.status_port),
        "WEB_CERTIFICATE": str(files.certificate),
        "WEB_KEY": str(files.key),
        "WEB_AUTHORITY": str(files.authority),
        "WEB_LEAVE": "1",
        # Nobody else could lead, and the next one waits for no lease (`Installer.free_leadership`). So that a machine
        # is busy for seconds, with a hundred runs at once say, is no reason to let go: that costs all a new reign.
        "ELECTION_DURATION": "60",
        "ELECTION_REQUEST": "10",
        "PAGE_USAGE": ",".join(usage),
        "PAGE_USAGE_EVERY": "2",
        "PAGE_HISTORY": str(files.certificate.with_name("history.json")),
    }
    environment = inherited(os.environ) | {f"ALIQUOT_{name}": value for name, value in settings.items()}
    return Command(name=CENTRE_PROCESS, argv=["scheduler"], environment=environment, health=place.status_port)


async def until_ready(place: CentrePlace, *, clock: Clock) -> None:
    """Wait until the centre leads."""
    deadline = clock.monotonic() + _PATIENCE
    while not await _is_ready(place.status_port):
        if clock.monotonic() > deadline:
            raise CentreError(f"the centre was not ready within {_PATIENCE:g} s", where=place.url)
        await clock.sleep(_LOOK_AGAIN)


async def _is_ready(port: int) -> bool:
    try:
        return await is_well(port, "/readyz")
    except NobodyThereError:
        return False
