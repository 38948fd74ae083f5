"""Fair shares: the vectors where others starve, a slow oracle on random trees, and what must always hold."""

from __future__ import annotations

import os
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_scheduler.queues.charged.shares import exact_shares, shares
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE, ROOT, Tree, plant
from support.share_oracle import Oracle, random_tree

TREES = 10_000 if os.environ.get("ALIQUOT_SOAK") else 400


def queue(
    parent: str = "",
    *,
    guarantee: int | None = None,
    limit: int | None = None,
    weight: int = 1,
    lend: int | None = None,
    borrow: int | None = None,
    priority: int = 0,
) -> QueueSpec:
    """A queue with a quota of compute."""
    quota = Quota(guarantee=guarantee, limit=limit, weight=weight, lending_limit=lend, borrowing_limit=borrow)
    return QueueSpec(parent=parent, compute=quota, priority=priority)


def due(specs: dict[str, QueueSpec], capacity: int, **demand: int) -> dict[str, int]:
    """Shares of compute, in whole percent."""
    found = shares(plant(specs), dimension=COMPUTE, capacity=capacity, demand=demand)
    return {name: found[name] for name in demand}


EQUAL = {"a": queue(), "b": queue()}
EIGHT = {f"q{number}": queue() for number in range(8)}
HUNGRY = {"a": 900, "b": 900}
IDLE = {"a": 50, "b": 900}
SCENARIOS = [
    # What starves where shares are rounded to whole GPUs.
    ("two ask 0.9 of one GPU", EQUAL, 100, {"a": 90, "b": 90}, {"a": 50, "b": 50}),
    ("eight ask one of four GPUs", EIGHT, 400, dict.fromkeys(EIGHT, 100), dict.fromkeys(EIGHT, 50)),
    ("five tenths beside two halves", EQUAL, 100, {"a": 100, "b": 50}, {"a": 50, "b": 50}),
    ("six tenths beside two halves", EQUAL, 100, {"a": 100, "b": 60}, {"a": 50, "b": 50}),
    ("nine tenths beside two halves", EQUAL, 100, {"a": 100, "b": 90}, {"a": 50, "b": 50}),
    ("a tenth beside a whole", EQUAL, 100, {"a": 100, "b": 10}, {"a": 90, "b": 10}),
    # The rest of the rules, each by hand.
    ("nobody asks", EQUAL, 100, {"a": 0, "b": 0}, {"a": 0, "b": 0}),
    ("three", EQUAL | {"c": queue()}, 100, HUNGRY | {"c": 90}, {"a": 34, "b": 33, "c": 33}),
    ("by weight", EQUAL | {"a": queue(weight=3)}, 400, HUNGRY, {"a": 300, "b": 100}),
    ("guarantee, then by weight", EQUAL | {"a": queue(guarantee=200)}, 400, HUNGRY, {"a": 300, "b": 100}),
    ("an idle guarantee is lent", EQUAL | {"a": queue(guarantee=300)}, 400, IDLE, {"a": 50, "b": 350}),
    ("and kept where it says so", EQUAL | {"a": queue(guarantee=300, lend=0)}, 400, IDLE, {"a": 50, "b": 100}),
    ("or in part", EQUAL | {"a": queue(guarantee=300, lend=100)}, 400, IDLE, {"a": 50, "b": 200}),
    ("a limit frees for others", EQUAL | {"a": queue(limit=50)}, 400, HUNGRY, {"a": 50, "b": 350}),
    ("borrowing is limited", EQUAL | {"a": queue(guarantee=100, borrow=20)}, 400, HUNGRY, {"a": 120, "b": 280}),
    ("no weight borrows nothing", EQUAL | {"a": queue(guarantee=100, weight=0)}, 400, HUNGRY, {"a": 100, "b": 300}),
    ("the higher priority first", EQUAL | {"a": queue(priority=1)}, 400, HUNGRY | {"a": 300}, {"a": 300, "b": 100}),
    ("but not before guarantees", {"a": queue(priority=1), "b": queue(guarantee=90)}, 100, HUNGRY, {"a": 10, "b": 90}),
    ("less than guaranteed", {"a": queue(guarantee=30), "b": queue(guarantee=10)}, 20, HUNGRY, {"a": 15, "b": 5}),
    (
        "inside a branch",
        {"o": queue(guarantee=200), "a": queue("o"), "b": queue("o", guarantee=100), "c": queue()},
        400,
        HUNGRY | {"c": 900},
        {"a": 100, "b": 200, "c": 100},
    ),
    (
        "pods from before a queue had children count as its need",
        {"o": queue(), "a": queue("o"), "c": queue()},
        800,
        {"o": 400, "a": 0, "c": 900},
        {"o": 400, "a": 0, "c": 400},
    ),
    (
        "inside it they have what its children leave",
        {"o": queue(), "a": queue("o"), "c": queue()},
        800,
        {"o": 400, "a": 300, "c": 900},
        {"o": 400, "a": 300, "c": 400},
    ),
    (
        "and of its guarantee too",
        {"o": queue(guarantee=300), "a": queue("o", guarantee=100, lend=0), "c": queue()},
        400,
        {"o": 400, "a": 0, "c": 900},
        {"o": 250, "a": 0, "c": 50},
    ),
    (
        "many queues of one parent have one part",
        {"o": queue(), "a": queue("o"), "b": queue("o"), "c": queue()},
        400,
        HUNGRY | {"c": 900},
        {"a": 100, "b": 100, "c": 200},
    ),
]


@pytest.mark.parametrize(
    ("specs", "capacity", "demand", "expected"), [row[1:] for row in SCENARIOS], ids=[row[0] for row in SCENARIOS]
)
def test_shares_by_hand(
    specs: dict[str, QueueSpec], capacity: int, demand: dict[str, int], expected: dict[str, int]
) -> None:
    """Each rule gives what an operator works out with a pencil."""
    assert due(specs, capacity, **demand) == expected


def check(seed: int) -> None:
    """One random tree against the oracle, and rounded so that all sums up."""
    specs, demand, capacity = random_tree(Random(seed))
    tree = plant(specs)
    exact = exact_shares(tree, dimension=COMPUTE, capacity=capacity, demand=demand)
    assert {name: exact[name] for name in specs} == Oracle(specs, demand).shares(capacity), seed
    rounded = shares(tree, dimension=COMPUTE, capacity=capacity, demand=demand)
    assert rounded[ROOT] <= capacity
    for name, node in tree.nodes.items():
        assert abs(rounded[name] - exact[name]) < 1, (seed, name)
        assert rounded[name] <= node.ceiling[COMPUTE], (seed, name)
        own = rounded[name] - sum(rounded[child] for child in node.children)
        assert 0 <= own <= demand.get(name, 0), (seed, name)


def test_shares_equal_the_oracles() -> None:
    """On random trees shares are those of a slow oracle in rationals, and whole numbers sum up within 1 of them."""
    for seed in range(TREES):
        check(seed)


@given(random=st.randoms(use_true_random=False), more=st.integers(1, 500))
def test_asking_for_more_never_gives_less(random: Random, more: int) -> None:
    """A queue that asks more gets at least as much, whatever the tree."""
    specs, demand, capacity = random_tree(random)
    tree, one = plant(specs), random.choice(sorted(demand))
    before = exact_shares(tree, dimension=COMPUTE, capacity=capacity, demand=demand)[one]
    demand[one] += more
    assert exact_shares(tree, dimension=COMPUTE, capacity=capacity, demand=demand)[one] >= before


@given(random=st.randoms(use_true_random=False))
def test_whoever_wants_more_is_behind_nobody(random: Random) -> None:
    """Among equals, who did not get enough has at least as much beyond the guarantee, by weight, as anybody else."""
    weights = {f"q{number}": random.randint(1, 5) for number in range(random.randint(2, 8))}
    specs = {name: queue(weight=weight, guarantee=random.randint(0, 50)) for name, weight in weights.items()}
    demand = {name: random.randint(0, 300) for name in weights}
    capacity = sum(spec.compute.guarantee or 0 for spec in specs.values()) + random.randint(0, 500)
    found = exact_shares(plant(specs), dimension=COMPUTE, capacity=capacity, demand=demand)
    first = {name: min(specs[name].compute.guarantee or 0, demand[name]) for name in weights}
    level = {name: (found[name] - first[name]) / weights[name] for name in weights}
    assert found[ROOT] == min(capacity, sum(demand.values()))
    for name in weights:
        assert found[name] >= first[name]
        assert found[name] == demand[name] or level[name] == max(level.values())


def test_two_hundred_queues_are_shared_out_exactly() -> None:
    """A large flat tree with odd weights loses nothing to rounding."""
    random = Random(7)
    specs = {f"q{number}": queue(weight=random.randint(1, 97)) for number in range(200)}
    demand = {name: random.randint(1, 9_000) for name in specs}
    tree: Tree = plant(specs)
    exact = exact_shares(tree, dimension=COMPUTE, capacity=400_000, demand=demand)
    rounded = shares(tree, dimension=COMPUTE, capacity=400_000, demand=demand)
    assert exact[ROOT] == Fraction(400_000) == rounded[ROOT] == sum(rounded[name] for name in specs)
