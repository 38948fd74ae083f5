"""However a cluster ends, nothing of it is left on the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.harness import leftovers
from cluster.harness.cluster import ClusterHarness, Options
from cluster.harness.errors import ComponentError
from cluster.harness.pods import pod, shell
from cluster.harness.waiting import wait_until

pytestmark = pytest.mark.usefixtures("able_machine")

ONE_NODE = Options(nodes=("node1",))

# A cluster with a running pod, made by a process that we can kill. It prints the folder and then stays.
STAYS = """
import sys
from cluster.harness.cluster import ClusterHarness, Options
from cluster.harness.pods import pod, shell

with ClusterHarness(Options(nodes=("node1",))) as cluster:
    created = cluster.create_pod(pod("stays", shell("exec sleep 1000"), namespace=cluster.make_namespace()))
    cluster.wait_for_phase(created, "Running")
    print(cluster.folder, flush=True)
    sys.stdin.read()
"""


def traces(folder: Path, containers: list[str]) -> list[str]:
    """What is left of a cluster: processes, mounts, cgroups, files."""
    processes = [f"process {pid}: {command_of(pid)}" for pid in leftovers.processes_of(folder)]
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if folder.name in line]
    # Not by a glob: it fails where a folder goes away under it, as these do.
    cgroups = [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if Path(folder).name in containers]
    return [*processes, *mounts, *cgroups, *([str(folder)] if folder.exists() else [])]


def command_of(pid: int) -> str:
    """What runs there, if it has not ended since it was found."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return "ended meanwhile"


def containers_of(folder: Path) -> list[str]:
    """The ids of the containers that containerd holds on the nodes of the cluster in this folder."""
    return [path.name for path in folder.glob("nodes/*/run/containerd/io.containerd.runtime.v2.task/k8s.io/*")]


def test_stopped_cluster_leaves_nothing() -> None:
    """After a stop with a pod still running there is no process, mount, cgroup or file of the cluster."""
    with ClusterHarness(ONE_NODE) as cluster:
        created = cluster.create_pod(pod("stays", shell("exec sleep 1000"), namespace=cluster.make_namespace()))
        cluster.wait_for_phase(created, "Running")
        containers = containers_of(cluster.folder)
        assert len(containers) == 2  # the sandbox and the container: what we look for below was really there
        assert len(traces(cluster.folder, containers)) > 10
    assert traces(cluster.folder, containers) == []


def test_killed_harness_leaves_nothing() -> None:
    """When the test run itself is killed, its guardian ends what is left."""
    search = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", STAYS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=search
    ) as harness:
        assert harness.stdout is not None
        folder = Path(harness.stdout.readline().strip())
        containers = containers_of(folder)
        assert len(containers) == 2
        harness.send_signal(signal.SIGKILL)
    wait_until("nothing to be left", lambda: not traces(folder, containers), timeout=90)


def test_cluster_that_cannot_start_says_why_and_leaves_nothing() -> None:
    """A component that ends at its start is named with its log, at once, and the rest is stopped."""
    cluster = ClusterHarness(Options(nodes=("node1",), api_server_flags=("--no-such-flag",)))
    with pytest.raises(
        ComponentError, match=r"(?s)kube-apiserver ended with exit code 1 .*unknown flag: --no-such-flag"
    ):
        cluster.__enter__()
    assert traces(cluster.folder, []) == []


def test_abandoned_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A work folder counts as abandoned only when its owner is gone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder, owner = leftovers.make_folder()
    with owner:
        assert list(leftovers.abandoned_folders()) == []
    assert list(leftovers.abandoned_folders()) == [folder]
