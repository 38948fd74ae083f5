"""A cluster written down as `simulate` reads it: its nodes as they are empty, its pods as they came.

The format knows less than Kubernetes: one kind of GPU per node (the commonest), and for all GPUs of a pod the same part
(its largest). What belongs to a node, its DaemonSets' pods, is taken off the node; a pod whose request can't be
meant, or that wants GPUs which no node has, is left out and counted.
"""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aliquot_core.errors import AliquotError
from aliquot_core.hosts import host_request, quantity
from aliquot_core.instants import seconds_of
from aliquot_core.inventory import Gpu, decode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Node, Pod
from aliquot_core.patterns import Patterns
from aliquot_core.quantities import QuantityError
from aliquot_core.request import parse_request
from aliquot_scheduler.fit.appraisal import distinct
from aliquot_scheduler.fit.demand import Demand, demand_of
from aliquot_scheduler.simulating.reading import CARD_COLUMN, LABELS_COLUMN, NODE_COLUMNS, POD_COLUMNS
from aliquot_scheduler.simulating.timed.reading import OWNER_COLUMNS, TIME_COLUMNS
from aliquot_scheduler.simulating.workload import MILLI

_PERCENT = MILLI // 100
_MEBIBYTE = 2**20
# The DaemonSet controller writes the one, the kubelet the other (of a static pod).
_DAEMON_LABEL = "pod-template-generation"
_MIRROR = "kubernetes.io/config.mirror"


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Lists as text, and how many nodes and pods are in them; `left_out` pods are not."""

    nodes: str
    pods: str
    # The pods as they came.
    order: str
    machines: int
    arrivals: int
    left_out: int

    @property
    def lists(self) -> dict[str, str]:
        """The lists by what they are of."""
        return {"nodes": self.nodes, "pods": self.pods, "order": self.order}


def record(*, nodes: Sequence[Node], pods: Sequence[Pod], names: Names, seed: int) -> Recorded:
    """Write a cluster down; the order in which its pods came is the one of this seed."""
    daemons: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for pod in pods:
        if _is_daemon(pod) and not pod.ended:
            cores, memory = host_request(pod)
            so_far = daemons[pod.spec.node_name]
            daemons[pod.spec.node_name] = so_far[0] + cores, so_far[1] + memory
    cards = {node.metadata.name: _cards(node, names=names) for node in nodes}
    machines = [_machine(node, cards=cards[node.metadata.name], taken=daemons[node.metadata.name]) for node in nodes]
    models = sorted({model for model, _, _ in cards.values() if model})
    came = sorted((pod for pod in pods if not _is_daemon(pod)), key=lambda pod: (_created(pod), pod.key))
    start = min((at for pod in came if (at := _created(pod))), default=0.0)
    lines = [line for pod in came if (line := _line(pod, names=names, models=models, start=start)) is not None]
    return Recorded(
        nodes=_written((*NODE_COLUMNS, CARD_COLUMN, LABELS_COLUMN), machines),
        pods=_written(("name", *POD_COLUMNS, CARD_COLUMN, "pod_phase", *TIME_COLUMNS, *OWNER_COLUMNS), lines),
        order=_written((f"seed{seed}",), ((number,) for number in range(len(lines)))),
        machines=len(machines),
        arrivals=len(lines),
        left_out=len(came) - len(lines),
    )


def _written(heading: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(lines)
    return text.getvalue()


def _is_daemon(pod: Pod) -> bool:
    return _DAEMON_LABEL in pod.metadata.labels or _MIRROR in pod.metadata.annotations


# --- nodes -----------------------------------------------------------------------------------------------------------


def _cards(node: Node, *, names: Names) -> tuple[str, int, int]:
    """The commonest model, how many GPUs there are, and MiB of the smallest of that model."""
    try:
        found: Sequence[Gpu] = decode_inventory(node.metadata.annotations.get(names.inventory, "")).gpus
    except AliquotError:
        # No agent, or one of another version: a node without GPUs.
        found = ()
    gpus = [gpu for gpu in found if not gpu.mig and not gpu.instance]
    if not gpus:
        return "", 0, 0
    ((model, _),) = Counter(gpu.model for gpu in gpus).most_common(1)
    return model, len(gpus), min(gpu.memory for gpu in gpus if gpu.model == model)


def _machine(node: Node, *, cards: tuple[str, int, int], taken: tuple[int, int]) -> tuple[object, ...]:
    model, gpus, memory = cards
    cores = _allocatable(node, "cpu", scale=MILLI) - taken[0]
    host = _allocatable(node, "memory", scale=1) - taken[1]
    labels = ";".join(f"{name}={value}" for name, value in sorted(node.metadata.labels.items()))
    return node.metadata.name, max(0, cores), max(0, host // _MEBIBYTE), gpus, model, memory or "", labels


def _allocatable(node: Node, name: str, *, scale: int) -> int:
    try:
        return int(scale * quantity(node.status.allocatable.get(name, "0"), where=name))
    except QuantityError:
        return 0


# --- pods ------------------------------------------------------------------------------------------------------------


def _line(pod: Pod, *, names: Names, models: Sequence[str], start: float) -> tuple[object, ...] | None:
    """One line; None for a pod that can't be told of."""
    try:
        request = parse_request(pod, names=names)
    except AliquotError:
        return None
    gpus, milli, memory, allowed = 0, 0, 0, ""
    if request.containers:
        gpus, milli, memory = _largest(demand_of(request))
        fitting = _admitted(request.models, models)
        if not fitting:
            return None
        allowed = "" if len(fitting) == len(models) else "|".join(fitting)
    cores, host = host_request(pod)
    times = (_since(at, start) for at in (_created(pod), _scheduled(pod), _ended(pod)))
    needs = cores, -(-host // _MEBIBYTE), gpus, milli, allowed, memory or ""
    return pod.key, *needs, pod.status.phase, *times, *_owners(pod, names=names)


def _owners(pod: Pod, *, names: Names) -> tuple[str, str]:
    """The queue that let it in, or else that it names (empty: its namespace's own), and the user."""
    queue = pod.metadata.annotations.get(names.charged) or pod.metadata.labels.get(names.queue, "")
    return queue, pod.metadata.namespace


def _largest(demand: Demand) -> tuple[int, int, int]:
    """How many GPUs, and of each the milli and MiB (0: compute's share) of the largest piece."""
    pieces = distinct(demand)
    gpus = len(demand.pieces) if demand.pieces else 1
    compute = max(piece.compute for piece, _ in pieces)
    # Best effort takes no compute; the format has no GPU without.
    return gpus, max(1, compute * _PERCENT), max(piece.memory for piece, _ in pieces)


def _admitted(patterns: Patterns, models: Sequence[str]) -> list[str]:
    return [model for model in models if patterns.admits(model)]


def _created(pod: Pod) -> float:
    return seconds_of(pod.metadata.creation_timestamp) or 0.0


def _scheduled(pod: Pod) -> float:
    said = (one for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "True")
    return next((seconds_of(one.last_transition_time) or 0.0 for one in said), 0.0)


def _ended(pod: Pod) -> float:
    """When its last container ended, of a pod that has ended."""
    states: Iterable[Mapping[str, Mapping[str, str]]] = (one.state for one in pod.status.container_statuses)
    ends = (seconds_of(state.get("terminated", {}).get("finishedAt")) or 0.0 for state in states)
    return max(ends, default=0.0) if pod.ended else 0.0


def _since(at: float, start: float) -> object:
    return round(at - start) if at else ""
