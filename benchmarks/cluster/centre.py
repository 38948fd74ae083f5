"""The centre under a real kube-scheduler: its rate beside kube-scheduler alone, HAMi's shapes, halves two on each card.

    .venv/bin/python benchmarks/cluster/centre.py [rate] [shapes] [halves] [bursts]

Nodes are played by kwok: the API server, kube-scheduler and the centre are real, kubelets and agents are not. Needs
what tests/cluster needs (`make cluster`). The rate is compared within one run only, CPU time beside it: whatever else
the machine does takes its part of everybody's time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from cluster.centre_half import CentreHalf
from cluster.harness import binaries, requirements
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness, Options
from cluster.played_gpus import (
    add_gpu_nodes,
    bindings_seen,
    create_all,
    delete_all,
    free_gpus,
    sharing,
    slices_per_gpu,
)
from support.centre_process import cpu_seconds

ALONE, ASKED, GATED = "kube-scheduler alone", "with the centre", "with the centre, gated"
# HAMi's own shapes: pods, nodes, and seconds from a binding until its plugin has answered Allocate.
SHAPES, ALLOCATED_AFTER = ((30, 1), (60, 10)), 0.3
# What is asked of the rate with these, and of the rate beside kube-scheduler alone.
LEAST_RATE = 10.0
HALF = 0.5
_PATIENCE = 240.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one stream of pods went: pods bound, seconds from the first creation to the last binding, CPU by process."""

    bound: int
    seconds: float
    created: float
    cpu: dict[str, float]

    @property
    def rate(self) -> float:
        """Pods bound a second."""
        return self.bound / self.seconds


class Stage:
    """A cluster of played nodes with GPUs, and a kube-scheduler that asks the centre or does not."""

    def __init__(self, cluster: ClusterHarness, *, nodes: int) -> None:
        self.cluster = cluster
        self.half = CentreHalf(cluster)
        self.centre = self.half.replicas[0]
        self.half.start()
        self.gpus = 8 * nodes
        add_gpu_nodes(cluster, nodes)
        self.namespace = cluster.make_namespace("bench")
        self.asks = True
        self.settle()

    def settle(self) -> None:
        """Wait until the centre has seen that all GPUs are free."""
        self.cluster.wait_for("all GPUs to be free", lambda: free_gpus(self.centre) == self.gpus, timeout=60)

    def let_ask(self, *, asks: bool) -> None:
        """Let kube-scheduler ask the centre or be alone; alone it has its own defaults."""
        if asks == self.asks:
            return
        self.asks = asks
        if asks:
            self.half.point_scheduler_at(self.centre)
            return
        scheduler = self.cluster.control_plane.scheduler
        scheduler.stop()
        self.cluster.control_plane.configure_scheduler({})
        scheduler.start()
        scheduler.wait_ready()

    def stream(self, pods: list[Json]) -> Outcome:
        """Create pods, and wait until all are bound."""
        plane = self.cluster.control_plane
        processes = {one.name: one for one in (plane.api_server, plane.etcd, plane.scheduler)}
        processes["centre"] = self.centre.process
        before, ours = {name: cpu_seconds(one.pid) for name, one in processes.items()}, time.process_time()
        with bindings_seen(self.cluster, self.namespace) as seen:
            began = time.monotonic()
            create_all(self.cluster, pods)
            created = time.monotonic() - began
            seen.wait(len(pods), seconds=_PATIENCE)
            ended = seen.times[-1] if seen.times else time.monotonic()
        cpu = {name: cpu_seconds(one.pid) - before[name] for name, one in processes.items()}
        cpu["who creates"] = time.process_time() - ours
        return Outcome(bound=len(seen.times), seconds=ended - began, created=created, cpu=cpu)

    def pods(self, count: int, *, compute: int, memory: int, how: str = GATED) -> list[Json]:
        """Equal pods for whoever schedules."""
        alone = {"schedulerName": "default-scheduler"} if how == ALONE else {}
        return [
            sharing(f"p{number}", self.namespace, compute=compute, memory=memory, gated=how == GATED, **alone)
            for number in range(count)
        ]

    def refused(self) -> int:
        """How many bindings the centre has refused or not brought about, since it started."""
        return len(self.centre.logged("not bound"))

    def clear(self) -> None:
        """Delete all pods, and wait until their GPUs are free."""
        delete_all(self.cluster, self.namespace)
        self.settle()


@contextmanager
def stage(*, nodes: int, run_after: float = 0.0) -> Iterator[Stage]:
    """Start one, with pods that are said to run so long after their binding."""
    with ClusterHarness(Options(nodes=(), played_pods_run_after=run_after)) as cluster:
        made = Stage(cluster, nodes=nodes)
        try:
            yield made
        finally:
            made.half.stop()


def rate(chosen: argparse.Namespace) -> bool:
    """The same pods with and without the centre, in turn."""
    rates: dict[str, list[float]] = {ALONE: [], ASKED: [], GATED: []}
    with stage(nodes=chosen.nodes) as on:
        for _ in range(chosen.rounds):
            for how, seen in rates.items():
                on.clear()
                on.let_ask(asks=how != ALONE)
                on.stream(on.pods(20, compute=30, memory=20_000, how=how))
                on.clear()
                before = on.refused()
                outcome = on.stream(on.pods(chosen.pods, compute=30, memory=20_000, how=how))
                seen.append(outcome.rate)
                tell(how, outcome, pods=chosen.pods, more=f"{on.refused() - before} bindings refused")
    alone = statistics.median(rates[ALONE])
    shares = {how: statistics.median(rates[how]) / alone for how in (ASKED, GATED)}
    for how, share in shares.items():
        print(f"{how:<46} {share:.0%} of the rate of kube-scheduler alone")
    return min(shares.values()) >= HALF


def shapes(_: argparse.Namespace) -> bool:
    """HAMi's shapes."""
    good = True
    for count, nodes in SHAPES:
        with stage(nodes=nodes, run_after=ALLOCATED_AFTER) as on:
            for how in (ASKED, GATED):
                before = on.refused()
                outcome = on.stream(on.pods(count, compute=20, memory=8_000, how=how))
                refused = on.refused() - before
                tell(f"{count} pods, {nodes} nodes, {how}", outcome, pods=count, more=f"{refused} failed bindings")
                good &= shape_holds(outcome, pods=count, refused=refused)
                on.clear()
    return good


def shape_holds(outcome: Outcome, *, pods: int, refused: int) -> bool:
    """Whether what is asked of HAMi's shapes holds: all bound, none refused, and fast enough."""
    return outcome.bound == pods and not refused and outcome.rate >= LEAST_RATE


def halves(_: argparse.Namespace) -> bool:
    """800 halves on 400 GPUs."""
    good = True
    with stage(nodes=50) as on:
        for how in (ASKED, GATED):
            outcome = on.stream(on.pods(800, compute=50, memory=40_000, how=how))
            lie = slices_per_gpu(on.cluster, on.namespace)
            tell(f"800 halves on 400 GPUs, {how}", outcome, pods=800, more=f"slices on a card: {lie}")
            good &= lie == {2: 400}
            on.clear()
    return good


def bursts(chosen: argparse.Namespace) -> bool:
    """16 halves at once on 8 cards, again and again, the gate on and off in turn."""
    took, wrong = [], 0
    with stage(nodes=1) as on:
        for number in range(chosen.bursts):
            how = GATED if number % 2 else ASKED
            outcome = on.stream(on.pods(16, compute=50, memory=40_000, how=how))
            took.append(outcome.seconds)
            wrong += slices_per_gpu(on.cluster, on.namespace) != {2: 8}
            on.clear()
        refused = on.refused()
    took.sort()
    print(
        f"{'16 halves at once on 8 cards':<46} n={chosen.bursts:<5} {chosen.bursts - wrong} with two on each card, "
        f"{refused} bindings refused, all bound after p50 {statistics.median(took):.2f} s, at most {took[-1]:.2f} s"
    )
    return not wrong


def tell(what: str, outcome: Outcome, *, pods: int, more: str) -> None:
    """Print one line, and what it took of the processors."""
    spent = ", ".join(f"{name} {seconds * 1000 / pods:.1f}" for name, seconds in outcome.cpu.items())
    print(
        f"{what:<46} {outcome.bound} of {pods} bound, {outcome.rate:.0f} pods/s "
        f"(created at {pods / outcome.created:.0f}/s), {more}\n{'':<46} ms CPU a pod: {spent}",
        flush=True,
    )


PARTS = {part.__name__: part for part in (rate, shapes, halves, bursts)}


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--nodes", type=int, default=500, help="of the rate")
    parser.add_argument("--pods", type=int, default=3000, help="of the rate")
    parser.add_argument("--rounds", type=int, default=2, help="of the rate")
    parser.add_argument("--bursts", type=int, default=100)
    chosen = parser.parse_args()
    if reason := requirements.why_not():
        sys.exit(f"no cluster: {reason}")
    if binaries.not_built(["kwok"]):
        sys.exit("kwok is not built: run tests/cluster/binaries/build kwok")
    good = [PARTS[part](chosen) for part in chosen.parts or PARTS]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
