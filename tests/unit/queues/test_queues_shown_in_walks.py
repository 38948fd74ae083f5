"""Pods shown to a cluster autoscaler under every order of events: quota that comes and goes, nodes, leaders, edits."""

from __future__ import annotations

import random

import msgspec
import pytest

from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.centre import NAMES
from support.queue_world import QueueWorld

replace = msgspec.structs.replace
STEPS = (
    ["create"] * 8
    + ["create_gang"] * 3
    + ["let_in"] * 12
    + ["finish"] * 3
    + ["wait_a_while"] * 6
    + ["edit", "relabel", "delete"] * 2
    + ["delete", "plant", "home", "join", "restart", "node", "clock_back"]
)


class Growing(QueueWorld):
    """A world in which most queues grow, and more is asked than there is."""

    def _spec(self, name: str) -> QueueSpec:
        spec = super()._spec(name)
        stop = spec.stop if self.chance.random() < 0.3 else ""
        return replace(spec, autoscale=self.chance.random() < 0.8, stop=stop)

    def let_in(self) -> None:
        """What a look passes over, since nothing has changed there, a look at everything finds no otherwise."""
        growth = self.queues.register.growth
        look = type(growth).look

        def looked_twice(*, now: float) -> list[tuple[Waiter, int]]:
            found, shown = look(growth, now=now), set(growth.showings.shown)
            growth.look_anew()
            assert look(growth, now=now) == []
            assert growth.showings.shown == shown
            return found

        growth.look = looked_twice  # type: ignore[method-assign]
        super().let_in()

    def wait_a_while(self) -> None:
        """Time passes by which some showings end, and some pauses."""
        self.now += self.chance.choice((0.5, 20.0, 61.0, 181.0, 400.0))
        self.desk.tell_time(self.now)

    def relabel(self) -> None:
        """Somebody who waits without a gate names another queue."""
        known = [uid for uid, pod in self.pods.items() if not pod.spec.scheduling_gates and not pod.spec.node_name]
        if known := [uid for uid in sorted(known) if uid in self.queues.register.showings]:
            pod = self.pods[self.chance.choice(known)]
            labels = pod.metadata.labels | {NAMES.queue: self.chance.choice((*sorted(self.specs), "gone"))}
            self.see(replace(pod, metadata=replace(pod.metadata, labels=labels)))

    def edit(self) -> None:
        """The limit of one queue is another now."""
        if self.specs:
            name = self.chance.choice(sorted(self.specs))
            compute = replace(self.specs[name].compute, limit=self.chance.choice((None, 100, 150, 300, 600)))
            self.specs = self.specs | {name: replace(self.specs[name], compute=compute)}
            self.queues.queues_seen(self.specs)


def walk(seed: int) -> Growing:
    """One walk, checked after each step."""
    world = Growing()
    world.chance = random.Random(seed)  # noqa: S311 - repeats itself, guards nothing
    for name in world.chance.choices(STEPS, k=120):
        getattr(world, name)()
        world.check()
    return world


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_no_walk_shows_more_than_quota_allows(first: int) -> None:
    """Neither at one instant, nor by gates that were lifted before; and nobody is shown again sooner than is said."""
    shown = sum(walk(seed).showings.count for seed in range(first, first + 20))
    assert shown > 10, "these walks show nothing of it"
