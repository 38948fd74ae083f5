"""`aliquot up --demo`, as a newcomer runs it: real processes, real gRPC, simulated GPUs."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.endpoints import short_folder

UP = [sys.executable, "-m", "aliquot_cli.main", "up"]


def left_behind(root: Path) -> list[str]:
    """Processes that still name something below this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it ended between two looks
        if str(root).encode() in text and int(entry.name) != os.getpid():
            found.append((entry / "cmdline").read_text())
    return found


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """An environment whose temporary folder tells our processes from others; short, for unix sockets."""
    with short_folder() as root:
        yield {**os.environ, "TMPDIR": str(root)}


@pytest.mark.timeout(60)
def test_the_demonstration_gives_slices_and_leaves_nothing_behind(environment: dict[str, str]) -> None:
    """Each pod prints its own slice, too much is held back with the reason, and a dead agent costs nobody a pod."""
    done = subprocess.run([*UP, "--demo", "--leave"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"notebook-anna .*says: GPU-\S+, 30 % of compute, 8000 MiB", done.stdout)
    assert re.search(r"training .*says: GPU-\S+,GPU-\S+,GPU-\S+, 250 % of compute, 80000 MiB", done.stdout)
    assert re.search(r"greedy +is held: .*over-granted: 110 % of 100 % compute", done.stdout)
    assert re.search(r"late +runs \d+\.\d s after it arrived: GPU-\S+, 25 % of compute, 4000 MiB", done.stdout)
    assert left_behind(Path(environment["TMPDIR"])) == []
    assert list(Path(environment["TMPDIR"]).iterdir()) == []


def test_the_demonstration_is_told_on_smaller_cards_too(environment: dict[str, str]) -> None:
    """With as much smaller wishes: a model of 16 GB is as good for the story as one of 80."""
    done = subprocess.run(
        [*UP, "--demo", "--leave", "--simulate", "6xT4"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"greedy +is held: .*over-granted", done.stdout)
    assert re.search(r"late +runs \d+\.\d s after it arrived", done.stdout)


def test_too_few_gpus_for_the_demonstration_are_refused_at_once() -> None:
    """Not after half a minute, with a pod that is pending for no reason that is told."""
    done = subprocess.run([*UP, "--demo", "--simulate", "2xL4"], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == "aliquot: --simulate: the demonstration needs 6 GPUs; write 6 or more, or leave --demo out\n"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything(environment: dict[str, str], number: signal.Signals) -> None:
    """Ctrl-C leaves no process and no file."""
    with subprocess.Popen([*UP, "--stay"], env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        lines = iter(running.stdout.readline, "")
        assert any("Ctrl-C ends everything" in line for line in lines)
        running.send_signal(number)
        assert running.wait() == 0
    assert left_behind(Path(environment["TMPDIR"])) == []
    assert list(Path(environment["TMPDIR"]).iterdir()) == []


def test_a_start_that_fails_says_why_and_ends(tmp_path: Path) -> None:
    """A folder too deep for unix sockets is told, not waited in."""
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    done = subprocess.run(
        [*UP, "--leave"], env={**os.environ, "TMPDIR": str(deep)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "set TMPDIR to a folder with a shorter path" in done.stderr
    assert list(deep.iterdir()) == []


def test_what_up_started_does_not_outlive_it(environment: dict[str, str]) -> None:
    """Not even when it is killed."""
    with subprocess.Popen([*UP, "--stay"], env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert any("Ctrl-C ends everything" in line for line in iter(running.stdout.readline, ""))
        started = [*children(running.pid, command="agent"), *children(running.pid, command="endpoint")]
        watched = [os.pidfd_open(pid) for pid in started]
        running.kill()
    assert len(watched) == 2
    for process in watched:
        # Readable once the process has ended.
        assert select.select([process], [], [], 20)[0]
        os.close(process)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("victim", ["agent", "endpoint"])
def test_a_process_that_ends_by_itself_ends_all_with_its_last_words(environment: dict[str, str], victim: str) -> None:
    """Nobody is left before a node that no longer works."""
    with subprocess.Popen(
        [*UP, "--stay"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert any("Ctrl-C ends everything" in line for line in iter(running.stdout.readline, ""))
        (pid,) = children(running.pid, command=victim)
        os.kill(pid, signal.SIGKILL)
        _, told = running.communicate()
    assert running.returncode == 4
    assert f"the {victim} has ended by itself" in told
    assert "Traceback" not in told
    assert left_behind(Path(environment["TMPDIR"])) == []


def children(parent: int, *, command: str) -> list[int]:
    """The child processes that run this command of ours."""
    ids = (Path(f"/proc/{parent}/task/{parent}/children").read_text()).split()
    return [int(pid) for pid in ids if command.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("8xH1000", "no model"),
        ("two", "known"),
        ("2x8xA100-80GB", "this version runs one"),
        ("99xL40S", "write 1 to 16"),
    ],
)
def test_gpus_that_can_not_be_simulated_are_refused(spec: str, reason: str) -> None:
    """One line says what is wrong and what to write, and the exit code that it is the user's to mend."""
    done = subprocess.run([*UP, "--simulate", spec], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("aliquot: ")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
