"""Many granted pods bound to one kubelet in one burst: what each container printed, and how long all of them took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from cluster.harness.api import Json
from cluster.harness.cluster import ENDED, ClusterHarness
from cluster.node_half import NodeHalf, asks, sharing_pod, shows

GPUS = 8
# Eight pods fill a GPU to 96 %: all of them fit at one time.
PERCENT = 12
# The kubelet's own default allows 110 pods, which take some 110 s on two cores that do nothing else.
PATIENCE_SECONDS = 240


@dataclass(frozen=True, kw_only=True)
class Burst:
    """How it went: pods by phase, containers that printed something else than their slice, seconds from bind to end."""

    phases: dict[str, int]
    wrong: list[str]
    seconds: float


def run_burst(cluster: ClusterHarness, half: NodeHalf, *, namespace: str, pods: int) -> Burst:
    """Bind so many pods at once, each with an init and an app container of one percent but unlike memory."""
    made = [cluster.create_pod(_wanted(namespace, number)) for number in range(pods)]
    began = time.monotonic()
    for number, pod in enumerate(made):
        half.bind(pod, {name: [slice_] for name, slice_ in _slices(number).items()})
    phases, seconds = _outcome(cluster, namespace, pods), time.monotonic() - began
    wrong = [line for number, pod in enumerate(made) for line in _wrong(cluster, half, pod, number)]
    return Burst(phases=phases, wrong=wrong, seconds=seconds)


def run_plain_burst(cluster: ClusterHarness, *, node: str, namespace: str, pods: int) -> Burst:
    """The same with pods that ask for no slice: what kubelet and runtime can do here, to compare with."""
    made = [
        cluster.create_pod(sharing_pod(namespace, shows(), init_containers=[shows(name="prepare")]))
        for _ in range(pods)
    ]
    began = time.monotonic()
    for pod in made:
        cluster.bind(pod, node)
    return Burst(phases=_outcome(cluster, namespace, pods), wrong=[], seconds=time.monotonic() - began)


def _slices(number: int) -> dict[str, tuple[int, int, int]]:
    gpu = number % GPUS
    return {"prepare": (gpu, PERCENT, 1_000 + number), "main": (gpu, PERCENT, 2_000 + number)}


def _wanted(namespace: str, number: int) -> Json:
    containers = [
        shows(name=name, limits=asks(percent, memory)) for name, (_, percent, memory) in _slices(number).items()
    ]
    return sharing_pod(namespace, containers[1], init_containers=containers[:1])


def _outcome(cluster: ClusterHarness, namespace: str, count: int) -> dict[str, int]:
    ended = cluster.wait_for("all pods to end", partial(_ended, cluster, namespace, count), timeout=PATIENCE_SECONDS)
    phases = [pod["status"]["phase"] for pod in ended]
    return {phase: phases.count(phase) for phase in set(phases)}


def _ended(cluster: ClusterHarness, namespace: str, count: int) -> list[Json] | None:
    pods = cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")
    return pods if sum(pod["status"].get("phase") in ENDED for pod in pods) == count else None


def _wrong(cluster: ClusterHarness, half: NodeHalf, pod: Json, number: int) -> Iterator[str]:
    for name, (gpu, percent, memory) in _slices(number).items():
        printed, right = cluster.logs(pod, name), f"{half.gpu(gpu)} {percent} {memory} void\n"
        if printed != right:
            yield f"{pod['metadata']['name']}/{name} printed {printed!r}, not {right!r}"
