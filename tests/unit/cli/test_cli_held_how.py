"""`aliquot explain` says of each container how its slices are held, what of it is hard and what cooperative."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_cli.held_how import held_how
from aliquot_core.isolation import by_what
from aliquot_core.modes import MODES
from aliquot_scheduler.resident import HeldSlice


def held(container: str, *, isolation: str, compute: int = 30, limit: int = 30, gpu: str = "GPU-a") -> HeldSlice:
    """A slice of one GPU."""
    return HeldSlice(
        container=container, gpu=gpu, model="A", compute=compute, limit=limit, memory=1, isolation=isolation, others=0
    )


TRIED = "compute best tried, memory only watched"


@pytest.mark.parametrize(
    ("one", "begins"),
    [
        (held("main", isolation="mig"), "mig, guaranteed: compute held, memory held; hard: "),
        (held("main", isolation="interposer", limit=60), "interposer, burstable: compute held, memory held; coop"),
        (held("main", isolation="mps", compute=0), f"mps, best-effort: {TRIED}; cooperative: "),
        (held("main", isolation="observe"), f"observe, guaranteed: {TRIED}; nothing is enforced"),
        (held("main", isolation="of-tomorrow"), f"of-tomorrow, guaranteed: {TRIED}; how hard is"),
    ],
)
def test_each_mode_is_said_with_what_it_makes_of_the_class(one: HeldSlice, begins: str) -> None:
    """Hard is said of what the hardware enforces, and of nothing else."""
    (line,) = held_how([one])
    assert line.startswith(f"main: {begins}")
    assert ("; hard: " in line) is (one.isolation == "mig")


def test_containers_that_are_held_alike_are_one_line() -> None:
    """A container over several GPUs is of one class, by the sum; who is held otherwise has a line of its own."""
    slices = [
        held("main", isolation="interposer"),
        held("main", isolation="interposer", compute=0, limit=0, gpu="GPU-b"),
        held("side", isolation="interposer"),
        held("best", isolation="interposer", compute=0, limit=100),
        held("old", isolation=""),
    ]
    found = held_how(slices)
    assert [line.partition(":")[0] for line in found] == ["main, side", "best"]
    assert held_how([]) == []


def test_why_gpus_offer_less_than_their_node_was_told_is_said_once() -> None:
    """Of all GPUs that lack it for the same reason, and of a GPU that two containers share once."""
    lack, other = "mps is not offered: MIG is enabled: switch it off", "interposer is not offered: no libcuda"
    slices = [
        msgspec.structs.replace(held("main", isolation="observe"), lack=lack),
        msgspec.structs.replace(held("main", isolation="observe", gpu="GPU-b"), lack=lack),
        msgspec.structs.replace(held("side", isolation="observe"), lack=lack),
        msgspec.structs.replace(held("side", isolation="observe", gpu="GPU-c"), lack=other),
        held("side", isolation="observe", gpu="GPU-d"),
    ]
    assert held_how(slices)[1:] == [
        f"less than the node was told to offer on GPU-a, GPU-b: {lack}",
        f"less than the node was told to offer on GPU-c: {other}",
    ]


def test_every_mode_has_words_of_its_own() -> None:
    """Another mode than those of today is no reason to fail, and takes none of their words."""
    assert len({by_what(mode) for mode in (*MODES, "of-tomorrow")}) == len(MODES) + 1
