"""The share that is shown of each queue: what it could get, by what is said of single models, and what is open."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import msgspec
import pytest

from aliquot_core.inventory import Gpu
from aliquot_scheduler.queues.charged.fair import Reach, fair_shares
from aliquot_scheduler.queues.charged.shares import shares
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE, plant
from support.centre import gpus, make_node
from support.queue_stage import A100, H100, Stage, queue
from support.share_oracle import OfModels, random_tree

replace = msgspec.structs.replace
CARD = 80_000
# Models that lie beside, inside and across one another: of which kinds of GPUs each is.
KINDS = {"x": frozenset({0}), "y": frozenset({1}), "xy": frozenset({0, 1}), "yz": frozenset({1, 2})}


def of(pattern: str, **quota: int) -> dict[str, ModelQuota]:
    """What a queue says of a model."""
    return {pattern: ModelQuota(compute=Quota(**quota))}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, how many GPUs of which model are there, who asks for how many of which, and what is due in percent."""

    queues: Mapping[str, QueueSpec]
    there: Mapping[str, int]
    asks: Mapping[str, tuple[int, str]]
    due: Mapping[str, int]


ROWS = {
    "a limit for the only model that it asks for": Case(
        queues={"a": queue(models=of("*H100*", limit=200)), "b": queue()},
        there={H100: 4, A100: 4},
        asks={"a": (8, H100), "b": (8, "")},
        due={"a": 200, "b": 600},
    ),
    "there is no more of the only model that it asks for": Case(
        queues={"a": queue(models=of("*H100*", limit=900)), "b": queue()},
        there={H100: 2, A100: 4},
        asks={"a": (8, H100), "b": (8, "")},
        due={"a": 200, "b": 400},
    ),
    "who may have others too loses nothing by the limit": Case(
        queues={"a": queue(models=of("*H100*", limit=100)), "b": queue()},
        there={H100: 4, A100: 4},
        asks={"a": (8, ""), "b": (8, "")},
        due={"a": 400, "b": 400},
    ),
    "what limits leave of all models": Case(
        queues={"a": queue(models=of("*H100*", limit=100)), "b": queue()},
        there={H100: 4, A100: 1},
        asks={"a": (8, ""), "b": (1, "")},
        due={"a": 200, "b": 100},
    ),
    "two that ask for the same model alone, by their weights of all": Case(
        queues={"a": queue(weight=3, models=of("*H100*", limit=900)), "b": queue(), "c": queue()},
        there={H100: 4, A100: 4},
        asks={"a": (8, H100), "b": (8, H100), "c": (8, "")},
        due={"a": 300, "b": 100, "c": 400},
    ),
    "of the same model alone what is guaranteed of all comes first": Case(
        queues={"a": queue(guarantee=300, weight=0), "b": queue(models=of("*H100*", limit=900))},
        there={H100: 4, A100: 4},
        asks={"a": (8, H100), "b": (8, H100)},
        due={"a": 300, "b": 100},
    ),
    "under a limit of their parent": Case(
        queues={"o": queue(models=of("*H100*", limit=200)), "a": queue("o"), "b": queue("o"), "c": queue()},
        there={H100: 4, A100: 4},
        asks={"a": (8, H100), "b": (8, H100), "c": (8, "")},
        due={"o": 200, "a": 100, "b": 100, "c": 600},
    ),
    "narrow patterns may keep more than a wide one around them": Case(
        queues={
            "a": queue(models=of("NVIDIA*", limit=500) | of("*H100*", limit=200) | of("*A100*", limit=200)),
            "b": queue(),
        },
        there={H100: 4, A100: 4},
        asks={"a": (8, ""), "b": (1, "")},
        due={"a": 400, "b": 100},
    ),
    "who asks for GPUs of narrow patterns alone, inside a wide one": Case(
        queues={"a": queue(models=of("NVIDIA*", limit=700) | of("*H100*", limit=100)), "b": queue()},
        there={H100: 4, A100: 4},
        asks={"a": (8, H100), "b": (8, "")},
        due={"a": 100, "b": 700},
    ),
    "what two patterns keep of the same GPUs is taken off once": Case(
        queues={"a": queue(models=of("*H100*", limit=200) | of("NVIDIA*", limit=400)), "b": queue()},
        there={H100: 4, A100: 4},
        asks={"a": (8, ""), "b": (1, "")},
        due={"a": 400, "b": 100},
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_share_is_what_a_queue_could_get(row: str) -> None:
    """In numbers that can be checked by hand, as they are told in its status."""
    case = ROWS[row]
    stage = Stage(case.queues, nodes=())
    for model, count in case.there.items():
        stage.picture.node_seen(make_node(f"n-{model}", gpus(f"n-{model}", count, model=model)))
    for name, (count, model) in case.asks.items():
        for number in range(count):
            stage.submit(f"{name}{number}", 100, queue=name, notes={"gpu-model": model} if model else {})
    stage.beat()
    stage.queues.register.tell_time(stage.now)
    statuses = stage.queues.statuses(now=stage.now, at="")
    assert {name: statuses[name].fair_share.compute for name in case.due} == dict(case.due)


def test_what_a_queue_runs_from_before_it_had_children_is_its_need() -> None:
    """Its siblings are due no more by that it was divided, and its children no less."""
    whole = {"b": queue(), "z": queue()}
    stage = Stage(whole, nodes=(8,))
    for number in range(4):
        stage.submit(f"b{number}", queue="b")
    assert len(stage.run()) == 4
    for number in range(8):
        stage.submit(f"z{number}", queue="z")
    stage.run()
    stage.queues.queues_seen(whole | {"b1": queue("b")})
    stage.run()
    assert due_now(stage) == {"b": 400, "b1": 0, "z": 400}
    for number in range(3):
        stage.submit(f"c{number}", queue="b1")
    stage.run()
    assert due_now(stage) == {"b": 400, "b1": 300, "z": 400}


def due_now(stage: Stage) -> dict[str, int]:
    """Everybody's share of compute, as it is told."""
    told = stage.queues.statuses(now=stage.now, at="")
    return {name: status.fair_share.compute for name, status in told.items() if name != "default"}


def opened(node: str, *, cordoned: bool, cards: list[Gpu]) -> Stage:
    """Two equal queues, and a pod of one of them on a node; and another node."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=())
    stage.picture.node_seen(make_node(node, cards))
    stage.submit("a0", 30, 1_000, queue="a")
    assert stage.run() == ["a0"]
    stage.picture.node_seen(make_node(node, cards, cordoned=cordoned))
    stage.picture.node_seen(make_node("open", gpus("open", 1)))
    for number in range(4):
        stage.submit(f"b{number}", 100, queue="b")
    stage.beat()
    stage.queues.register.tell_time(stage.now)
    return stage


@pytest.mark.parametrize(("cordoned", "due"), [(False, 270), (True, 100)])
def test_of_cordoned_nodes_only_what_is_in_use_counts(cordoned: bool, due: int) -> None:
    """Nobody comes to what is free there; whoever runs there has it."""
    stage = opened("n0", cordoned=cordoned, cards=list(gpus("n0", 2)))
    told = stage.queues.statuses(now=stage.now, at="")
    assert (told["a"].fair_share.compute, told["b"].fair_share.compute) == (30, due)
    assert told["b"].fair_share.memory == (CARD if cordoned else 3 * CARD - 1_000)


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_shares_are_those_of_the_slow_way(first: int) -> None:
    """Random trees that speak of models that overlap, beside exact rationals; without models as they were."""
    for seed in range(first, first + 40):
        chance = Random(seed)
        specs, demand, capacity = random_tree(chance)
        of_kinds = [chance.randint(0, capacity // 3) for _ in range(3)]
        there = {model: sum(of_kinds[kind] for kind in kinds) for model, kinds in KINDS.items()}
        specs = {name: replace(spec, models=_models(chance, name, specs)) for name, spec in specs.items()}
        tied = {
            model: {name: min(amount // 2, chance.choice((0, 0, 50, 300))) for name, amount in demand.items()}
            for model in there
        }
        tree = plant(specs)
        order = list(tree.dimensions.models)
        reach = Reach(
            amounts=(capacity, 0, *(part for model in order for part in (there[model], 0))),
            kinds=tuple(KINDS[model] for model in order),
        )
        asked = {
            name: (amount, 0, *(part for model in order for part in (tied[model][name], 0)))
            for name, amount in demand.items()
        }
        named = {model: amount for model, amount in there.items() if model in order}
        exact = OfModels(specs, there=named, tied=tied, kinds=KINDS).shares(demand, capacity=capacity)
        found = fair_shares(tree, dimension=COMPUTE, reach=reach, demand=asked)
        assert all(abs(found[name] - share) < 1 for name, share in exact.items()), seed
        if not order:
            assert found == shares(tree, dimension=COMPUTE, capacity=capacity, demand=demand), seed


def _models(chance: Random, name: str, specs: Mapping[str, QueueSpec]) -> dict[str, ModelQuota]:
    """Nothing is guaranteed where less may be used of all GPUs: how that cuts it is not the oracle's matter."""
    said = [model for model in KINDS if chance.random() < 0.4]
    guarantees = (None,) if _is_bounded(name, specs) else (None, None, 100)
    return {
        model: ModelQuota(compute=Quota(guarantee=chance.choice(guarantees), limit=chance.choice((None, 50, 150, 400))))
        for model in said
    }


def _is_bounded(name: str, specs: Mapping[str, QueueSpec]) -> bool:
    if not name:
        return False
    quota = specs[name].compute
    bounds = quota.limit is not None or quota.borrowing_limit is not None or not quota.weight
    return bounds or _is_bounded(specs[name].parent, specs)
