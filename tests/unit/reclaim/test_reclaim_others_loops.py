"""Where other schedulers were seen to evict the same pods for ever, with their own numbers, nobody goes twice.

As they were told: volcano #4947 (a queue that is left less than it deserves comes first again), with a job that is
restarted as a whole when one of it goes; #3869 (two elastic jobs that never fit) and #1256 (more go than are asked
for); kueue #3779 (best effort beside a cohort's quota, made again by its Deployment), #6947 (a workload that never fits
before one that does) and #7101 (groups of one tenant beside groups of another). Where they count cores, GPUs stand
here; each varied: in halves and tenths of a GPU, on several nodes, with more queues, in elastic groups.
"""

from __future__ import annotations

from typing import Any

import pytest

from aliquot_scheduler.queues.said.spec import QueueSpec
from support.queue_stage import queue
from support.to_and_fro import Shape, Wave, played

CYCLES, FEWER = 1_000, 250


def elastic(size: int, least: int) -> dict[str, str]:
    """Annotations of a group's pods."""
    return {"group-size": str(size), "group-min": str(least)}


def deserved(unit: int, *, more: dict[str, QueueSpec] | None = None, **shape: Any) -> Shape:
    """Of volcano #4947: three are deserved and four used, the other queue deserves five, uses one and asks for four."""
    queues = {"red": queue(guarantee=3 * unit), "blue": queue(guarantee=5 * unit), **(more or {})}
    waves = [
        *shape.pop("first", ()),
        Wave(queue="red", count=1, compute=4 * unit),
        Wave(queue="blue", count=1, compute=unit),
        Wave(queue="blue", count=1, compute=4 * unit),
    ]
    return Shape(queues=queues, waves=waves, least=1, ends={"red": 0, "blue": 5 * unit}, **shape)


def best_effort(unit: int, *, notes: dict[str, str] | None = None, **shape: Any) -> Shape:
    """Of kueue #3779: a cohort has all three, and lends them to two of best effort until it asks itself."""
    queues = {
        "sure": queue(guarantee=6 * unit),
        "own": queue("sure"),
        "a": queue(),
        "b": queue(),
        **shape.pop("more", {}),
    }
    waves = [
        *shape.pop("first", ()),
        Wave(queue="a", count=2, compute=2 * unit, notes=notes or {}, group="deployed" if notes else ""),
        Wave(queue="b", count=2, compute=unit),
        Wave(queue="own", count=1, compute=unit),
        Wave(queue="own", count=1, compute=2 * unit),
    ]
    return Shape(queues=queues, waves=waves, least=2, **({"ends": {"sure": 3 * unit}} | shape))


TOLD = (
    deserved(100, name="volcano #4947", nodes=(8,)),
    best_effort(50, name="kueue #3779", nodes=(3,)),
)
VARIED = (
    deserved(50, name="#4947 in halves of a GPU", nodes=(4,)),
    deserved(
        10,
        name="#4947 in tenths of one GPU, a third queue has the rest",
        nodes=(1,),
        more={"rest": queue(guarantee=20)},
        first=[Wave(queue="rest", count=1, compute=20)],
    ),
    deserved(
        100,
        name="#4947 on three nodes beside others who borrow",
        nodes=(4, 4, 2),
        more={"green": queue(), "grey": queue()},
        first=[Wave(queue="green", count=1), Wave(queue="grey", count=1)],
    ),
    Shape(
        name="#4947, a job that is restarted as a whole",
        queues={"red": queue(guarantee=300), "blue": queue(guarantee=500)},
        waves=[
            Wave(queue="red", count=5, group="job", notes=elastic(5, 3), restarts=True),
            Wave(queue="blue", count=1),
            Wave(queue="blue", count=1, compute=400),
        ],
        least=2,
        nodes=(8,),
        ends={"red": 300, "blue": 500},
    ),
    Shape(
        name="volcano #3869, two elastic jobs that never fit",
        queues={"red": queue(guarantee=200), "blue": queue(guarantee=200)},
        waves=[
            Wave(queue="red", count=5, group="job", notes=elastic(5, 1)),
            Wave(queue="blue", count=5, group="job", notes=elastic(5, 1)),
        ],
        least=2,
        ends={"red": 200, "blue": 200},
    ),
    Shape(
        name="volcano #1256, one has to go and not five",
        queues={"red": queue(guarantee=225), "blue": queue(guarantee=675)},
        waves=[
            Wave(queue="red", count=8, group="job", notes=elastic(8, 3)),
            Wave(queue="blue", count=2, group="job", notes=elastic(2, 2)),
        ],
        least=1,
        nodes=(9,),
        ends={"red": 700, "blue": 200},
    ),
    best_effort(100, name="#3779 in whole GPUs", nodes=(6,)),
    best_effort(
        15,
        name="#3779 in parts of one GPU, another cohort beside it",
        nodes=(1,),
        more={"other": queue(guarantee=10), "its": queue("other")},
        first=[Wave(queue="its", count=1, compute=10)],
    ),
    best_effort(50, name="#3779, the best effort an elastic group", nodes=(3,), notes=elastic(2, 1)),
    best_effort(50, name="#3779 on three nodes", nodes=(1, 1, 1)),
    Shape(
        name="kueue #6947, one that never fits before one that does",
        queues={"a": queue(guarantee=300), "b": queue()},
        waves=[
            Wave(queue="b", count=1),
            Wave(queue="a", count=1, compute=400),
            Wave(queue="a", count=1, compute=300),
        ],
        least=1,
        nodes=(3,),
        ends={"a": 300, "b": 0},
    ),
    Shape(
        name="kueue #7101, groups beside groups",
        queues={"one": queue(guarantee=400), "two": queue(guarantee=400)},
        waves=[
            *(Wave(queue="one", count=2, group=f"pair{at}", notes=elastic(2, 2)) for at in range(4)),
            *(Wave(queue="two", count=size, group=f"of{size}", notes=elastic(size, size)) for size in (6, 5, 4, 3)),
        ],
        least=4,
        nodes=(8,),
        ends={"one": 400, "two": 400},
    ),
)


def assert_nobody_goes_twice(shape: Shape, *, cycles: int) -> None:
    """And who is owed has it in the end."""
    jobs = played(shape, cycles=cycles)
    assert max(jobs.sent.values(), default=0) <= 1, jobs.sent
    assert jobs.sent.total() == shape.least, jobs.sent
    assert {name: jobs.stage.used(name)[0] for name in shape.ends} == shape.ends
    assert jobs.stage.victims(after=60.0) == []


@pytest.mark.parametrize("shape", TOLD, ids=lambda one: one.name)
def test_as_it_was_told_nobody_goes_twice(shape: Shape) -> None:
    """In a thousand cycles."""
    assert_nobody_goes_twice(shape, cycles=CYCLES)


@pytest.mark.parametrize("shape", VARIED, ids=lambda one: one.name)
def test_nor_where_it_is_varied(shape: Shape) -> None:
    """In fewer, since there are many."""
    assert_nobody_goes_twice(shape, cycles=FEWER)
