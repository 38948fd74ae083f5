"""Every answer on nodes is that of plain rules, whatever has come, changed and gone before."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.hosts import own_request
from aliquot_core.node_rules import barrier, why_unsuited
from aliquot_core.objects import Node, Pod
from aliquot_scheduler.fit.ground import Ground, HostAsk, host_ask
from aliquot_scheduler.fit.obstacles import Obstacles
from support.centre import NAMES, asks, counting, picture_with
from support.ground import node, requiring, selecting, staged
from support.queue_stage import Stage, requesting

replace = msgspec.structs.replace


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
