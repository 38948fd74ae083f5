"""MPS on one machine: `aliquot up` itself, on a fake NVML and with a stand-in for NVIDIA's control program."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from aliquot_agent.isolation.gpu_modes import Use
from aliquot_core.grant import decode_grant
from aliquot_kube.clock import SystemClock
from aliquot_standalone.home import Home
from support.endpoints import short_folder
from support.fake_nvml import FakeNvml
from support.gpu_contract import MODELS
from support.http_api import Json
from support.mps import StandIn
from support.up_process import NAMES, Up, aliquot, eventually, gone, naming, processes_of, running_up

pytestmark = [pytest.mark.native, pytest.mark.timeout(300)]

_OPEN, _CLOSED = "0", "3"
# What NVML answers to who is not root.
_NO_PERMISSION = 4
_NOT_ROOT = "nvmlDeviceSetComputeMode answers 4 (Insufficient Permissions); it takes root"
_PRINTS = "env | grep CUDA_MPS | sort; echo told; exec sleep 1000"


class Machine:
    """One with GPUs that are shared by MPS."""

    def __init__(self, *, root: Path, library: Path) -> None:
        self.home = root / "home"
        (root / "nvml").mkdir()
        self.nvml = FakeNvml(library=library, folder=root / "nvml")
        self.nvml.install(MODELS)
        daemons = Home(self.home, environment=os.environ).mps
        self.stand_in = StandIn(home=root, modes=f"{self.nvml.state}.compute-", daemons=daemons)
        settings = root / "aliquot.toml"
        # The fake NVML is a driver's library only: of a real driver containers need more.
        settings.write_text(
            f'[agent]\ndriver_files = "simulated"\nisolation = "mps"\n[mps]\nprogram = "{self.stand_in.program}"\n'
        )
        self.environment = {**os.environ, **self.nvml.environment(), "ALIQUOT_CONFIG": str(settings)}

    def up(self) -> AbstractContextManager[Up]:
        """Run `aliquot up`."""
        return running_up(self.home, gpus="nvml", environment=self.environment)

    def end_daemons(self) -> None:
        """All that were left, also those of a folder that is gone."""
        for gpu in self.nvml.gpus:
            self.stand_in.control(gpu.uuid, clock=SystemClock()).kill()

    def mode(self, gpu: str) -> str:
        """The GPU's compute mode."""
        return Path(f"{self.nvml.state}.compute-{gpu}").read_text().strip()


@pytest.fixture
def machine(fake_nvml_library: Path) -> Iterator[Machine]:
    """One whose every process and daemon has ended with the test."""
    with short_folder() as root:
        machine = Machine(root=root, library=fake_nvml_library)
        yield machine
        left = naming(root)
        if left:
            aliquot("down", folder=machine.home, environment=machine.environment)
            machine.end_daemons()
        assert left == []


@contextmanager
def sharing(machine: Machine, **spec: str) -> Iterator[tuple[Up, str, int]]:
    """`aliquot up` with a pod that has 30 % of a GPU: it, the GPU and its daemon."""
    with machine.up() as up:
        pod = shared(up, **spec)
        (part,) = decode_grant(pod["metadata"]["annotations"][NAMES.grant]).containers["main"].slices
        gpu = part.gpu
        daemon = machine.stand_in.pid(gpu)
        assert daemon is not None
        yield up, gpu, daemon


def shared(up: Up, **spec: str) -> Json:
    """A pod that runs beside others by MPS."""
    up.run("shared", "sh", "-c", _PRINTS, **spec)
    pod = up.until("shared", "Running", "Failed")
    assert pod["status"]["phase"] == "Running"
    eventually(lambda: "told" in up.log("shared"))
    return pod


def test_a_pod_is_a_client_of_its_gpus_daemon(machine: Machine) -> None:
    """Variables and folder as on a cluster; a GPU that nobody holds is open, and Ctrl-C ends daemons and opens GPUs."""
    with sharing(machine) as (up, gpu, daemon):
        pipe = machine.stand_in.folder.pipe(gpu)
        assert up.log("shared").splitlines() == [
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8000M",
            f"CUDA_MPS_PIPE_DIRECTORY={pipe}",
            "told",
        ]
        # The folder that it is told is where the daemon listens.
        assert (pipe / "control").is_socket()
        assert machine.stand_in.say(gpu, "stand-in: come 11 0 30 0=8000M").startswith("served by")
        assert machine.mode(gpu) == _CLOSED
        up.run("whole", "sleep", "1000", compute="100")
        up.until("whole", "Running")
        assert len(machine.stand_in.folder.gpus()) == 2
        assert up.stop() == 0
        assert gone([daemon])
        assert machine.mode(gpu) == _OPEN
        assert not machine.stand_in.folder.gpus()


def replace(up: Up, command: str) -> None:
    """Kill the child that runs this command, and wait for the next."""
    before = up.children(command)
    os.kill(before[0], signal.SIGKILL)
    eventually(lambda: up.children(command) not in ([], before))


def test_a_daemon_outlives_agent_and_keeper(machine: Machine) -> None:
    """Both are started again, and neither takes the daemon along, nor the pod that uses it."""
    with sharing(machine) as (up, gpu, daemon):
        uid = up.pod("shared")["metadata"]["uid"]
        before = processes_of(uid)
        replace(up, "agent")
        replace(up, "mps")
        # A second pod needs both: the agent lets it start when the keeper has said how the GPU is.
        up.run("second", "sleep", "1000")
        up.until("second", "Running")
        assert machine.stand_in.pid(gpu) == daemon
        assert processes_of(uid) == before
        assert up.stop() == 0


def test_what_was_killed_is_found_again(machine: Machine) -> None:
    """The pod goes on with its daemon, and the next run has both."""
    with sharing(machine) as (up, gpu, daemon):
        (keeper,) = up.children("mps")
        uid = up.pod("shared")["metadata"]["uid"]
        up.stop(signal.SIGKILL)
        assert gone([keeper])
        before = processes_of(uid)
        assert before
        assert (machine.stand_in.pid(gpu), machine.mode(gpu)) == (daemon, _CLOSED)
        with machine.up() as again:
            again.run("second", "sleep", "1000")
            again.until("second", "Running")
            assert (machine.stand_in.pid(gpu), processes_of(uid)) == (daemon, before)
            assert machine.stand_in.folder.wanted(gpu) is Use.SHARED
            assert again.stop() == 0
        assert gone([daemon])


def test_after_a_reboot_a_pod_that_restarts_has_a_daemon_again(machine: Machine) -> None:
    """All processes are gone and the GPU is open, only files are left: another daemon runs before the pod does."""
    with sharing(machine, restartPolicy="Always") as (up, gpu, daemon):
        uid = up.pod("shared")["metadata"]["uid"]
        assert machine.stand_in.say(gpu, "stand-in: come 11 0 30 0=8000M").startswith("served by")
        up.stop(signal.SIGKILL)
        up.kill(uid)
        machine.end_daemons()
        Path(f"{machine.nvml.state}.compute-{gpu}").write_text(_OPEN)
        assert gone([daemon, *processes_of(uid)])
        with machine.up() as again:
            eventually(lambda: bool(processes_of(uid)))
            # Whoever runs, runs on a GPU that takes its daemon alone.
            assert machine.mode(gpu) == _CLOSED
            assert machine.stand_in.pid(gpu) not in (None, daemon)
            eventually(lambda: again.pod("shared")["status"]["containerStatuses"][0]["restartCount"] == 1)
            assert again.stop() == 0


def test_who_may_not_close_a_gpu_is_told_so(machine: Machine) -> None:
    """As who is not root: the pod waits with that reason, all else goes on, and it starts once it may."""
    for number in range(len(machine.nvml.gpus)):
        machine.nvml.fault(function="nvmlDeviceSetComputeMode", gpu=number, code=_NO_PERMISSION)
    with machine.up() as up:
        (keeper,) = up.children("mps")
        up.run("shared", "sh", "-c", _PRINTS)
        eventually(lambda: _NOT_ROOT in why(up))
        assert up.pod("shared")["status"]["phase"] == "Pending"
        assert up.children("mps") == [keeper]
        machine.nvml.mend()
        up.until("shared", "Running")
        assert up.stop() == 0


def why(up: Up) -> str:
    """What is said of the pod, on its container and by Events."""
    events = up.api.get("/api/v1/namespaces/default/events").ok()["items"]
    return " ".join([str(up.pod("shared")["status"]), *(one["message"] for one in events)])


def test_what_was_killed_ends_where_the_next_run_shares_otherwise(machine: Machine) -> None:
    """Nobody wants its daemon any more, so the GPU takes everybody again while that run is there."""
    with sharing(machine) as (up, gpu, daemon):
        up.stop(signal.SIGKILL)
        with running_up(machine.home, gpus="1xT4", environment=machine.environment) as again:
            assert gone([daemon])
            eventually(lambda: machine.mode(gpu) == _OPEN)
            assert again.stop() == 0


def test_what_was_killed_is_cleared_by_down(machine: Machine) -> None:
    """Daemons end with the pods that had them, and the GPUs take everybody again; a second time there is nothing."""
    with sharing(machine) as (up, gpu, daemon):
        up.stop(signal.SIGKILL)
        done = aliquot("down", folder=machine.home, environment=machine.environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert "ended what it had left of MPS" in done.stdout
        assert gone([daemon])
        assert machine.mode(gpu) == _OPEN
    again = aliquot("down", "--purge", folder=machine.home, environment=machine.environment)
    assert again.returncode == 0
    assert "MPS" not in again.stdout


def test_what_can_not_be_cleared_is_said_and_kept(machine: Machine) -> None:
    """Without NVIDIA's program nobody can tell how a GPU stands: nothing is removed by which it can be found."""
    with sharing(machine) as (up, gpu, daemon):
        up.stop(signal.SIGKILL)
        moved = machine.stand_in.program.rename(machine.stand_in.program.with_name("elsewhere"))
        done = aliquot("down", "--purge", folder=machine.home, environment=machine.environment)
        assert done.returncode != 0
        assert "can't be run" in done.stderr
        assert machine.stand_in.folder.gpus() == [gpu]
        moved.rename(machine.stand_in.program)
        assert aliquot("down", "--purge", folder=machine.home, environment=machine.environment).returncode == 0
        assert gone([daemon])
    assert not machine.home.exists()
