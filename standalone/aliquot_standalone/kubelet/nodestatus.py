"""What the node says of itself, and whether a pod fits on it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import Any

from aliquot_core.instants import second_time
from aliquot_core.objects import Container, Node, Pod
from aliquot_standalone.apiserver.quantities import canonical, parse
from aliquot_standalone.kubelet.devices import Need, Role, Totals
from aliquot_standalone.kubelet.errors import AdmissionError
from aliquot_standalone.kubelet.lifecycle import is_sidecar


def needs_of(pod: Pod) -> list[Need]:
    """What each container asks of extended resources, in the order of admission: init containers first."""
    inits = [_need(one, Role.SIDECAR if is_sidecar(one) else Role.INIT) for one in pod.spec.init_containers]
    return [*inits, *(_need(one, Role.APP) for one in pod.spec.containers)]


def node_object(name: str, labels: Mapping[str, str], *, taint: str = "") -> dict[str, Any]:
    """The Node to create; pods that do not tolerate the taint are not placed there."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {},
    }


def node_status(
    node: Node, totals: Totals, *, own: Mapping[str, str], ready_since: float, now: float, reset: bool
) -> dict[str, Any]:
    """The node's status: our own amounts and the plugins'; what others put into capacity is carried over.

    `reset` says that the node was made anew: what others put there is set to 0 until they put it there again.
    """
    carried = {key: "0" if reset and "/" in key else str(value) for key, value in node.status.capacity.items()}
    gone = dict.fromkeys(totals.removed, "0")
    capacity = {**carried, **own, **gone, **{key: str(count) for key, count in totals.capacity.items()}}
    allocatable = {**capacity, **{key: str(count) for key, count in totals.allocatable.items()}}
    return {
        "capacity": {key: canonical(value) or value for key, value in capacity.items()},
        "allocatable": {key: canonical(value) or value for key, value in allocatable.items()},
        "conditions": [_ready(ready_since, now)],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "nodeInfo": {"kubeletVersion": "aliquot", "operatingSystem": "linux"},
    }


def check_fit(pod: Pod, *, others: Iterable[Pod], allocatable: Mapping[str, str], held: Mapping[str, int]) -> None:
    """Refuse a pod that asks more than is left; names the node does not have are nobody's business here.

    `held` are devices given out already: a resource never counts as less than that, so that pods whose plugin is away
    are not refused a second time.
    """
    used: dict[str, Fraction] = {"pods": Fraction(0)}
    for other in others:
        for name, amount in requests_of(other).items():
            used[name] = used.get(name, Fraction(0)) + amount
    for name, asked in requests_of(pod).items():
        total = parse(allocatable.get(name, ""))
        if total is None:
            continue
        total = max(total, Fraction(held.get(name, 0)))
        taken = used.get(name, Fraction(0))
        if asked + taken > total:
            raise AdmissionError(
                f"not enough {name}: {_number(asked)} asked, {_number(taken)} of {_number(total)} in use",
                reason=f"OutOf{name}",
                where=pod.key,
            )


def requests_of(pod: Pod) -> dict[str, Fraction]:
    """What a pod counts for: app containers and sidecars together, or the largest init container if that is more."""
    running = _sum(_requests(one) for one in pod.spec.containers)
    before: dict[str, Fraction] = {}
    largest: dict[str, Fraction] = {}
    for container in pod.spec.init_containers:
        if is_sidecar(container):
            before = _sum([before, _requests(container)])
            largest = _most(largest, before)
        else:
            largest = _most(largest, _sum([before, _requests(container)]))
    return {**_most(_sum([running, before]), largest), "pods": Fraction(1)}


def _need(container: Container, role: Role) -> Need:
    amounts = {name: parse(str(value)) for name, value in container.resources.limits.items() if "/" in name}
    return Need(
        container=container.name,
        role=role,
        resources={name: int(amount) for name, amount in amounts.items() if amount is not None},
    )


def _requests(container: Container) -> dict[str, Fraction]:
    """Limits stand for requests that are not named."""
    amounts = {**container.resources.limits, **container.resources.requests}
    return {name: parse(str(value)) or Fraction(0) for name, value in amounts.items()}


def _sum(parts: Iterable[Mapping[str, Fraction]]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def _most(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    names: Collection[str] = {*one, *other}
    return {name: max(one.get(name, Fraction(0)), other.get(name, Fraction(0))) for name in names}


def _number(amount: Fraction) -> str:
    return str(amount) if amount.denominator == 1 else f"{float(amount):g}"


def _ready(since: float, now: float) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the small kubelet is ready",
        "lastHeartbeatTime": second_time(now),
        "lastTransitionTime": second_time(since),
    }
