"""Many cards come free at once where queues have quotas for each model: who is let in and not bound yet lies on one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest

from aliquot_core.patterns import Patterns
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from support.centre import gpus, make_node
from support.queue_stage import A100, H100, Stage, queue

MODELS = {"h": H100, "k": A100}
LINUX = {"kubernetes.io/os": "linux"}
BOTH = {"*A100*": 200, "*H100*": 200}
SPREAD = {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}


def limited(**limits: int) -> QueueSpec:
    """A queue with such limits for the compute of models."""
    return queue(models={pattern: ModelQuota(compute=Quota(limit=limit)) for pattern, limit in limits.items()})


def free(specs: Mapping[str, QueueSpec], *, there: Mapping[str, int]) -> Stage:
    """A node of each model, and nobody on it."""
    stage = Stage(specs, nodes=())
    for node, count in there.items():
        stage.picture.node_seen(make_node(node, gpus(node, count, model=MODELS[node]), labels=LINUX))
    return stage


def asked(stage: Stage, count: int, **more: Any) -> None:
    """So many single GPUs of each queue, in turns."""
    for number in range(count):
        for name in sorted(stage.queues.books.ledger.tree.nodes.keys() - {"", "default", "o"}):
            stage.submit(f"{name}{number}", 100, queue=name, **more)


def had(stage: Stage, name: str) -> int:
    """How many GPUs were promised to a queue."""
    return sum(len(stage.picture.holdings.of(uid)) for uid in stage.turns if uid[0] == name)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Two queues, each of which asks for all of 4 H100 and 4 A100; how many GPUs each is let in on in one round."""

    a: QueueSpec
    b: QueueSpec = queue()
    had: tuple[int, int]
    says: Mapping[str, Any] = {}


ROWS = {
    "limits on all models, all cards free at once": Row(a=limited(**BOTH), had=(4, 4)),
    "a limit on one of them": Row(a=limited(**{"*H100*": 100}), had=(4, 4)),
    "limits that overlap": Row(a=limited(**BOTH, **{"NVIDIA*": 300}), had=(3, 5)),
    "limits of both queues": Row(a=limited(**BOTH), b=limited(**BOTH), had=(4, 4)),
    "a limit on all models of a parent's, who has none itself": Row(a=queue("o"), had=(4, 4)),
    "what is guaranteed of each model counts where it lies": Row(
        a=queue(models={name: ModelQuota(compute=Quota(guarantee=400)) for name in BOTH}), had=(8, 0)
    ),
    # Each may have to go to the other model, so both limits are full with two of them until those are bound.
    "who is spread over zones, and so counts for each model": Row(a=limited(**BOTH), had=(2, 6), says=SPREAD),
    "who chooses among nodes by their labels": Row(a=limited(**BOTH), had=(4, 4), says={"nodeSelector": LINUX}),
}


@pytest.mark.parametrize("row", ROWS)
def test_of_cards_that_come_free_at_once_each_has_its_share(row: str) -> None:
    """In one round, before anybody is bound: nobody is refused for models on which its own pods were promised none."""
    case = ROWS[row]
    specs = {"a": case.a, "b": case.b} | ({"o": limited(**BOTH)} if case.a.parent else {})
    stage = free(specs, there={"h": 4, "k": 4})
    asked(stage, 8, spec=case.says)
    stage.round()
    assert (had(stage, "a"), had(stage, "b")) == case.had


def test_kube_scheduler_may_choose_no_other_model_then() -> None:
    """It is told of the node that was promised alone; asked again, of those of the same model; limits hold, so."""
    stage = free({"a": limited(**BOTH)}, there={"h": 1, "k": 4})
    stage.picture.node_seen(make_node("h2", gpus("h2", 1, model=H100)))
    asked(stage, 4)
    stage.round()
    names = ["h", "h2", "k"]
    on_h100 = [promise.pod.metadata.uid for promise in stage.desk.promises if promise.node != "k"]
    assert len(on_h100) == 2
    stage.end(on_h100[1])
    first = stage.desk.filter(stage.pods[on_h100[0]], names, now=stage.now)
    again = stage.desk.filter(stage.pods[on_h100[0]], names, now=stage.now)
    assert (len(first.nodes), sorted(again.nodes)) == (1, ["h", "h2"])


def test_who_may_have_to_go_elsewhere_keeps_the_choice_and_counts_for_each_model() -> None:
    """Of what it says of other pods we know nothing: its promise holds it to no model."""
    stage = free({"a": limited(**BOTH)}, there={"h": 4, "k": 4})
    asked(stage, 4, spec=SPREAD)
    let_in = stage.round()
    assert len(let_in) == 2
    assert sorted(stage.desk.filter(stage.pods[let_in[0]], ["h", "k"], now=stage.now).nodes) == ["h", "k"]
    (notice,) = {stage.queues.notice(one).reason for one in stage.queues.waiting()}
    assert notice == "OverLimit"


def test_who_has_lost_a_turn_has_the_choice_again() -> None:
    """Why it could not be bound where it was promised room nobody knows."""
    stage = free({"a": limited(**BOTH)}, there={"h": 4, "k": 4})
    asked(stage, 1)
    assert stage.round() == ["a0"]
    (promise,) = stage.desk.promises
    other = {"h": "k", "k": "h"}[promise.node]
    assert stage.desk.filter(stage.pods["a0"], [other], now=stage.now).nodes == []
    for _ in range(10):
        if stage.round(after=20.0):
            break
    assert stage.desk.filter(stage.pods["a0"], [other], now=stage.now).nodes == [other]


@pytest.mark.parametrize("seed", range(40))
def test_nobody_goes_past_one_with_less_who_may_have_a_card(seed: int) -> None:
    """Random limits, all cards free at once: by what each has at each turn, and never over a limit."""
    chance = Random(seed)
    there = {node: chance.randint(1, 6) for node in MODELS}
    patterns = ("*A100*", "*H100*", "NVIDIA*")
    limits = {name: {one: chance.randrange(0, 700, 100) for one in patterns if chance.random() < 0.6} for name in "abc"}
    stage = free({name: limited(**limits[name]) for name in "abc"}, there=there)
    asked(stage, 12)
    stage.round()
    left, has = Counter(there), {name: Counter[str]() for name in "abc"}

    def may_have(name: str, node: str) -> bool:
        return left[node] > 0 and all(
            sum(count for other, count in has[name].items() if _is_of(pattern, other)) * 100 + 100 <= limit
            for pattern, limit in limits[name].items()
            if _is_of(pattern, node)
        )

    for uid, turn in stage.turns.items():
        assert turn.promise is not None
        less = [one for one in "abc" if has[one].total() < has[uid[0]].total()]
        passed = [one for one in less if any(may_have(one, node) for node in MODELS)]
        assert not passed, (seed, uid, limits, there, has)
        assert may_have(uid[0], turn.promise.node), (seed, uid, limits, there, has)
        left[turn.promise.node] -= 1
        has[uid[0]][turn.promise.node] += 1
    stage.bind(*stage.turns)
    assert stage.run(after=1.0) == []


def _is_of(pattern: str, node: str) -> bool:
    return Patterns(allowed=(pattern.casefold(),)).admits(MODELS[node])
