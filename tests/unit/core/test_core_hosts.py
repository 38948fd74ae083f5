"""What pods request of their nodes' CPU and memory: as Kubernetes writes it, and as kube-scheduler counts it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.errors import UserError
from aliquot_core.hosts import MOST, extended_request, host_request, own_request, quantity
from aliquot_core.names import Names
from aliquot_core.objects import Container, Pod, PodSpec, Quantity, ResourceRequirements
from aliquot_core.request import Kind, most_at_once

NAMES = Names()


def container(cpu: str = "", memory: str = "", *, always: bool = False) -> Container:
    """A container that requests so much."""
    asked: dict[str, Quantity] = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    return Container(
        name="c", resources=ResourceRequirements(requests=asked), restart_policy="Always" if always else None
    )


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("64", 64),
        ("500m", Fraction(1, 2)),
        ("512Gi", 512 * 2**30),
        ("1.5k", 1500),
        ("2e3", 2000),
        (0.25, Fraction(1, 4)),
    ],
)
def test_a_quantity_is_read_exactly(text: str | float, amount: Fraction) -> None:
    """With suffixes of both kinds, exponents and fractions."""
    assert quantity(text, where="here") == amount


@pytest.mark.parametrize("text", ["", "many", "-1", "1 Gi", "1Xi", "Gi", "1.2.3", ".5"])
def test_what_is_no_quantity_is_refused_with_what_to_write(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(UserError, match=r"is no quantity; write one such as 64, 500m or 512Gi"):
        quantity(text, where="here")


def test_a_pod_requests_the_most_that_runs_at_one_time() -> None:
    """Sidecars that have started stay beside each init container that comes after them, and beside app containers."""
    pod = Pod(
        spec=PodSpec(
            init_containers=[container("4"), container("1", "1Mi", always=True), container("3500m")],
            containers=[container("2"), container("500m", "1Ki")],
        )
    )
    assert host_request(pod) == (4500, 2**20 + 2**10)


def test_a_limit_stands_in_for_a_request_and_what_cannot_be_read_counts_nothing() -> None:
    """The API server has taken it, so no pod is failed for it."""
    limited = Container(name="a", resources=ResourceRequirements(limits={"cpu": "2"}))
    assert host_request(Pod(spec=PodSpec(containers=[limited, container("odd")]))) == (2000, 0)


KINDS = st.sampled_from(list(Kind))


@given(containers=st.lists(st.tuples(KINDS, st.integers(min_value=0, max_value=9)), max_size=8))
def test_the_most_at_one_time_is_that_of_some_instant(containers: list[tuple[Kind, int]]) -> None:
    """Instants are each container's start: then all those before it run that do not end, and it itself."""
    instants = [
        sum(before for other, before in containers[:number] if other is not Kind.INIT) + amount
        for number, (_, amount) in enumerate(containers)
    ]
    assert most_at_once(containers, nothing=0) == max(instants, default=0)


def spec_of(*containers: dict[str, Any], inits: Sequence[dict[str, Any]] = (), **more: Any) -> dict[str, Any]:
    """A pod's spec, of containers by what they say of resources."""
    named = [{"name": f"c{at}", "resources": one} for at, one in enumerate(containers)]
    return {"containers": named, "initContainers": [*inits], **more}


def init(cpu: str, **more: Any) -> dict[str, Any]:
    """A container that runs before the others, or, as a sidecar, beside them."""
    return {"name": "i", "resources": {"requests": {"cpu": cpu}}, **more}


def asks(cpu: str, **more: str) -> dict[str, Any]:
    """Resources that are requested."""
    return {"requests": {"cpu": cpu, **more}}


def has(cpu: str, allocated: str | None = None, name: str = "c0") -> dict[str, Any]:
    """What the kubelet says of a container, or of all of them: what is in force, and what it has let it have."""
    return {"name": name, "resources": asks(cpu), "allocatedResources": {"cpu": allocated or cpu}}


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}
SIDECAR = {"restartPolicy": "Always"}

# Name: (spec, status, thousandths of CPU that kube-scheduler counts, by `PodRequests` of its component helpers).
COUNTED: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "its containers": (spec_of(asks("2"), asks("500m")), {}, 2500),
    "a sidecar beside its container": (spec_of(asks("2"), inits=[init("1", **SIDECAR)]), {}, 3000),
    "an init container that asks more than all": (spec_of(asks("2"), inits=[init("3")]), {}, 3000),
    "its sandbox beside its containers": (spec_of(asks("2"), overhead={"cpu": "250m"}), {}, 2250),
    "the pod more than its containers": (spec_of(asks("1"), resources=asks("6")), {}, 6000),
    "the pod less than its init container": (spec_of(asks("1"), inits=[init("3")], resources=asks("2")), {}, 2000),
    "the pod for containers that ask nothing": (spec_of({}, {}, resources=asks("6")), {}, 6000),
    "the pod, and its sandbox": (spec_of({}, resources=asks("6"), overhead={"cpu": "250m"}), {}, 6250),
    "the pod no CPU, but memory": (spec_of(asks("2"), resources={"requests": {"memory": "1Gi"}}), {}, 2000),
    "a limit of the pod for a request": (spec_of({}, resources={"limits": {"cpu": "6"}}), {}, 6000),
    "a limit of the pod beside its containers": (spec_of(asks("2"), resources={"limits": {"cpu": "6"}}), {}, 2000),
    "nothing, the pod neither": (spec_of({}, resources={}), {}, 0),
    "more than it has yet": (spec_of(asks("4")), {"containerStatuses": [has("2")]}, 4000),
    "less than is in force": (spec_of(asks("1")), {"containerStatuses": [has("2", "1")]}, 2000),
    "less than it was let have": (spec_of(asks("1")), {"containerStatuses": [has("1", "2")]}, 2000),
    "what it will never have": (spec_of(asks("9")), {"containerStatuses": [has("2", "3")], **INFEASIBLE}, 3000),
    "what it may have later": (spec_of(asks("9")), {"containerStatuses": [has("2")], **DEFERRED}, 9000),
    "a sidecar that has more": (
        spec_of(asks("1"), inits=[init("1", **SIDECAR)]),
        {"containerStatuses": [has("1")], "initContainerStatuses": [has("3", name="i")]},
        4000,
    ),
    "an init container that had more": (
        spec_of(asks("1"), inits=[init("2")]),
        {"containerStatuses": [has("1")], "initContainerStatuses": [has("3", name="i")]},
        2000,
    ),
    "the pod less than it has": (spec_of({}, resources=asks("1")), has("3", "2"), 3000),
    "the pod what it will never have": (spec_of({}, resources=asks("9")), {**has("2", "3"), **INFEASIBLE}, 3000),
    "the pod more, whatever its containers have": (
        spec_of(asks("1"), resources=asks("2")),
        {"containerStatuses": [has("5")]},
        2000,
    ),
    "its containers, of which nothing is told yet": (
        spec_of(asks("2")),
        {"containerStatuses": [{"name": "c0", "allocatedResources": {"cpu": "7"}}]},
        2000,
    ),
}


@pytest.mark.parametrize(("spec", "status", "milli"), COUNTED.values(), ids=COUNTED)
def test_it_counts_as_kube_scheduler_does(spec: dict[str, Any], status: dict[str, Any], milli: int) -> None:
    """Of sidecars, sandboxes, what a pod says for all its containers, and while it is resized."""
    pod = msgspec.convert({"spec": {"nodeName": "n", **spec}, "status": status}, Pod)
    assert host_request(pod) == (milli, 2**30 if "memory" in str(spec) else 0)


def test_what_a_pod_says_for_all_containers_is_cpu_memory_and_huge_pages() -> None:
    """Our own resources, and those of others, the API server refuses there; were they there, they counted nothing."""
    ours = dict.fromkeys(NAMES.resources(), "50")
    spec = {
        "containers": [{"name": "c"}],
        "resources": {"requests": {"hugepages-2Mi": "4Mi", "x.io/fpga": "1", **ours}},
    }
    pod = msgspec.convert({"spec": spec}, Pod)
    assert extended_request(pod, but=NAMES.resources()) == (("hugepages-2Mi", 4 * 2**20),)
    assert own_request(pod, names=NAMES) == (0, 0, 0)


def test_a_request_beyond_all_nodes_is_counted_as_more_than_any_has() -> None:
    """The API server takes it of anybody, and nobody's arrays may overflow for it."""
    pod = Pod(spec=PodSpec(containers=[container("10P", "7Ei"), container("10P", "7Ei")]))
    assert host_request(pod) == (MOST, MOST)
