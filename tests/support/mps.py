"""A node's MPS with the stand-in in the place of NVIDIA's program."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from aliquot_agent.isolation.mps_control import MpsControl
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_core.clock import Clock
from aliquot_kube.clock import SystemClock

STAND_IN = Path(__file__).with_name("mps_stand_in.py")
PROGRAM = "nvidia-cuda-mps-control"


@dataclass(kw_only=True)
class StandIn:
    """The program, and where the daemons that it makes lie."""

    home: Path
    # What the path of each GPU's compute mode begins with, as the fake NVML writes it.
    modes: str
    # Where daemons are asked for; below `home` if nothing is said.
    daemons: Path | None = None

    def __post_init__(self) -> None:
        """Install the program, by whose name its processes are known."""
        self.folder = MpsFolder(self.daemons or self.home / "mps")
        self.program = self.home / PROGRAM
        text = STAND_IN.read_text().replace('MODES = ""', f"MODES = {self.modes!r}", 1)
        self.program.write_text(f"#!{sys.executable} -IS\n{text}")
        self.program.chmod(0o755)

    def control(self, gpu: str, *, clock: Clock, multi_user: bool = True) -> MpsControl:
        """What our code speaks to it with."""
        return MpsControl(
            program=str(self.program),
            gpu=gpu,
            pipe=self.folder.pipe(gpu),
            log_folder=self.folder.log(gpu),
            multi_user=multi_user,
            clock=clock,
            # Longer than any test: whoever must not wait so long has to see to it.
            patience=600.0,
        )

    def say(self, gpu: str, line: str) -> str:
        """Say something to a daemon, as a client or a person on the node."""
        environment = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(self.folder.pipe(gpu))}
        done = subprocess.run(
            [str(self.program)],
            input=f"{line}\n",
            env=environment,
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return done.stdout.strip()

    def commands(self, gpu: str) -> list[str]:
        """What a daemon was told so far."""
        return (self.folder.log(gpu) / "commands").read_text().splitlines()

    def pid(self, gpu: str) -> int | None:
        """The daemon's process; nobody yet while the file is being written."""
        try:
            text = (self.folder.pipe(gpu) / f"{PROGRAM}.pid").read_text()
        except OSError:
            return None
        return int(text) if text else None

    def close(self) -> None:
        """End every daemon and server that is left."""
        for gpu in self.folder.gpus():
            self.control(gpu, clock=SystemClock()).kill()
