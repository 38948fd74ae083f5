"""Pods that no node could take, even if it were empty: they are told so in their condition, with what is missing."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_core.inventory import Gpu
from support.centre import NAMES, Asked, container, gpus, make_node, make_pod
from support.queue_stage import GATED, H100, Stage, queue

EMPTY = "no node could take it, even if it were empty: "
MODEL = f"(annotation {NAMES.gpu_model})"
SMALL, LARGE = gpus("s", 3, memory=40_000), gpus("l", 2)
IN_MIG = tuple(msgspec.structs.replace(gpu, isolation=["mig"]) for gpu in LARGE)
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
        "by their isolation none of 2 GPUs takes what is best-effort",
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
        "it needs 2 GPUs of one node for up to 80000 MiB each, and none has so many",
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
