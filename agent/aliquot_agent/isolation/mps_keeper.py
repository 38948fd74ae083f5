"""Keeps an MPS control daemon for each GPU that is to be shared. The shell round `mps_steps`.

It runs in a process of its own that is hardly ever replaced, for on Kubernetes its daemons end with its container; the
agent, which decides who shares what, may come and go. Killed on a bare machine it leaves its daemons running, and who
comes after finds them; told to stop it ends them and opens the GPUs again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from aliquot_agent.isolation.gpu_modes import Told, Use
from aliquot_agent.isolation.mps_control import Answer, MpsError
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_agent.isolation.mps_steps import Daemon, Seen, Step, next_step, told
from aliquot_agent.pulse_file import PulseFile
from aliquot_agent.waiting import within
from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError

log = logging.getLogger(__name__)

# What the agent asks for is seen this often, and what became of the daemons that often.
GLANCE, LOOK = 0.25, 2.0
# So long a daemon that lives may be silent: one that has just been started does not listen at once.
SILENCE = 10.0
# So long nothing takes for one GPU, all steps with all their patience; what does hangs in the driver.
STUCK = 300.0
# From a GPU that is closed and has a daemon that does not answer, to one that is free: kill, open.
_MOST_STEPS = 6


class ComputeModes(Protocol):
    """Whether GPUs take one process only. Called on a thread: a GPU that sleeps takes its time."""

    def closed(self, gpu: str) -> bool:
        """Whether it is so; raises an `AliquotError`."""
        ...

    def close(self, gpu: str, *, closed: bool) -> None:
        """Make it so, or not so; raises an `AliquotError`."""
        ...


class Control(Protocol):
    """One GPU's daemon; `MpsControl` has the words."""

    async def start(self) -> None:
        """Start it."""
        ...

    async def ask(self) -> Answer | None:
        """How it is."""
        ...

    async def quit(self) -> None:
        """End it."""
        ...

    def is_gone(self) -> bool:
        """Whether nothing is there of one."""
        ...

    def lives(self) -> bool:
        """Whether its process is there."""
        ...

    def kill(self) -> None:
        """End what is left of it."""
        ...


class MpsKeeper:
    """The daemons of one node."""

    def __init__(
        self,
        *,
        folder: MpsFolder,
        modes: ComputeModes,
        control: Callable[[str], Control],
        clock: Clock,
        most_clients: int,
        look: float = LOOK,
        silence: float = SILENCE,
    ) -> None:
        """`control` speaks to the daemon of the GPU that it is given."""
        self._every = look
        self._silence = silence
        self._folder = folder
        self._modes = modes
        self._control = control
        self._clock = clock
        self._most_clients = most_clients
        # By GPU: what was wanted when it was looked at last, and when that was.
        self._looked: dict[str, tuple[Use, float]] = {}
        self._said: dict[str, Told] = {}
        self._pulse = PulseFile(folder.pulse())
        # By what it is of, and said once: what lasts is tried again every two seconds.
        self._troubles: dict[str, str] = {}

    async def run(self) -> None:
        """Keep them until cancelled, each by a task of its own: who waits for one daemon holds up no other GPU."""
        at_work: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    for gpu in self._folder.gpus():
                        if (gpu not in at_work or at_work[gpu].done()) and self._is_due(gpu):
                            at_work[gpu] = tasks.create_task(self.settle(gpu))
                except AliquotError as error:  # what stands there is seen to when it can be read again
                    self._trouble("", str(error))
                else:
                    self._trouble("", "")
                    self._beat([gpu for gpu, task in at_work.items() if not task.done()])
                await self._clock.sleep(GLANCE)

    async def leave(self) -> None:
        """End all daemons, and let everybody in again."""
        await asyncio.gather(*(self._settled(gpu, Use.FREE) for gpu in self._folder.gpus()))

    async def settle(self, gpu: str) -> None:
        """Bring one GPU to what is wanted, and say how far it is."""
        wanted = self._folder.wanted(gpu)
        self._looked[gpu] = wanted, self._clock.monotonic()
        await self._settled(gpu, wanted)

    def _is_due(self, gpu: str) -> bool:
        wanted, at = self._looked.get(gpu, (None, 0.0))
        return wanted is not self._folder.wanted(gpu) or self._clock.monotonic() >= at + self._every

    async def _settled(self, gpu: str, wanted: Use) -> None:
        try:
            self._tell(gpu, await self._steps(gpu, wanted))
        except AliquotError as error:
            self._tell_trouble(gpu, Told(use=wanted, problem=str(error)))
        else:
            self._trouble(gpu, "")

    def _tell_trouble(self, gpu: str, told: Told) -> None:
        try:
            self._tell(gpu, told)
        except AliquotError as error:  # a full disk: what stands there is what stood there
            self._trouble(gpu, f"{told.problem}; {error}" if str(error) != told.problem else told.problem)

    def _trouble(self, gpu: str, problem: str) -> None:
        """What nobody can be told by the folder, or that it is over: in the log, once."""
        if problem and self._troubles.get(gpu) != problem:
            log.error("MPS daemons can't be kept", extra={"gpu": gpu, "problem": problem})
        self._troubles[gpu] = problem

    def _beat(self, at_work: list[str]) -> None:
        """Be seen to get on, unless one GPU's work has no end."""
        now = self._clock.monotonic()
        stuck = [gpu for gpu in at_work if gpu in self._looked and now - self._looked[gpu][1] > STUCK]
        for gpu in stuck:
            self._trouble(gpu, f"its driver has not answered for {STUCK:g} s")
        if not stuck:
            self._pulse.beat()

    async def _steps(self, gpu: str, wanted: Use) -> Told:
        for _ in range(_MOST_STEPS):
            seen = await self._look(gpu)
            step = next_step(wanted, seen)
            if step is Step.REST:
                return told(wanted, seen, most_clients=self._most_clients)
            log.info("MPS", extra={"gpu": gpu, "step": step.value, "wanted": wanted.value})
            # Nobody is let start meanwhile.
            self._folder.forget(gpu)
            self._said.pop(gpu, None)
            await self._do(gpu, step)
        return Told(use=wanted, problem=f"it does not become {wanted}: after {_MOST_STEPS} steps there is more to do")

    async def _look(self, gpu: str) -> Seen:
        closed = await asyncio.to_thread(self._modes.closed, gpu)
        control = self._control(gpu)
        answer = None if control.is_gone() else await self._answer(control)
        if answer is None:
            return Seen(closed=closed, daemon=Daemon.SILENT if control.lives() else Daemon.GONE)
        return Seen(
            closed=closed, daemon=Daemon.ANSWERS, faulty=answer.faulty, clients=answer.clients, servers=answer.servers
        )

    async def _answer(self, control: Control) -> Answer | None:
        """What it says of itself; None once it is dead, or was silent for too long."""
        deadline = self._clock.monotonic() + self._silence
        while (left := deadline - self._clock.monotonic()) > 0:
            # A question that hangs is part of the silence, and cut off with it.
            with contextlib.suppress(TimeoutError):
                if (answer := await within(control.ask(), clock=self._clock, seconds=left)) is not None:
                    return answer
            if not control.lives():
                return None
            await self._clock.sleep(GLANCE)
        return None

    async def _do(self, gpu: str, step: Step) -> None:
        control = self._control(gpu)
        match step:
            case Step.CLOSE | Step.OPEN:
                await asyncio.to_thread(self._modes.close, gpu, closed=step is Step.CLOSE)
            case Step.START:
                control.kill()
                self._folder.clear(gpu)
                await control.start()
            case Step.QUIT:
                await self._quit(gpu, control)
            case Step.KILL:
                control.kill()

    async def _quit(self, gpu: str, control: Control) -> None:
        try:
            await control.quit()
        except MpsError as error:
            # Nobody holds the GPU any more, and the next who want it must not wait for ever.
            log.warning("an MPS daemon is killed", extra={"gpu": gpu, "problem": str(error)})
            control.kill()

    def _tell(self, gpu: str, told: Told) -> None:
        if self._said.get(gpu) == told:
            return
        self._folder.tell(gpu, told)
        self._said[gpu] = told
        level = logging.ERROR if told.problem else logging.INFO
        log.log(level, "MPS daemon", extra={"gpu": gpu, **msgspec.structs.asdict(told)})
