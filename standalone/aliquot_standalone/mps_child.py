"""Who keeps one machine's MPS daemons: `aliquot mps` as a child process, and how to know that it does.

On a cluster it is a DaemonSet of its own, so that agents come and go without it; here a child beside theirs. Killed
with us it leaves its daemons, which pods that go on need, and the next one finds them in the same folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from aliquot_agent.isolation.gpu_modes import Use
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_standalone.centre_child import inherited
from aliquot_standalone.children import Command

MPS_PROCESS = "mps"
# It ends its daemons: one that is silent it asks for ten seconds, by a program that may hang for as long again.
_LEAVE_WITHIN = 25.0
_LOOK_AGAIN = 0.02
_PATIENCE = 30.0


class MpsChildError(ClusterError):
    """Nobody keeps MPS daemons."""


def mps_command(folder: Path) -> Command:
    """How it is started; `folder` is where agents meet it."""
    environment = inherited(os.environ) | {"ALIQUOT_MPS_FOLDER": str(folder)}
    return Command(name=MPS_PROCESS, argv=["mps"], environment=environment, leave_within=_LEAVE_WITHIN)


def was_left(folder: Path) -> bool:
    """Whether a run that was killed has left daemons, which this one, told otherwise, is to end: nobody wants them."""
    daemons = MpsFolder(folder)
    for gpu in daemons.gpus():
        daemons.want(gpu, Use.FREE)
    return bool(daemons.gpus())


async def until_kept(folder: Path, *, clock: Clock) -> None:
    """Wait until somebody has kept daemons here; an earlier one may have, then this one is expected as it was."""
    deadline = clock.monotonic() + _PATIENCE
    while not MpsFolder(folder).was_kept():
        if clock.monotonic() > deadline:
            raise MpsChildError(f"no MPS daemons are kept after {_PATIENCE:g} s", where=str(folder))
        await clock.sleep(_LOOK_AGAIN)
