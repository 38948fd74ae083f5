"""The numbers of a sentence about nodes add up to the nodes that there are, whatever speaks against each of them."""

from __future__ import annotations

import random
import re

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_core.objects import Node, Pod, Taint
from aliquot_core.request import parse_request
from aliquot_scheduler.explaining import explain
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.ground import host_ask
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.said.tree import plant
from aliquot_scheduler.rules.judging import Rules
from aliquot_scheduler.rules.rule import NodeFacts, Opinion, PodFacts
from support.centre import NAMES, WALL, asks, bound, gpus, make_lease, make_node, picture_with
from support.queue_stage import GATED

replace = msgspec.structs.replace
MODES = (["observe"], ["observe", "interposer"], ["mps"])
# Each number of these sentences that counts nodes, in a group of its own.
COUNTED = re.compile(
    r"(?P<roomy>\d+) nodes? (?:has|have) room on|(?P<full>\d+) that would take it none has room|"
    r"(?P<one>the one that would take it has no room)|(?P<more>\d+) more (?:can't take|takes? nobody|would not)|"
    r"(?P<ruled>\d+) by rule r: |(?<=so it is, )(?P<beside>\d+) (?:is|are) tainted"
)
EACH = re.compile(r"\((\d+)\)(?:; |$)")


def refusing(_: PodFacts, node: NodeFacts) -> Opinion | None:
    """A rule on labels of nodes."""
    return Opinion(refused=True, why="so it is") if node.labels.get("disk") == "slow" else None


RULES = Rules({"r": refusing})


def a_node(chance: random.Random, name: str) -> Node:
    """Its GPUs may differ in mode, and it may be tainted, refused by the rule or cordoned."""
    cards = [
        replace(gpu, isolation=chance.choice(MODES), context=chance.choice((0, 512)))
        for gpu in gpus(name, chance.randint(1, 3))
    ]
    made = make_node(name, cards, labels={"disk": chance.choice(("slow", "fast"))})
    taints = (Taint(key="team", value="red", effect="NoSchedule"),) if chance.random() < 0.5 else ()
    return replace(made, spec=replace(made.spec, taints=taints, unschedulable=chance.random() < 0.15))


def drawn(seed: int) -> tuple[Pod, list[Node], list[Pod]]:
    """A pod, nodes, and who holds them."""
    chance = random.Random(seed)
    nodes = [a_node(chance, f"n{at}") for at in range(chance.randint(1, 7))]
    full = [one.metadata.name for one in nodes if chance.random() < 0.4]
    held = [(name, f"GPU-{name}-{at}") for name in full for at in range(3)]
    holders = [bound(asks(f"on{gpu}", 100, 1_000), node=name, held={gpu: (100, 1_000)}) for name, gpu in held]
    return asks("p", chance.choice((10, 150, 200)), chance.choice((400, 2_000)), spec=GATED), nodes, holders


def total(said: str) -> int:
    """How many nodes a sentence counts."""
    return sum(1 if match["one"] else int(next(filter(None, match.groups()))) for match in COUNTED.finditer(said))


@given(st.integers(0, 2**32))
@example(0)
@settings(max_examples=400, deadline=None)
def test_each_node_is_counted_once(seed: int) -> None:
    """By the pod's condition and by explain: with rules, taints, modes and cordons, whoever holds the GPUs."""
    pod, nodes, holders = drawn(seed)
    picture = picture_with(*nodes)
    for holder in holders:
        picture.pod_seen(holder)
    cards = Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES, rules=RULES)
    ask = host_ask(pod, names=NAMES)
    said = cards.why_no_node(pod, demand_of(parse_request(pod, names=NAMES)), host=ask)
    assert not said or total(said) == len(nodes), said
    leases = [make_lease(one.metadata.name) for one in nodes]
    found = explain(pod, nodes=nodes, leases=leases, pods=[pod, *holders], names=NAMES, wall=WALL, rules=RULES)
    if any(one.fits for one in found.nodes):
        assert not said
        assert found.summary.startswith(f"{sum(one.fits for one in found.nodes)} of {len(nodes)} node")
    elif len(nodes) > 1:
        _, counted = found.summary.split(": ", maxsplit=1)
        assert len(nodes) == (total(counted) or sum(int(count) for count in EACH.findall(counted))), found.summary
