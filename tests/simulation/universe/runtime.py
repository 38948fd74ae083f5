"""The container runtime of a node: a container starts if its CDI name is known at that instant, and not otherwise.

What a container got is read from the CDI specs as they lie in the folder, with a reader of its own: that is the truth
by which the simulation judges.
"""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Callable, Collection, Sequence

import msgspec

from aliquot_standalone.kubelet.errors import CdiError
from aliquot_standalone.kubelet.lifecycle import Process
from simulation.universe.chance import Chance
from simulation.universe.disk import Disk
from simulation.universe.life import Life
from simulation.universe.loop import VirtualLoop

KILLED = 137


class Part(msgspec.Struct, frozen=True, order=True):
    """A part of one GPU, as the container reads it in its environment."""

    gpu: str
    compute: int
    memory: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How long a container's process works, with what code it ends, how it takes being told to end."""

    # None: until it is told to end.
    seconds: float | None = None
    code: int = 0
    # Seconds from SIGTERM to its end; None: it does not listen.
    on_term: float | None = 0.2
    # Seconds for which it outlives SIGKILL, as one in the driver's hands does.
    after_kill: float = 0.0


class Running(msgspec.Struct, kw_only=True):
    """A live process and what it got."""

    process: Process
    uid: str
    container: str
    parts: tuple[Part, ...]
    plan: Plan
    dying: bool = False


class SimRuntime:
    """Processes of a node; they outlive kubelets and agents."""

    def __init__(self, *, loop: VirtualLoop, disk: Disk, chance: Chance) -> None:
        self._loop = loop
        self._disk = disk
        self._chance = chance
        self._numbers = itertools.count(1)
        self.running: dict[str, Running] = {}
        # How processes have ended that their kubelet may still ask about.
        self.ended: dict[str, int] = {}
        self.on_start: Callable[[Running, Sequence[str]], None] = lambda _, __: None
        self.on_end: Callable[[str, int], None] = lambda _, __: None

    def start(self, *, uid: str, container: str, cdi_names: Sequence[str], plan: Plan) -> Process:
        """Start a process with what its CDI names stand for now; `CdiError` where one stands for nothing."""
        environment = [variable for name in cdi_names for variable in self._environment(name)]
        number = next(self._numbers)
        process = Process(id=f"{uid}/{container}/{number}", pid=number, born=str(self._loop.time()))
        one = Running(process=process, uid=uid, container=container, parts=_parts(environment), plan=plan)
        self.running[process.id] = one
        self.on_start(one, cdi_names)
        if plan.seconds is not None:
            self._end_in(process.id, plan.seconds, plan.code)
        return process

    def signal(self, process: str, number: signal.Signals) -> None:
        """Tell a process to end, or end it."""
        one = self.running.get(process)
        if one is None:
            return
        if number is signal.SIGKILL:
            self._end_in(process, one.plan.after_kill, KILLED)
        elif one.plan.on_term is not None:
            self._end_in(process, one.plan.on_term, 0)

    def kill_all(self) -> None:
        """A reboot."""
        for process in list(self.running):
            self._end(process, KILLED)

    def alive(self, uids: Collection[str]) -> set[str]:
        """Those of these pods that have a living process."""
        return {one.uid for one in self.running.values()} & set(uids)

    def forget(self, uid: str) -> None:
        """The kubelet has done with a pod."""
        for process in [one for one in self.ended if one.startswith(f"{uid}/")]:
            del self.ended[process]

    def _end_in(self, process: str, seconds: float, code: int) -> None:
        self._loop.call_later(seconds, self._end, process, code, context=self._loop.world.copy())

    def _end(self, process: str, code: int) -> None:
        if self.running.pop(process, None) is not None:
            self.ended[process] = code
            self.on_end(process, code)

    def _environment(self, cdi_name: str) -> list[str]:
        kind, _, device = cdi_name.partition("=")
        found = [
            variable
            for file, content in self._disk.files.items()
            if file.endswith(".json") and (spec := json.loads(content))["kind"] == kind
            for one in spec["devices"]
            if one["name"] == device
            for variable in one["containerEdits"]["env"]
        ]
        if not found:
            raise CdiError(f"unresolvable CDI device {cdi_name}")
        return found


class ResidentsOf:
    """Who lives on the node, as one process looks it up."""

    def __init__(self, runtime: SimRuntime, life: Life) -> None:
        self._runtime = runtime
        self._life = life

    def alive(self, uids: Collection[str]) -> set[str]:
        """Those of these pods that have a living process."""
        self._life.act("look for processes")
        return self._runtime.alive(uids)


def _parts(environment: Sequence[str]) -> tuple[Part, ...]:
    texts = [variable.partition("=")[2] for variable in environment if variable.startswith("ALIQUOT_SLICES=")]
    found = []
    for text in texts:
        for part in text.split(","):
            gpu, compute, memory = part.rsplit(":", 2)
            found.append(Part(gpu, int(compute), int(memory)))
    return tuple(sorted(found))
