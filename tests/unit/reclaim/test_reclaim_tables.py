"""The tables of who has to go for whom, against the pure core."""

from __future__ import annotations

from collections import Counter

import pytest

from support.queue_scenarios import Scenario, said_now, specs_of
from support.reclaim_scenarios import MEANWHILE, RECLAIMS
from support.reclaim_stage import ReclaimStage, begun, gone, submit


@pytest.mark.parametrize("scenario", [*RECLAIMS, *MEANWHILE], ids=lambda one: one.name)
def test_it_is_as_the_table_says(scenario: Scenario) -> None:
    """After each step, once nobody is let in any more and nobody has to go."""
    said = dict(scenario.queues)
    nodes = (4, scenario.spare) if scenario.spare else (4,)
    stage, made = ReclaimStage(specs_of(said), nodes=nodes, moves_per_hour=3_600), Counter[str]()
    for step in scenario.steps:
        said = said_now(said, step)
        stage.queues.queues_seen(specs_of(said))
        begun(stage, step)
        for pods in step.submit:
            submit(stage, pods, made)
        for queue, count in step.end.items():
            stage.end(*[uid for uid, pod in stage.pods.items() if uid.startswith(queue) and pod.spec.node_name][:count])
        assert gone(stage, step) == Counter(step.goes) + Counter(step.ignores)
        assert {queue: stage.used(queue)[0] for queue in step.held} == dict(step.held)
        waiting = [waiter.queue for waiter in stage.queues.waiting()]
        assert {queue: waiting.count(queue) for queue in step.waiting} == dict(step.waiting)
    assert max(Counter(stage.evicted).values(), default=0) <= 1
