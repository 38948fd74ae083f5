"""What a node survives, counted on a real kubelet: its restarts, and the death of the agent.

    .venv/bin/python benchmarks/cluster/survival.py [--restarts 20] [--kills 100]

Needs the real Kubernetes of tests/cluster (`make cluster`) and root. Some eight minutes at full size; every loop is
bounded. Three figures: how long after kubelet.sock appears the kubelet listens to our list; how many of 20 pods, bound
while the kubelet is down, fail (SIGTERM and SIGKILL in turn); how many pods fail that arrive while the agent is killed.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from aliquot_core.names import Names
from cluster.harness.api import Json
from cluster.harness.cluster import ENDED, ClusterHarness, Options
from cluster.harness.pods import shell
from cluster.node_half import NodeHalf, asks, sharing_pod

PODS = 20
KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"


def restarts(cluster: ClusterHarness, half: NodeHalf, *, times: int) -> None:
    """Pods are bound while the kubelet is down; count those that fail, and time the way back to its list."""
    took: list[float] = []
    failed = 0
    for number in range(times):
        sig = signal.SIGTERM if number % 2 else signal.SIGKILL
        half.node.kubelet.stop(sig=sig)
        with cluster.namespace() as namespace:
            pods = [run_small(half, namespace, number=index) for index in range(PODS)]
            half.node.start_kubelet()
            half.node.kubelet.wait_ready()
            failed += count_failed(cluster, pods)
        took.append(listened_after(half))
    print(f"kubelet restarts: {times}, pods bound meanwhile: {times * PODS}, failed: {failed}")
    figures = f"median {statistics.median(took):.0f} ms, max {max(took):.0f} ms (n={len(took)})"
    print(f"kubelet.sock appears -> the kubelet listens to our list: {figures}")


def kills(cluster: ClusterHarness, half: NodeHalf, *, times: int) -> None:
    """The agent is killed again and again while pods arrive; count those that fail."""
    failed = arrived = 0
    began = time.monotonic()
    for _ in range(-(-times // 10)):
        with cluster.namespace() as namespace:
            pods = []
            for number in range(10):
                pods.append(run_small(half, namespace, number=number * 2))
                half.agent.kill()
                half.start_agent()
                pods.append(run_small(half, namespace, number=number * 2 + 1))
            arrived += len(pods)
            failed += count_failed(cluster, pods)
    took = time.monotonic() - began
    print(f"agent killed: {times} times in {took:.0f} s, pods arrived meanwhile: {arrived}, failed: {failed}")


def run_small(half: NodeHalf, namespace: str, *, number: int) -> Json:
    """A pod of ten percent that ends at once."""
    return half.run(sharing_pod(namespace, shell("true", limits=asks(10, 100))), {"main": [(number % 8, 10, 100)]})


def count_failed(cluster: ClusterHarness, pods: list[Json]) -> int:
    """Wait until all have ended; how many did not end well."""

    def phases() -> list[str] | None:
        found = [str(cluster.current(pod)["status"].get("phase")) for pod in pods]
        return found if all(phase in ENDED for phase in found) else None

    found = cluster.wait_for("all pods to end", phases, timeout=120)
    for pod, phase in zip(pods, found, strict=True):
        if phase != "Succeeded":
            status = cluster.current(pod)["status"]
            print(f"  failed: {status.get('reason')} {status.get('message')}", flush=True)
    return sum(phase != "Succeeded" for phase in found)


def listened_after(half: NodeHalf) -> float:
    """Milliseconds from the birth of kubelet.sock to the endpoint's line that the kubelet listens."""
    born = half.node.path(KUBELET_SOCKET).stat().st_mtime
    lines = half.logged("endpoint", resource=Names().compute, message="listened to")
    heard = datetime.fromisoformat(str(lines[-1]["time"])).timestamp()
    return (heard - born) * 1000


def main() -> None:
    """Run all parts on one cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--kills", type=int, default=100)
    chosen = parser.parse_args()
    with ClusterHarness(Options(nodes=("node1",))) as cluster:
        half = NodeHalf(cluster, cluster.node("node1"))
        half.start()
        restarts(cluster, half, times=chosen.restarts)
        kills(cluster, half, times=chosen.kills)
        half.stop()


if __name__ == "__main__":
    main()
