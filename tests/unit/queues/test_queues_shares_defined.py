"""Shares are fair by definition: they can be given, and nobody with a better claim could have any more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction
from random import Random

import pytest

from aliquot_scheduler.queues.charged.shares import exact_shares
from aliquot_scheduler.queues.said.spec import Quota
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, plant
from support.share_definition import Claims, Judge, sound_trees

TREES = 10_000 if os.environ.get("ALIQUOT_SOAK") else 400
PLAIN = Quota()


def claims(quotas: Mapping[str, Quota], *, capacity: int = 100, **more: Mapping[str, int]) -> Claims:
    """Queues side by side, each of which asks for all."""
    return Claims(
        parents=dict.fromkeys(quotas, ""),
        priorities={**dict.fromkeys(quotas, 0), **more.get("priorities", {})},
        quotas=quotas,
        asked={**dict.fromkeys(quotas, 100), **more.get("asked", {})},
        capacity=capacity,
    )


def found(made: Claims, **shares: int) -> list[str]:
    """What the judge says of such shares."""
    return list(Judge(made).faults({name: Fraction(share) for name, share in shares.items()}))


EQUAL = {"a": PLAIN, "b": PLAIN}
# What is claimed, shares of which nothing is to be said, others that are wrong, and what is wrong with those.
JUDGED = [
    ("more than there is", claims(EQUAL), {"a": 50, "b": 50}, {"a": 50, "b": 51}, "can't be given"),
    ("some left over", claims(EQUAL), {"a": 50, "b": 50}, {"a": 50, "b": 49}, "nobody less"),
    ("one above the other", claims(EQUAL), {"a": 50, "b": 50}, {"a": 49, "b": 51}, "a is due some of what b has"),
    (
        "weights",
        claims({"a": Quota(weight=3), "b": PLAIN}),
        {"a": 75, "b": 25},
        {"a": 50, "b": 50},
        "a is due some of what b has",
    ),
    (
        "a guarantee",
        claims({"a": Quota(guarantee=60), "b": PLAIN}),
        {"a": 80, "b": 20},
        {"a": 50, "b": 50},
        "a is due some of what b has",
    ),
    (
        "priority",
        claims(EQUAL, priorities={"b": 1}),
        {"a": 0, "b": 100},
        {"a": 1, "b": 99},
        "b is due some of what a has",
    ),
    (
        "less than is guaranteed",
        claims({"a": Quota(guarantee=90), "b": Quota(guarantee=30)}, capacity=40),
        {"a": 30, "b": 10},
        {"a": 20, "b": 20},
        "a is due some of what b has",
    ),
    (
        "kept idle",
        claims({"a": Quota(guarantee=60, lending_limit=0), "b": PLAIN}, asked={"a": 10}),
        {"a": 10, "b": 40},
        {"a": 10, "b": 41},
        "can't be given",
    ),
    ("a limit", claims({"a": Quota(limit=20), "b": PLAIN}), {"a": 20, "b": 80}, {"a": 21, "b": 79}, "can't be given"),
]


@pytest.mark.parametrize(
    ("made", "right", "wrong", "said"), [row[1:] for row in JUDGED], ids=[row[0] for row in JUDGED]
)
def test_the_judge_sees_what_is_wrong(made: Claims, right: dict[str, int], wrong: dict[str, int], said: str) -> None:
    """Of shares that are right it says nothing, else what is amiss."""
    assert found(made, **right) == []
    assert any(said in fault for fault in found(made, **wrong))


def test_shares_are_fair_by_definition() -> None:
    """Of compute and of memory, on random sound trees: exact, and nobody could have any more by right."""
    for seed in range(TREES):
        specs, compute, memory = sound_trees(Random(seed))
        tree = plant(specs)
        for dimension, made in ((COMPUTE, compute), (MEMORY, memory)):
            exact = exact_shares(tree, dimension=dimension, capacity=made.capacity, demand=made.asked)
            faults = list(Judge(made).faults({leaf: exact[leaf] for leaf in made.asked}))
            assert not faults, (seed, tree.dimensions.names[dimension], faults)
