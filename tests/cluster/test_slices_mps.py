"""GPUs that are shared by MPS on a real node: its runtime mounts what the daemon listens on, and nothing beside it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_core.inventory import decode_inventory
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.node import Node
from cluster.harness.pods import stays
from cluster.node_half import COMMAND, NAMES, NodeHalf, asks, sharing_pod
from support.fake_nvml import FakeNvml, build_library
from support.mps import StandIn

SHARING = "node9"
INSIDE = "/run/aliquot/mps"
# What each finds of MPS, and what it has in common with its neighbour.
LOOKS = (
    "env | grep CUDA_MPS | sort; touch /dev/shm/of-$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; ls /dev/shm | wc -l;"
    f" test -S {INSIDE}/control && echo listens; echo looked"
)


@pytest.fixture
def node(cluster: ClusterHarness) -> Iterator[Node]:
    """A node for this test."""
    yield cluster.add_node(SHARING)
    cluster.remove_node(SHARING)


@pytest.fixture
def nvml(node: Node, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> FakeNvml:
    """A driver of one GPU."""
    made = FakeNvml(library=build_library(cache=tmp_path_factory.getbasetemp()), folder=tmp_path, node=node.name)
    made.install([KNOWN_MODELS["A100-40GB"]])
    return made


@pytest.fixture
def stand_in(node: Node, nvml: FakeNvml) -> Iterator[StandIn]:
    """What stands for NVIDIA's control program."""
    made = StandIn(home=node.folder, modes=f"{nvml.state}.compute-")
    yield made
    made.close()


@pytest.fixture
def half(cluster: ClusterHarness, node: Node, nvml: FakeNvml, stand_in: StandIn) -> Iterator[NodeHalf]:
    """The node's processes, and who keeps its daemons."""
    told = {"ALIQUOT_MPS_FOLDER": str(node.folder / "mps"), "ALIQUOT_MPS_PROGRAM": str(stand_in.program)}
    keeper = node.start_inside("aliquot-mps", [COMMAND, "mps"], env=nvml.environment() | told)
    half = NodeHalf(
        cluster,
        node,
        gpus="nvml",
        ALIQUOT_AGENT_DRIVER_FILES="simulated",
        ALIQUOT_AGENT_ISOLATION="mps",
        ALIQUOT_AGENT_MPS_FOLDER=str(node.folder / "mps"),
        **nvml.environment(),
    )
    half.start()
    yield half
    half.stop()
    keeper.stop()


def pid_of(cluster: ClusterHarness, node: Node, made: Json) -> int:
    """The process of a pod's container, once that runs."""
    status = cluster.wait_for_phase(made, "Running")["status"]["containerStatuses"][0]
    return node.pids_of_containers()[status["containerID"].removeprefix("containerd://")]


def wait_looked(cluster: ClusterHarness, made: Json) -> None:
    """Wait until its container has said what it finds."""
    cluster.wait_for("the container to have looked", lambda: "looked" in cluster.logs(made) or None)


def servers_for(pid: int) -> str | None:
    """What the daemon answers to a container that asks who serves; None where nobody listens."""
    try:
        with socket.socket(socket.AF_UNIX) as speaking:
            speaking.connect(f"/proc/{pid}/root{INSIDE}/control")
            speaking.sendall(b"get_server_list\n")
            return speaking.recv(1000).decode().strip("\0\n")
    except OSError:
        return None


def wait_offered(cluster: ClusterHarness) -> None:
    """Wait until the node's GPU is one of MPS."""

    def offered() -> bool | None:
        note = cluster.api.get(f"/api/v1/nodes/{SHARING}")["metadata"]["annotations"].get(NAMES.inventory)
        return (note is not None and [one.isolation for one in decode_inventory(note).gpus] == [["mps"]]) or None

    cluster.wait_for("MPS to be offered", offered)


def test_containers_speak_to_their_daemon_and_share_nothing_else(
    cluster: ClusterHarness, half: NodeHalf, node: Node, stand_in: StandIn, namespace: str
) -> None:
    """Two on one GPU: limits of their own, a /dev/shm of their own; agents and daemons are replaced under them."""
    gpu = half.gpu(0)
    wait_offered(cluster)
    pods = [
        half.run(
            sharing_pod(namespace, stays(LOOKS, limits=asks(percent, mib))),
            {"main": [(0, percent, mib)]},
            isolation="mps",
        )
        for percent, mib in ((30, 3_000), (40, 5_000))
    ]
    pids = [pid_of(cluster, node, made) for made in pods]
    for made, percent, mib in zip(pods, (30, 40), (3_000, 5_000), strict=True):
        wait_looked(cluster, made)
        assert cluster.logs(made).splitlines() == [
            f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percent}",
            f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={mib}M",
            f"CUDA_MPS_PIPE_DIRECTORY={INSIDE}",
            "1",
            "listens",
            "looked",
        ]
    before = stand_in.pid(gpu)
    assert before is not None
    served = stand_in.say(gpu, "stand-in: come 11 0 30 0=3000M").split()[-1]
    assert [servers_for(pid) for pid in pids] == [served] * 2
    half.agent.stop()
    half.start_agent()
    wait_offered(cluster)
    assert (stand_in.pid(gpu), [servers_for(pid) for pid in pids]) == (before, [served] * 2)
    os.kill(before, signal.SIGKILL)
    cluster.wait_for("another daemon", lambda: [servers_for(pid) for pid in pids] == ["", ""] or None)
    assert stand_in.pid(gpu) != before
