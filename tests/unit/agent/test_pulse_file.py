"""Whether a process without a port turns is answered by the age of a file."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aliquot_agent import pulse_file
from aliquot_agent.pulse_file import EVERY, PulseFile, ailment
from support.clocks import VirtualClock

PROBE = [sys.executable, "-m", pulse_file.__name__]


async def test_a_loop_that_turns_is_heard(tmp_path: Path) -> None:
    """Again and again, by a file that an earlier process left, or that anybody may have taken away."""
    clock, path = VirtualClock(), tmp_path / "pulse"
    path.touch()
    os.utime(path, (0, 0))
    keeping = asyncio.ensure_future(PulseFile(path).keep(clock=clock))
    for _ in range(3):
        await clock.advance(EVERY)
        assert path.stat().st_mtime > 0
        path.unlink()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


@pytest.mark.parametrize(("silent", "told"), [(29.0, ""), (31.0, "its loop was not heard for 31 s")])
def test_silence_is_told_from_a_limit_on(silent: float, told: str, tmp_path: Path) -> None:
    """By the age of the last beat."""
    path = tmp_path / "pulse"
    PulseFile(path).beat()
    assert ailment(str(path), allowed=30.0, now=path.stat().st_mtime + silent) == told


def test_a_beat_that_can_t_be_written_is_silence(tmp_path: Path) -> None:
    """It ends no process; whoever asks is told that nothing was heard."""
    path = tmp_path / "nowhere" / "pulse"
    PulseFile(path).beat()
    assert ailment(str(path), allowed=30.0, now=0.0).startswith("nothing was heard of it")


def test_a_probe_is_answered_by_its_exit_code(tmp_path: Path) -> None:
    """As the kubelet asks it."""
    path = tmp_path / "pulse"
    asked = subprocess.run([*PROBE, str(path), "30"], capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stderr.partition(":")[0]) == (1, "nothing was heard of it")
    PulseFile(path).beat()
    assert subprocess.run([*PROBE, str(path), "3600"], check=False).returncode == 0
