"""The sentences of refusals: what is true of each axis, which GPUs are out and why, one of a thing and several."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot_core.counting import counted, none_of, some_of
from aliquot_core.inventory import Gpu, Inventory
from aliquot_core.request import parse_request
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.fit.refusals import Refusal
from aliquot_scheduler.picture.signs import lost_gpus
from support.centre import NAMES, Asked, asks, bound, gpus, make_node, picture_with, sick

CARDS = gpus("n", 4)
PAIR, ONE = CARDS[:2], CARDS[:1]
FULL, HALF = (100, 1_000), (50, 70_000)
# Two large ones and a small one, which is enough for the rest of a slice.
UNLIKE = (*gpus("s", 1, memory=24_000), *PAIR)
MODELS = (*PAIR, *gpus("t", 2, model="Tesla T4"))
TESLA = f"(annotation {NAMES.gpu_model})"


def costing(cards: tuple[Gpu, ...], context: int) -> tuple[Gpu, ...]:
    """The same GPUs of a node whose agent says what a CUDA context takes."""
    return tuple(msgspec.structs.replace(card, context=context) for card in cards)


def mig(gpu: Gpu) -> Gpu:
    """The same GPU, cut up by hand."""
    return msgspec.structs.replace(gpu, mig=True)


def refusal(cards: tuple[Gpu, ...], held: list[tuple[int, int]], asked: Asked, notes: dict[str, str]) -> Refusal:
    """What a node says whose first GPUs are held so."""
    picture = picture_with(make_node("n", cards))
    for index, (card, (compute, memory)) in enumerate(zip(cards, held, strict=False)):
        holder = asks(f"f{index}", compute, memory)
        picture.pod_seen(bound(holder, node="n", held={card.uuid: (compute, memory)}))
    demand = demand_of(parse_request(asks("u", *asked, annotations=notes), names=NAMES))
    return Finder(picture=picture, names=NAMES).refusals(demand, {"n": picture.nodes["n"].row})["n"]


TWO, FOUR = {NAMES.gpus: "2"}, {NAMES.gpus: "4"}
SAID: list[tuple[Any, ...]] = [
    # Room: the first axis, the other, and both.
    (PAIR, [HALF, HALF], (30, 20_000), {}, "2 of 2 GPUs have 30 % free, none has also 20000 MiB"),
    (PAIR, [FULL, HALF], (30, 20_000), {}, "1 of 2 GPUs has 30 % free, but not 20000 MiB"),
    (PAIR, [FULL, FULL], (30, 8_000), {}, "0 of 2 GPUs have 30 % free, 2 have 8000 MiB"),
    (PAIR, [FULL, (90, 75_000)], (30, 8_000), {}, "0 of 2 GPUs have 30 % free, 1 has 8000 MiB"),
    (PAIR, [(90, 75_000)] * 2, (30, 8_000), {}, "0 of 2 GPUs have 30 % free, none has 8000 MiB either"),
    (ONE, [FULL], (30, 8_000), {}, "0 of 1 GPU has 30 % free, 1 has 8000 MiB"),
    (ONE, [HALF], (30, 20_000), {}, "1 of 1 GPU has 30 % free, but not 20000 MiB"),
    (PAIR, [HALF, FULL], (60, None), {}, "0 of 2 GPUs have 60 % free, 1 has 60 % of a GPU's memory"),
    # Whole ones, and those that nobody has whole.
    (PAIR, [HALF, HALF], (100, None), {}, "0 of 2 GPUs have nobody on them"),
    (ONE, [HALF], (100, 8_000), {}, "0 of 1 GPU has nobody on it, 1 has 8000 MiB"),
    (PAIR, [FULL, HALF], (None, 20_000), {}, "1 of 2 GPUs has no one who has it at 100 %, but not 20000 MiB"),
    (PAIR, [FULL, FULL], (None, 2_000), {}, "0 of 2 GPUs have no one who has them at 100 %, 2 have 2000 MiB"),
    # Several.
    (CARDS, [HALF], (400, 100_000), {}, "3 of 4 GPUs have nobody on them, 3 have also 25000 MiB, 4 are needed"),
    (PAIR, [HALF], (200, 100_000), {}, "1 of 2 GPUs has nobody on it, 1 has also 50000 MiB, 2 are needed"),
    (PAIR, [HALF], (60, 40_000), TWO, "2 of 2 GPUs have 30 % free, 1 has also 20000 MiB, 2 are needed"),
    (CARDS, [FULL], (400, None), {}, "3 of 4 GPUs have nobody on them, 4 are needed"),
    # Several that differ: those for the smaller pieces count by themselves.
    (UNLIKE[::-1], [HALF], (250, 100_000), {}, "2 of 3 GPUs have nobody on them, 1 has also 40000 MiB, 2 are needed"),
    (UNLIKE, [(60, 1_000)], (250, 100_000), {}, "2 of 3 GPUs have 50 % free, 2 have also 20000 MiB, 3 are needed"),
    (UNLIKE, [], (250, 130_000), {}, "2 of 3 GPUs are large enough for 26000 MiB, 3 are needed"),
    # Of those that the pod may not have nothing is counted.
    (
        UNLIKE,
        [],
        (30, 30_000),
        {NAMES.gpu_uuid: "GPU-s-0"},
        "0 of 1 GPU that it may have is large enough for 30000 MiB",
    ),
    # For good.
    (ONE, [], (30, 90_000), {}, "0 of 1 GPU is large enough for 90000 MiB"),
    (PAIR, [], (200, 180_000), {}, "0 of 2 GPUs are large enough for 90000 MiB, 2 are needed"),
    (PAIR, [], (60, 1_000), FOUR, "2 of 2 GPUs can be given, 4 are needed"),
    (ONE, [], (60, 1_000), TWO, "1 of 1 GPU can be given, 2 are needed"),
    (ONE, [], (30, 1_000), {NAMES.gpu_model: "T4"}, f"the only GPU is not what the pod allows {TESLA}"),
    (PAIR, [], (30, 1_000), {NAMES.gpu_model: "T4"}, f"none of 2 GPUs is what the pod allows {TESLA}"),
    (
        MODELS,
        [],
        (90, 1_000),
        {NAMES.gpu_model: "Tesla*", NAMES.gpus: "3"},
        f"2 of 4 GPUs are what the pod allows {TESLA}, 3 are needed",
    ),
    (
        MODELS[1:3],
        [],
        (60, 1_000),
        {NAMES.gpu_model: "Tesla*", **TWO},
        f"1 of 2 GPUs is what the pod allows {TESLA}, 2 are needed",
    ),
    # A CUDA context leaves nothing.
    (
        costing(PAIR, 512),
        [FULL],
        (30, 511),
        {},
        "a CUDA context takes 512 MiB on 2 of 2 GPUs, and container main asks for 511 MiB there",
    ),
    (costing(PAIR, 512), [FULL, FULL], (30, 512), {}, "0 of 2 GPUs have 30 % free, 2 have 512 MiB"),
    (
        costing(PAIR, 801),
        [],
        (1, None),
        {},
        "a CUDA context takes 801 MiB on 2 of 2 GPUs, and container main asks for 1 % of its memory there",
    ),
    (
        (PAIR[0], *costing(PAIR[1:], 900)),
        [],
        (60, 1_600),
        TWO,
        "a CUDA context takes 900 MiB on 1 of 2 GPUs, and container main asks for 800 MiB there, 2 are needed",
    ),
    # Those that can't be given.
    ((), [], (30, 1_000), {}, "it has no GPUs"),
    (
        tuple(map(sick, PAIR)),
        [],
        (30, 1_000),
        {NAMES.gpu_model: "T4"},
        "none of its GPUs can be given: 2 are sick (XID 79)",
    ),
    ((sick(CARDS[0]),), [], (30, 1_000), {}, "none of its GPUs can be given: 1 is sick (XID 79)"),
    (
        (CARDS[0], sick(CARDS[1])),
        [],
        (60, 1_000),
        TWO,
        "1 of 1 GPU can be given, 2 are needed; 1 more is sick (XID 79)",
    ),
    (
        (*PAIR, sick(MODELS[2]), sick(MODELS[3])),
        [],
        (30, 1_000),
        {NAMES.gpu_model: "Tesla*"},
        f"none of 2 GPUs is what the pod allows {TESLA}; 2 more are sick (XID 79)",
    ),
    (
        (CARDS[0], mig(CARDS[1])),
        [FULL],
        (30, 1_000),
        {},
        "0 of 1 GPU has 30 % free, 1 has 1000 MiB; 1 more is in MIG mode",
    ),
]


@pytest.mark.parametrize(("cards", "held", "asked", "notes", "sentence"), SAID)
def test_a_refusal_says_what_is_true_of_each_axis(
    cards: tuple[Gpu, ...], held: list[tuple[int, int]], asked: Asked, notes: dict[str, str], sentence: str
) -> None:
    """In the right number, and with the GPUs that can't be given and why."""
    assert refusal(cards, held, asked, notes).why == sentence


def test_what_is_lost_is_counted_by_its_reasons() -> None:
    """The most frequent first; nothing is said where all can be given."""
    silent = msgspec.structs.replace(sick(CARDS[0]), reason="")
    told = lost_gpus(Inventory(gpus=(silent, mig(CARDS[1]), *map(sick, CARDS[2:]))))
    assert told == "2 are sick (XID 79), 1 is sick, 1 is in MIG mode"
    assert lost_gpus(Inventory(gpus=CARDS)) == ""


@pytest.mark.parametrize(
    ("count", "total", "one", "some", "none"),
    [
        (0, 1, "0 pods", "0 of 1 pod has", "the only pod has no room"),
        (1, 1, "1 pod", "1 of 1 pod has", "the only pod has no room"),
        (1, 3, "1 pod", "1 of 3 pods has", "none of 3 pods has room"),
        (2, 3, "2 pods", "2 of 3 pods have", "none of 3 pods has room"),
    ],
)
def test_counts_agree_with_their_words(count: int, total: int, one: str, some: str, none: str) -> None:
    """One has, two have; of a single one nothing is said as of many."""
    assert counted(count, "pod") == one
    assert some_of(count, total, "pod") == some
    assert none_of(total, "pod", one="has no room", none="has room") == none
