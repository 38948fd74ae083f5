"""Of a node is said that it has no room only where room may come, and not where it would not take the pod if empty."""

from __future__ import annotations

import random
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.objects import Node, Pod, Taint
from aliquot_core.request import parse_request
from aliquot_scheduler.explaining import Explanation, explain
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.fit.ground import host_ask
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.said.tree import plant
from support.centre import NAMES, WALL, asks, bound, container, gpus, make_lease, make_node, make_pod, picture_with

replace = msgspec.structs.replace
GATED = {"schedulingGates": [{"name": NAMES.gate}]}
TAINTED = "1 node has room on its GPUs: 1 is tainted (team=red)"
CARD = 81_920


def node(name: str, *, cards: int = 2, context: int = 0, tainted: bool = False, memory: int = CARD) -> Node:
    """A node whose agent says what a context takes."""
    made = make_node(name, [replace(card, context=context, memory=memory) for card in gpus(name, cards)])
    taints = (Taint(key="team", value="red", effect="NoSchedule"),) if tainted else ()
    return replace(made, spec=replace(made.spec, taints=taints))


def filling(name: str, cards: int) -> list[Pod]:
    """Nothing of its GPUs is left."""
    held = [(f"{name}-{at}", f"GPU-{name}-{at}") for at in range(cards)]
    return [bound(asks(uid, 100, 1000), node=name, held={gpu: (100, 1000)}) for uid, gpu in held]


def waiting_for(pod: Pod, nodes: list[Node], others: list[Pod]) -> str:
    """What its condition says of nodes."""
    picture = picture_with(*nodes)
    for other in others:
        picture.pod_seen(other)
    cards = Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES)
    return cards.why_no_node(pod, demand_of(parse_request(pod, names=NAMES)), host=host_ask(pod, names=NAMES))


def explained(pod: Pod, nodes: list[Node], others: list[Pod]) -> Explanation:
    """The same as somebody else reads it."""
    leases = [make_lease(one.metadata.name) for one in nodes]
    return explain(pod, nodes=nodes, leases=leases, pods=[pod, *others], names=NAMES, wall=WALL)


RED = node("red", tainted=True)
THIN = "a CUDA context takes 512 MiB on 2 of 2 GPUs, and container main asks for 400 MiB there"
SAID: dict[str, tuple[list[Node], list[Pod], str]] = {
    "a context": ([RED, node("n1", context=512)], [], f"1 more can't take it: {THIN}"),
    "a context, of a full node": ([RED, node("n1", context=512)], filling("n1", 2), f"1 more can't take it: {THIN}"),
    "several alike": ([RED, *(node(f"n{at}", context=512) for at in "12")], [], f"2 more can't take it: {THIN} (2)"),
    "a full one too": (
        [RED, node("n1", context=512), node("n2")],
        filling("n2", 2),
        f"the one that would take it has no room on its GPUs; 1 more can't take it: {THIN}",
    ),
    "one that lacks both": (
        [RED, node("n1"), node("n2", tainted=True)],
        [*filling("n1", 2), *filling("n2", 2)],
        "the one that would take it has no room on its GPUs; 1 more would not take it either",
    ),
}


@pytest.mark.parametrize("row", SAID)
def test_what_keeps_a_pod_off_is_told_where_it_is_not_room(row: str) -> None:
    """By its condition and by explain in the same words."""
    nodes, others, rest = SAID[row]
    pod = asks("p", 10, 400, spec=GATED)
    assert waiting_for(pod, nodes, others) == f"{TAINTED}; {rest}"
    whole = explained(pod, nodes, others).summary
    assert whole == f"none of {len(nodes)} nodes takes it: {TAINTED}; {rest}"


def test_explain_says_no_room_of_all_nodes_only_where_all_lack_it() -> None:
    """Else that none takes it, with each one's reason."""
    pod, full = asks("p", 10, 400, spec=GATED), filling("n1", 2)
    lacking = "0 of 2 GPUs have 10 % free, 2 have 400 MiB"
    two = [node("n1"), node("n2", context=512)]
    assert explained(pod, two, full).summary == f"none of 2 nodes takes it: {lacking} (1); {THIN} (1)"
    assert explained(pod, two[:1], full).summary == f"the only node has no room: {lacking}"
    assert explained(pod, [node("n1", tainted=True)], full).summary == f"the only node has no room: {lacking}"


def asking(chance: random.Random) -> Pod:
    """On one GPU, on several, in several containers."""
    memory = chance.choice((300, 400, 900, 30_000, 90_000))
    match chance.randrange(4):
        case 0:
            return asks("p", 60, memory, annotations={NAMES.gpus: "2"}, spec=GATED)
        case 1:
            return make_pod("p", container("a", (80, memory)), container("b", (70, 400)), spec=GATED)
        case 2:
            return asks("p", chance.choice((2, 150)), None, spec=GATED)
        case _:
            return asks("p", 10, memory, spec=GATED)


def numbers(said: str) -> tuple[int, int]:
    """Of how many nodes it is said that they have no room, and of how many that they can't."""
    full = re.search(r"of (\d+) that would take it none has room", said)
    never = re.search(r"(\d+) more can't take it", said)
    one = int("the one that would take it has no room" in said)
    return int(full[1]) if full else one, int(never[1]) if never else 0


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_no_room_is_said_of_whoever_would_take_it_empty_and_of_nobody_else(seed: int) -> None:
    """Each node is asked alone and empty; whatever it has, and whatever is asked."""
    chance = random.Random(seed)
    tainted = node("red", cards=4, tainted=True, memory=200_000)
    makes = [(f"n{at}", chance.randint(1, 3), chance.choice((0, 350, 512, 2_000))) for at in range(5)]
    nodes = [
        node(name, cards=cards, context=context, memory=chance.choice((8_000, CARD))) for name, cards, context in makes
    ]
    full = {name: filling(name, cards) for name, cards, _ in makes if chance.random() < 0.6}
    pod = asking(chance)
    demand = demand_of(parse_request(pod, names=NAMES))
    able = {
        one.metadata.name
        for one in nodes
        if Finder(picture=picture_with(one), names=NAMES).plan(pod, demand, node=one.metadata.name)
    }
    if able - full.keys():
        return
    others = [one for held in full.values() for one in held]
    expected = len(able), len(nodes) - len(able)
    assert numbers(waiting_for(pod, [tainted, *nodes], others)) == expected
    assert numbers(explained(pod, [tainted, *nodes], others).summary) == expected
