"""Whose a node's CPU, memory and places for pods are: promised, taken, kept for the nominated, and free again."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_scheduler.explaining import explain
from aliquot_scheduler.picture.host_room import CPU, OWN_COMPUTE
from support.centre import NAMES, WALL, asks, make_lease, make_pod, picture_with
from support.ground import node, staged, told
from support.queue_stage import GATED, requesting

replace = msgspec.structs.replace


def test_what_is_promised_of_cpu_is_not_promised_twice() -> None:
    """Neither in one round nor after binding; and once it is free again, the next comes in."""
    stage = staged(node("n1", cpu="8"))
    for uid in ("first", "second", "third"):
        stage.submit(uid, 10, requests={"cpu": "5"})
    assert stage.run() == ["first"]
    assert stage.run() == []
    assert told(stage, "second") == ("NoNode", "1 node has room on its GPUs: 1 has 3 CPUs free of 5 asked")
    stage.gone("first")
    assert stage.run() == ["second"]
    ended = stage.pods["second"]
    stage.see(replace(ended, status=replace(ended.status, phase="Succeeded")))
    assert stage.run() == ["third"]


def test_a_promise_that_is_taken_back_frees_cpu_and_memory() -> None:
    """The pod that lost its turn rests, and the next comes in."""
    stage = staged(node("n1", cpu="8"))
    stage.submit("first", 10, requests={"cpu": "5"})
    stage.submit("second", 10, requests={"cpu": "5"})
    assert stage.round() == ["first"]
    assert stage.round(after=31.0) == ["second"]


def test_pods_that_ask_nothing_of_us_take_cpu_too() -> None:
    """From when they are bound until they have ended."""
    stage = staged(node("n1", cpu="8"))
    web = requesting(asks("web", 10, 1000), {"cpu": "6"})
    lying = replace(web, spec=replace(web.spec, node_name="n1"))
    stage.picture.pod_lies(lying)
    stage.submit("p", 10, requests={"cpu": "4"})
    assert stage.round() == []
    stage.picture.pod_lies(replace(lying, status=replace(lying.status, phase="Failed")))
    assert stage.round() == ["p"]


def test_who_asks_no_cpu_comes_in_where_there_is_less_than_none() -> None:
    """A node that shrinks below what its pods have asked still takes pods that ask nothing of it."""
    stage = staged(node("n1", cpu="8"))
    stage.submit("large", 10, requests={"cpu": "5"})
    assert stage.run() == ["large"]
    stage.picture.node_seen(node("n1", cpu="4"))
    stage.submit("p", 10)
    assert stage.round() == ["p"]


def test_room_that_moves_to_another_node_is_free_where_it_was() -> None:
    """A promise is on one node at a time, and a pod that is resized takes what it asks now."""
    picture = picture_with(node("n1"), node("n2"))
    rows = [picture.nodes[name].row for name in ("n1", "n2")]
    picture.hosts.hold("p", node="n1", amounts=(3000, 2**30))
    picture.hosts.hold("p", node="n2", amounts=(2000, 2**30))
    assert picture.hosts.free[rows, :OWN_COMPUTE].tolist() == [[8000, 2**35, 10], [6000, 31 * 2**30, 9]]


# Two plain pods are nominated for n1 and one for n2, all with 2 CPUs and 12 GiB; one is bound there, with the same.
MEANT = [("n1", True), ("n1", True), ("n2", True), ("n1", False)]
KEPT = [
    # What a slice asks, pods that a node takes, what its condition says, and explain of each node.
    (
        {"cpu": "7"},
        "110",
        "2 have at most 6 CPUs free of 7 asked (6 are kept for 3 pods, nominated there)",
        "2 CPUs free of 7 asked (4 are kept for team/pod-p0, team/pod-p1, nominated there)",
        "6 CPUs free of 7 asked (2 are kept for team/pod-p2, nominated there)",
    ),
    (
        {"memory": "24Gi"},
        "110",
        "2 have at most 20 GiB of memory free of 24 asked (36 are kept for 3 pods, nominated there)",
        "0 GiB of memory free of 24 asked (24 are kept for team/pod-p0, team/pod-p1, nominated there)",
        "20 GiB of memory free of 24 asked (12 are kept for team/pod-p2, nominated there)",
    ),
    (
        {},
        "1",
        "2 have at most no place for one more pod (3 are kept for 3 pods, nominated there)",
        "no place for one more pod (2 are kept for team/pod-p0, team/pod-p1, nominated there)",
        "no place for one more pod (1 is kept for team/pod-p2, nominated there)",
    ),
    # Whom one of them takes has no wait to be told of.
    (
        {"cpu": "1", "memory": "1Gi"},
        "110",
        "its turn comes next, unless that room was promised to others a moment ago",
        "0 GiB of memory free of 1 asked (24 are kept for team/pod-p0, team/pod-p1, nominated there)",
        "",
    ),
]


@pytest.mark.parametrize(("requests", "places", "said", "first", "second"), KEPT)
def test_whoever_waits_for_nominated_pods_hears_what_is_kept_for_them(
    requests: dict[str, str], places: str, said: str, first: str, second: str
) -> None:
    """How much, and to operators alone for whom: the node's own numbers say that it is free."""
    nodes = [node(name, pods=places) for name in ("n1", "n2")]
    pods = [
        requesting(make_pod(f"p{at}", {"name": "main"}), {"cpu": "2", "memory": "12Gi"}) for at in range(len(MEANT))
    ]
    pods = [
        replace(pod, status=replace(pod.status, nominated_node_name=name))
        if waits
        else replace(pod, spec=replace(pod.spec, node_name=name))
        for pod, (name, waits) in zip(pods, MEANT, strict=True)
    ]
    s = requesting(asks("s", 50, 1000, spec=GATED), requests)
    leases = [make_lease(one.metadata.name) for one in nodes]
    found = explain(s, nodes=nodes, leases=leases, pods=[*pods, s], names=NAMES, wall=WALL)
    assert [(one.node, one.why) for one in found.nodes if not one.fits] == [
        (name, why) for name, why in (("n1", first), ("n2", second)) if why
    ]
    assert found.summary.endswith(said)
    assert "team/pod-p" not in found.summary


def test_nothing_is_kept_for_a_nominated_pod_that_is_bound_gone_or_meant_for_another_node() -> None:
    """Bound where it was nominated it takes as much, and nobody is told of a nomination any more."""
    picture = picture_with(node("n1"), node("n2"))
    pod = requesting(make_pod("p", {"name": "main"}), {"cpu": "2"})
    meant = {name: replace(pod, status=replace(pod.status, nominated_node_name=name)) for name in ("n1", "n2")}
    lying = replace(meant["n2"], spec=replace(pod.spec, node_name="n2"))
    steps = [
        (meant["n1"], {"n1": [("team/pod-p", 2000)]}),
        (meant["n2"], {"n2": [("team/pod-p", 2000)]}),
        (lying, {}),
        (meant["n1"], {"n1": [("team/pod-p", 2000)]}),
        (pod, {}),
        (meant["n1"], {"n1": [("team/pod-p", 2000)]}),
        (replace(meant["n1"], status=replace(meant["n1"].status, phase="Failed")), {}),
    ]
    for at, (seen, kept) in enumerate(steps):
        picture.pod_lies(seen)
        told = {name: held for name in ("n1", "n2") if (held := picture.hosts.kept_for_nominated([name], CPU))}
        assert (at, told) == (at, kept)
        assert picture.hosts.nominated.keys() == kept.keys()


def test_what_kube_scheduler_keeps_for_a_pod_without_slices_is_nobody_else_s() -> None:
    """Whoever is nominated has the CPU of that node until it is bound, elsewhere too, or is nominated no more."""
    stage = staged(node("n1"))
    plain = requesting(make_pod("plain", {"name": "main"}), {"cpu": "6"})
    nominated = replace(plain, status=replace(plain.status, nominated_node_name="n1"))
    stage.see(nominated)
    # kube-scheduler would let this one in, by its priority.
    stage.submit("s", 30, 1000, requests={"cpu": "4"}, priority=1_000)
    assert stage.round() == []
    assert told(stage, "s")[1].endswith("1 has 2 CPUs free of 4 asked (6 are kept for 1 pod, nominated there)")
    stage.see(plain)
    assert stage.round() == ["s"]
    stage.see(nominated)
    stage.submit("t", 30, 1000, requests={"cpu": "1"})
    assert stage.round() == []
    stage.see(replace(nominated, spec=replace(nominated.spec, node_name="another")))
    assert stage.round() == ["t"]
