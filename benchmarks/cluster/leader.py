"""How long nobody is placed when the leading centre dies, and when it leaves in order; how soon a cordon counts.

    .venv/bin/python benchmarks/cluster/leader.py [--times 5]

Two replicas, a real API server and kube-scheduler, played nodes. kube-scheduler asks the second replica, which passes
calls on while the first leads; a Service would do that by itself. Needs what tests/cluster needs (`make cluster`).
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from cluster.centre_half import CentreHalf, Replica
from cluster.harness import binaries, requirements
from cluster.harness.cluster import ClusterHarness, Options
from cluster.played_gpus import add_gpu_nodes, bindings_seen, sharing, slices_per_gpu

NODES = 20


class Stage:
    """Two replicas of which the first leads, and nodes with room for all."""

    def __init__(self, cluster: ClusterHarness) -> None:
        self.cluster = cluster
        self.half = CentreHalf(cluster)
        self.half.start()
        self.second = self.half.add_replica()
        self.second.start()
        self.half.point_scheduler_at(self.second)
        add_gpu_nodes(cluster, NODES)
        self.namespace = cluster.make_namespace("bench")
        self.created = 0

    def placed(self) -> float:
        """Seconds until a pod that is created now is bound."""
        self.created += 1
        pod = sharing(f"p{self.created}", self.namespace, compute=10, memory=1_000, gated=True)
        with bindings_seen(self.cluster, self.namespace) as seen:
            began = time.monotonic()
            self.cluster.create_pod(pod)
            seen.wait(1, seconds=120)
        return seen.times[-1] - began

    def let_first_lead(self) -> None:
        """The second leaves in order, and comes back as a follower."""
        first, led = self.half.replicas[0], self._led(self.half.replicas[0])
        self.second.process.stop()
        self.cluster.wait_for("the first to lead", lambda: self._led(first) > led)
        self.second.start()
        self.placed()

    def without(self, sig: signal.Signals) -> float:
        """End the first, which leads; seconds until a pod created at that instant is bound."""
        first = self.half.replicas[0]
        first.process.stop(sig=sig)
        took = self.placed()
        first.start()
        self.let_first_lead()
        return took

    @staticmethod
    def _led(replica: Replica) -> int:
        return len(replica.logged("knows the cluster"))


def cordoned(stage: Stage) -> float:
    """Seconds from the API server's answer to a cordon until the leader counts the node out."""
    first = stage.half.replicas[0]
    name = stage.cluster.api.items("/api/v1/nodes")[0]["metadata"]["name"]
    seen = len(first.logged("node out"))
    stage.cluster.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
    began = time.monotonic()
    stage.cluster.wait_for("the node to be out", lambda: len(first.logged("node out")) > seen)
    took = time.monotonic() - began
    seen = len(first.logged("node in"))
    stage.cluster.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": False}})
    stage.cluster.wait_for("the node to be in", lambda: len(first.logged("node in")) > seen)
    return took


def main() -> None:
    """Measure all three, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    chosen = parser.parse_args()
    if reason := requirements.why_not() or binaries.not_built(["kwok"]):
        sys.exit(f"no cluster: {reason}")
    with ClusterHarness(Options(nodes=())) as cluster:
        stage = Stage(cluster)
        calm = [stage.placed() for _ in range(chosen.times)]
        outs = [cordoned(stage) for _ in range(chosen.times)]
        left = [stage.without(signal.SIGTERM) for _ in range(chosen.times)]
        dead = [stage.without(signal.SIGKILL) for _ in range(chosen.times)]
        most = max(slices_per_gpu(cluster, stage.namespace))
        stage.half.stop()
    for what, took in {
        "a pod is bound, the leader well": calm,
        "a cordoned node is out": outs,
        "a pod is bound, the leader leaving": left,
        "a pod is bound, the leader killed": dead,
    }.items():
        print(f"{what:<36} median {statistics.median(took):5.2f} s, max {max(took):5.2f} s (n={len(took)})")
    print(f"slices on a GPU at most: {most}")


if __name__ == "__main__":
    main()
