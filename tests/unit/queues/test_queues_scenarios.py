"""The scenario tables against the pure core."""

from __future__ import annotations

import pytest

from support.queue_scenarios import SCENARIOS, Pods, Scenario, said_now, specs_of
from support.queue_stage import Stage


def _submit(stage: Stage, pods: Pods, made: dict[str, list[str]]) -> None:
    for _ in range(pods.count):
        uid = f"{pods.queue}{len(made[pods.queue])}"
        made[pods.queue].append(uid)
        stage.submit(uid, pods.compute, pods.memory, queue=pods.queue, group=pods.gang, notes=pods.notes)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_it_is_as_the_table_says(scenario: Scenario) -> None:
    """After each step, once nobody is let in any more."""
    said = dict(scenario.queues)
    stage = Stage(specs_of(said), nodes=(4,))
    made: dict[str, list[str]] = {name: [] for name in said}
    for step in scenario.steps:
        said = said_now(said, step)
        stage.queues.queues_seen(specs_of(said))
        for pods in step.submit:
            _submit(stage, pods, made)
        for queue, count in step.end.items():
            running = [uid for uid in made[queue] if uid in stage.pods and stage.pods[uid].spec.node_name]
            stage.end(*running[:count])
        while stage.run(after=1.0):
            pass
        assert {queue: stage.held(queue) for queue in step.held} == dict(step.held)
        waiting = [waiter.queue for waiter in stage.queues.waiting()]
        assert {queue: waiting.count(queue) for queue in step.waiting} == dict(step.waiting)
