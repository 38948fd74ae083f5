"""kube-scheduler's calls to a real centre process: 1,000 nodes x 8 GPUs, 5,000 pods granted.

    .venv/bin/python benchmarks/centre/calls.py [--nodes 1000] [--pods 5000] [--calls 400] [--shapes 1|20|each]
        [--queues 200] [--asked]

The API server is the embedded one, in a process of its own; this process plays kube-scheduler, over TLS. Five parts,
one run of a minute or so: the start with all pods there (the very first waits for a lease that was never held);
filter, prioritize and bind, one pod after another, with the centre's CPU time, and of that what the watch tells of
each binding; what the centre writes to a pod behind its gate; filter calls while 40 nodes join; three restarts.
What a pod's calls cost follows from how many shapes come in turn, since each shape asks anew of all nodes that have
changed since it came last: so pods of one shape, of 20, and each of its own are placed, batch by batch side by side.
20 is what a cluster sees, and the figure that counts. With queues, a tree of five levels, each pod is in one of those
at its end. With `--asked` each figure that somebody asked for is printed beside what is asked of it at these sizes,
and whoever falls short ends with 1: times want a machine that does nothing else.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from aliquot_core.names import LEADER_LEASE
from support.bench_figures import Asked
from support.bench_options import sized
from support.centre_process import CentreProcess, exact_cpu_seconds, until_decided
from support.http_api import HttpApi
from support.large_cluster import (
    NAMES,
    NAMESPACE,
    PER_PERCENT,
    binding_manifest,
    in_queue,
    lease_manifest,
    node_manifest,
    node_names,
    pod_manifest,
)
from support.server_apart import CENTRE, LEASES, PODS, TESTER, ServerApart, Size, server_apart

CARDS = 8
JOINING = 40
GATED = 20
RESTARTS = 3
# Pods between two looks at the CPU clock: of several times the least is what other work spoilt least.
BATCH = 50
# How many shapes come in turn; a 0 is for pods each of its own.
SHAPES = {"1": 1, "20": 20, "each": 0}
# That is what a cluster sees.
COUNTS = "20"
# Nodes that nobody is asked about; others' pods are bound there, so that only the watch tells of them.
APART = 7
# Renewed all the time, whatever else happens.
ELECTION = f"{NAMES.namespace}/{LEADER_LEASE}"
Json = dict[str, Any]
# Percent of compute and MiB of memory.
Ask = tuple[int, int]
# What is asked, what was measured, and how much it may be.
Figure = tuple[str, float, float]
USUAL: Ask = (30, 30 * PER_PERCENT)
LEAST_MEMORY, MOST_MEMORY = 600, 75_000


class Bench:
    """A cluster, a centre, and a kube-scheduler that is played."""

    def __init__(self, *, server: ServerApart, folder: Path, size: Size) -> None:
        self.server = server
        self.nodes = node_names(size.nodes)
        self._queues = size.queues
        self._created = 0
        self.api = HttpApi(url=server.url, token=TESTER)
        self.centre = CentreProcess(folder=folder, url=server.url, token=CENTRE)
        self.asker = self.centre.asker()
        self.starts: list[float] = []
        self.figures: list[Figure] = []
        self._chance = random.Random(7)
        self._mix = random.Random(5)

    def create(self, name: str, *, asks: Ask = USUAL, **spec: Any) -> Json:
        """Create a pod, in the next queue."""
        self._created += 1
        return self.api.post(PODS, self.manifest(name, self._created, asks=asks, **spec)).ok()

    def manifest(self, name: str, number: int, *, asks: Ask = USUAL, **spec: Any) -> Json:
        """A pod that asks so."""
        pod = pod_manifest(name, compute=asks[0], memory=asks[1], **spec)
        return in_queue(pod, number, queues=self._queues)

    def start(self, what: str) -> None:
        """Start the centre; how soon it decides, and what memory it has by then."""
        pod = self.create(f"first-{len(self.starts)}")
        began = time.perf_counter()
        self.centre.component.start()
        until_decided(lambda: self.asker.filter(pod, self.nodes), seconds=60)
        took = time.perf_counter() - began
        self.starts.append(took)
        memory = f"RSS {self.centre.memory_mib():.1f} MiB (at most {self.centre.peak_mib():.1f})"
        if len(self.starts) > 1:
            self.figures.append(("seconds from a restart to the first decision", took, 3.0))
        self.figures.append(("MiB of memory (RSS)", self.centre.memory_mib(), 250.0))
        print(f"{f'{what}: exec to first decision':<46} {took:.2f} s, {self.centre.cpu_seconds():.2f} s CPU, {memory}")
        self.asker.took.clear()

    def place(self, count: int, *, shapes: Sequence[str], warm: int = 20) -> None:
        """Place pods one after another, a batch of each mix of shapes in turn; each is created before."""
        pods = {mix: self._of(mix, count + warm) for mix in shapes}
        self.settle()
        for those in pods.values():
            for pod in those[:warm]:
                self.asker.place(pod, self.named())
        told = self._told()
        cpu: dict[str, list[float]] = {mix: [] for mix in shapes}
        took: dict[str, dict[str, list[float]]] = {mix: {} for mix in shapes}
        for first in range(warm, count + warm, BATCH):
            for mix, those in pods.items():
                self.asker.took = took[mix]
                cpu[mix].append(self._cpu_a_pod(those[first : first + BATCH]))
        self.asker.took = {}
        pace = min(yardstick() for _ in range(5))
        tell_cpu("CPU of the centre a pod, what the watch tells", told)
        # Of one mix alone is asked: the usual one, or the only one there is.
        counts = COUNTS if COUNTS in shapes else shapes[0]
        for mix in shapes:
            figures = tell_of(mix, took[mix], cpu=cpu[mix], told=told)
            self.figures += figures if mix == counts else ()
        print(f"{'beside it, 300,000 turns of a loop in Python':<46} {pace:.1f} ms of CPU")

    def _of(self, mix: str, count: int) -> list[Json]:
        """So many pods of so many shapes, drawn."""
        drawn = shapes_of(SHAPES[mix] or count, chance=self._mix)
        asked = [self._mix.choice(drawn) for _ in range(count)] if SHAPES[mix] else drawn
        return [self.create(f"new-{mix}-{number:05}", asks=asks) for number, asks in enumerate(asked)]

    def named(self) -> list[str]:
        """All nodes, in an order of its own each time: kube-scheduler's hands look at them side by side."""
        return self._chance.sample(self.nodes, len(self.nodes))

    def _cpu_a_pod(self, pods: Sequence[Json]) -> float:
        """Place these, and count milliseconds."""
        before = self._cpu()
        for pod in pods:
            self.asker.place(pod, self.named())
        return (self._cpu() - before) / len(pods) * 1000

    def _told(self) -> list[float]:
        """Milliseconds for a pod that somebody else binds."""
        nodes = [f"apart-{number}" for number in range(APART)]
        self._join(nodes)
        cards = [(node, f"GPU-{node}-{card}") for node in nodes for card in range(CARDS)]
        return [self._told_of(number, cards) for number in range(3)]

    def _told_of(self, number: int, cards: Sequence[tuple[str, str]]) -> float:
        pods = [self.create(f"told-{number}-{one:02}") for one in range(BATCH)]
        self.settle()
        before = self._cpu()
        for place, (pod, (node, gpu)) in enumerate(zip(pods, cards, strict=False)):
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            binding = binding_manifest(self.manifest(name, place), uid=uid, node=node, gpu=gpu)
            self.api.post(f"{PODS}/{name}/binding", binding).ok()
        self.settle()
        return (self._cpu() - before) / len(pods) * 1000

    def _cpu(self) -> float:
        return exact_cpu_seconds(self.centre.component.pid)

    def gated(self, count: int) -> None:
        """What the centre writes to pods that wait behind its gate."""
        self.server.writes()
        gates = [{"name": NAMES.gate}]
        names = [self.create(f"gated-{number}", schedulingGates=gates)["metadata"]["name"] for number in range(count)]
        for name in names:
            self.asker.place(until(partial(self._lifted, name)), self.nodes)
        writes = self.server.writes()
        per_pod = [
            sum(
                times for write, times in writes.items() if write.user == CENTRE and write.name == f"{NAMESPACE}/{name}"
            )
            for name in names
        ]
        self.figures.append(("writes to a pod at its first turn", max(per_pod), 3))
        kinds = sorted(
            {f"{write.method} {write.what}" for write in writes if write.user == CENTRE and "pods" in write.what}
        )
        print(f"{'writes to a pod at its first turn':<46} n={count:<5} at most {max(per_pod)} ({', '.join(kinds)})")

    def joining(self, count: int) -> None:
        """Filter calls one after another while nodes join all at once."""
        pod = self.create("while-nodes-join")
        new = [f"late-{number:02}" for number in range(count)]
        self.server.writes()
        self.asker.took.clear()
        joined = threading.Thread(target=self._join, args=(new,))
        joined.start()
        deadline = time.monotonic() + 30
        room: list[str] = []
        while not set(new) <= set(room) and time.monotonic() < deadline:
            room = self.asker.filter(pod, [*self.nodes, *new])
        joined.join()
        took = self.asker.took["filter"]
        missing = len(set(new) - set(room))
        tell(f"filter while {count} nodes join", took)
        writes = [write for write in self.server.writes() if write.user == CENTRE and write.name != ELECTION]
        self.figures += [
            ("ms of the longest filter call while nodes join", max(took) * 1000, 200.0),
            ("nodes that joined and are not in", missing, 0),
            ("objects written by the centre while nodes join", len(writes), count),
        ]
        said = f"longest {max(took) * 1000:.1f} ms, {missing} nodes not in, {len(writes)} objects written by the centre"
        print(f"{'':<46} {said}")

    def settle(self) -> None:
        """Let the watches bring all there is."""
        quiet = self.centre.cpu_seconds()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            time.sleep(0.3)
            if (now := self.centre.cpu_seconds()) - quiet < 0.011:
                return
            quiet = now

    def _lifted(self, name: str) -> Json | None:
        pod = self.api.get(f"{PODS}/{name}").ok()
        return None if pod["spec"].get("schedulingGates") else pod

    def _join(self, names: Sequence[str]) -> None:
        for name in names:
            self.api.post("/api/v1/nodes", node_manifest(name, cards=CARDS)).ok()
            self.api.post(LEASES, lease_manifest(name)).ok()


def shapes_of(count: int, *, chance: random.Random) -> list[Ask]:
    """So many things that pods ask: one is the usual one, several are drawn."""
    if count == 1:
        return [USUAL]
    return [(chance.randint(1, 99), chance.randint(LEAST_MEMORY, MOST_MEMORY)) for _ in range(count)]


def tell_of(
    mix: str, took: Mapping[str, Sequence[float]], *, cpu: Sequence[float], told: Sequence[float]
) -> list[Figure]:
    """Print what pods of a mix have cost; the figures of it that somebody asked for."""
    print(f"-- shapes: {mix}")
    of_verb = {verb: tell(f"{verb}, over TLS, from another process", seconds) for verb, seconds in took.items()}
    tell_cpu("CPU of the centre a pod, all three and watches", cpu)
    calls = statistics.median(cpu) - statistics.median(told)
    print(f"{'so the three calls alone':<46} median {calls:.2f} ms, least {min(cpu) - min(told):.2f} ms")
    p50, p99 = of_verb["filter"]
    return [
        (f"ms of a filter call, p50, shapes: {mix}", p50, 5.0),
        (f"ms of a filter call, p99, shapes: {mix}", p99, 20.0),
        (f"ms of CPU a pod, the three calls, median, shapes: {mix}", calls, 3.0),
    ]


def tell_cpu(what: str, spent: Sequence[float]) -> None:
    """Print the median and the least of several times."""
    least = f"least {min(spent):.2f} ms, of {len(spent)} times {BATCH} pods"
    print(f"{what:<46} median {statistics.median(spent):.2f} ms, {least}")


def yardstick() -> float:
    """Milliseconds of CPU for a fixed piece of work: what a machine is worth changes by a half within the hour."""
    before, counts = time.process_time(), dict.fromkeys(range(97), 0)
    for number in range(300_000):
        counts[number % 97] += 1
    return (time.process_time() - before) * 1000


def until(look: Callable[[], Json | None], *, seconds: float = 20) -> Json:
    """Look until something is there."""
    deadline = time.monotonic() + seconds
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)
    return found


def tell(what: str, took: Sequence[float]) -> tuple[float, float]:
    """Print the median and the 99th percentile, in ms."""
    ordered = sorted(seconds * 1000 for seconds in took)
    p99 = ordered[int(len(ordered) * 0.99)]
    p50 = statistics.median(ordered)
    print(f"{what:<46} n={len(ordered):<5} p50 {p50:7.2f} ms   p99 {p99:7.2f} ms")
    return p50, p99


def judge(figures: Sequence[Figure]) -> None:
    """Print each beside the most that it may be, and end with 1 if one is more."""
    asked = Asked()
    for what, found, most in figures:
        asked.at_most(what, found, most)
    asked.end()


def main() -> None:
    """Run all parts."""
    parser = sized(__doc__, queues=0)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--shapes", choices=SHAPES, help="of which mix alone pods are placed; without it of all three")
    parser.add_argument("--asked", action="store_true", help="fail if a figure falls short of what is asked")
    chosen = parser.parse_args()
    size = Size(nodes=chosen.nodes, cards=CARDS, pods=chosen.pods, queues=chosen.queues)
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as folder, server_apart(size) as server:
        bench = Bench(server=server, folder=Path(folder), size=size)
        try:
            bench.start("first start")
            bench.place(chosen.calls, shapes=[chosen.shapes] if chosen.shapes else [*SHAPES])
            bench.gated(GATED)
            bench.joining(JOINING)
            for _ in range(RESTARTS):
                bench.centre.component.stop()
                bench.start("restart")
        finally:
            bench.asker.close()
            bench.centre.component.stop()
    if chosen.asked:
        judge(bench.figures)


if __name__ == "__main__":
    main()
