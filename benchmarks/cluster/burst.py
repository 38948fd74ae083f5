"""Granted pods (init + app container) bound in one burst to one real kubelet: pods a second, and that all is right.

    .venv/bin/python benchmarks/cluster/burst.py [--pods 60]

First as many pods that ask for nothing, to compare with: what kubelet and runtime can do on this machine. Needs what
tests/cluster needs (`make cluster`). The rate counts from the first binding until the last pod has ended.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from cluster.burst import Burst, run_burst, run_plain_burst
from cluster.harness import requirements
from cluster.harness.cluster import ClusterHarness, Options
from cluster.node_half import NodeHalf


def main() -> None:
    """Run one burst."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=60)
    chosen = parser.parse_args()
    if reason := requirements.why_not():
        sys.exit(f"no burst: {reason}")
    with ClusterHarness(Options(nodes=("node1",))) as cluster:
        half = NodeHalf(cluster, cluster.node("node1"))
        half.start()
        with cluster.namespace("plain") as namespace:
            plain = run_plain_burst(cluster, node="node1", namespace=namespace, pods=chosen.pods)
        with cluster.namespace("granted") as namespace:
            granted = run_burst(cluster, half, namespace=namespace, pods=chosen.pods)
    tell("burst of plain pods (init + app container)", plain, pods=chosen.pods)
    tell("burst of granted pods (init + app container)", granted, pods=chosen.pods)
    for line in granted.wrong:
        print(line)
    sys.exit(bool(granted.wrong) or granted.phases != {"Succeeded": chosen.pods})


def tell(what: str, burst: Burst, *, pods: int) -> None:
    """Print one line."""
    phases = ", ".join(f"{count} {phase}" for phase, count in sorted(burst.phases.items()))
    rate = f"{pods / burst.seconds:.2f} pods/s ({burst.seconds:.1f} s)"
    print(f"{what:<46} n={pods:<5} {rate}, {phases}, {len(burst.wrong)} containers with another slice")


if __name__ == "__main__":
    main()
