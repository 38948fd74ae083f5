"""Nobody is sent to and fro: whoever was sent away is made again at once, a thousand times, and goes once at the most.

The shapes are those in which other schedulers were seen to evict the same pods for ever: two queues that each take back
from the other, by a check that is made before the eviction and not after it (volcano #4947); three that borrow from one
another, of which each has the smallest share in its turn (kueue #3779), both with their own numbers in
`test_reclaim_others_loops.py`; what is guaranteed in compute to the one and in memory to the other; and priorities
beside guarantees.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.said.spec import Preemption, Quota
from aliquot_scheduler.reclaim.residents import Resident
from aliquot_scheduler.reclaim.rights import Rights
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage
from support.to_and_fro import Jobs, Shape, Wave, played

CYCLES = 1_000


SCARCE = Shape(
    name="less than is guaranteed, since a node is lost",
    queues={"red": queue(guarantee=200), "blue": queue(guarantee=200)},
    waves=[Wave(queue="red", count=3), Wave(queue="blue", count=1, compute=200)],
    least=0,
    nodes=(3,),
)
ANYBODY = Preemption(within_queue="AnyUser")
SHAPES = (
    Shape(
        name="two that each take back from the other",
        queues={"red": queue(guarantee=200), "blue": queue(guarantee=200)},
        waves=[Wave(queue="blue", count=4), Wave(queue="red", count=4), Wave(queue="blue", count=2)],
        least=2,
    ),
    Shape(
        name="three that borrow from one another",
        queues={
            "org": queue(guarantee=300),
            "red": queue("org", guarantee=100),
            "blue": queue("org", guarantee=100),
            "green": queue("org"),
            "other": queue(guarantee=100),
        },
        waves=[
            Wave(queue="green", count=5, compute=80),
            Wave(queue="red", count=3, compute=60),
            Wave(queue="blue", count=3, compute=40),
            Wave(queue="other", count=2, compute=90),
        ],
        least=2,
    ),
    Shape(
        name="compute to the one and memory to the other",
        queues={"red": queue(guarantee=200), "blue": queue(memory=Quota(guarantee=160_000))},
        waves=[
            Wave(queue="blue", count=4, compute=60, memory=70_000),
            Wave(queue="red", count=3, compute=90, memory=60_000),
            Wave(queue="blue", count=2, compute=30, memory=75_000),
        ],
        least=1,
    ),
    Shape(
        name="priorities beside guarantees",
        queues={"red": queue(guarantee=200, preemption=ANYBODY), "blue": queue(preemption=ANYBODY)},
        waves=[
            Wave(queue="blue", count=3),
            Wave(queue="red", count=1, priority=1),
            Wave(queue="blue", count=2, priority=5),
            Wave(queue="red", count=2, priority=9),
        ],
        least=2,
    ),
    Shape(
        name="groups among single pods",
        queues={"red": queue(guarantee=300), "blue": queue(guarantee=100)},
        waves=[
            Wave(queue="blue", count=3, group="gang", notes={"group-size": "3", "group-min": "2"}),
            Wave(queue="red", count=3),
            Wave(queue="blue", count=2, compute=50),
        ],
        least=1,
    ),
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda one: one.name)
def test_nobody_is_sent_away_twice(shape: Shape) -> None:
    """In a thousand cycles, though all who were sent away come again and ask for the same."""
    jobs = played(shape, cycles=CYCLES)
    assert max(jobs.sent.values(), default=0) <= 1, jobs.sent
    assert sum(jobs.sent.values()) >= shape.least
    assert jobs.stage.victims(after=60.0) == []


def test_a_check_before_the_eviction_sends_to_and_fro(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of others, planted here: a queue lends as long as it has its guarantee with the pod that is to go."""
    assert not played(SCARCE, cycles=20).sent

    def before(rights: Rights, account: Account, one: Resident) -> list[int]:
        del rights, one
        return list(account.used)

    def unchecked(rights: Rights, victims: Sequence[Resident]) -> bool:
        del rights, victims
        return True

    monkeypatch.setattr(Rights, "_left", before)
    monkeypatch.setattr(Rights, "hold_good", unchecked)
    assert max(played(SCARCE, cycles=20).sent.values()) > 3


@pytest.mark.parametrize("seed", range(4))
def test_where_pods_come_and_end_each_that_comes_costs_one_eviction_at_the_most(seed: int) -> None:
    """Of whole cards: somebody else may go for each owner that comes, and once all is quiet nobody goes any more."""
    chance = random.Random(seed)
    queues = {"red": queue(guarantee=200), "blue": queue(guarantee=100), "green": queue()}
    jobs, came = Jobs(ReclaimStage(queues)), 0
    for number in range(CYCLES // 4):
        running = [uid for uid, pod in jobs.stage.pods.items() if pod.spec.node_name]
        if running and chance.random() < 0.3:
            jobs.stage.gone(chance.choice(running))
        if chance.random() < 0.4:
            jobs.come(Wave(queue=chance.choice(sorted(queues)), count=1), number)
            came += 1
        jobs.cycle()
    assert 0 < sum(jobs.sent.values()) <= came
    before = jobs.sent.total()
    for _ in range(10):
        jobs.cycle()
    assert jobs.sent.total() == before
