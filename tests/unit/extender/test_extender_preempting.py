"""Whom kube-scheduler may evict by itself."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_core.objects import Pod
from aliquot_scheduler.extender.preempting import goes_by_priority, runs_the_cluster, spared
from support.centre import NAMES, asks, make_pod

PLAIN = make_pod("plain", {"name": "main"})


# Of whom the centre knows what they ask.
THERE = {
    "slice": asks("slice", 50, 1_000),
    **{uid: make_pod(uid, {"name": "main"}) for uid in ("web", "cache")},
}
OFFERED = {"n1": ["slice"], "n2": ["web", "cache"], "n3": ["web", "slice"], "n4": ["web", "unheard-of"]}
# Who asks, in which namespace: where kube-scheduler may evict whom it has found.
EVICT = {
    "for cores alone": (PLAIN, "tenant", {"n2": ["web", "cache"], "n4": ["web", "unheard-of"]}),
    "for a slice": (asks("p", 10, 1_000), "tenant", {}),
    "for a slice, in a namespace of the system": (asks("p", 10, 1_000), "kube-system", {}),
}


@pytest.mark.parametrize(("pod", "namespace", "left"), EVICT.values(), ids=EVICT)
def test_nobody_who_has_a_slice_is_evicted_by_kube_scheduler(
    pod: Pod, namespace: str, left: dict[str, list[str]]
) -> None:
    """A node is left with all whom it has found there, since fewer make no room."""
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace=namespace))
    assert spared(pod, OFFERED, pods=THERE, names=NAMES) == left


LABELS = {
    "storage": {NAMES.runs_the_cluster: "true"},
    "denied": {NAMES.runs_the_cluster: "false"},
    "exporters": {NAMES.of("ways-round"): "allow"},
}


def of(pod: Pod, *, namespace: str = "tenant", priority: int = 0) -> Pod:
    """The pod as this one's."""
    meta, spec = pod.metadata, pod.spec
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(meta, namespace=namespace),
        spec=msgspec.structs.replace(spec, priority=priority),
    )


SLICE = asks("slice", 50, 1_000)
WHO = {
    # Whether it goes so itself, and whether whoever is found goes for it.
    "a tenant's": (of(PLAIN), True, False),
    "a tenant's of the highest class that one may make": (of(PLAIN, priority=1_000_000_000), True, False),
    "the network": (of(PLAIN, namespace="kube-system"), True, True),
    "ours": (of(PLAIN, namespace=NAMES.namespace), True, True),
    "a storage driver, where an operator says so": (of(PLAIN, namespace="storage"), True, True),
    "a tenant's of a class of the system": (of(PLAIN, priority=2_000_001_000), True, False),
    "whoever an operator says something else of": (of(PLAIN, namespace="denied"), True, False),
    "an exporter, which may go round us": (of(PLAIN, namespace="exporters"), True, False),
    "with a slice, where an operator says so": (of(SLICE, namespace="storage"), False, False),
    "with a slice": (of(SLICE), False, False),
    "with a slice, in a namespace of the system": (of(SLICE, namespace="kube-system"), False, False),
    "with a slice, of a class of the system": (of(SLICE, priority=2_000_001_000), False, False),
}


@pytest.mark.parametrize(("pod", "goes", "takes"), WHO.values(), ids=WHO)
def test_who_has_a_slice_neither_goes_by_priority_nor_sends_away(pod: Pod, goes: bool, takes: bool) -> None:
    """Of the others those that run the cluster come first, by their namespaces alone."""
    assert goes_by_priority(pod, names=NAMES) is goes
    labels = LABELS.get(pod.metadata.namespace, {})
    assert runs_the_cluster(pod, labels=labels, names=NAMES) is takes
