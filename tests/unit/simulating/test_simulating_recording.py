"""A cluster that is written down is read back as it was."""

from __future__ import annotations

import csv
from typing import Any

import msgspec

from aliquot_core.inventory import Gpu
from aliquot_core.objects import Node, Pod
from aliquot_scheduler.simulating.reading import PodList, read_nodes, read_order, read_pods
from aliquot_scheduler.simulating.recording import Recorded, record
from aliquot_scheduler.simulating.workload import Machine, Need
from support.centre import MEMORY, NAMES, asks, bound, container, gpus, make_node, make_pod, sick
from support.mig import instances

T4 = "NVIDIA T4"


def at(pod: Pod, second: int) -> Pod:
    """The pod, created at that second of a minute."""
    metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=f"2026-11-21T10:00:{second:02}Z")
    return msgspec.structs.replace(pod, metadata=metadata)


def host(pod: Pod, **amounts: str) -> Pod:
    """The pod, which requests of its node too."""
    pod.spec.containers[0].resources.requests.update(amounts)
    return pod


def node(name: str, *cards: Gpu) -> Node:
    """With 8 cores and 16 GiB."""
    made = make_node(name, cards)
    made.status.allocatable.update(cpu="8", memory="16Gi")
    return made


def back(told: Recorded) -> tuple[tuple[Machine, ...], PodList]:
    """As `simulate` reads it."""
    machines = read_nodes(told.nodes.splitlines(keepends=True), name="nodes")
    return machines, read_pods(told.pods.splitlines(keepends=True), name="pods", machines=machines)


def rows(told: Recorded) -> list[dict[str, Any]]:
    """The pods, by column."""
    return list(csv.DictReader(told.pods.splitlines()))


def recorded(*pods: Pod, nodes: tuple[Node, ...] = ()) -> Recorded:
    """On two nodes unless others are named."""
    nodes = nodes or (node("n1", *gpus("n1", 2)), node("n2", *gpus("n2", 1, model=T4, memory=15_000)))
    return record(nodes=nodes, pods=pods, names=NAMES, seed=7)


def test_nodes_are_written_as_they_are_empty() -> None:
    """With the memory of their cards; a sick GPU is there too, one in MIG mode and its instances have no place."""
    mig = msgspec.structs.replace(gpus("m", 1)[0], mig=True)
    cards = (
        *gpus("n1", 2),
        sick(gpus("s", 1)[0]),
        mig,
        *instances("i", "1g.10gb"),
        *gpus("t", 1, model=T4, memory=15_000),
    )
    machines, _ = back(recorded(at(asks("u", 5, 5), 0), nodes=(node("n1", *cards), node("plain"))))
    assert machines == (
        Machine(name="n1", cores=8_000, memory=16_384, gpus=4, model="NVIDIA A100-SXM4-80GB", card=MEMORY),
        Machine(name="plain", cores=8_000, memory=16_384),
    )


def test_labels_of_nodes_are_written_for_rules() -> None:
    """Those of pods are not: the format has no place for them."""
    labelled = make_node("n1", gpus("n1", 1), labels={"disktype": "ssd", "a.b/c": ""})
    machines, _ = back(recorded(at(asks("u", 5, 5), 0), nodes=(labelled,)))
    assert machines[0].labels == (("a.b/c", ""), ("disktype", "ssd"))


def test_pods_are_written_as_they_came_with_what_they_ask() -> None:
    """Of each GPU the milli and the MiB; memory that is left out stays so; those without GPUs too."""
    plain = host(make_pod("plain", {"name": "main", "resources": {}}), cpu="500m", memory="1Gi")
    told = recorded(
        at(asks("memory-only", None, 700), 4),
        at(plain, 1),
        at(host(asks("half", 50, 30_000), cpu="2"), 2),
        at(asks("large", 200, None), 3),
    )
    _, listed = back(told)
    assert [listed.needs[number] for number in listed.pods] == [
        Need(cores=500, memory=1_024),
        Need(cores=2_000, memory=0, gpus=1, milli=500, card=30_000),
        Need(cores=0, memory=0, gpus=2, milli=1_000),
        Need(cores=0, memory=0, gpus=1, milli=1, card=700),
    ]
    assert (told.machines, told.arrivals, told.left_out) == (2, 4, 0)
    assert read_order(told.order.splitlines(), name="order", seed=7, pods=4).tolist() == [0, 1, 2, 3]


def test_models_are_written_where_they_are_a_choice() -> None:
    """By the names that nodes have; who wants what no node has is left out, and counted."""
    wishes = ("*A100*", "!*T4*", "*", "H100")
    pods = [
        at(asks(f"u{number}", 5, 5, annotations={NAMES.gpu_model: wish}), number) for number, wish in enumerate(wishes)
    ]
    told = recorded(*pods)
    assert [row["gpu_spec"] for row in rows(told)] == ["NVIDIA A100-SXM4-80GB"] * 2 + [""]
    assert told.left_out == 1
    assert back(told)[1].needs[0].models == ("NVIDIA A100-SXM4-80GB",)


def test_when_pods_came_were_bound_and_ended_is_told_in_seconds() -> None:
    """Since the first; what has not happened yet is empty."""
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T10:00:09Z"}]
    ends = [{"state": {"terminated": {"finishedAt": f"2026-11-21T10:01:{second:02}Z"}}} for second in (10, 5)]
    status = {"phase": "Succeeded", "conditions": conditions, "containerStatuses": ends}
    done = msgspec.structs.replace(asks("done", 5, 5), status=msgspec.convert(status, type(Pod().status)))
    found = rows(recorded(at(done, 5), at(asks("waits", 5, 5), 35)))
    times = [[row[f"{what}_time"] for what in ("creation", "scheduled", "deletion")] for row in found]
    assert times == [["0", "4", "65"], ["30", "", ""]]
    assert [row["name"] for row in found] == ["team/pod-done", "team/pod-waits"]


def test_whose_pods_are_is_told() -> None:
    """The queue that let a pod in goes before the one that it names; the user is the namespace."""
    named = at(asks("named", 5, 5, labels={NAMES.queue: "vision"}), 1)
    let_in = at(asks("in", 5, 5, labels={NAMES.queue: "vision"}, annotations={NAMES.charged: "speech"}), 2)
    found = rows(recorded(named, let_in, at(asks("plain", 5, 5, namespace="lab"), 3)))
    assert [(row["queue"], row["user"]) for row in found] == [("vision", "team"), ("speech", "team"), ("", "lab")]


def test_pods_of_a_node_are_taken_off_it() -> None:
    """A DaemonSet's, and static ones: they don't arrive. One that has ended takes nothing."""
    daemon = bound(host(asks("d", 5, 5), cpu="1", memory="1Gi"), node="n1", held={})
    daemon.metadata.labels["pod-template-generation"] = "1"
    mirror = bound(host(asks("m", 5, 5), cpu="500m"), node="n1", held={})
    mirror.metadata.annotations["kubernetes.io/config.mirror"] = "x"
    over = msgspec.structs.replace(daemon, status=msgspec.structs.replace(daemon.status, phase="Failed"))
    told = recorded(daemon, mirror, over, at(asks("u", 5, 5), 0))
    machines, listed = back(told)
    assert [(one.cores, one.memory) for one in machines] == [(6_500, 15_360), (8_000, 16_384)]
    assert len(listed.pods) == 1


def test_what_can_t_be_meant_is_left_out() -> None:
    """A request that no version understands, an inventory that is none."""
    strange = node("n3")
    strange.metadata.annotations[NAMES.inventory] = "{"
    bad = make_pod("bad", container("main", (0, 5)))
    told = recorded(bad, at(asks("u", 5, 5), 0), nodes=(strange, node("n1", *gpus("n1", 1))))
    assert (told.left_out, told.arrivals) == (1, 1)
    assert [one.gpus for one in back(told)[0]] == [0, 1]


def test_containers_side_by_side_count_by_the_largest() -> None:
    """The format knows one part."""
    both = at(make_pod("u", container("a", (30, 9_000)), container("b", (20, 12_000))), 0)
    _, listed = back(recorded(both))
    assert listed.needs == (Need(cores=0, memory=0, gpus=1, milli=300, card=12_000),)
