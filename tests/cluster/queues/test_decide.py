"""The scenario tables, and what tables can't say, against the real centre, kube-scheduler and API server."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from cluster.guarded import asking
from cluster.harness.api import MERGE, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.errors import ApiError
from cluster.installed import NAMES
from cluster.played_centre import PlayedCentre
from cluster.queueing import QUEUES, queue
from cluster.queues.going import controller, evicted, leaving, pass_time, see_off
from cluster.queues.told import said, used
from support.queue_scenarios import SCENARIOS, Pods, Scenario, said_now
from support.reclaim_scenarios import RECLAIMS

# A pod's name is not used again at once, and none has fewer digits than another of its row: of those that were
# created within one second the name decides who comes first.
_first_numbers = itertools.count(100, 100)


def home(name: str) -> Json:
    """A namespace that is at home in the queue of its name."""
    meta = {"name": f"{name}-1", "labels": {NAMES.queue: name}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def priority_class(value: int, *, name: str = "") -> Json:
    """The PriorityClass of a number."""
    meta = {"name": name or f"priority-{value}"}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": value}


def submit(cluster: ClusterHarness, pods: Pods, made: dict[str, int]) -> None:
    """Create them, one after the other."""
    for _ in range(pods.count):
        asks = {"compute": str(pods.compute), "memory": str(pods.memory)}
        wanted = asking(f"p{made[pods.queue]}", f"{pods.queue}-1", asks)
        made[pods.queue] += 1
        meta = wanted["metadata"]
        meta["labels"] = {**meta.get("labels", {}), **({NAMES.group: pods.gang} if pods.gang else {})}
        meta["annotations"] = {
            **meta.get("annotations", {}),
            **{NAMES.of(short): text for short, text in pods.notes.items()},
        }
        if pods.priority:
            wanted["spec"]["priorityClassName"] = f"priority-{pods.priority}"
        if pods.by:
            meta["ownerReferences"] = [controller(cluster, pods.by, meta["namespace"])]
        cluster.create_pod(wanted)


@pytest.mark.parametrize("scenario", [*SCENARIOS, *RECLAIMS], ids=lambda one: one.name)
def test_it_is_as_the_table_says(cluster: ClusterHarness, centre: PlayedCentre, scenario: Scenario) -> None:
    """By the grants that pods hold, and by the gates that stand."""
    leaves = scenario.queues.keys() - {spec.get("parent") for spec in scenario.queues.values()}
    queues = [queue(name, **spec) for name, spec in scenario.queues.items()]
    made = dict.fromkeys(leaves, next(_first_numbers))
    priorities = {pods.priority for step in scenario.steps for pods in step.submit} - {0}
    classes = [priority_class(value) for value in sorted(priorities)]
    with centre.applied([*classes, *queues, *(home(name) for name in sorted(leaves))]):
        stubborn, said, before = 0, dict(scenario.queues), evicted(centre)
        for step in scenario.steps:
            for name, spec in step.says.items():
                says(cluster, name, spec)
            pass_time(centre, step, leaves)
            for pods in step.submit:
                submit(cluster, pods, made)
            for name, count in step.end.items():
                for pod in centre.holding(f"{name}-1")[:count]:
                    centre.end(pod)
            see_off(centre, step)
            centre.settled({f"{name}-1": held for name, held in step.held.items()})
            centre.lined_up({f"{name}-1": count for name, count in step.waiting.items()})
            stubborn = 0 if step.kills else stubborn + sum(step.ignores.values())
            assert len(leaving(centre, leaves)) == stubborn, "nobody goes beside those"
            if step.says:
                said = said_now(said, step)
                cluster.wait_for("all queues to be told of", partial(is_told, centre, said))
        assert max((evicted(centre) - before).values(), default=0) <= 1, "nobody is asked twice"


def says(cluster: ClusterHarness, name: str, spec: Mapping[str, Any] | None) -> None:
    """A queue says so from now on; or is deleted."""
    if spec is None:
        cluster.api.delete(f"{QUEUES}/{name}")
    else:
        cluster.api.apply(queue(name, **spec))


def is_told(centre: PlayedCentre, queues: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether all statuses say that so much is used as pods hold."""
    return {name: used(centre, name) for name in queues} == below(centre, queues)


def below(centre: PlayedCentre, queues: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """What the pods in each queue hold by their grants, or below it; no tree here is deeper than that."""
    own = {name: centre.held(f"{name}-1") for name in queues}
    return {
        name: own[name] + sum(own[child] for child in queues if queues[child].get("parent") == name) for name in queues
    }


def test_a_bound_pod_stays_charged_where_it_was_let_in(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """Its namespace goes to another queue, and a leader reads all anew: what waits goes there, what runs stays."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one", "labels": {NAMES.queue: "one"}}}
    with centre.applied([queue("one", compute={"limit": 200}), queue("two", compute={"limit": 50}), namespace]):
        for name in ("runs", "waits"):
            cluster.create_pod(asking(name, "one", {"compute": "150", "memory": "1000"}))
            centre.settled({"one": 150})
        centre.api.patch("/api/v1/namespaces/one", {"metadata": {"labels": {NAMES.queue: "two"}}})
        replica = centre.centre.replicas[0]
        replica.process.stop()
        replica.start()
        cluster.wait_for("the new leader to tell", lambda: said(centre, "waits") == "NeverFits")
        cluster.wait_for("both queues to be told of", lambda: used(centre, "one") == 150 and used(centre, "two") == 0)


# No pod with this label passes its gate, whoever would lift it.
STUCK = {"stuck": "behind-its-gate"}
_POLICIES = "admissionregistration.k8s.io/v1"


def nobody_lifts() -> list[Json]:
    """A policy that refuses it, and in force."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}]
    spec = {
        "matchConstraints": {"objectSelector": {"matchLabels": STUCK}, "resourceRules": rules},
        "validations": [{"expression": "has(object.spec.schedulingGates) || !has(oldObject.spec.schedulingGates)"}],
    }
    meta = {"name": "nobody-lifts"}
    kind = "ValidatingAdmissionPolicy"
    binding = {"policyName": meta["name"], "validationActions": ["Deny"]}
    return [
        {"apiVersion": _POLICIES, "kind": kind, "metadata": meta, "spec": spec},
        {"apiVersion": _POLICIES, "kind": f"{kind}Binding", "metadata": meta, "spec": binding},
    ]


def is_stuck(centre: PlayedCentre, made: Json) -> bool:
    """Whether the gate of a pod can't be lifted."""
    body = {"spec": {"schedulingGates": None}}
    try:
        centre.api.request("PATCH", centre.api.path_of(made), body=body, query={"dryRun": "All"}, content_type=MERGE)
    except ApiError:
        return True
    return False


def was_refused(centre: PlayedCentre, pod: str) -> bool:
    """Whether the leader has decided to let a pod in, and could not lift its gate."""
    return any(line["pod"] == pod for line in centre.centre.logged("a pod could not be told of its turn"))


def test_a_leader_killed_before_a_gate_is_lifted_costs_nothing(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """Of a gang one has passed its gate, of the other nothing tells that its turn had come; its successor goes on."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one", "labels": {NAMES.queue: "one"}}}
    gang = {"labels": {NAMES.group: "g"}, "annotations": {NAMES.group_size: "2"}}
    with centre.applied([queue("one", compute={"limit": 150}), namespace]):
        with centre.applied(nobody_lifts()):
            probe = asking("probe", "one", {}, labels=STUCK)
            probe["spec"]["schedulingGates"] = [{"name": "example.com/never"}]
            made = cluster.create_pod(probe)
            cluster.wait_for("the policy to be in force", lambda: is_stuck(centre, made) or None)
            for name, more in (("free", {}), ("stuck", STUCK)):
                notes = {**gang, "labels": {**gang["labels"], **more}}
                cluster.create_pod(asking(name, "one", {"compute": "50", "memory": "1000"}, **notes))
            centre.settled({"one": 50})
            cluster.wait_for("the lifting to be refused", lambda: was_refused(centre, "one/stuck") or None)
            centre.centre.replicas[0].process.kill()
        centre.centre.replicas[0].start()
        centre.settled({"one": 100}, timeout=90)
        cluster.create_pod(asking("late", "one", {"compute": "100", "memory": "1000"}))
        cluster.wait_for("the limit to be told", lambda: said(centre, "late") == "OverLimit" or None)
        for pod in centre.holding("one"):
            centre.end(pod)
        centre.settled({"one": 100})
        cluster.wait_for("the queue to be told of", lambda: used(centre, "one") == 100 or None)


def test_a_budget_of_a_borrower_s_own_keeps_for_a_while_what_it_borrowed(
    cluster: ClusterHarness, centre: PlayedCentre
) -> None:
    """The owner is told of it; then one is deleted, nobody twice, and what is freed is kept for the owner."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": "borrower-1"},
        "spec": {"minAvailable": "100%", "selector": {}},
    }
    queues = [queue("owner", compute={"guarantee": 150}), queue("borrower")]
    with centre.applied([*queues, home("owner"), home("borrower")]):
        for number in range(4):
            cluster.create_pod(asking(f"b{number}", "borrower-1", {"compute": "100", "memory": "1000"}))
            centre.settled({"borrower-1": 100 * (number + 1)})
        centre.runs("borrower-1")
        with centre.applied([budget]):
            cluster.create_pod(asking("o", "owner-1", {"compute": "100", "memory": "1000"}))
            kept = "4 pods are kept by a PodDisruptionBudget of queue borrower"
            cluster.wait_for("the reason to be told", lambda: any(kept in why for why in whys(centre, "owner-1")))
            cluster.wait_for("one to be deleted", lambda: len(centre.leaving("borrower-1")) == 1, timeout=60)
            cluster.wait_for("it to be told so", lambda: reason(centre, "owner-1") == "MakingRoom")
            centre.let_go("borrower-1")
            centre.settled({"owner-1": 100, "borrower-1": 300})
            assert centre.leaving("borrower-1") == []


def reason(centre: PlayedCentre, namespace: str) -> str:
    """Why the one pod of a namespace waits, as its condition says."""
    (pod,) = centre.pods(namespace)
    conditions = pod["status"].get("conditions", [])
    return next((str(one["reason"]) for one in conditions if one["type"] == NAMES.admitted), "")


def nodes_of(centre: PlayedCentre, namespace: str) -> list[str]:
    """Where pods that hold slices lie, a word for each."""
    return sorted(pod["spec"]["nodeName"] for pod in centre.holding(namespace))


def whys(centre: PlayedCentre, namespace: str) -> list[str]:
    """Why pods wait there, as their conditions say."""
    conditions = [one for pod in centre.pods(namespace) for one in pod["status"].get("conditions", [])]
    return [str(one["message"]) for one in conditions if one["type"] == NAMES.admitted]


@pytest.mark.parametrize(
    ("topology", "lies", "never"),
    [
        ("node", ["gpu2", "gpu2"], "which ask on one node 500 % of compute, of which at most 400 % are there"),
        ("spread", ["gpu1", "gpu2"], "on a node each, and 2 could take them"),
    ],
)
def test_a_gang_lies_as_it_asks_to(
    cluster: ClusterHarness, centre: PlayedCentre, topology: str, lies: list[str], never: str
) -> None:
    """On one node, or on a node each, bound by kube-scheduler; one that never could is told why and keeps nothing."""
    with centre.one_more_node("gpu2", gpus=2), centre.applied([queue("red", compute={"guarantee": 600}), home("red")]):
        made = {"red": 0}
        notes = {"group-topology": topology}
        for gang, count in (("large", 5), ("small", 2)):
            sized = {**notes, "group-size": str(count)}
            submit(cluster, Pods(queue="red", count=count, compute=100, gang=gang, notes=sized), made)
        centre.settled({"red-1": 200})
        assert nodes_of(centre, "red-1") == lies
        centre.lined_up({"red-1": 5})
        cluster.wait_for("why it can't start to be told", lambda: any(never in why for why in whys(centre, "red-1")))


def test_a_namespace_deleted_under_load_leaves_its_cards_to_others(
    cluster: ClusterHarness, centre: PlayedCentre
) -> None:
    """What ran there is charged until it is gone, what waited there waits no more, and others come in."""
    with centre.applied([queue("red"), queue("blue"), home("red"), home("blue")]):
        made = {"red": 0, "blue": 0}
        submit(cluster, Pods(queue="red", count=8, compute=100), made)
        centre.settled({"red-1": 400})
        submit(cluster, Pods(queue="blue", count=5, compute=100), made)
        centre.lined_up({"red-1": 4, "blue-1": 5})
        cluster.api.delete("/api/v1/namespaces/red-1")
        cluster.wait_for(
            "those that waited to be gone", lambda: len(centre.pods("red-1")) == len(centre.leaving("red-1")) == 4
        )
        assert centre.held("blue-1") == 0
        centre.let_go("red-1")
        centre.settled({"blue-1": 400})
        cluster.wait_for(
            "nothing to be charged there", lambda: used(centre, "red") == 0 and used(centre, "blue") == 400
        )
        cluster.wait_for("it to be gone", lambda: cluster.api.find("/api/v1/namespaces/red-1") is None)
