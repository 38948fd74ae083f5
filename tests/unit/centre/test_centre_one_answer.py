"""What a pod's queue says, what `aliquot explain` says and what is decided never contradict each other.

In worlds drawn from a seed: nodes with taints, labels, little CPU, cordons, sick GPUs and pods without a grant, and a
rule of the cluster's own; there are no queues, so whoever some node takes is let in.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.objects import Node, Pod, Taint
from aliquot_core.request import parse_request
from aliquot_scheduler.explaining import Explanation, explain
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.fit.ground import Ground, host_ask
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.tree import plant
from aliquot_scheduler.rules.judging import Rules
from aliquot_scheduler.rules.rule import NodeFacts, Opinion, PodFacts
from support.centre import NAMES, WALL, asks, counting, gpus, make_lease, make_node, picture_with, sick
from support.queue_stage import A100, H100, Stage

replace = msgspec.structs.replace
PLAN = Plan(specs={}, tree=plant({}))
FPGA = "example.com/fpga"
ROOM = {"memory": "32Gi", "pods": "6"}
SPECS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"nodeSelector": {"disk": "ssd"}},
    {"tolerations": [{"key": "team", "operator": "Exists"}]},
    {"tolerations": [{"key": "team", "value": "red"}], "nodeSelector": {"zone": "a"}},
)
REQUESTS: tuple[Mapping[str, str], ...] = ({}, {}, {"cpu": "3"}, {"cpu": "1", FPGA: "2"})
NOTES: tuple[Mapping[str, str], ...] = (*[{}] * 8, {"gpu-model": H100}, {"gpu-model": f"!{H100}"}, {"isolation": "mps"})
ASKED = ((30, 1_000), (60, 30_000), (60, 70_000), (100, None), (100, None), (150, 60_000), (200, None), (None, 4_000))
# Of these words nodes are the reason, whoever else is there.
BY_NODES = {"NoRoom", "NoNode", "NeverFits"}


def no_large_in_zone_b(pod: PodFacts, node: NodeFacts) -> Opinion | None:
    """A rule of the cluster's own."""
    refused = node.labels.get("zone") == "b" and pod.compute > 90
    return Opinion(refused=True, why="zone b is for small pods") if refused else None


RULES = Rules({"zone-b": no_large_in_zone_b})


class World:
    """A stage whose nodes and pods are drawn."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.stage = Stage({}, nodes=(), rules=RULES)
        for number in range(self.chance.randint(1, 4)):
            self.stage.picture.node_seen(self.node(f"n{number}"))
        self.stage.beat()
        self.count = 0

    def node(self, name: str) -> Node:
        """As a node may be."""
        chance, pick = self.chance, self.chance.choice
        modes = [pick((["mps"], ["observe"], ["interposer"])) for _ in range(chance.randint(1, 4))]
        cards = gpus(name, len(modes), memory=pick((40_000, 80_000)), model=pick((A100, H100)))
        there = [
            sick(card) if chance.random() < 0.1 else replace(card, isolation=own) if chance.random() < 0.3 else card
            for card, own in zip(cards, modes, strict=True)
        ]
        labels = {key: pick(values) for key, values in (("disk", ("ssd", "hdd")), ("zone", ("a", "b")))}
        made = make_node(name, there, labels=labels, cordoned=chance.random() < 0.15)
        taints = [Taint(key="team", value=pick(("red", "blue")), effect="NoSchedule")] if chance.random() < 0.3 else []
        told = ROOM | {"cpu": pick(("2", "4", "16"))} | ({FPGA: pick(("1", "2"))} if chance.random() < 0.5 else {})
        made = replace(
            made,
            spec=replace(made.spec, taints=(*made.spec.taints, *taints)),
            status=replace(made.status, allocatable={**made.status.allocatable, **told}),
        )
        return counting(made, memory=cards[0].usable.value) if chance.random() < 0.8 else made

    def submit(self) -> None:
        """Somebody waits."""
        self.count += 1
        pick = self.chance.choice
        compute, memory = pick(ASKED)
        self.stage.submit(
            f"p{self.count}", compute, memory, spec=pick(SPECS), requests=pick(REQUESTS), notes=pick(NOTES)
        )

    def stray(self) -> None:
        """Somebody is bound past us."""
        self.count += 1
        pod = asks(f"s{self.count}", self.chance.choice((50, 100)), 1_000, namespace="kube-system")
        node = self.chance.choice(sorted(self.stage.picture.nodes))
        self.stage.see(replace(pod, spec=replace(pod.spec, node_name=node)))

    def change(self) -> None:
        """A node is another one now."""
        name = self.chance.choice(sorted(self.stage.picture.nodes))
        if not any(pod.spec.node_name == name for pod in self.stage.pods.values()):
            self.stage.picture.node_seen(self.node(name))

    def end(self) -> None:
        """Somebody who is bound ends."""
        if bound := [uid for uid, pod in sorted(self.stage.pods.items()) if pod.spec.node_name]:
            self.stage.end(self.chance.choice(bound))

    def settle(self) -> None:
        """Until nobody else is let in."""
        for _ in range(30):
            if not self.stage.run(after=1.0):
                return

    def explained(self, pod: Pod) -> Explanation:
        """What who may read all is told."""
        nodes = [known.node for known in self.stage.picture.nodes.values()]
        leases = [make_lease(node.metadata.name) for node in nodes]
        pods = list(self.stage.pods.values())
        return explain(pod, nodes=nodes, leases=leases, pods=pods, names=NAMES, wall=WALL, plan=PLAN, rules=RULES)

    def check(self) -> None:
        """Of everybody who waits."""
        for waiter in self.stage.queues.waiting():
            notice, told = self.stage.queues.notice(waiter), self.explained(waiter.pod)
            about = waiter.pod.metadata.name, notice, told
            # Who was passed over is not asked again while room only grows less: the word may be of before that.
            assert told.reason == notice.reason or {told.reason, notice.reason} == {"NoRoom", "NoNode"}, about
            fits = {answer.node for answer in told.nodes if answer.fits}
            assert fits == self.takers(waiter.pod), about
            if notice.reason in BY_NODES:
                assert not fits, about
            able = self.could(waiter.pod)
            assert (notice.reason == "NeverFits") == (not able), (about, able)

    def takers(self, pod: Pod) -> set[str]:
        """The nodes that would get it now, by what decides."""
        picture = self.stage.picture
        found = Finder(picture=picture, names=NAMES, rules=RULES).survey(
            pod, demand_of(parse_request(pod, names=NAMES))
        )
        takes = found.fits & Ground(picture=picture).admits(host_ask(pod, names=NAMES))
        return {name for name, known in picture.nodes.items() if takes[known.row]}

    def could(self, pod: Pod) -> set[str]:
        """Those that would take it if nobody were there, nothing were tainted and nothing sick or cordoned."""
        nodes = [known.node for known in self.stage.picture.nodes.values()]
        empty = picture_with(*(replace(one, spec=replace(one.spec, taints=(), unschedulable=False)) for one in nodes))
        found = Finder(picture=empty, names=NAMES).survey(pod, demand_of(parse_request(pod, names=NAMES)))
        takes = found.fits & Ground(picture=empty).admits(host_ask(pod, names=NAMES))
        return {name for name, known in empty.nodes.items() if takes[known.row]}


STEPS = [World.submit] * 6 + [World.stray] + [World.change] + [World.end] * 2


def check_world(seed: int, *, steps: int) -> None:
    """One world, looked at after each step."""
    world = World(seed)
    for _ in range(steps):
        world.chance.choice(STEPS)(world)
        world.settle()
        world.check()


@given(st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_queue_explain_and_decision_agree(seed: int) -> None:
    """Whoever some node takes does not wait for nodes, and whom none takes is told so, by the same word everywhere."""
    check_world(seed, steps=10)
