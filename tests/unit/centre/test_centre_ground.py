"""No turn is given for a node that would refuse the pod for its labels, taints, CPU, memory or places for pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot_core.objects import Container, Node
from aliquot_scheduler.fit.ground import host_ask
from aliquot_scheduler.fit.obstacles import Obstacles
from aliquot_scheduler.queues.said.settings import QueueSettings
from support.centre import NAMES, asks
from support.ground import node, requiring, selecting, staged, told
from support.queue_stage import GATED, Stage, queue

replace = msgspec.structs.replace
FPGA = "example.com/fpga"


UNLIKE = "1 node has such GPUs: 1 is not what its nodeSelector or its affinity to nodes names"
FORBIDDEN: dict[str, tuple[Node, dict[str, Any], dict[str, str], tuple[str, str]]] = {
    "a taint": (
        node("n1", taints={"team": "red"}),
        {},
        {},
        ("NoNode", "1 node has room on its GPUs: 1 is tainted (team=red)"),
    ),
    "a label": (node("n1", labels={"disk": "hdd"}), selecting(disk="ssd"), {}, ("NeverFits", UNLIKE)),
    "an affinity": (
        node("n1", labels={"size": "3"}),
        requiring(("size", "Gt", ["3"])),
        {},
        ("NeverFits", UNLIKE),
    ),
    "a name": (
        node("n1"),
        requiring(("metadata.name", "In", ["n2"]), fields=True),
        {},
        ("NeverFits", "1 node has such GPUs: there is no node n2"),
    ),
    "names": (
        node("n1"),
        requiring(("metadata.name", "In", ["n2", "n3"]), fields=True),
        {},
        ("NeverFits", "1 node has such GPUs: none of 2 nodes by name is there"),
    ),
    "a name and a label": (
        node("n1", labels={"disk": "hdd"}),
        requiring(("metadata.name", "In", ["n1", "n2"]), ("metadata.name", "In", ["n2"]), fields=True)
        | selecting(disk="ssd"),
        {},
        ("NeverFits", "1 node has such GPUs: there is no node n2"),
    ),
    "the name of one that is there": (
        node("n1", labels={"disk": "hdd"}),
        requiring(("metadata.name", "In", ["n1", "n2"]), fields=True) | selecting(disk="ssd"),
        {},
        ("NeverFits", UNLIKE),
    ),
    "CPU": (
        node("n1", cpu="2"),
        {},
        {"cpu": "8"},
        ("NeverFits", "1 node has such GPUs: 1 has 2 CPUs in all of 8 asked"),
    ),
    "memory": (
        node("n1", memory="1536Mi"),
        {},
        {"memory": "2Gi"},
        ("NeverFits", "1 node has such GPUs: 1 has 1.5 GiB of memory in all of 2 asked"),
    ),
    "places": (node("n1", pods="0"), {}, {}, ("NeverFits", "1 node has such GPUs: 1 has no place for one more pod")),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_pod_waits_for_a_node_that_takes_it_and_is_told_why(what: str) -> None:
    """The true reason in numbers; and in it comes as soon as a node takes it, without having lost a turn."""
    forbidding, spec, requests, why = FORBIDDEN[what]
    stage = staged(forbidding)
    stage.submit("p", 50, spec=spec, requests=requests)
    assert stage.round() == []
    assert told(stage, "p") == why
    stage.picture.node_seen(node("n1", labels={"disk": "ssd", "size": "4"}))
    stage.picture.node_seen(node("n2", labels={"disk": "ssd", "size": "4"}))
    assert stage.run() == ["p"]
    assert stage.turns["p"].number == 1


@pytest.mark.parametrize(
    ("there", "told_so"),
    [({}, "1 has 0 example.com/fpga in all of 2 asked"), ({FPGA: "1"}, "1 has 1 example.com/fpga in all of 2 asked")],
)
def test_who_asks_for_an_extended_resource_waits_for_a_node_that_has_it(there: dict[str, str], told_so: str) -> None:
    """It stands in no line, takes no turn, and joins in when a node tells of enough; what is ours does not count."""
    stage = staged(node("n1", extended=there))
    stage.submit("p", 50, requests={FPGA: "2"})
    assert stage.round() == []
    assert told(stage, "p") == ("NeverFits", f"1 node has such GPUs: {told_so}")
    assert stage.queues.is_in_line("p") is False
    known = stage.picture.nodes["n1"]
    obstacles = Obstacles(picture=stage.picture)
    assert told_so.removeprefix("1 has ") in obstacles.of_node(host_ask(stage.pods["p"], names=NAMES), known)
    stage.picture.node_seen(node("n2", extended={FPGA: "2"}))
    assert stage.run() == ["p"]
    promise = stage.turns["p"].promise
    assert promise is not None
    assert (promise.node, stage.turns["p"].number) == ("n2", 1)


def test_a_node_that_loses_an_extended_resource_and_rows_that_are_used_again_have_none() -> None:
    """Whatever was there before; and a cluster that grows loses nothing of what it knew."""
    stage = staged(node("n1", extended={FPGA: "4"}))
    hosts = stage.picture.hosts
    row = stage.picture.nodes["n1"].row
    for number in range(200):
        stage.picture.node_seen(node(f"m{number}"))
    assert (int(hosts.there_is(FPGA)[row]), int(hosts.there_is(FPGA).sum())) == (4, 4)
    stage.picture.node_seen(node("n1"))
    assert int(hosts.there_is(FPGA).sum()) == 0
    stage.picture.node_seen(node("n1", extended={FPGA: "4"}))
    stage.picture.node_gone("n1")
    stage.picture.node_seen(node("n3"))
    assert int(hosts.there_is(FPGA).sum()) == 0


@pytest.mark.parametrize("mend", [{"labels": {"disk": "ssd"}}, {"labels": {"disk": "ssd"}, "cpu": "16"}])
def test_nothing_is_held_back_for_whom_no_node_can_take(mend: dict[str, Any]) -> None:
    """A guarantee that nothing can be had of is lent; and asked for again once a node is labelled or grows."""
    stage = Stage({"a": queue(guarantee=100, lend=100), "b": queue()}, nodes=())
    for name in ("n1", "n2"):
        stage.picture.node_seen(node(name, cards=1))
    stage.submit("odd", 100, queue="a", spec=selecting(disk="ssd"))
    for number in range(3):
        stage.submit(f"b{number}", 100, queue="b")
    assert stage.run() == ["b0", "b1"]
    stage.gone("b0")
    stage.picture.node_seen(node("n1", cards=1, **mend))
    stage.picture.node_seen(node("n2", cards=1, **mend))
    assert stage.round() == ["odd"]


def test_who_wants_a_label_waits_for_the_node_that_has_it() -> None:
    """And is told that this one has no room, as well as what the others are."""
    stage = staged(node("ssd", cards=1, labels={"disk": "ssd"}), node("hdd"))
    stage.submit("in", 100, spec=selecting(disk="ssd"))
    assert stage.run() == ["in"]
    stage.submit("p", 100, spec=selecting(disk="ssd"))
    assert stage.round() == []
    assert told(stage, "p") == (
        "NoNode",
        f"{UNLIKE.replace('such GPUs', 'room on its GPUs')}; the one that would take it has no room on its GPUs",
    )


def test_who_tolerates_a_taint_comes_in_and_others_wait() -> None:
    """By key, by value, or all."""
    stage = staged(node("n1", taints={"team": "red"}))
    stage.submit("none", 10)
    stage.submit("other", 10, spec={"tolerations": [{"key": "team", "value": "blue"}]})
    stage.submit("value", 10, spec={"tolerations": [{"key": "team", "value": "red"}]})
    stage.submit("key", 10, spec={"tolerations": [{"key": "team", "operator": "Exists"}]})
    stage.submit("all", 10, spec={"tolerations": [{"operator": "Exists"}]})
    assert stage.run() == ["value", "key", "all"]


def test_a_pod_that_is_played_goes_where_pods_are_played() -> None:
    """As the loop on one machine does it: the taint of simulated nodes is for those that run for real."""
    stage = staged(node("n1", taints={NAMES.simulated: "true"}))
    stage.submit("real", 10)
    pod = asks("played", 10, 1000, annotations={f"{NAMES.played}/duration": "30"}, spec=GATED)
    stage.see(pod)
    assert stage.run() == ["played"]


@pytest.mark.parametrize(
    ("says", "commands", "comes"),
    [(True, ["x", ""], False), (True, ["", "x"], False), (True, ["x", "x"], True), (False, ["", ""], True)],
)
def test_who_can_only_be_played_is_kept_off_where_commands_run(*, says: bool, commands: list[str], comes: bool) -> None:
    """One container without a command is enough for that, an init container too; who says nothing is told elsewhere."""
    stage = staged(node("n1", taints={NAMES.real: "true"}))
    notes = {f"{NAMES.played}/use": "80"} if says else {}
    pod = asks("a", 10, 1000, annotations=notes, spec=GATED)
    first, second = ([word] if word else [] for word in commands)
    (asked,) = pod.spec.containers
    spec = replace(
        pod.spec,
        init_containers=[Container(name="init", command=first)],
        containers=[replace(asked, command=second)],
    )
    stage.see(replace(pod, spec=spec))
    assert stage.run() == (["a"] if comes else [])
    if not comes:
        assert told(stage, "a")[1].endswith(f"1 is tainted ({NAMES.real}=true)")


def test_a_gang_on_one_node_passes_over_nodes_that_do_not_take_it() -> None:
    """Also when more of them have room than are tried."""
    tainted = [node(f"a{number}", taints={"team": "red"}) for number in range(12)]
    stage = staged(*tainted, node("b", cards=4))
    for number in range(2):
        stage.submit(f"g{number}", 50, group="g", notes={"group-size": "2", "group-topology": "node"})
    assert sorted(stage.round()) == ["g0", "g1"]
    assert {turn.promise.node for turn in stage.turns.values() if turn.promise} == {"b"}


def test_a_taint_alone_that_is_taken_off_is_heard_of() -> None:
    """Nothing else of the node has changed."""
    stage = staged(node("n1", taints={"team": "red"}))
    stage.submit("p", 10)
    assert stage.round() == []
    stage.picture.node_seen(node("n1"))
    assert stage.round() == ["p"]


def test_the_nodes_kept_for_one_who_has_waited_long_are_such_as_take_it() -> None:
    """Not the emptiest of all; others stand back from it, and who would not fit there either is told of nodes."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=(), settings=QueueSettings(patience=10.0, hold=100.0))
    for one in (node("empty", taints={"team": "red"}), node("ours")):
        stage.picture.node_seen(one)
    stage.submit("ever", 60, queue="b", requests={"cpu": "6"})
    assert stage.run() == ["ever"]
    stage.submit("large", 200, queue="a", notes={"gpus": "2"})
    stage.run()
    stage.submit("small", 40, queue="b")
    stage.submit("hungry", 40, queue="b", requests={"cpu": "4"})
    assert stage.round(after=20.0) == []
    assert [told(stage, uid)[0] for uid in ("large", "small", "hungry")] == ["NoNode", "Behind", "NoNode"]
