"""Pods shown to a cluster autoscaler under every order of events: quota that comes and goes, nodes, leaders, edits."""

from __future__ import annotations

import random

import msgspec
import pytest

from aliquot_scheduler.queues.letting_in import overdue, showing
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.centre import NAMES, make_node
from support.queue_actors import NODES
from support.queue_stage import queue
from support.queue_world import QueueWorld
from support.showings_oracle import MINUTES
from support.shown_order_oracle import ShownOrderOracle

replace = msgspec.structs.replace
# The node that takes pods all the while; and how many a short list holds.
OPEN, FEW = 1, 3
STEPS = (
    ["create"] * 12
    + ["create_gang"] * 2
    + ["let_in"] * 12
    + ["finish"] * 3
    + ["wait_a_while"] * 6
    + ["edit", "relabel", "delete"] * 2
    + ["delete", "plant", "home", "join", "restart", "node", "clock_back"]
)


class Growing(QueueWorld):
    """A world in which most queues grow, and more is asked than there is: of three nodes one takes pods, mostly."""

    queue_names = ("o", "p", "a", "b", "c")

    def __init__(self) -> None:
        self._cordoned = {at: at != OPEN for at in range(len(NODES))}
        super().__init__()
        self.order = ShownOrderOracle(forgetting=self.queues.register.forgetting)
        self._tell_nodes()

    def _spec(self, name: str) -> QueueSpec:
        if self.chance.random() < 0.1:
            return replace(super()._spec(name), autoscale=True, stop="")
        weight = self.chance.choice((1, 1, 2, 4))
        return queue(
            self.chance.choice(("o", "o", "p", "")) if name in "abc" else "",
            limit=self.chance.choice((None, 100, 150, 200, 300)),
            weight=weight,
            memory=Quota(weight=weight),
            priority=self.chance.choice((0, 0, 0, 1)),
            stop=self.chance.choice(("", "", "", "", "", "", "", "hold")),
            autoscale=self.chance.random() < 0.9,
            autoscale_minutes=MINUTES,
        )

    def create(self) -> None:
        """Mostly one that any queue would take, and few ask the same."""
        if self.chance.random() < 0.1:
            super().create()
            return
        self._made += 1
        asked, memory = self.chance.choice((30, 60, 90, 100, 100)), 1_000 * self.chance.randrange(1, 6)
        where, user = self.chance.choice(("a", "b", "c")), self.chance.choice("uvw")
        # Of the second model there is nothing.
        notes = self.chance.choice(({}, {}, {}, {"gpu-model": "*H200*"}))
        priority = self.chance.choice((0, 0, 1_000))
        self.submit(f"x{self._made}", asked, memory, queue=where, user=user, priority=priority, notes=notes)

    def node(self) -> None:
        """One is cordoned, or opened for a while."""
        at = self.chance.randrange(len(NODES))
        self._cordoned[at] = not self._cordoned[at] or self.chance.random() < 0.3
        self._tell_nodes()

    def _tell_nodes(self) -> None:
        for at, cordoned in self._cordoned.items():
            self.picture.node_seen(make_node(f"n{at}", self._cards_of(at), cordoned=cordoned))

    def restart(self) -> None:
        """What nodes say is not forgotten; the new leader looks at once."""
        super().restart()
        self._tell_nodes()
        self.queues.register.tell_time(self.now)
        self.order.led_anew(self, minutes=MINUTES)
        self.let_in()

    def let_in(self) -> None:
        """What a look passes over, since nothing has changed there, a look at everything finds no otherwise."""
        growth = self.queues.register.growth
        look = type(growth).look

        def looked_twice(*, now: float) -> list[tuple[Waiter, int]]:
            running, lost = (
                self.order.running(self),
                {uid for uid in growth.showings.lifted if uid not in growth.showings},
            )
            found = look(growth, now=now)
            by_quota = [one for one, _ in found if one.uid in growth.showings.shown]
            self.order.check(self, running, by_quota, lost=lost)
            beyond = [one for one, _ in found if one.uid not in growth.showings.shown]
            self.order.check(self, [*running, *by_quota], beyond, lost=())
            self.showings.beyond -= {one.uid for one in by_quota}
            self.showings.beyond |= {one.uid for one in beyond}
            self.order.settle(self)
            shown = set(growth.showings.shown)
            growth.look_anew()
            assert look(growth, now=now) == []
            # A group that is the last to be shown may be more than a list holds. Who was shown though others had the
            # quota may have it, as whose time runs, before one that was put out.
            more = growth.showings.shown ^ shown
            assert more <= {one.uid for one in beyond} or len(shown) > self.showings.most
            return found

        growth.look = looked_twice  # type: ignore[method-assign]
        super().let_in()

    def wait_a_while(self) -> None:
        """Time passes by which some showings end, and some pauses."""
        self.now += self.chance.choice((0.5, 20.0, 61.0, 181.0, 400.0))
        self.desk.tell_time(self.now)

    def clock_back(self) -> None:
        """Not here: by the clock of a leader, which never does, a pause that was told to be over is over."""

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
    """One walk, checked after each step; every other one with a list that is soon full."""
    world = Growing()
    world.chance = random.Random(seed)
    world.plant()
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            for module in (showing, overdue):
                patch.setattr(module, "MOST_SHOWN", FEW)
            world.showings.most = FEW
        for name in world.chance.choices(STEPS, k=120):
            getattr(world, name)()
            world.check()
    return world


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_no_walk_shows_more_than_quota_allows(first: int) -> None:
    """Neither at one instant, nor by gates that were lifted before; each when its turn has come, and for its time."""
    worlds = [walk(seed) for seed in range(first, first + 20)]
    assert sum(world.showings.count for world in worlds) > 40, "these walks show hardly anybody"
    assert sum(len(world.showings.beyond) for world in worlds) > 5, "these walks show hardly anybody beyond quota"
    assert sum(world.order.pairs for world in worlds) > 5, "these walks compare hardly anybody"
