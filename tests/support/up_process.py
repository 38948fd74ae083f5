"""`aliquot up` as its users run it: a real process in a folder of its own, and a client of its API server."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aliquot_core.names import Names
from aliquot_kube.plain import plain_server
from aliquot_standalone.home import Home
from support.http_api import HttpApi, Json

NAMES = Names()
PODS = "/api/v1/namespaces/default/pods"
ALIQUOT = [sys.executable, "-m", "aliquot_cli.main"]
# One node on the full path, and none that is simulated: what most tests need.
ONE = "8xA100-80GB"
_PATIENCE = 60.0


class Up:
    """A running `aliquot up`."""

    def __init__(self, *, process: subprocess.Popen[str], home: Home, said: str) -> None:
        """`said` is what it printed until it was ready."""
        self.process = process
        self.said = said
        self.home = home
        server = plain_server(home.kubeconfig)
        assert server
        self.api = HttpApi(url=server.url, token=server.token)

    def run(self, name: str, *command: str, compute: str = "30", **spec: Any) -> Json:
        """Create a pod that asks for a slice."""
        limits = {NAMES.compute: compute, NAMES.memory: "8000"}
        container = {"name": "main", "image": "none", "command": list(command), "resources": {"limits": limits}}
        body = {
            "metadata": {"name": name},
            "spec": {
                "containers": [container],
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                **spec,
            },
        }
        return self.api.post(PODS, body).ok()

    def pod(self, name: str) -> Json:
        """The pod as it is now."""
        return self.api.get(f"{PODS}/{name}").ok()

    def until(self, name: str, *phases: str) -> Json:
        """Wait until a pod is in one of these phases."""
        with self.api.watch(PODS, fieldSelector=f"metadata.name={name}") as watch:
            while True:
                pod: Json = watch.next()["object"]
                if pod.get("status", {}).get("phase") in phases:
                    return pod

    def log(self, name: str, **query: str) -> str:
        """What a pod has printed."""
        return str(self.api.get(f"{PODS}/{name}/log", **query).body)

    def kill(self, uid: str) -> None:
        """Kill all processes of a pod, as if they had died by themselves."""
        for pid in processes_of(uid):
            os.kill(pid, signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ask it to end; its exit code, also if it was asked before."""
        self.process.send_signal(number)
        return self.process.wait(_PATIENCE)

    def children(self, command: str) -> list[int]:
        """The child processes that run this command of ours."""
        pid = self.process.pid
        ids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(one) for one in ids if command in _words(Path(f"/proc/{one}/cmdline"))]


def _words(cmdline: Path) -> list[str]:
    """A process's command line; nothing of one that has been reaped since it was listed."""
    try:
        return cmdline.read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


@contextlib.contextmanager
def running_up(folder: Path, *flags: str, gpus: str = ONE, environment: Mapping[str, str] = os.environ) -> Iterator[Up]:
    """Run it, wait until it is ready, and kill it in the end if it still lives."""
    argv = [*ALIQUOT, "up", "--folder", str(folder), "--simulate", gpus, "--port", "0", "--page-port", "0", *flags]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout
        told: list[str] = []
        try:
            for line in process.stdout:
                told.append(line)
                if "Ctrl-C ends everything" in line:
                    break
            else:
                raise AssertionError("".join(told))
            yield Up(process=process, home=Home(folder, environment=environment), said="".join(told))
        finally:
            process.kill()
            # Whoever was killed leaves its containers; a test that wants them ends its block after the next run.
            process.stdout.close()
            process.wait()
            _remove_empty_groups(folder)


def _remove_empty_groups(folder: Path) -> None:
    """Whoever was killed leaves its nodes' cgroups too, which lie outside of its folder."""
    for record in folder.glob("nodes/*/cgroup"):
        with contextlib.suppress(OSError):  # somebody lives there, or it is gone
            Path(record.read_text()).rmdir()


def aliquot(
    *argv: str, folder: Path, seconds: float = _PATIENCE, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Call a command of ours that finds its API server in a folder."""
    told = {**environment, "ALIQUOT_HOME": str(folder)}
    return subprocess.run([*ALIQUOT, *argv], env=told, capture_output=True, text=True, check=False, timeout=seconds)


@contextlib.contextmanager
def calling(*argv: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Call a command that goes on; killed in the end if it still does."""
    environment = {**os.environ, "ALIQUOT_HOME": str(folder)}
    argv = (*ALIQUOT, *argv)
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def naming(folder: Path) -> list[str]:
    """Processes that name something below a folder, in their command line or environment: what is left behind."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended between two looks
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            if str(folder).encode() in text and int(entry.name) != os.getpid():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


def processes_of(uid: str) -> list[int]:
    """The processes of a pod's container."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended between two looks
            if f".{uid}.main.".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return sorted(found)


def gone(pids: Sequence[int]) -> bool:
    """Whether all these processes end soon; they need be nobody's children."""
    for pid in pids:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        # Readable once the process has ended.
        ended = bool(select.select([process], [], [], _PATIENCE)[0])
        os.close(process)
        if not ended:
            return False
    return True


def eventually(holds: Callable[[], bool], *, seconds: float = _PATIENCE) -> None:
    """Look at something that tells nobody when it changes."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
