"""Pods that no node could take, even if it were empty: they are told so in their condition, with what is missing."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_core.inventory import Gpu
from aliquot_scheduler.queues.said.spec import ModelQuota, Quota
from support.centre import NAMES, Asked, container, gpus, make_node, make_pod
from support.queue_stage import GATED, H100, Stage, queue

EMPTY = "no node could take it, even if it were empty: "
MODEL = f"(annotation {NAMES.gpu_model})"
SMALL, LARGE = gpus("s", 3, memory=40_000), gpus("l", 2)
IN_MIG = tuple(msgspec.structs.replace(gpu, isolation=["mig"]) for gpu in LARGE)
APART = tuple(
    msgspec.structs.replace(gpu, isolation=modes)
    for gpu, modes in zip(gpus("a", 2), (["observe", "interposer"], ["mps"]), strict=True)
)
# Three for the smaller piece alone, and two for all.
UNEQUAL = tuple(
    msgspec.structs.replace(gpu, isolation=modes)
    for gpu, modes in zip(
        (*gpus("v", 3, memory=40_000), *gpus("w", 2)), [["interposer"]] * 3 + [["observe"]] * 2, strict=True
    )
)
ONE_MODE = "ask for fewer GPUs, or have more GPUs of one node offer the same mode"
MIXED = (*gpus("m", 2, memory=40_000), *gpus("n", 1))

# What a node has, what is asked, and what is said.
NEVER: dict[str, tuple[tuple[tuple[Gpu, ...], ...], Asked, dict[str, str], str]] = {
    "there are no nodes": ((), (50, 1_000), {}, "no GPU is there yet that can be given"),
    "there are no GPUs": (((),), (50, 1_000), {}, "no GPU is there yet that can be given"),
    "none is of the model": (
        (LARGE, SMALL),
        (50, 1_000),
        {"gpu-model": H100},
        f"none of 5 GPUs is what the pod allows {MODEL}; there are A100-SXM4-80GB",
    ),
    "none is so large": (
        (LARGE, SMALL),
        (50, 90_000),
        {},
        "it asks 90000 MiB of one GPU, and the largest that it may have has 80000 MiB",
    ),
    "the only one is not of the model": (
        (LARGE[:1],),
        (50, 1_000),
        {"gpu-model": H100},
        f"the only GPU is not what the pod allows {MODEL}; there are A100-SXM4-80GB",
    ),
    "by their isolation they refuse what bursts": (
        (IN_MIG,),
        (None, 1_000),
        {},
        f"by their isolation none of 2 GPUs takes what is best-effort; there is mig: ask for {NAMES.compute}",
    ),
    "by their isolation they refuse what is spread": (
        (IN_MIG,),
        (150, 1_000),
        {},
        (
            "by their isolation none of 2 GPUs takes what is spread over parts of several; there is mig: "
            "ask for whole GPUs, or for one"
        ),
    ),
    "none offers such an isolation": (
        (LARGE, APART),
        (50, 1_000),
        {"isolation": "mig"},
        (
            f"none of 4 GPUs is what the pod allows (annotation {NAMES.isolation}); none offers isolation mig, "
            "there are interposer, mps, observe: ask for one of these, or have a node offer it"
        ),
    ),
    "no node has so many of one isolation": (
        (APART, LARGE[:1]),
        (200, None),
        {},
        (
            "it needs 2 GPUs of one isolation mode on one node, and of these no node has more than 1 in observe or "
            f"1 in mps that are large enough: {ONE_MODE}"
        ),
    ),
    "of each isolation some of its GPUs are too small": (
        (UNEQUAL,),
        (250, 150_000),
        {},
        (
            "it needs 3 GPUs of one isolation mode on one node, and of these no node has more than 1 in interposer or "
            f"2 in observe that are large enough: {ONE_MODE}"
        ),
    ),
    "no node has so many": (
        (LARGE, SMALL),
        (400, None),
        {},
        "it needs 4 GPUs of one node, and no node has more than 3 that it may have",
    ),
    "no node has so many large ones": (
        (MIXED, SMALL),
        (200, 160_000),
        {},
        "it needs 2 GPUs with 80000 MiB each of one node, and none has so many",
    ),
}


@pytest.mark.parametrize("row", NEVER)
def test_who_fits_nowhere_is_told_what_is_missing(row: str) -> None:
    """In numbers, of all nodes; by its word it stands in no line."""
    nodes, (compute, memory), notes, said = NEVER[row]
    stage = Stage({"a": queue()}, nodes=())
    for at, cards in enumerate(nodes):
        stage.picture.node_seen(make_node(f"n{at}", cards))
    stage.submit("p", compute, memory, queue="a", notes=notes)
    assert stage.round() == []
    (waiter,) = stage.queues.waiting()
    notice = stage.queues.notice(waiter)
    assert (notice.reason, notice.message) == ("NeverFits", EMPTY + said)


def test_the_largest_container_is_told_of_whichever_is_first() -> None:
    """Of two the one with less compute asks for more memory than any GPU has."""
    stage = Stage({"a": queue()}, nodes=(1,))
    two = [container("main", (50, 1_000)), container("other", (10, 90_000))]
    stage.see(make_pod("p", *two, spec=GATED, labels={NAMES.queue: "a"}))
    (waiter,) = stage.queues.waiting()
    said = "it asks 90000 MiB of one GPU, and the largest that it may have has 80000 MiB"
    assert stage.queues.notice(waiter).message == EMPTY + said


KEPT = {"k": queue(guarantee=200, lend=0), "a": queue(guarantee=300), "b": queue()}


def told(stage: Stage) -> dict[str, str]:
    """Who waits, and the word for why."""
    return {waiter.uid: stage.queues.notice(waiter).reason for waiter in stage.queues.waiting()}


def test_what_others_keep_of_all_there_is_lets_it_never_in_and_it_keeps_nothing_from_those_who_fit() -> None:
    """Of four cards two are kept: a guarantee of three is not to be had by one pod, and the other two don't idle."""
    stage = Stage(KEPT, nodes=(4,))
    stage.submit("a0", 300, queue="a")
    stage.submit("b0", 100, queue="b")
    assert stage.run() == ["b0"]
    (waiter,) = stage.queues.waiting()
    assert stage.queues.notice(waiter).message == (
        "it asks 300 % of compute, and of the 400 % that there are others keep 200 % though they don't use it "
        "(lendingLimit) (k 200 %)"
    )
    assert stage.queues.register.books.ledger.held_for("a")[0] == 0


def test_it_joins_in_when_there_are_enough_cards_beside_what_is_kept() -> None:
    """And out again when they are gone; a group as a single pod."""
    stage = Stage(KEPT, nodes=(3,))
    for number in range(3):
        stage.submit(f"g{number}", 100, queue="a", group="g", notes={"group-size": "3"})
    assert stage.run() == []
    assert set(told(stage).values()) == {"NeverFits"}
    stage.submit("a0", 200, queue="a")
    assert told(stage)["a0"] == "NeverFits"
    stage.picture.node_seen(make_node("n1", gpus("n1", 1)))
    stage.queues.register.tell_time(stage.now)
    assert told(stage) == dict.fromkeys(("g0", "g1", "g2"), "NeverFits") | {"a0": "Waiting"}
    stage.picture.node_gone("n1")
    stage.queues.register.tell_time(stage.now)
    assert told(stage)["a0"] == "NeverFits"
    stage.picture.node_seen(make_node("n1", gpus("n1", 2)))
    assert sorted(stage.run()) == ["g0", "g1", "g2"]


def test_a_queue_that_grows_may_have_more_beside_what_is_kept() -> None:
    """Its pods stand in line for it: an autoscaler is to see them."""
    stage = Stage(KEPT | {"a": queue(guarantee=300, autoscale=True)}, nodes=(4,))
    stage.submit("a0", 300, queue="a")
    assert stage.round() == ["a0"]
    assert stage.turns["a0"].promise is None


def test_what_is_kept_of_a_model_keeps_nobody_off_others() -> None:
    """Under a limit or of all there is: one that names no model has cards of others."""
    kept = ModelQuota(compute=Quota(guarantee=100, lending_limit=0))
    all_of_it = {"*H100*": ModelQuota(compute=Quota(limit=100))}
    specs = {"o": queue(models=all_of_it), "k": queue("o", models={"*H100*": kept}), "a": queue("o"), "b": queue()}
    stage = Stage(specs, nodes=(1, 2), models={0: H100})
    for uid in ("a0", "b0"):
        stage.submit(uid, 50, queue=uid[0])
    assert sorted(stage.run()) == ["a0", "b0"]


@pytest.mark.parametrize("first", ["names it", "names none"])
def test_a_group_lies_beside_what_is_kept_of_a_model_though_some_of_it_need_that(first: str) -> None:
    """Of two cards of a model one is kept: who need not lie there gives way to who must, whoever came first."""
    kept = ModelQuota(compute=Quota(guarantee=100, lending_limit=0))
    stage = Stage({"k": queue(models={"*H100*": kept}), "a": queue()}, nodes=(2, 1), models={0: H100})
    of_them = [("bound", "*H100*"), ("free", None)]
    for uid, model in of_them if first == "names it" else reversed(of_them):
        notes = {"group-size": "2"} | ({"gpu-model": model} if model else {})
        stage.submit(uid, 100, queue="a", group="g", notes=notes)
    assert sorted(stage.run()) == ["bound", "free"]


def test_a_group_of_which_more_need_a_model_than_others_leave_never_fits() -> None:
    """Nobody who must have it can give way, and it is told so in numbers."""
    kept = ModelQuota(compute=Quota(guarantee=100, lending_limit=0))
    stage = Stage({"k": queue(models={"*H100*": kept}), "a": queue()}, nodes=(2, 2), models={0: H100})
    for uid in ("one", "other"):
        stage.submit(uid, 100, queue="a", group="g", notes={"group-size": "2", "gpu-model": "*H100*"})
    assert stage.run() == []
    for waiter in stage.queues.waiting():
        assert stage.queues.notice(waiter).message == (
            "its group starts with 2 pods, which ask 200 % of compute of *H100*, and of the 200 % that there are others"
            " keep 100 % though they don't use it (lendingLimit) (k 100 %)"
        )
