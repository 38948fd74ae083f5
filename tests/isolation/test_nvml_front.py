"""NVML inside a container tells of its slice: the real nvidia-ml-py, our library, and a fake driver behind it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml
import pytest

from aliquot_agent.gpus.known_models import KNOWN_MODELS
from support.fake_nvml import FakeNvml, build_library
from support.isolation import CONTEXT, MIB, Container, World, gpu_uuid

pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

# Asks in a process of its own what is named on its command line, of the GPU of that index.
ASKS = """
import json, sys
import pynvml
from pynvml import *

def told(value):
    if isinstance(value, list):
        return sorted([one.pid, one.usedGpuMemory] for one in value)
    return {name: getattr(value, name) for name, *_ in value._fields_} if hasattr(value, "_fields_") else value

def ask(line):
    name, _, rest = line.partition(" ")
    try:
        return told(getattr(pynvml, name)(nvmlDeviceGetHandleByIndex(int(sys.argv[1])), *json.loads(rest or "[]")))
    except NVMLError as error:
        return f"error {error.value}"

nvmlInit()
print(json.dumps([ask(line) for line in sys.argv[2:]]))
nvmlShutdown()
"""
V2 = f"nvmlDeviceGetMemoryInfo [{pynvml.nvmlMemory_v2}]"


@dataclass(kw_only=True)
class Inside:
    """What a program in the container sees."""

    container: Container
    driver: FakeNvml
    library: Path

    def ask(self, *questions: str, gpu: int = 0) -> list[Any]:
        """The answers of nvidia-ml-py."""
        environment = self.driver.environment() | {"LD_LIBRARY_PATH": str(self.library)}
        command = [sys.executable, "-c", ASKS, str(gpu), *questions]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        answers: list[Any] = json.loads(done.stdout)
        return answers


@pytest.fixture
def inside(world: World, tmp_path: Path, isolation_cache: Path) -> Inside:
    """A container with 4 GiB of the first of two GPUs, on which others have processes too."""
    driver = FakeNvml(library=build_library(cache=isolation_cache), folder=tmp_path)
    driver.install([KNOWN_MODELS["L4"]] * 2)
    driver.gpus[0].uuid = gpu_uuid(0)
    driver.start_process(gpu=0, pid=4242, memory_mib=9_000, sm_percent=70)
    driver.start_process(gpu=0, pid=4243, memory_mib=50, kind="graphics")
    container = world.container(memory_mib=4_096)
    return Inside(container=container, driver=driver, library=container.nvml(driver=driver.library))


def test_memory_is_the_slices(inside: Inside) -> None:
    """Total, used and free in both versions, as cuMemGetInfo tells them: what others hold of the card is not seen."""
    total = 4_096 * MIB
    empty = {"total": total, "free": total, "used": 0}
    assert inside.ask("nvmlDeviceGetMemoryInfo") == [empty]
    tenant = inside.container.run().started()
    tenant.ask(f"take linear {1_000 * MIB}")
    used = CONTEXT + 1_000 * MIB
    first, second = inside.ask("nvmlDeviceGetMemoryInfo", V2)
    assert first == {"total": total, "free": total - used, "used": used}
    assert second == first | {"version": pynvml.nvmlMemory_v2, "reserved": 0}
    assert tenant.ask("info").split()[1:3] == [str(total - used), str(total)]
    tenant.close()
    assert inside.ask("nvmlDeviceGetMemoryInfo") == [empty]


def test_processes_are_the_containers_own(inside: Inside, world: World) -> None:
    """With what each holds; neither those of another container nor what the driver lists of the card."""
    kinds = [
        *((kind, version) for kind in ("Compute", "Graphics") for version in ("_v2", "_v3")),
        ("MPSCompute", "_v3"),
    ]
    asked = [f"nvmlDeviceGet{kind}RunningProcesses{version}" for kind, version in kinds]
    assert inside.ask(*asked) == [[]] * len(asked)
    tenants = [inside.container.run().started() for _ in range(12)]
    world.container(memory_mib=500).run().started()
    tenants[0].ask(f"take linear {100 * MIB}")
    holds = sorted([one.process.pid, CONTEXT + (one is tenants[0]) * 100 * MIB] for one in tenants)
    assert inside.ask(*asked) == [holds if "Compute" in name and "MPS" not in name else [] for name in asked]


def test_all_else_is_the_drivers(inside: Inside) -> None:
    """Functions that are not ours, what the driver lacks, and GPUs that are not of the slice."""
    name, power, lacks, used = inside.ask(
        "nvmlDeviceGetName", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetSerial", "nvmlDeviceGetUtilizationRates"
    )
    assert (name, power, used["gpu"]) == ("NVIDIA L4", inside.driver.gpus[0].power_milliwatts, 0)
    assert lacks == f"error {pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}"
    inside.driver.start_process(gpu=1, pid=77, memory_mib=300)
    memory, listed = inside.ask("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses", gpu=1)
    assert memory["total"] == KNOWN_MODELS["L4"].memory_total_mib * MIB
    assert listed == [[77, 300 * MIB]]


def test_the_drivers_errors_stay_its_own(inside: Inside) -> None:
    """A GPU that fails is not made well by what the account says."""
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUUID"):
        inside.driver.fault(function=function, code=pynvml.NVML_ERROR_UNKNOWN)
    memory, second, listed = inside.ask("nvmlDeviceGetMemoryInfo", V2, "nvmlDeviceGetComputeRunningProcesses")
    assert (memory, second) == (f"error {pynvml.NVML_ERROR_UNKNOWN}",) * 2
    assert listed == [[4242, 9_000 * MIB]], "a GPU without a uuid is none of the slice's"


def test_limits_that_change_are_seen_at_once(inside: Inside) -> None:
    """A program that watches sees what the agent has written last, and what it found beyond the account."""
    limits = inside.container.gpus[0]
    inside.container.set(
        type(limits)(uuid=limits.uuid, memory=2_000 * MIB, context=0, guarantee=1, rate=1, unaccounted=7)
    )
    assert inside.ask("nvmlDeviceGetMemoryInfo") == [{"total": 2_000 * MIB, "free": 2_000 * MIB - 7, "used": 7}]


def test_the_library_needs_nothing_but_libc_and_the_drivers(inside: Inside) -> None:
    """In versions of the C library that images of 2017 have; and it shows nothing but functions of NVML."""
    library = inside.library / "libnvidia-ml.so.1"
    told = subprocess.run(["objdump", "-p", library], check=True, capture_output=True, text=True, timeout=60).stdout
    needed = re.findall(r"NEEDED\s+(\S+)", told)
    assert needed[0] == str(inside.driver.library)
    assert set(needed[1:]) <= {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    assert max(tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", told)) <= (2, 17)
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True, timeout=60
    )
    assert {line.split()[-1].startswith("nvmlDeviceGet") for line in shown.stdout.splitlines()} == {True}
