"""For whom whoever has slices may be evicted by priority."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.extender.preemptors import Preemptors

NAMES = Names()
Json = dict[str, Any]
SLICE = [{"name": "main", "resources": {"limits": {NAMES.compute: "10"}}}]
UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
GATED = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]


def pod(uid: str = "p", *, spec: Json | None = None, status: Json | None = None, **meta: str) -> Pod:
    """A pod of kube-system with a priority of 1,000, as the API server tells of it."""
    metadata = {"name": f"pod-{uid}", "namespace": "kube-system", "uid": uid, **meta}
    said = {"containers": [{"name": "main"}], "priority": 1_000, **(spec or {})}
    return msgspec.convert({"metadata": metadata, "spec": said, "status": status or {"phase": "Pending"}}, Pod)


def victim(node: str = "n1", *, priority: int = 0) -> Pod:
    """Who has a slice there."""
    return pod("victim", spec={"nodeName": node, "priority": priority, "containers": SLICE}, namespace="team")


def pinned(*nodes: str, fields: bool = True) -> Json:
    """As a DaemonSet pins its pods, or by a label."""
    test = {"key": "metadata.name" if fields else "kubernetes.io/hostname", "operator": "In", "values": [*nodes]}
    terms = [{"matchFields" if fields else "matchExpressions": [test]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


# Who waits, and on which of two nodes others may go for it.
ROWS: dict[str, tuple[Pod, set[str]]] = {
    "it was not tried yet": (pod(), {"n1", "n2"}),
    "it waited behind a gate": (pod(status={"conditions": GATED}), {"n1", "n2"}),
    "it is nominated": (pod(status={"nominatedNodeName": "n1", "conditions": UNSCHEDULABLE}), {"n1"}),
    "it fits nowhere, whoever goes": (pod(status={"conditions": UNSCHEDULABLE}), set()),
    "looking at it fails": (pod(status={"conditions": [{**UNSCHEDULABLE[0], "reason": "SchedulerError"}]}), set()),
    "its DaemonSet pins it": (pod(spec=pinned("n2")), {"n2"}),
    "it may lie on two": (pod(spec=pinned("n1", "n2")), {"n1", "n2"}),
    "a label pins it": (pod(spec=pinned("n1", fields=False)), {"n1", "n2"}),
    "it is pinned, and nominated elsewhere": (pod(spec=pinned("n2"), status={"nominatedNodeName": "n1"}), {"n1"}),
    "it is pinned, and fits not": (pod(spec=pinned("n2"), status={"conditions": UNSCHEDULABLE}), set()),
    "its affinity can't be read": (pod(spec={"affinity": {"nodeAffinity": 1}}), {"n1", "n2"}),
    "it is bound": (pod(spec={"nodeName": "n1"}), set()),
    "it has ended": (pod(status={"phase": "Failed"}), set()),
    "it goes": (pod(deletionTimestamp="2026-11-23T00:00:00Z"), set()),
    "it is gated": (pod(spec={"schedulingGates": [{"name": "g"}]}), set()),
    "its class evicts nobody": (pod(spec={"preemptionPolicy": "Never"}), set()),
    "its priority is the victim's": (pod(spec={"priority": 0}), set()),
    "it has a slice itself": (pod(spec={"containers": SLICE}), set()),
    "it is a tenant's": (pod(namespace="team"), set()),
    "it is a tenant's, and nominated": (pod(namespace="team", status={"nominatedNodeName": "n1"}), set()),
    "it is a tenant's, and critical": (pod(namespace="team", spec={"priority": 2_000_000_000}), set()),
    "its namespace is labelled": (pod(namespace="calico"), {"n1", "n2"}),
    "its namespace may go round us alone": (pod(namespace="exporters"), set()),
}
LABELS = {"calico": {NAMES.runs_the_cluster: "true"}, "exporters": {NAMES.of("ways-round"): "allow"}}


@pytest.mark.parametrize("row", ROWS)
def test_others_go_for_what_runs_the_cluster_where_it_may_lie(row: str) -> None:
    """And for nobody else; nor once it is gone."""
    waiting, nodes = ROWS[row]
    preemptors = Preemptors(names=NAMES)
    preemptors.seen(waiting, labels=LABELS.get(waiting.metadata.namespace, {}), now=0.0)
    assert {node for node in ("n1", "n2") if preemptors.one_for(victim(node), now=0.0) is waiting} == nodes
    preemptors.gone(waiting)
    assert preemptors.one_for(victim(), now=0.0) is None


def test_the_last_word_on_a_pod_counts() -> None:
    """It is nominated, then elsewhere, then bound; others wait beside it."""
    preemptors, other = Preemptors(names=NAMES), pod("other", status={"nominatedNodeName": "n3"})
    preemptors.seen(other, labels={}, now=0.0)
    told = []
    for status, node in (({}, ""), ({"nominatedNodeName": "n1"}, ""), ({"nominatedNodeName": "n2"}, ""), ({}, "n2")):
        preemptors.seen(pod(status=status, spec={"nodeName": node}), labels={}, now=0.0)
        told.append({name for name in ("n1", "n2") if preemptors.one_for(victim(name), now=0.0)})
    assert told == [{"n1", "n2"}, {"n1"}, {"n2"}, set()]
    assert preemptors.one_for(victim("n3"), now=0.0) is other
    assert preemptors.one_for(victim("n3", priority=1_000), now=0.0) is None


# What is told of one pod after so many seconds, and on which of two nodes others may go for it after 90.
UNSEEN, WAITED = {"schedulerName": "nobody"}, pod(spec={"schedulerName": "nobody"})
OVERLOOKED: dict[str, tuple[list[tuple[float, Pod]], set[str]]] = {
    "nobody looks at it": ([(0, WAITED)], set()),
    "nobody looks at it, whatever else is told of it": ([(0, WAITED), (80, WAITED)], set()),
    "nobody looks at one that is pinned": ([(0, pod(spec=UNSEEN | pinned("n2")))], set()),
    "it has come since": ([(31, WAITED)], {"n1", "n2"}),
    "its gate was lifted since": (
        [(0, pod(spec=UNSEEN | {"schedulingGates": [{"name": "g"}]})), (31, WAITED)],
        {"n1", "n2"},
    ),
    "it is looked at late, and nominated": ([(0, WAITED), (80, pod(status={"nominatedNodeName": "n1"}))], {"n1"}),
    "it is nominated for long": ([(0, pod(status={"nominatedNodeName": "n1"}))], {"n1"}),
    "another one comes later": ([(0, WAITED), (31, pod("q", spec=UNSEEN))], {"n1", "n2"}),
}


@pytest.mark.parametrize("row", OVERLOOKED)
def test_one_that_no_scheduler_looks_at_opens_nodes_for_a_minute_at_the_most(row: str) -> None:
    """Whatever name it has given: that of none would open all of them for ever."""
    words, nodes = OVERLOOKED[row]
    preemptors = Preemptors(names=NAMES)
    for at, word in words:
        preemptors.seen(word, labels={}, now=at)
    assert {node for node in ("n1", "n2") if preemptors.one_for(victim(node), now=90.0)} == nodes


def test_who_is_forgotten_leaves_nothing() -> None:
    """Pods come and go for months."""
    preemptors = Preemptors(names=NAMES)
    for number in range(3):
        status = {"nominatedNodeName": f"n{number}"} if number else {}
        preemptors.seen(pod(str(number), status=status), labels={}, now=0.0)
    for number in range(3):
        preemptors.gone(pod(str(number)))
        preemptors.gone(pod(str(number)))
    assert not any(vars(preemptors)[kept] for kept in ("_node_of", "_at", "_since"))
