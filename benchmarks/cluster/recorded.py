"""The recorded workload placed by a real kube-scheduler, which must end where `aliquot simulate` ends.

    .venv/bin/python benchmarks/cluster/recorded.py [--every 1] [--minutes 20] [--variant default] [--seed 42]

Nodes are played by kwok: the API server, kube-scheduler and the centre are real, kubelets and agents are not. Pods come
in the order of the trace; one that is refused is deleted, and not asked for again. kube-scheduler's profile is ours
without what else gives points, and asks the centre of pods without GPUs too (daemonset/plain-pods.yaml). Few pods are
under way at a time, so that they are looked at in their order. With `--every 4` each fourth node is there, and an order
that asks for as much of them. Needs what tests/cluster needs (`make cluster`).
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from aliquot_core.inventory import Gpu, Inventory, encode_inventory
from aliquot_scheduler.simulating.drawing import draw_order
from aliquot_scheduler.simulating.runs import MixSource, PolicyName, begin
from aliquot_scheduler.simulating.workload import MILLI, Machine, Need, Workload
from cluster.centre_half import NAMES, CentreHalf, Replica
from cluster.harness import binaries, requirements
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness, Options
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.credentials import ADMIN
from cluster.harness.played import TOLERATED
from cluster.played_gpus import free_gpus
from support.large_cluster import SCHEDULER, lease_manifest
from support.traces import openb

ALL = 1_000_000
# What is asked: points between the two ends.
CLOSE = 0.5
# With less asked for everybody finds room, whoever places.
FULL = 98.0
# Pods that are created and not decided yet.
UNDER_WAY = 4
# No word on a pod for so long means that nothing goes on.
_SILENCE = 60.0
_POD_LIFE = 3600.0
_CARD = 16_384
_PERCENT = MILLI // 100
OTHER_POINTS = (
    "NodeAffinity",
    "InterPodAffinity",
    "PodTopologySpread",
    "TaintToleration",
    "ImageLocality",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "VolumeBinding",
)


# --- the workload ----------------------------------------------------------------------------------------------------
def workload(*, variant: str, seed: int, every: int) -> Workload:
    """The published run, or one of the same kind on fewer nodes."""
    whole, _ = openb(variant, seed=seed, arrivals=ALL)
    if every == 1:
        return whole
    machines = whole.machines[::every]
    few = Workload(machines=machines, needs=whole.needs, pods=whole.pods, arrivals=whole.arrivals[:0])
    order = draw_order(np.random.default_rng(seed), needs=few.needs, pods=few.pods, capacity=few.capacity)
    return Workload(machines=machines, needs=whole.needs, pods=whole.pods, arrivals=order)


def until(asked: Workload, percent: float) -> Workload:
    """Its arrivals until so many percent of the GPUs are asked for."""
    totals = totals_of(asked)
    count = int(np.searchsorted(totals.cumsum(), percent / 100 * asked.capacity, side="right"))
    return Workload(machines=asked.machines, needs=asked.needs, pods=asked.pods, arrivals=asked.arrivals[:count])


def totals_of(asked: Workload) -> Any:
    """Milli of GPU that each arrival asks for."""
    return np.array([need.total for need in asked.needs])[asked.pods][asked.arrivals]


def simulated(asked: Workload, *, seed: int) -> tuple[list[float], int]:
    """Percent given away at the end, with fresh ties of several seeds, and how many failed in the first."""
    ends, failed = [], 0
    for draw in range(seed, seed + 3):
        replay = begin(asked, policy=PolicyName.ALIQUOT, mix=MixSource.LEARNT, seed=draw, line=None)
        for _ in replay.steps():
            pass
        outcome = replay.outcome()
        ends.append(100 * float(outcome.allocated[-1]) / asked.capacity)
        failed = failed or outcome.failed
    return ends, failed


# --- the cluster -----------------------------------------------------------------------------------------------------
def node_name(row: int) -> str:
    """As kwok's player names them."""
    return f"played{row}"


def inventory(machine: Machine, row: int) -> str:
    """What its agent would publish."""
    gpus = tuple(
        Gpu(uuid=f"GPU-{row}-{index}", index=index, model=machine.model, memory=_CARD) for index in range(machine.gpus)
    )
    return encode_inventory(Inventory(driver="580", gpus=gpus))


def add_nodes(cluster: ClusterHarness, machines: tuple[Machine, ...]) -> None:
    """All of them, as they are empty."""
    rows = {node_name(row): row for row in range(len(machines))}
    names = cluster.played_nodes.add(
        len(machines),
        lambda name: capacity(machines[rows[name]]),
        notes=lambda name: {NAMES.inventory: inventory(machines[rows[name]], rows[name])},
    )
    for name in names:
        cluster.api.create(lease_manifest(name, seconds=24 * 3600))


def capacity(machine: Machine) -> dict[str, str]:
    """What a node says that it has."""
    return {
        "cpu": f"{machine.cores}m",
        "memory": f"{machine.memory}Mi",
        "pods": "10000",
        NAMES.compute: str(100 * machine.gpus),
        NAMES.memory: str(_CARD * machine.gpus),
        NAMES.best_effort: str(32 * machine.gpus),
    }


def pod_of(number: int, need: Need, *, namespace: str) -> Json:
    """The pod of an arrival."""
    limits = {NAMES.compute: str(-(-need.total // _PERCENT))} if need.gpus else {}
    notes = {NAMES.gpu_model: ",".join(need.models)} if need.models and need.gpus else {}
    requests = {"cpu": f"{need.cores}m", "memory": f"{need.memory}Mi", **limits}
    container = {"name": "main", "image": "none", "resources": {"limits": limits, "requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p{number}", "namespace": namespace, "annotations": notes},
        "spec": {"containers": [container], "schedulerName": SCHEDULER, "tolerations": TOLERATED},
    }


def ask_of_plain_pods_too(half: CentreHalf, replica: Replica) -> None:
    """Our profile without what else gives points, and the centre asked of pods without GPUs."""
    half.point_scheduler_at(replica, plain_pods=True)
    plane = half.cluster.control_plane
    config = json.loads((plane.folder / "scheduler.json").read_text())
    for profile in config["profiles"]:
        if profile["schedulerName"] == SCHEDULER:
            profile["plugins"]["score"] = {"disabled": [{"name": name} for name in OTHER_POINTS]}
    plane.scheduler.stop()
    plane.configure_scheduler(config)
    plane.scheduler.start()
    plane.scheduler.wait_ready()


@dataclass
class Decided:
    """What has become of each pod: bound to a node, or refused; told by whoever watches."""

    grew: threading.Condition = field(default_factory=threading.Condition)
    bound: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    @property
    def count(self) -> int:
        """Of how many that is known."""
        return len(self.bound) + len(self.refused)

    def told(self, pod: Json) -> None:
        """A pod as the API server has it."""
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        conditions = pod.get("status", {}).get("conditions", ())
        turned_down = any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)
        with self.grew:
            if node:
                self.bound[name] = node
                self.refused.discard(name)
            elif turned_down and name not in self.bound:
                self.refused.add(name)
            self.grew.notify_all()

    def wait(self, count: int) -> bool:
        """Wait until so many are decided; whether they are."""
        with self.grew:
            before = -1
            while self.count < count and self.count > before:
                before = self.count
                self.grew.wait_for(lambda: self.count >= count or self.count > before, timeout=_SILENCE)  # noqa: B023 - at once
            return self.count >= count


class Watching:
    """Reads what becomes of the pods of a namespace, and tells it."""

    def __init__(self, cluster: ClusterHarness, namespace: str, *, decided: Decided) -> None:
        plane = cluster.control_plane
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._version = cluster.api.get(self._path, limit="1")["metadata"]["resourceVersion"]
        self._headers = {"Authorization": f"Bearer {plane.credentials.tokens[ADMIN]}"}
        context = ssl.create_default_context(cafile=str(plane.credentials.certificate))
        self._connection = http.client.HTTPSConnection(LOOPBACK, plane.port, context=context, timeout=_SILENCE)
        self._decided = decided
        self._over = False

    def read(self) -> None:
        """Until it is over; a watch that breaks is asked for anew from where it was."""
        while not self._over:
            with suppress(http.client.HTTPException, OSError):
                query = f"watch=1&timeoutSeconds=3600&resourceVersion={self._version}"
                self._connection.request("GET", f"{self._path}?{query}", headers=self._headers)
                with self._connection.getresponse() as response:
                    while line := response.readline():
                        self._take(json.loads(line))
            self._connection.close()

    def stop(self) -> None:
        """Let the reader end."""
        self._over = True
        if (sock := self._connection.sock) is not None:
            with suppress(OSError):
                sock.shutdown(2)

    def _take(self, event: Json) -> None:
        pod = event["object"]
        self._version = pod["metadata"]["resourceVersion"]
        if event["type"] in {"ADDED", "MODIFIED"}:
            self._decided.told(pod)


@contextmanager
def watched(cluster: ClusterHarness, namespace: str) -> Iterator[Decided]:
    """Watch as long as the block lasts."""
    decided = Decided()
    watching = Watching(cluster, namespace, decided=decided)
    reading = threading.Thread(target=watching.read)
    reading.start()
    try:
        yield decided
    finally:
        watching.stop()
        reading.join()


def place(cluster: ClusterHarness, asked: Workload, *, namespace: str, until: float) -> tuple[Decided, int]:
    """Let them come one after another; what became of each, and how many came before the time was over."""
    api, came = cluster.api, 0
    gone: set[str] = set()
    with watched(cluster, namespace) as decided, ThreadPoolExecutor(2) as pool:
        for number, arrival in enumerate(asked.arrivals.tolist()):
            if time.monotonic() >= until or not decided.wait(number - UNDER_WAY):
                break
            for name in [one for one in list(decided.refused) if one not in gone]:
                gone.add(name)
                pool.submit(api.delete, f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)
            cluster.create_pod(pod_of(number, asked.needs[asked.pods[arrival]], namespace=namespace))
            came = number + 1
            if came % 250 == 0:
                print(f"{came} of {len(asked.arrivals)}: {len(decided.refused)} refused", file=sys.stderr, flush=True)
        decided.wait(came)
    return decided, came


def given(asked: Workload, decided: Decided) -> float:
    """Percent of the GPUs that the pods have that are bound."""
    totals = totals_of(asked)
    return 100 * float(sum(totals[int(name[1:])] for name in decided.bound)) / asked.capacity


def main() -> int:
    """Both ways, and how far apart they end."""
    chosen = _arguments()
    if reason := requirements.why_not():
        sys.exit(f"no cluster: {reason}")
    if binaries.not_built(["kwok"]):
        sys.exit("kwok is not built: run tests/cluster/binaries/build kwok")
    asked = until(workload(variant=chosen.variant, seed=chosen.seed, every=chosen.every), chosen.asked)
    end = time.monotonic() + 60 * chosen.minutes
    with ClusterHarness(Options(nodes=(), played_pods_run_after=_POD_LIFE)) as cluster:
        half = CentreHalf(cluster)
        half.start()
        try:
            add_nodes(cluster, asked.machines)
            ask_of_plain_pods_too(half, half.replicas[0])
            gpus = asked.capacity // MILLI
            cluster.wait_for("all GPUs to be free", lambda: free_gpus(half.replicas[0]) == gpus, timeout=120)
            namespace = cluster.make_namespace("recorded")
            began = time.monotonic()
            decided, came = place(cluster, asked, namespace=namespace, until=end)
            seconds = time.monotonic() - began
        finally:
            half.stop()
    came_of = msgspec.structs.replace(asked, arrivals=asked.arrivals[:came])
    return tell(came_of, decided, seconds=seconds, chosen=chosen)


def tell(asked: Workload, decided: Decided, *, seconds: float, chosen: argparse.Namespace) -> int:
    """One line; 1 if they end too far apart, or too few came for that to say anything."""
    ends, failed = simulated(asked, seed=chosen.seed)
    share, mean = given(asked, decided), statistics.fmean(ends)
    came = 100 * float(totals_of(asked).sum()) / asked.capacity
    print(
        f"{chosen.variant}, seed {chosen.seed}, {len(asked.machines)} nodes, {len(asked.arrivals)} pods asking for "
        f"{came:.1f} % of the GPUs: kube-scheduler {share:.2f} % ({len(decided.refused)} refused, {seconds:.0f} s), "
        f"simulate {', '.join(f'{one:.2f}' for one in ends)} ({failed} failed): {share - mean:+.2f} points"
    )
    return int(abs(share - mean) > CLOSE or came < FULL)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--variant", default="default")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--every", type=int, default=1, help="every so manieth node of the trace")
    parser.add_argument("--asked", type=float, default=103.0, help="percent of the GPUs asked for at the end")
    parser.add_argument("--minutes", type=float, default=20.0, help="for all of it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
