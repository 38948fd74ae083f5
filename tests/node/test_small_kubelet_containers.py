"""Containers as processes: exit codes, signals, leftovers, and finding them again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from aliquot_standalone.kubelet.containers import Ended, Launch, LocalProcesses, marked
from aliquot_standalone.kubelet.errors import ProcessError
from aliquot_standalone.kubelet.lifecycle import Process
from support.http_api import LONG_S
from support.pipes import Pipe


def launch(folder: Path, *argv: str, name: str = "c", **env: str) -> Launch:
    """A launch below a folder."""
    return Launch(
        id=f"{folder.name}.{name}",
        argv=argv,
        env={"PATH": os.environ["PATH"], **env},
        folder=folder / "work",
        log_file=folder / "logs" / f"{name}.log",
        exit_file=folder / f"{name}.exit",
    )


def shell(folder: Path, script: str, **env: str) -> Launch:
    """A launch of a shell script."""
    return launch(folder, "sh", "-c", script, **env)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Callable[[str], Pipe]]:
    """Makes named pipes in the container's folder."""
    with contextlib.ExitStack() as stack:

        def make(name: str) -> Pipe:
            (tmp_path / "work").mkdir(exist_ok=True)
            made = Pipe(tmp_path / "work" / name)
            stack.callback(made.close)
            return made

        yield make


async def run(order: Launch) -> Ended:
    """Start and wait."""
    runtime = LocalProcesses()
    return await runtime.wait(runtime.start(order), order.exit_file)


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("exit 0", Ended(0, "Completed")),
        ("exit 7", Ended(7, "Error")),
        ("kill -KILL $$", Ended(137, "Error")),
        ("kill -TERM $$", Ended(143, "Error")),
    ],
)
async def test_exit_codes_are_what_a_container_would_show(tmp_path: Path, script: str, ended: Ended) -> None:
    """The command's own code, or 128 and the signal that ended it."""
    assert await run(shell(tmp_path, script)) == ended


async def test_process_has_its_environment_folder_session_and_log(tmp_path: Path, pipe: Callable[[str], Pipe]) -> None:
    """It sees the given variables only, works in its own folder and session, and both outputs go to its log."""
    order = shell(tmp_path, 'read x <go; echo "$GREETING ${HOME-none}"; pwd; echo oops >&2', GREETING="a  b")
    go = pipe("go")
    runtime = LocalProcesses()
    process = runtime.start(order)
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    go.tell()
    await runtime.wait(process, order.exit_file)
    assert order.log_file.read_text().splitlines() == ["a  b none", str(tmp_path / "work"), "oops"]


async def test_missing_program_is_told_before_anything_starts(tmp_path: Path) -> None:
    """A command that does not exist is an error with its name."""
    with pytest.raises(ProcessError, match="no program 'no-such-program'"):
        LocalProcesses().start(launch(tmp_path, "no-such-program"))


async def test_sigterm_reaches_the_command_and_its_own_end_counts(tmp_path: Path, pipe: Callable[[str], Pipe]) -> None:
    """A command that handles SIGTERM ends with the code it chose."""
    order = shell(tmp_path, "trap 'exit 5' TERM; echo >ready; while :; do sleep 0.01; done")
    ready = pipe("ready")
    runtime = LocalProcesses()
    process = runtime.start(order)
    await ready.heard()
    runtime.signal(process, signal.SIGTERM)
    assert await runtime.wait(process, order.exit_file) == Ended(5, "Error")


async def test_sigkill_ends_what_ignores_sigterm(tmp_path: Path, pipe: Callable[[str], Pipe]) -> None:
    """A command that ignores SIGTERM lives on until SIGKILL."""
    order = shell(tmp_path, "trap '' TERM; echo >ready; read x <go; echo >alive; sleep 1000")
    ready, go, alive = pipe("ready"), pipe("go"), pipe("alive")
    runtime = LocalProcesses()
    process = runtime.start(order)
    await ready.heard()
    runtime.signal(process, signal.SIGTERM)
    go.tell()
    await alive.heard()
    runtime.signal(process, signal.SIGKILL)
    assert await runtime.wait(process, order.exit_file) == Ended(137, "Error")
    assert marked(process.id) == []


@pytest.mark.parametrize("script", ["sleep 1000 &", "setsid sleep 1000 & :"])
async def test_nothing_outlives_its_container(tmp_path: Path, script: str) -> None:
    """Children left behind, in the group or in a session of their own, are killed with the command's end."""
    order = shell(tmp_path, f"{script}\necho gone")
    assert await run(order) == Ended(0, "Completed")
    assert marked(order.id) == []


async def test_child_without_the_mark_is_killed_with_its_group(tmp_path: Path, pipe: Callable[[str], Pipe]) -> None:
    """A child that threw its environment away but stayed in the group does not outlive the command either."""
    script = 'env -i sh -c "echo \\$\\$ >pid; echo >ready; sleep 1000" & read x <go'
    order, ready, go = shell(tmp_path, script), pipe("ready"), pipe("go")
    runtime = LocalProcesses()
    process = runtime.start(order)
    await ready.heard()
    descriptor = os.pidfd_open(int((order.folder / "pid").read_text()))
    go.tell()
    await runtime.wait(process, order.exit_file)
    assert select.select([descriptor], [], [], LONG_S)[0] == [descriptor]
    os.close(descriptor)


async def test_found_again_by_another_runtime(tmp_path: Path, pipe: Callable[[str], Pipe]) -> None:
    """A runtime that did not start the process, as after a restart, learns its exit code all the same."""
    order = shell(tmp_path, "echo >ready; read x <go; exit 9")
    ready, go = pipe("ready"), pipe("go")
    process = LocalProcesses().start(order)
    waiting = asyncio.create_task(LocalProcesses().wait(process, order.exit_file))
    await ready.heard()
    assert not waiting.done()
    go.tell()
    assert await waiting == Ended(9, "Error")


async def test_child_of_a_dead_process_is_followed(tmp_path: Path, pipe: Callable[[str], Pipe]) -> None:
    """The exit code of a process whose starter is gone, so that nobody's child it is, is known all the same."""
    order, go = shell(tmp_path, "read x <go; exit 8"), pipe("go")
    code = """
        import os, sys, msgspec
        from aliquot_standalone.kubelet.containers import Launch, LocalProcesses
        launch = msgspec.json.decode(sys.argv[1], type=Launch, dec_hook=lambda kind, text: kind(text))
        sys.stdout.buffer.write(msgspec.json.encode(LocalProcesses().start(launch)))
        sys.stdout.flush()
        os._exit(1)
    """
    starter = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        textwrap.dedent(code),
        msgspec.json.encode(order, enc_hook=str),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await starter.communicate()
    process = msgspec.json.decode(output, type=Process)
    waiting = asyncio.create_task(LocalProcesses().wait(process, order.exit_file))
    assert LocalProcesses().find(order.id) == process
    go.tell()
    assert await waiting == Ended(8, "Error")
    assert LocalProcesses().find(order.id) is None


async def test_long_gone_is_known_by_its_exit_file(tmp_path: Path) -> None:
    """What ended while nobody looked has its code; without the file it is lost, and that is said."""
    order = shell(tmp_path, "exit 3")
    assert await run(order) == Ended(3, "Error")
    gone = Process(id=order.id, pid=2**22 - 1, born="never")
    assert await LocalProcesses().wait(gone, order.exit_file) == Ended(3, "Error")
    order.exit_file.unlink()
    assert await LocalProcesses().wait(gone, order.exit_file) == Ended(137, "ContainerStatusUnknown")


async def test_reused_number_is_not_taken_for_the_container(tmp_path: Path, pipe: Callable[[str], Pipe]) -> None:
    """A live process under the same number but of another birth is neither waited for nor signalled."""
    order = shell(tmp_path, "read x <go; exit 4")
    go = pipe("go")
    runtime = LocalProcesses()
    process = runtime.start(order)
    other = Process(id="somebody.else", pid=process.pid, born="other boot:1")
    runtime.signal(other, signal.SIGKILL)
    assert await runtime.wait(other, tmp_path / "none") == Ended(137, "ContainerStatusUnknown")
    go.tell()
    assert await runtime.wait(process, order.exit_file) == Ended(4, "Error")


async def test_broken_pipe_ends_a_writer(tmp_path: Path) -> None:
    """Python ignores SIGPIPE; a command that inherited that would go on writing to nobody."""
    order = shell(tmp_path, "grep SigIgn /proc/self/status")
    assert await run(order) == Ended(0, "Completed")
    assert int(order.log_file.read_text().split()[1], 16) & 1 << (signal.SIGPIPE - 1) == 0
