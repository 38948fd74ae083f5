"""Whoever begins to lead now lets in and shows the same as who has led for long, but for what docs/queues.md says."""

from __future__ import annotations

import random
from functools import partial

import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from support.growing import MINUTE, go, led_anew, shown
from support.queue_stage import Stage, queue

# Since when heads are passed over is forgotten, so nobody ever loses patience.
NEVER = QueueSettings(patience=600_000.0, hold=0.0, owed=600_000.0)
NODES = (1, 1)
# Of how many walks that all have shown anything, at the least.
MANY = 30


def a_tree(chance: random.Random) -> dict[str, QueueSpec]:
    """Of each uppermost queue one grows: whose showings lately were more is no question that is asked."""
    grows = partial(queue, autoscale=True, autoscale_minutes=3)
    return {
        "o": queue(limit=chance.choice((None, 200, 300))),
        "a": grows("o", limit=chance.choice((None, 100, 200))),
        "c": queue("o", weight=2),
        "b": grows(limit=chance.choice((None, 200)), guarantee=chance.choice((None, 100))),
        "other": queue(),
    }


def a_walk(chance: random.Random, stage: Stage) -> None:
    """Pods come, and run, or wait and are shown; each asks what no other does, so that pauses are each one's own."""
    for number in range(25):
        step = chance.random()
        if step < 0.5:
            where, size = chance.choice(("a", "b", "c", "other")), chance.choice((30, 60, 100, 100))
            stage.submit(f"p{number}", size, 1000 + number, queue=where, priority=chance.choice((0, 0, 5)))
        elif step < 0.7 and (running := sorted(uid for uid, pod in stage.pods.items() if pod.spec.node_name)):
            stage.end(chance.choice(running))
        go(stage, after=chance.choice((1.0, 30.0, 61.0, 181.0)))


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_who_leads_anew_goes_on_as_the_one_before_would_have(first: int) -> None:
    """The same pods come in, the same are shown, in each of eight rounds from then on."""
    told = 0
    for seed in range(first, first + 20):
        chance = random.Random(seed)
        specs = a_tree(chance)
        old = Stage(specs, nodes=NODES, settings=NEVER)
        a_walk(chance, old)
        new = led_anew(old, specs, nodes=NODES, settings=NEVER)
        for step in range(8):
            assert (sorted(go(old)), shown(old)) == (sorted(go(new)), shown(new)), (seed, step)
            told += len(shown(old))
            if step % 3 == 2 and (running := sorted(uid for uid, pod in old.pods.items() if pod.spec.node_name)):
                old.end(running[0])
                new.end(running[0])
            for stage in (old, new):
                stage.now += 200.0
    assert told > MANY, "hardly anybody was shown"


FADING = QueueSettings(patience=600_000.0, hold=0.0, owed=600_000.0, half_life=600.0)


@pytest.mark.parametrize("anew", [False, True], ids=["", "another leader"])
def test_what_was_shown_long_ago_has_faded_whoever_leads(*, anew: bool) -> None:
    """Of two users each was shown for a minute, the one of the larger pod an hour before: that one comes first."""
    specs = {"a": queue(limit=100, autoscale=True, autoscale_minutes=1), "other": queue()}
    stage = Stage(specs, nodes=NODES, settings=FADING)
    for number in range(2):
        stage.submit(f"x{number}", 100, queue="other")
    assert len(go(stage)) == 2
    stage.submit("v0", 100, queue="a", user="v")
    assert go(stage) == ["v0"]
    assert go(stage, after=MINUTE) == []
    stage.submit("u0", 70, queue="a", user="u")
    assert go(stage, after=60 * MINUTE) == ["u0"]
    stage.submit("u1", 70, 2000, queue="a", user="u")
    if anew:
        stage = led_anew(stage, specs, nodes=NODES, settings=FADING)
    assert go(stage) == []
    assert go(stage, after=MINUTE) == ["v0"]


def test_who_could_not_be_told_anew_has_not_been_shown_for_longer() -> None:
    """Its first showing counted once: each write that fails would put its user further behind."""
    specs = {"a": queue(limit=100, autoscale=True, autoscale_minutes=1), "other": queue()}
    stage = Stage(specs, nodes=NODES, settings=NEVER)
    for number in range(2):
        stage.submit(f"x{number}", 100, queue="other")
    assert len(go(stage)) == 2
    stage.submit("u", 100, queue="a", user="u")
    assert go(stage) == ["u"]
    lately = stage.queues.register.growth._lately
    assert stage.round(after=2 * MINUTE) == ["u"]
    before = lately.of(("a", "u"), now=stage.now)
    for _ in range(5):
        stage.queues.not_told(stage.pods["u"], now=stage.now)
        assert lately.of(("a", "u"), now=stage.now) == pytest.approx(before)
        stage.now += MINUTE
        assert stage.round() == ["u"]
        before = lately.of(("a", "u"), now=stage.now)
