"""Speaks to one GPU's MPS control daemon by NVIDIA's program, nvidia-cuda-mps-control.

The program reads commands from its input and prints answers; it ends with another code than 0 where no daemon answers.
A daemon that was started with `-d` is nobody's child, so it outlives who started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from aliquot_agent.waiting import settled
from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError

log = logging.getLogger(__name__)

# To start one takes a second where the GPU sleeps; an answer comes in milliseconds, and who keeps daemons waits for one
# no longer than for its silence.
PATIENCE = 20.0
# How long servers are given to end, by the program's own `quit -t`; they have no client then, as a rule.
QUIT_S = 5
# Whatever else it says beside: a fault that was overlooked would let containers start that find no server.
_FAULT = re.compile(r"\bFAULT", re.IGNORECASE)
# What the kernel keeps of a process's name.
_COMM = "nvidia-cuda-mps"
_PID_FILE = "nvidia-cuda-mps-control.pid"
_OUTPUT = "start.out"
_NEVER_ENDED = -1
_LONGEST_QUOTED = 300


class MpsError(ClusterError):
    """MPS does not do as it was told."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon says of itself."""

    servers: tuple[int, ...]
    faulty: int
    clients: int


class MpsControl:
    """One GPU's daemon."""

    def __init__(
        self,
        *,
        program: str,
        gpu: str,
        pipe: Path,
        log_folder: Path,
        multi_user: bool,
        clock: Clock,
        patience: float = PATIENCE,
    ) -> None:
        """`patience` is how many seconds the program is waited for."""
        self._patience = patience
        self._program = program
        self._gpu = gpu
        self._pipe = pipe
        self._log_folder = log_folder
        self._multi_user = multi_user
        self._clock = clock
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
            # By uuid, so it is device 0 for its clients whatever the order of the node's GPUs is.
            "CUDA_VISIBLE_DEVICES": gpu,
            "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(log_folder),
        }

    async def start(self) -> None:
        """Start the daemon in the background."""
        # Else one user has the server at a time, and pods of other users wait for it to end.
        users = ["-multiuser-server"] if self._multi_user else []
        # Into a file: a daemon that kept the other end of a pipe would keep us waiting for its end.
        with (
            _as_ours(self._gpu, "what its MPS daemon says can't be kept"),
            (self._log_folder / _OUTPUT).open("w+b") as out,
        ):
            code, _ = await self._run([*users, "-d"], text="", output=out.fileno())
            said = _readable(os.pread(out.fileno(), _LONGEST_QUOTED, 0))
        if code != 0:
            raise MpsError(
                f"its MPS daemon did not start: {said or f'it ended with {code}'}",
                where=self._gpu,
                remedy=f"look into {self._log_folder}",
            )

    async def ask(self) -> Answer | None:
        """How the daemon is; None if it leaves one of the questions without an answer.

        One that lists its servers and says nothing else of them is as lost to its clients as one that says nothing.
        """
        if (servers := await self._numbers("get_server_list")) is None:
            return None
        faulty = clients = 0
        for server in servers:
            code, status = await self._run([], text=f"get_server_status {server}")
            if code != 0 or (its := await self._numbers(f"get_client_list {server}")) is None:
                return None
            faulty += _FAULT.search(status) is not None
            clients += len(its)
        return Answer(servers=tuple(servers), faulty=faulty, clients=clients)

    async def quit(self) -> None:
        """End the daemon and its servers."""
        code, said = await self._run([], text=f"quit -t {QUIT_S}")
        if code != 0:
            raise MpsError(f"its MPS daemon does not quit: {said or f'code {code}'}", where=self._gpu)

    def is_gone(self) -> bool:
        """Whether nothing is there of a daemon, nor of one that has died; raises an `MpsError`."""
        with _as_ours(self._gpu, "where its MPS daemon listens can't be looked at"):
            return not self._pipe.is_dir() or not any(self._pipe.iterdir())

    def lives(self) -> bool:
        """Whether its process is there, answering or not."""
        return self._pid() is not None

    def kill(self) -> None:
        """End what is left of a daemon that is dead or silent: itself, and servers, which would hold the GPU.

        Raises an `MpsError`.
        """
        with _as_ours(self._gpu, "what is left of its MPS daemon can't be ended"):
            for pid in self._left():
                log.warning("what is left of an MPS daemon is ended", extra={"gpu": self._gpu, "pid": pid})
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _left(self) -> list[int]:
        """Processes of MPS that were started for this GPU, by what they were told."""
        told = f"CUDA_MPS_PIPE_DIRECTORY={self._pipe}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if (folder / "comm").read_text().startswith(_COMM):
                    variables = (folder / "environ").read_bytes().split(b"\0")
                    found += [int(folder.name)] if told in variables else []
        return found

    def _pid(self) -> int | None:
        """By its own note; an older one's number may be anybody's by now."""
        try:
            pid = int((self._pipe / _PID_FILE).read_text())
            state = Path(f"/proc/{pid}/stat").read_text()
        except (OSError, ValueError):
            return None
        name, _, rest = state.partition("(")[2].rpartition(")")
        return pid if name.startswith(_COMM) and not rest.strip().startswith("Z") else None

    async def _numbers(self, command: str) -> list[int] | None:
        code, said = await self._run([], text=command)
        if code != 0:
            return None
        try:
            return [int(line) for line in said.splitlines() if line.strip()]
        except ValueError:
            raise MpsError(f"{command} is answered by {said[:_LONGEST_QUOTED]!r}", where=self._gpu) from None

    async def _run(self, options: list[str], *, text: str, output: int = asyncio.subprocess.PIPE) -> tuple[int, str]:
        """Run the program once, but not for ever."""
        try:
            process = await asyncio.create_subprocess_exec(
                self._program,
                *options,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
                # What ends this process by a signal to its group must not end the daemon.
                start_new_session=True,
            )
        except OSError as error:
            raise MpsError(
                f"{self._program} can't be run: {error}",
                where=self._gpu,
                remedy="it comes with the driver; set [mps] program, or leave MPS off",
            ) from error
        talking = asyncio.ensure_future(process.communicate(f"{text}\n".encode() if text else None))
        try:
            if not await settled(talking, clock=self._clock, seconds=self._patience):
                # As one that does not answer: a daemon that takes commands and hangs is not let be.
                return _NEVER_ENDED, "it does not come back"
            said, _ = talking.result()
        finally:
            talking.cancel()
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return process.returncode or 0, _readable(said or b"")


@contextlib.contextmanager
def _as_ours(gpu: str, what: str) -> Iterator[None]:
    """What the system refuses is said of the GPU: whoever keeps daemons goes on with others, and tries again."""
    try:
        yield
    except OSError as error:
        raise MpsError(f"{what}: {error}", where=gpu) from error


def _readable(said: bytes) -> str:
    return said.decode(errors="replace").strip()
