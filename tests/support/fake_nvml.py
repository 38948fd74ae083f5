"""Builds the fake libnvidia-ml.so.1 of tests/node/fake_nvml and says what it answers, while it runs.

A test of a whole process gives it `environment()`; the real nvidia-ml-py then finds the fake by the loader's own rules.
A test inside this process calls `load_into_pynvml`, which gives pynvml a copy of the library of its own, for a library
that is loaded once keeps its state for the life of the process.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import time
import uuid as uuids
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pynvml
import pytest

from aliquot_agent.gpus.known_models import KnownModel
from aliquot_agent.gpus.simulated import simulated_uuid
from support.require import skip_or_fail

SOURCES = Path(__file__).parent.parent / "node" / "fake_nvml"
LIBRARY = "libnvidia-ml.so.1"
MIB = 1024 * 1024
# XID, GPU unavailable, recovery action: what a present-day driver reports.
ALL_EVENTS = 0xC008
_ARCHITECTURES = {"pascal": 4, "volta": 5, "turing": 6, "ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10}
_PCIE_NODE, _PCIE_SYSTEM = 40, 50


def build_library(*, cache: Path, old: bool = False) -> Path:
    """Compile the library once for these sources; `old` leaves out what old drivers lack."""
    compiler = shutil.which("gcc") or skip_or_fail("native", "gcc is not installed")
    sources = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    folder = cache / f"fake-nvml-{digest}{'-old' if old else ''}"
    library = folder / LIBRARY
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f"{LIBRARY}.{os.getpid()}"
        flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-shared", "-fPIC", "-pthread"]
        names = [str(source) for source in sources if source.suffix == ".c"]
        only_old = ["-DFAKE_NVML_OLD"] if old else []
        subprocess.run(
            [compiler, *flags, *only_old, f"-Wl,-soname,{LIBRARY}", "-o", str(fresh), *names], check=True, timeout=60
        )
        fresh.replace(library)
    return library


@dataclass(kw_only=True)
class FakeGpu:
    """What the library says of one GPU."""

    uuid: str
    model: KnownModel
    minor: int
    numa: int
    mig: int = 0
    # As MIG mode will be after a reset; None: as it is.
    mig_wanted: int | None = None
    # Into how many slices MIG cuts it.
    slices: int = 7
    lost: bool = False
    temperature: int = 40
    power_milliwatts: int = 61_000
    utilization: int = 0
    throttle: int = 0
    events: int = ALL_EVENTS
    switch_links: int = 0
    pci: str = ""

    def line(self) -> str:
        """The GPU's line of the state file."""
        total, reserved = self.model.memory_total_mib * MIB, self.model.memory_reserved_mib * MIB
        mig_wanted = self.mig if self.mig_wanted is None else self.mig_wanted
        return (
            f"gpu {self.uuid} minor={self.minor} total={total} reserved={reserved}"
            f" cc={self.model.compute_capability} arch={_ARCHITECTURES[self.model.architecture]} pci={self.pci}"
            f" numa={self.numa} mig={self.mig} mig-wanted={mig_wanted} slices={self.slices}"
            f" switch={self.switch_links} lost={int(self.lost)}"
            f" temperature={self.temperature} power={self.power_milliwatts} util={self.utilization}"
            f" throttle={self.throttle} events={self.events} name={self.model.name}"
        )


@dataclass(kw_only=True)
class FakeInstance:
    """An instance of a GPU in MIG mode, under that number of the GPU's list."""

    gpu: int
    uuid: str
    slot: int
    gi: int
    slices: int
    memory_mib: int
    name: str
    ci: int = 0
    # Slices of its compute instance; None: all.
    used_slices: int | None = None
    reserved_mib: int = 16

    def line(self) -> str:
        """The instance's line of the state file."""
        used = self.slices if self.used_slices is None else self.used_slices
        return (
            f"instance {self.gpu} {self.uuid} slot={self.slot} gi={self.gi} ci={self.ci} slices={self.slices}"
            f" used={used} total={self.memory_mib * MIB} reserved={self.reserved_mib * MIB} name={self.name}"
        )


@dataclass(kw_only=True)
class FakeProcess:
    """One entry of one of the driver's process lists; memory of None is hidden."""

    gpu: int
    pid: int
    memory_mib: int | None
    sm_percent: int
    kind: str
    at: int
    # Its instance's place in the driver's list of them; -1: none.
    instance: int = -1

    def line(self) -> str:
        """The process's line of the state file."""
        memory = "hidden" if self.memory_mib is None else self.memory_mib * MIB
        return (
            f"process {self.gpu} instance={self.instance} pid={self.pid} kind={self.kind} memory={memory}"
            f" sm={self.sm_percent} at={self.at}"
        )


@dataclass(kw_only=True)
class Call:
    """One line of the library's log."""

    thread: int
    function: str
    gpu: int


@dataclass(kw_only=True)
class FakeNvml:
    """The state of one fake driver; every command is in force when it returns."""

    library: Path
    folder: Path
    node: str = "node-1"
    gpus: list[FakeGpu] = field(default_factory=list)
    instances: list[FakeInstance] = field(default_factory=list)
    processes: list[FakeProcess] = field(default_factory=list)
    # (a, b) → NVLinks between them and NVML's topology level.
    links: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    init: int = 0
    used_includes_reserved: bool = False
    _writes: int = 0
    _samples: int = 1_000_000

    @property
    def state(self) -> Path:
        """The state file."""
        return self.folder / "nvml-state"

    @property
    def log(self) -> Path:
        """The call log."""
        return self.folder / "nvml-log"

    def environment(self) -> dict[str, str]:
        """What a process needs so that it finds this driver."""
        return {
            "LD_LIBRARY_PATH": str(self.library.parent),
            "FAKE_NVML_STATE": str(self.state),
            "FAKE_NVML_LOG": str(self.log),
        }

    def load_into_pynvml(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let pynvml in this process talk to a copy of the library of its own, until the test ends."""
        own = self.folder / LIBRARY
        shutil.copy(self.library, own)
        monkeypatch.setenv("FAKE_NVML_STATE", str(self.state))
        monkeypatch.setenv("FAKE_NVML_LOG", str(self.log))
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(own)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    # ------------------------------------------------------------------ commands

    def install(self, models: Sequence[KnownModel]) -> None:
        """Put these cards in, in a machine of two sockets."""
        half = (len(models) + 1) // 2
        self.gpus = [
            FakeGpu(
                uuid=simulated_uuid(node=self.node, index=index),
                model=model,
                minor=index,
                numa=index // half,
                pci=f"00000000:{0x10 + index:02X}:00.0",
                switch_links=model.nvlinks,
            )
            for index, model in enumerate(models)
        ]
        self.links = {
            (a, b): (0, _PCIE_NODE if self.gpus[a].numa == self.gpus[b].numa else _PCIE_SYSTEM)
            for a in range(len(models))
            for b in range(a)
        }
        self.write()

    def cut(self, *, gpu: int, into: Sequence[tuple[int, int]]) -> list[str]:
        """Switch MIG on and make instances of so many slices and so many MiB; their uuids."""
        card = self.gpus[gpu]
        card.mig = 1
        self.instances = [one for one in self.instances if one.gpu != gpu]
        for number, (slices, memory_mib) in enumerate(into):
            self.instances.append(
                FakeInstance(
                    gpu=gpu,
                    uuid=f"MIG-{uuids.uuid5(uuids.NAMESPACE_OID, f'{card.uuid}/{number}')}",
                    # Numbers are given up with instances: between two there may be one that nobody has.
                    slot=number + (number > 1 and len(into) < card.slices),
                    gi=number + 7,
                    slices=slices,
                    memory_mib=memory_mib,
                    name=f"{card.model.name} MIG {slices}g.{-(-memory_mib // 1024)}gb",
                )
            )
        self.write()
        return [one.uuid for one in self.instances if one.gpu == gpu]

    def start_process(
        self,
        *,
        gpu: int,
        pid: int,
        memory_mib: int | None,
        sm_percent: int = 0,
        kind: str = "compute",
        instance: int = -1,
    ) -> None:
        """List a process, with a fresh utilization sample; one of that pid and kind there is replaced."""
        self._samples += 1_000_000
        self.processes = [p for p in self.processes if (p.gpu, p.instance, p.pid, p.kind) != (gpu, instance, pid, kind)]
        self.processes.append(
            FakeProcess(
                gpu=gpu,
                pid=pid,
                memory_mib=memory_mib,
                sm_percent=sm_percent,
                kind=kind,
                at=self._samples,
                instance=instance,
            )
        )
        self.write()

    def stop_process(self, *, pid: int) -> None:
        """Take a process off every GPU."""
        self.processes = [p for p in self.processes if p.pid != pid]
        self.write()

    def raise_event(self, *, gpu: int, event_type: int, data: int) -> None:
        """Report an event; a gpu of -1 names none."""
        self.events.append(f"event {len(self.events) + 1} gpu={gpu} type={event_type} data={data}")
        self.write()

    def raise_xid(self, *, gpu: int, number: int) -> None:
        """Report an error by its number."""
        self.raise_event(gpu=gpu, event_type=pynvml.nvmlEventTypeXidCriticalError, data=number)

    def lose(self, *, gpu: int) -> None:
        """Let a GPU fall off the bus with its processes."""
        self.gpus[gpu].lost = True
        self.processes = [p for p in self.processes if p.gpu != gpu]
        self.write()

    def recover(self, *, gpu: int) -> None:
        """Let it come back: to a new initialisation, as the real one."""
        self.gpus[gpu].lost = False
        self.write()

    def slow(self, *, function: str, gpu: int | str = "*", milliseconds: int) -> None:
        """Let a function take so long."""
        self.rules.append(f"slow {function} {gpu} {milliseconds}")
        self.write()

    def fault(self, *, function: str, gpu: int | str = "*", code: int) -> None:
        """Let a function answer with this code."""
        self.rules.append(f"fault {function} {gpu} {code}")
        self.write()

    def mend(self) -> None:
        """Take back every `slow` and `fault`; slow calls in flight end."""
        self.rules.clear()
        self.write()

    def write(self) -> None:
        """Replace the state file, for changes that have no command."""
        lines = [
            "fake-nvml 1",
            "driver 580.65.06",
            "nvml 13.580.65.06",
            "cuda 13000",
            f"init {self.init}",
            f"used-includes-reserved {int(self.used_includes_reserved)}",
            *(gpu.line() for gpu in self.gpus),
            *(one.line() for one in self.instances),
            *(f"link {a} {b} nvlink={count} topology={level}" for (a, b), (count, level) in self.links.items()),
            *(process.line() for process in self.processes),
            *self.events,
            *self.rules,
            "end\n",
        ]
        fresh = self.state.with_suffix(".new")
        fresh.write_text("\n".join(lines))
        # Two writes within the file system's clock tick could have equal inode, size and time: never equal times.
        self._writes += 1
        os.utime(fresh, ns=(self._writes, self._writes))
        fresh.replace(self.state)

    # ------------------------------------------------------------------ what was called

    def calls(self) -> list[Call]:
        """Every call so far."""
        words = [line.split() for line in self._log_lines() if not line.startswith("VIOLATION")]
        return [Call(thread=int(thread), function=function, gpu=int(gpu)) for thread, function, gpu in words]

    def wait_for_call(self, function: str, *, within_s: float = 60.0) -> None:
        """Block until that function was called; the library has no other way to tell."""
        end = time.monotonic() + within_s
        while not any(call.function == function for call in self.calls()):
            if time.monotonic() > end:
                pytest.fail(f"{function} was not called within {within_s:g} s")
            time.sleep(0.002)

    def violations(self) -> list[str]:
        """Calls that would have crashed the real library."""
        return [line for line in self._log_lines() if line.startswith("VIOLATION")]

    def _log_lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []
