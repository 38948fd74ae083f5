"""Where a pod counts as more memory than it says, whoever is refused for memory is told how that comes."""

from __future__ import annotations

import pytest

from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.queue_stage import Stage, queue

WHOLE = "a whole GPU counts with all its memory"
LEFT_OUT = "memory left out counts as its part of the largest GPU that would do"
FIRM = {"preemptible": "false"}


def remembering(parent: str = "", **memory: int) -> QueueSpec:
    """A queue with a quota of memory."""
    quota = Quota(guarantee=memory.get("guarantee"), limit=memory.get("limit"), lending_limit=memory.get("lend"))
    return queue(parent, memory=quota)


# The queues, what p asks in queue a (another pod of 10 % and 8000 MiB runs there), and what it is told.
REFUSED: dict[str, tuple[dict[str, QueueSpec], tuple[int, int | None], dict[str, str], str]] = {
    "over a limit by a whole GPU": (
        {"a": remembering(limit=80_000)},
        (100, 1_000),
        {},
        f"OverLimit: it asks 80000 MiB of memory ({WHOLE}); queue a uses 8000 MiB of the 80000 MiB that it may have",
    ),
    "over a limit by memory left out": (
        {"a": remembering(limit=40_000)},
        (50, None),
        {},
        f"OverLimit: it asks 40000 MiB of memory ({LEFT_OUT}); queue a uses 8000 MiB of the 40000 MiB that it may have",
    ),
    "over a limit by what it says": (
        {"a": remembering(limit=40_000)},
        (50, 40_000),
        {},
        "OverLimit: it asks 40000 MiB of memory; queue a uses 8000 MiB of the 40000 MiB that it may have",
    ),
    "for compute": (
        {"a": queue(limit=100)},
        (100, 1_000),
        {},
        "OverLimit: it asks 100 % of compute; queue a uses 10 % of the 100 % that it may have",
    ),
    "never, by a whole GPU": (
        {"a": remembering(limit=79_000)},
        (100, 1_000),
        {},
        f"NeverFits: it asks 80000 MiB of memory ({WHOLE}), more than the 79000 MiB that queue a may have",
    ),
    "held back": (
        {"a": queue(), "k": queue(guarantee=0, memory=Quota(guarantee=80_000, lending_limit=0))},
        (100, 1_000),
        {},
        f"HeldBack: it asks 80000 MiB of memory ({WHOLE}); 152000 of 160000 MiB are free",
    ),
    "never for good": (
        {"a": queue(guarantee=200, memory=Quota(guarantee=70_000))},
        (100, 1_000),
        FIRM,
        f"NeverFits: it asks 80000 MiB of memory ({WHOLE}) never to be taken back, and queue a is guaranteed 70000 MiB",
    ),
    "never, since others keep it": (
        {"o": remembering(limit=80_000), "a": queue("o"), "k": remembering("o", guarantee=10_000, lend=0)},
        (100, 1_000),
        {},
        f"NeverFits: it asks 80000 MiB of memory ({WHOLE}), and of the 80000 MiB that queue o may have those below it",
    ),
}


@pytest.mark.parametrize("row", REFUSED)
def test_memory_that_a_pod_does_not_say_is_explained(row: str) -> None:
    """Where its memory is what it is refused for, and nowhere else."""
    specs, (compute, memory), notes, said = REFUSED[row]
    stage = Stage(specs, nodes=(2,))
    stage.submit("runs", 10, 8_000, queue="a")
    assert stage.run() == ["runs"]
    stage.submit("p", compute, memory, queue="a", notes=notes)
    assert stage.run() == []
    (waiter,) = stage.queues.waiting()
    notice = stage.queues.notice(waiter)
    assert f"{notice.reason}: {notice.message}".startswith(said)


def test_of_a_group_the_same_is_told() -> None:
    """Of two whole GPUs no memory was said at all."""
    stage = Stage({"a": remembering(limit=120_000)}, nodes=(2,))
    for uid in ("g0", "g1"):
        stage.submit(uid, 100, queue="a", group="g", notes={"group-size": "2"})
    assert stage.run() == []
    said = (
        f"its group starts with 2 pods, which ask 160000 MiB of memory ({WHOLE}), more than the 120000 MiB that queue a"
    )
    assert {stage.queues.notice(waiter).message for waiter in stage.queues.waiting()} == {f"{said} may have"}
