"""What a pod that waits is told of the nodes that refuse it, and of those that have no room."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot_scheduler.explaining import explain
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.tree import plant
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.whole import waiting_pods
from support.centre import NAMES, WALL, asks, bound, gpus, make_lease, make_node, picture_with
from support.ground import node, staged, told
from support.queue_stage import GATED, requesting

replace = msgspec.structs.replace


def test_of_several_nodes_that_would_take_a_pod_and_are_full_it_is_told_how_many() -> None:
    """None of them alone is to blame."""
    stage = staged(node("red", taints={"team": "red"}), node("full1", cards=1), node("full2", cards=1))
    for name in ("full1", "full2"):
        stage.picture.hold(name, {(name, f"GPU-{name}-0"): _all_of_it()})
    stage.submit("p", 50)
    assert stage.round() == []
    rest = "of 2 that would take it none has room on its GPUs"
    assert told(stage, "p") == ("NoNode", f"1 node has room on its GPUs: 1 is tainted (team=red); {rest}")


def test_nodes_that_are_out_are_named_with_their_reason() -> None:
    """Those of one reason together; of more than two reasons the others are counted."""
    shut = [replace(one, spec=replace(one.spec, unschedulable=True)) for one in (node("n1"), node("n0"))]
    unready = make_node("n2", gpus("n2", 1), ready="False")
    unread = make_node("n3", gpus("n3", 1), annotations={NAMES.inventory: "{"})
    stage = staged(node("red", taints={"team": "red"}), *shut, unready, unread)
    stage.submit("p", 50)
    assert stage.round() == []
    said = told(stage, "p")[1]
    assert "; 4 more take nobody (n0, n1: the node is cordoned; n3: its inventory can't be used" in said
    assert said.endswith("; other reasons (1))")


def test_where_nodes_forbid_different_things_each_is_counted_once() -> None:
    """With the taint, the most that is free, and how many would take the pod but have no room."""
    stage = staged(
        node("n1", taints={"team": "red"}, cpu="1"),
        node("n2", taints={"team": "red"}),
        node("n3", cpu="2"),
        node("n4", cpu="2500m"),
        node("full", cards=1),
    )
    stage.picture.hold("old", {("full", "GPU-full-0"): _all_of_it()})
    stage.submit("p", 50, requests={"cpu": "4"})
    assert stage.round() == []
    word, why = told(stage, "p")
    assert word == "NoNode"
    assert why == (
        "4 nodes have room on their GPUs: 2 are tainted (team=red), 2 have at most 2.5 CPUs free of 4 asked; "
        "the one that would take it has no room on its GPUs"
    )


def _all_of_it() -> Any:
    pod = bound(asks("old", 100, 1000), node="full", held={"GPU-full-0": (100, 1000)})
    held = picture_with(node("full", cards=1)).grants.held(pod)
    assert held
    return held["full", "GPU-full-0"]


def test_a_gang_that_lacks_room_is_not_told_of_nodes() -> None:
    """One of it would fit, so that it has no room together is what keeps it."""
    stage = staged(node("n1", cards=1), node("n2", cards=1, taints={"team": "red"}))
    for number in range(2):
        stage.submit(f"g{number}", 100, group="g", notes={"group-size": "2"})
    assert stage.round() == []
    assert told(stage, "g0")[0] == "GangWaits"


def test_what_is_told_of_a_queue_says_what_nodes_say() -> None:
    """`aliquot queue` has the same sentence as the condition."""
    stage = staged(node("n1", taints={"team": "red"}))
    pod = stage.submit("p", 50)
    plan = Plan(specs={}, tree=plant({}))
    standing = Standing(picture=stage.picture, plan=plan, pods=[pod], names=NAMES, wall=WALL)
    assert stage.round() == []
    assert [one.why for one in waiting_pods("default", standing)] == [told(stage, "p")[1]]


def test_explain_says_of_each_node_what_keeps_the_pod_off() -> None:
    """A node with room on its GPUs is not called free if its taints, labels or CPU forbid the pod."""
    nodes = [node("n1", taints={"team": "red"}), node("n2", cpu="2")]
    pod = requesting(asks("p", 50, 1000, spec=GATED), {"cpu": "4"})
    leases = [make_lease(one.metadata.name) for one in nodes]
    found = explain(pod, nodes=nodes, leases=leases, pods=[pod], names=NAMES, wall=WALL)
    assert [(one.node, one.fits, one.why) for one in found.nodes] == [
        ("n1", False, "tainted team=red, which the pod does not tolerate"),
        ("n2", False, "2 CPUs free of 4 asked"),
    ]
    assert found.summary == (
        "none of 2 nodes takes it: 2 nodes have room on their GPUs: "
        "1 is tainted (team=red), 1 has 2 CPUs free of 4 asked"
    )
