"""What queues say of models beside what they say of all GPUs, or of wider patterns: one lies within the other."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from aliquot_scheduler.queues.said.contradictions import problems_of
from aliquot_scheduler.queues.said.nesting import wider_than
from aliquot_scheduler.queues.said.oddities import oddities_of
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from support.queue_stage import A100, H100, Stage, queue

CARD = 80_000
Models = Mapping[str, ModelQuota]


def of(guarantee: int | None = None, limit: int | None = None, *, lend: int | None = None) -> ModelQuota:
    """What is said of the compute of a model."""
    return ModelQuota(compute=Quota(guarantee=guarantee, limit=limit, lending_limit=lend))


@pytest.mark.parametrize(
    ("pattern", "wider"),
    [
        ("*A100*", ["", "*", "NVIDIA*"]),
        ("A100-SXM4-80GB", ["", "*", "*A100*"]),
        ("*H100*", ["", "*", "*H*"]),
        ("*", [""]),
        ("", []),
        ("a100-pcie*", ["", "*", "*A100*"]),
        # What no GPU there is of lies within what takes it as it is written.
        ("*L4*", ["", "*"]),
        ("*?A100*", ["", "*", "*A100*"]),
        # In brackets is one of several characters: neither lies within what has H in it.
        ("*[AH]100*", ["", "*"]),
        ("*[!H]100*", ["", "*"]),
    ],
)
def test_what_lies_within_what(pattern: str, wider: list[str]) -> None:
    """By how patterns are written, and by the models that are there."""
    patterns = ["", "*", "*A100*", "*?A100*", "NVIDIA*", "*H*"]
    kinds = {
        "*A100*": frozenset({1}),
        "NVIDIA*": frozenset({1, 2}),
        "*": frozenset({1, 2, 3}),
        "*H100*": frozenset({3}),
    }
    assert wider_than(pattern, patterns, kinds=kinds) == wider


# With what is said of it, and how much is kept of four cards where it is there all the same.
REFUSED: dict[str, tuple[Mapping[str, QueueSpec], str, int]] = {
    "more of a model than of all": (
        {"c": queue(limit=100, models={"*A100*": of(300, lend=0)})},
        "queue c, spec.models[*A100*].compute: guarantee 300 is more than limit 100 of all GPUs",
        100,
    ),
    "more of a model than of a pattern that takes it": (
        {"c": queue(models={"*A100*": of(300, lend=0), "*": of(limit=100)})},
        "queue c, spec.models[*A100*].compute: guarantee 300 is more than limit 100 of *, which takes these too",
        100,
    ),
    "more for a child than its parent may use of all": (
        {"org": queue(limit=300), "c": queue("org", models={"*A100*": of(400)})},
        "queue org, spec.models[*A100*].compute: its children are guaranteed 400, more than limit 300 of all GPUs",
        0,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_more_of_a_model_than_a_limit_lets_be_used_is_refused(case: str) -> None:
    """With where it stands; and if it is there all the same, so much is guaranteed and kept as may be used."""
    specs, words, kept = REFUSED[case]
    assert [str(problem).partition("; ")[0] for problem in problems_of(specs)] == [words]
    stage = Stage({**specs, "other": queue()}, nodes=(4,), models={0: A100})
    for number in range(4):
        stage.submit(f"o{number}", 100, CARD, queue="other")
    stage.run()
    assert stage.used("other")[0] == 400 - kept


# On four cards: percent, and MiB.
KEPT: dict[str, tuple[Mapping[str, QueueSpec], tuple[int, int]]] = {
    "a limit above it is less": (
        {"org": queue(limit=300), "c": queue("org", models={"*A100*": of(400, lend=0)})},
        (300, 3 * CARD),
    ),
    "of weight 0 it has its guarantee of all and no more": (
        {"c": QueueSpec(compute=Quota(guarantee=100, weight=0), models={"*A100*": of(200, lend=0)})},
        (100, CARD),
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_of_a_model_no_more_is_kept_than_may_be_used_of_all(case: str) -> None:
    """Whatever forbids to use more; and no more memory than goes along with that."""
    specs, kept = KEPT[case]
    stage = Stage({**specs, "other": queue()}, nodes=(4,), models={0: A100})
    stage.queues.register.tell_time(stage.now)
    tree = stage.queues.books.ledger.tree
    (dimension,) = (at for at, name in enumerate(tree.dimensions.names) if name == "compute of *A100*")
    assert tree.nodes["c"].kept[dimension : dimension + 2] == kept


def test_what_is_reserved_of_a_pattern_and_a_wider_one_counts_once() -> None:
    """Both are kept by the same cards: nothing idles for good."""
    specs = {"a": queue(limit=300, models={"*A100*": of(200, lend=0), "*": of(200, lend=0)})}
    assert not [said for said in oddities_of("a", specs) if "for good" in said]


def test_reservations_of_models_that_can_t_all_be_used_are_warned_of() -> None:
    """Of two models 200 % each are kept, and 300 % may be used."""
    specs = {"a": queue(limit=300, models={"*A100*": of(200, lend=0), "*H100*": of(200, lend=0)})}
    assert not problems_of(specs)
    (said,) = oddities_of("a", specs)
    assert (
        "it keeps 400 of compute idle (*A100* 200 + *H100* 200), and may use 300 of all GPUs: 100 idles for good"
        in said
    )


@pytest.mark.parametrize(("uses", "others"), [(0, 600), (1, 500), (2, 400), (3, 300)])
def test_what_is_kept_of_a_model_is_kept_though_the_limit_of_all_is_full(uses: int, others: int) -> None:
    """Each dimension by itself, as the document says: two A100 idle while its own H100 fill the limit of three."""
    stage = Stage(
        {"a": queue(limit=300, models={"*A100*": of(200, lend=0)}), "b": queue()},
        nodes=(4, 4),
        models={0: A100, 1: H100},
    )
    for number in range(uses):
        stage.submit(f"a{number}", 100, CARD, queue="a", notes={"gpu-model": "*H100*"})
    assert len(stage.run()) == uses
    for number in range(8):
        stage.submit(f"b{number}", 100, CARD, queue="b")
    stage.run()
    assert stage.used("b")[0] == others


def drawn(chance: Random) -> QueueSpec:
    """A queue with limits, guarantees and reservations of all GPUs and of models."""

    def amounts(guarantees: list[int | None], limits: list[int | None]) -> tuple[int | None, int | None]:
        guarantee, limit = chance.choice(guarantees), chance.choice(limits)
        return guarantee, guarantee if guarantee and limit and limit < guarantee else limit

    models = {}
    for pattern in chance.sample(["*A100*", "*H100*", "NVIDIA*", "*"], chance.randint(0, 2)):
        guarantee, limit = amounts([None, 100, 200, 300], [None, None, 100, 200, 400])
        models[pattern] = of(guarantee, limit, lend=0 if guarantee and chance.random() < 0.7 else None)
    guarantee, limit = amounts([None, None, 100, 300], [None, None, 100, 200, 400])
    return queue(
        guarantee=guarantee, limit=limit, lend=0 if guarantee and chance.random() < 0.5 else None, models=models
    )


def alone(specs: Mapping[str, QueueSpec], name: str) -> int:
    """How much compute one queue gets where nobody else asks, on four cards of each of two models."""
    stage = Stage(specs, nodes=(4, 4), models={0: A100, 1: H100})
    for number in range(9):
        stage.submit(f"{name}{number}", 100, CARD, queue=name)
    while stage.run():
        pass
    return stage.used(name)[0]


@pytest.mark.parametrize("seed", range(40))
def test_nothing_idles_for_who_could_not_use_it(seed: int) -> None:
    """What is left of all when a queue has all that it may use is another one's, or whoever wrote it was warned."""
    own = drawn(Random(seed))
    specs = {"a": own, "b": queue()}
    warned = any("idles for good" in said for said in oddities_of("a", specs))
    assert warned or alone(specs, "b") >= 800 - alone(specs, "a")


def test_what_is_told_of_queues_just_written_counts_as_they_do() -> None:
    """Before the next round: another queue speaks of fewer models, or of more, than the one that was there."""
    stage = Stage({"a": queue(models={"*A100*": of(100), "*H100*": of(100)})}, nodes=(1,))
    stage.run()
    for models in ({}, {"*A100*": of(500, lend=0)}):
        stage.queues.queues_seen({"b": queue(models=models)})
        told = stage.queues.statuses(now=stage.now, at="")
        assert [bool(told["b"].problems), "a" in told] == [bool(models), False]
