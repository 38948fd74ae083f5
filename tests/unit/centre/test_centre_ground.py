"""No turn is given for a node that would refuse the pod for its labels, taints, CPU, memory or places for pods."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.hosts import own_request
from aliquot_core.node_rules import barrier, why_unsuited
from aliquot_core.objects import Container, Node, Pod, Taint
from aliquot_scheduler.explaining import explain
from aliquot_scheduler.fit.ground import Ground, HostAsk, host_ask
from aliquot_scheduler.fit.obstacles import Obstacles
from aliquot_scheduler.picture.host_room import CPU, OWN_COMPUTE
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.tree import plant
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.whole import waiting_pods
from support.centre import NAMES, WALL, asks, bound, counting, gpus, make_lease, make_node, make_pod, picture_with
from support.queue_stage import GATED, Stage, queue, requesting

replace = msgspec.structs.replace
FPGA = "example.com/fpga"
LARGE = {"cpu": "8", "memory": "32Gi", "pods": "10"}


def node(
    name: str,
    *,
    cards: int = 2,
    labels: Mapping[str, str] | None = None,
    taints: Mapping[str, str] | None = None,
    extended: Mapping[str, str] | None = None,
    **room: str,
) -> Node:
    """A node with so many cards; taints are key=value by their effects."""
    made = make_node(name, gpus(name, cards), labels=labels or {})
    hard = [Taint(key=key, value=value, effect="NoSchedule") for key, value in (taints or {}).items()]
    return replace(
        made,
        spec=replace(made.spec, taints=tuple(hard)),
        status=replace(made.status, allocatable={**LARGE, **room, **(extended or {})}),
    )


def staged(*nodes: Node) -> Stage:
    """A stage with these nodes and no others."""
    stage = Stage({}, nodes=())
    for one in nodes:
        stage.picture.node_seen(one)
    stage.beat()
    return stage


def told(stage: Stage, uid: str) -> tuple[str, str]:
    """The word and the sentence that a waiting pod is told."""
    waiter = next(one for one in stage.queues.waiting() if one.uid == uid)
    notice = stage.queues.notice(waiter)
    return notice.reason, notice.message


def selecting(**labels: str) -> dict[str, Any]:
    """A spec with a nodeSelector."""
    return {"nodeSelector": labels}


def requiring(*tests: tuple[str, str, list[str]], fields: bool = False) -> dict[str, Any]:
    """A spec with a required affinity to nodes."""
    written = [{"key": key, "operator": operator, "values": values} for key, operator, values in tests]
    term = {"matchFields" if fields else "matchExpressions": written}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    }


# --- a turn ----------------------------------------------------------------------------------------------------------
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


def test_a_gang_on_one_node_passes_over_nodes_that_do_not_take_it() -> None:
    """Also when more of them have room than are tried."""
    tainted = [node(f"a{number}", taints={"team": "red"}) for number in range(12)]
    stage = staged(*tainted, node("b", cards=4))
    for number in range(2):
        stage.submit(f"g{number}", 50, group="g", notes={"group-size": "2", "group-topology": "node"})
    assert sorted(stage.round()) == ["g0", "g1"]
    assert {turn.promise.node for turn in stage.turns.values() if turn.promise} == {"b"}


def test_a_gang_that_lacks_room_is_not_told_of_nodes() -> None:
    """One of it would fit, so that it has no room together is what keeps it."""
    stage = staged(node("n1", cards=1), node("n2", cards=1, taints={"team": "red"}))
    for number in range(2):
        stage.submit(f"g{number}", 100, group="g", notes={"group-size": "2"})
    assert stage.round() == []
    assert told(stage, "g0")[0] == "GangWaits"


def test_a_taint_alone_that_is_taken_off_is_heard_of() -> None:
    """Nothing else of the node has changed."""
    stage = staged(node("n1", taints={"team": "red"}))
    stage.submit("p", 10)
    assert stage.round() == []
    stage.picture.node_seen(node("n1"))
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


# --- held against a plain oracle -------------------------------------------------------------------------------------
NODE_NAMES = [f"n{number}" for number in range(70)]
SPECS: list[dict[str, Any]] = [
    {},
    selecting(disk="ssd"),
    selecting(disk="ssd", zone="a"),
    requiring(("zone", "NotIn", ["a"])),
    requiring(("zone", "Exists", []), ("disk", "In", ["ssd", "hdd"])),
    requiring(("zone", "DoesNotExist", [])),
    requiring(("size", "Lt", ["3"])),
    requiring(("metadata.name", "In", ["n1", "n2"]), fields=True),
    {"tolerations": [{"key": "team", "operator": "Exists"}]},
    {"tolerations": [{"key": "team", "value": "red", "effect": "NoSchedule"}], "nodeSelector": {"zone": "b"}},
]


class Town:
    """Nodes and pods in whatever order, and what is so of them by the plain rules."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.picture = picture_with()
        self.ground = Ground(picture=self.picture)
        self.obstacles = Obstacles(picture=self.picture)
        self.nodes: dict[str, Node] = {}
        self.lying: dict[str, Pod] = {}
        # Of those that lie somewhere who has a grant that counts (UIDs).
        self.granted: set[str] = set()
        self.count = 0

    def name(self) -> str:
        """Of a few nodes that much happens on, or of any."""
        return self.chance.choice(NODE_NAMES[:4] if self.chance.random() < 0.7 else NODE_NAMES)

    def node(self) -> None:
        """One comes, or is another one now."""
        pick = self.chance.choice
        name = self.name()
        labels = {key: pick(values) for key, values in LABELS.items() if self.chance.random() < 0.6}
        taints = {"team": pick(("red", "blue"))} if self.chance.random() < 0.3 else {}
        self.nodes[name] = node(name, labels=labels, taints=taints, cpu=pick(("4", "8")), pods=pick(("1", "3")))
        if self.chance.random() < 0.7:
            self.nodes[name] = counting(self.nodes[name])
        self.picture.node_seen(self.nodes[name])

    def node_gone(self) -> None:
        """One goes; its pods stay for a while."""
        if self.nodes:
            name = self.chance.choice(sorted(self.nodes))
            del self.nodes[name]
            self.picture.node_gone(name)

    def pod(self) -> None:
        """One is bound, maybe to a node that is not known yet."""
        self.count += 1
        asked = self.chance.choice((10, 90)), self.chance.choice((None, 1_000))
        pod = requesting(asks(f"u{self.count}", *asked), {"cpu": self.chance.choice(("1", "2500m")), "memory": "1Gi"})
        pod = replace(pod, spec=replace(pod.spec, node_name=self.name()))
        self.lying[pod.metadata.uid] = pod
        self.grant(pod)

    def grant(self, pod: Pod | None = None) -> None:
        """One is granted what it asks, or that is taken off again."""
        if pod := pod or (self.lying[self.chance.choice(sorted(self.lying))] if self.lying else None):
            granted = self.chance.random() < 0.6
            (self.granted.add if granted else self.granted.discard)(pod.metadata.uid)
            self.picture.pod_lies(pod, granted=granted)

    def pod_gone(self) -> None:
        """One ends, or goes, or both."""
        if self.lying:
            pod = self.lying.pop(self.chance.choice(sorted(self.lying)))
            if self.chance.random() < 0.5:
                self.picture.pod_lies(replace(pod, status=replace(pod.status, phase="Succeeded")))
            else:
                self.picture.pod_gone(pod)

    def free(self, name: str) -> tuple[int, int, int]:
        """What is left of a node: thousandths, GiB, pods."""
        here = [pod for pod in self.lying.values() if pod.spec.node_name == name]
        taken = sum(2500 if pod.spec.containers[0].resources.requests["cpu"] == "2500m" else 1000 for pod in here)
        room = self.nodes[name].status.allocatable
        return 1000 * int(room["cpu"]) - taken, 32 - len(here), int(room["pods"]) - len(here)

    def has_own(self, name: str, ask: HostAsk, *, alone: bool = False) -> bool:
        """Whether our own resources do beside those without a grant, where there are any; `alone`, beside no others."""
        here = [pod for pod in self.lying.values() if pod.spec.node_name == name]
        strays = [pod for pod in here if pod.metadata.uid not in self.granted]
        there = self.nodes[name].status.allocatable
        if not strays or NAMES.compute not in there:
            return True
        taken = [own_request(pod, names=NAMES) for pod in (strays if alone else here)]
        left = [int(there[name]) - sum(one[at] for one in taken) for at, name in enumerate(NAMES.resources())]
        return all(not asked or asked <= more for asked, more in zip(ask.own, left, strict=True))

    def takes(self, name: str, pod: Pod, ask: HostAsk) -> bool:
        """By the plain rules."""
        one = self.nodes[name]
        cpu, memory, pods = self.free(name)
        enough = pods >= 1 and (not ask.amounts[0] or cpu >= ask.amounts[0])
        enough = enough and (not ask.amounts[1] or memory * 2**30 >= ask.amounts[1]) and self.has_own(name, ask)
        suits = not why_unsuited(ask.wanted, name=name, labels=one.metadata.labels)
        return enough and suits and barrier(one.spec.taints, pod.spec.tolerations) is None

    def check(self) -> None:
        """All answers are those of the plain rules, and a node's own obstacle is there exactly where it says no."""
        pod = asks("p", self.chance.choice((10, 100, None)), 1_000, spec=self.chance.choice(SPECS))
        pod = requesting(pod, self.chance.choice(({}, {"cpu": "3"}, {"cpu": "1", "memory": "31Gi"})))
        ask = host_ask(pod, names=NAMES)
        found, suited, could = self.ground.admits(ask), self.ground.suits(ask), self.ground.could(ask)
        for name, known in self.picture.nodes.items():
            takes = self.takes(name, pod, ask)
            assert found[known.row] == takes, (name, ask)
            assert (self.obstacles.of_node(ask, known) == "") == takes
            tolerates = barrier(self.nodes[name].spec.taints, pod.spec.tolerations) is None
            lasts = could[known.row] and tolerates
            assert suited[known.row] == (lasts and self.has_own(name, ask, alone=True)), (name, ask)


LABELS = {"disk": ("ssd", "hdd"), "zone": ("a", "b"), "size": ("2", "3", "many")}
STEPS = [Town.node] * 5 + [Town.pod] * 5 + [Town.grant] * 2 + [Town.pod_gone] * 3 + [Town.node_gone]


@given(st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_every_answer_is_that_of_the_plain_rules(seed: int) -> None:
    """Whatever has come, changed and gone before, in whatever order, for whatever is asked."""
    town = Town(seed)
    for _ in range(60):
        town.chance.choice(STEPS)(town)
        town.check()


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_whoever_may_be_taken_now_and_was_not_before_is_asked_again(seed: int) -> None:
    """The version changes with whatever makes any node take anybody whom it did not take."""
    town = Town(seed)
    wanting = [host_ask(requesting(asks("p", 90, 1_000, spec=spec), {"cpu": "3"}), names=NAMES) for spec in SPECS]
    for _ in range(40):
        before = [
            {name for name, one in town.picture.nodes.items() if town.ground.admits(ask)[one.row]} for ask in wanting
        ]
        version = town.ground.version
        town.chance.choice(STEPS)(town)
        after = [
            {name for name, one in town.picture.nodes.items() if town.ground.admits(ask)[one.row]} for ask in wanting
        ]
        assert town.ground.version != version or all(now <= then for now, then in zip(after, before, strict=True))


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_no_turn_is_given_for_a_node_that_would_refuse_the_pod(seed: int) -> None:
    """Whoever comes, ends, loses a turn, whatever is tainted meanwhile: and at last everybody has been let in."""
    chance = random.Random(seed)
    there = {f"n{number}": node(f"n{number}", cards=4, pods="4") for number in range(3)}
    stage = staged(*there.values())
    for count in range(25):
        name = chance.choice(sorted(there))
        there[name] = node(name, cards=4, pods="4", taints={"team": "red"} if chance.random() < 0.4 else None)
        stage.picture.node_seen(there[name])
        stage.submit(f"p{count}", 10, requests={"cpu": chance.choice(("1", "3", "5"))})
        for uid in stage.round(after=chance.choice((0.0, 1.0, 31.0))):
            promise = stage.turns[uid].promise
            assert promise is not None
            assert not there[promise.node].spec.taints
            if chance.random() < 0.7:
                stage.bind(uid)
        check_sums(stage, there)
        stage.end(*[uid for uid in sorted(stage.pods) if stage.pods[uid].spec.node_name and chance.random() < 0.3])
    for name in there:
        stage.picture.node_seen(node(name, cards=4, pods="4"))
    for _ in range(100):
        stage.end(*stage.run(after=400.0))
        stage.end(*[uid for uid in sorted(stage.pods) if stage.pods[uid].spec.node_name])
    assert stage.queues.waiting() == []


def check_sums(stage: Stage, there: Mapping[str, Node]) -> None:
    """Those who are promised room and those who are bound ask no more of a node than it has."""
    lies = {promise.pod.metadata.uid: promise.node for promise in stage.desk.promises}
    lies |= {uid: pod.spec.node_name for uid, pod in stage.pods.items() if pod.spec.node_name}
    for name in there:
        cpus = [int(stage.pods[uid].spec.containers[0].resources.requests["cpu"]) for uid in lies if lies[uid] == name]
        assert sum(cpus) <= 8
        assert len(cpus) <= 4


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
