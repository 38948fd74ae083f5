"""The NVML driver in a process of its own, where nvidia-ml-py finds the library by the loader's own rules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.fake_nvml import FakeNvml
from support.gpu_contract import MODELS

_PROGRAM = """
import asyncio, sys
from aliquot_agent.gpus.driver import GpuDriverError
from aliquot_agent.gpus.nvml import NvmlDriver
from aliquot_kube.clock import SystemClock

async def main():
    driver = NvmlDriver(clock=SystemClock())
    try:
        found = await driver.discover()
    except GpuDriverError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    print(*(gpu.uuid for gpu in found.gpus))
    print(len(await driver.usage()), "grpc" in sys.modules)
    if "close" in sys.argv:
        await driver.close()

asyncio.run(main())
"""


def _run(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAKE_NVML", "LD_LIBRARY"))}
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.native
@pytest.mark.parametrize("ending", ["close", "leave"])
def test_a_process_finds_the_library_and_ends_cleanly(fake_nvml_library: Path, tmp_path: Path, ending: str) -> None:
    """The agent's side of a process sees all GPUs, and it ends without a crash, closed or not."""
    nvml = FakeNvml(library=fake_nvml_library, folder=tmp_path)
    nvml.install(MODELS)
    done = _run(ending, environment=nvml.environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*(gpu.uuid for gpu in nvml.gpus), "4", "False"]
    assert nvml.violations() == []


def test_without_the_library_the_error_says_what_to_do(tmp_path: Path) -> None:
    """A machine without libnvidia-ml.so.1 is told so, by name, with the remedy."""
    done = _run(environment={"LD_LIBRARY_PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "DriverMissingError: NVML: libnvidia-ml.so.1 is not found; install" in done.stderr
