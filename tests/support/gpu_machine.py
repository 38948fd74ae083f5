"""A GPU that tests of isolation run on: a real one, or the fake driver's, with the same programs and the same agent.

Containers are folders that the agent's own `SliceFiles` writes; the library in front of the driver's is linked for each
of them, since nothing is mounted here. What paces them is the agent's `Pacemaker`.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from aliquot_agent.gpus.driver import GpuDriverError
from aliquot_agent.gpus.model import Discovery, GpuUsage
from aliquot_agent.gpus.nvml import NvmlDriver
from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.isolation.limits_file import Account, decode_account
from aliquot_agent.isolation.pacemaker import BEAT_S, Pacemaker
from aliquot_agent.isolation.slice_files import ACCOUNT, MIB, SliceFiles
from aliquot_core.grant import ContainerGrant, Slice
from aliquot_core.modes import INTERPOSER
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.clock import SystemClock
from support.isolation import CALLING, CONTEXT, ROOT, SOURCES, Built, Tenant, World, gpu_uuid
from support.require import skip_or_fail

PROGRAM = ROOT / "tests" / "gpu" / "program.c"
# What a driver gives beyond what was asked for differs by model and by version.
_SPARE_MIB = 16
_COMPILED_WITHIN = 180


class GpuMachine(Protocol):
    """Where programs run."""

    built: Built
    # Whether what is measured says something of GPUs; on the fake one it says that the tests work.
    real: bool
    uuid: str
    driver: Path
    # What a CUDA context takes, and all that the GPU has.
    context_mib: int
    memory_mib: int

    def environment(self, container: int) -> dict[str, str]:
        """What programs of a container need to find this GPU."""
        ...

    def held_mib(self, container: int, pids: Collection[int]) -> int:
        """What these processes, all of that container, hold by the driver's word."""
        ...


@dataclass(kw_only=True)
class FakeMachine:
    """The fake driver's GPU."""

    built: Built
    folder: Path
    real: bool = False
    uuid: str = gpu_uuid(0)
    context_mib: int = CONTEXT // MIB
    memory_mib: int = 16_384

    def __post_init__(self) -> None:
        """Make the GPU."""
        self.world = World(built=self.built, folder=self.folder)
        self.driver = self.built.driver

    def environment(self, container: int) -> dict[str, str]:
        """Where the GPU is, and as which tenant its memory is counted."""
        return {"FAKE_CUDA_WORLD": str(self.world.path), "FAKE_CUDA_TENANT": str(container)}

    def held_mib(self, container: int, pids: Collection[int]) -> int:
        """All of the container's processes."""
        assert pids
        return self.world.used(container) // MIB


@dataclass(kw_only=True)
class RealMachine:
    """The first NVIDIA GPU of this machine."""

    built: Built
    real: bool = True
    context_mib: int = 0

    def __post_init__(self) -> None:
        """Find it, or skip with the reason."""
        try:
            found, _ = asyncio.run(_ask_nvml())
        except GpuDriverError as error:
            skip_or_fail("gpu", f"no real GPU here: {error}")
        if not found.gpus:
            skip_or_fail("gpu", "the driver knows no GPU that answers")
        self.uuid, self.memory_mib = found.gpus[0].uuid, found.gpus[0].memory_total_mib
        self.model, self.version = found.gpus[0].model, found.driver.driver_version
        self.driver = _driver_s_library()

    def environment(self, container: int) -> dict[str, str]:
        """Of several GPUs, this one."""
        assert container >= 0
        return {"CUDA_VISIBLE_DEVICES": self.uuid}

    def held_mib(self, container: int, pids: Collection[int]) -> int:
        """By NVML, process by process."""
        assert container >= 0
        _, usages = asyncio.run(_ask_nvml())
        (usage,) = [one for one in usages if one.uuid == self.uuid]
        told = {one.pid: one.memory_mib for one in usage.processes if one.pid in pids}
        if missing := [pid for pid in pids if told.get(pid) is None]:
            skip_or_fail("gpu", f"NVML does not tell here what processes hold: not of {missing}")
        return sum(held or 0 for held in told.values())


async def _ask_nvml() -> tuple[Discovery, tuple[GpuUsage, ...]]:
    driver = NvmlDriver(clock=SystemClock())
    try:
        return await driver.discover(), await driver.usage()
    finally:
        await driver.close()


def _driver_s_library() -> Path:
    """The file that a program gets by the name; found where the linker puts it."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        skip_or_fail("gpu", f"a GPU, but no libcuda: {error}")
    with Path("/proc/self/maps").open() as maps:
        return next(Path(line.split()[-1]) for line in maps if "/libcuda.so" in line)


def compiled(built: Built) -> Path:
    """The program, compiled once."""
    program = built.driver.parent.parent / "program"
    if not program.exists():
        command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", f"-I{SOURCES}"]
        parts = [str(PROGRAM), str(CALLING)]
        subprocess.run([*command, "-o", str(program), *parts, "-ldl"], check=True, timeout=_COMPILED_WITHIN)
    return program


@dataclass(kw_only=True, eq=False)
class Held:
    """A container with a slice of the GPU, and its processes."""

    machine: GpuMachine
    number: int
    own: Path
    library: Path
    programs: list[Tenant] = field(default_factory=list)

    def run(self, environment: dict[str, str] | None = None) -> Tenant:
        """Start a program in it."""
        machine = self.machine
        told = {"LD_LIBRARY_PATH": str(self.library.parent), **machine.environment(self.number), **(environment or {})}
        program = Tenant(command=[str(compiled(machine.built))], environment=told, sanitized=False)
        self.programs.append(program)
        return program

    @property
    def held_mib(self) -> int:
        """What its processes hold by the driver's word."""
        return self.machine.held_mib(self.number, [one.process.pid for one in self.programs])

    @property
    def account(self) -> Account:
        """What they say they hold."""
        found = decode_account((self.own / ACCOUNT).read_bytes(), gpus=1)
        assert found is not None
        return found


class Containers:
    """The containers of one test, and the agent that paces them."""

    def __init__(self, machine: GpuMachine, folder: Path) -> None:
        self.machine = machine
        self._folder = folder / "isolation"
        self.files = SliceFiles(folder=self._folder, library=folder / "none")
        self._made: list[Held] = []
        self._stop = threading.Event()
        self.pacemaker = Pacemaker(files=self.files, clock=SystemClock())
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        """Begin to pace."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self.end()
        self._stop.set()
        self._thread.join(30)

    def end(self) -> None:
        """End every program."""
        for one in self._made:
            for program in one.programs:
                program.close()

    def held(self, *, memory_mib: int, compute: int = 100, limit: int | None = None) -> Held:
        """A container that is held by the interposer."""
        part = Slice(
            gpu=self.machine.uuid,
            compute=Percent(compute),
            limit=Percent(compute if limit is None else limit),
            memory=MiB(memory_mib),
        )
        number = len(self._made)
        own = self.files.write(
            token=f"c{number}",
            owner=Owner(pod=f"u{number}", container="main"),
            grant=ContainerGrant(slices=(part,), isolation=INTERPOSER),
            driver=str(self.machine.driver),
            contexts={part.gpu: self.machine.context_mib},
        )
        return self._add(own, self.machine.built.link(folder=own))

    def free(self) -> Held:
        """One that nothing holds: the driver as it is."""
        return self._add(self._folder, self.machine.driver)

    def _add(self, own: Path, library: Path) -> Held:
        one = Held(machine=self.machine, number=len(self._made), own=own, library=library)
        self._made.append(one)
        return one

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_S):
            self.pacemaker.beat()


def measure_context(machine: GpuMachine, folder: Path) -> int:
    """What a program holds that has begun and asked for nothing, with a little to spare: the setting `context_mib`."""
    with Containers(machine, folder) as containers:
        one = containers.free()
        assert one.run().ask("start") == "0"
        return one.held_mib + _SPARE_MIB


def figures_file() -> Path | None:
    """Where figures are gathered, if somebody wants them."""
    named = os.environ.get("ALIQUOT_GPU_FIGURES")
    return Path(named) if named else None
