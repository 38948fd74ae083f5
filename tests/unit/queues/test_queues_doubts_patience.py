"""Patience of a user in doubt: it stands still while nobody of that user comes, and has the bound that all have."""

from __future__ import annotations

import random

import pytest

from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.letting_in.patience import Patience
from support.queue_stage import Stage, queue

PATIENCE, HOLD = 300.0, 900.0
RUNS = 60.0
TICK = 5.0


def test_time_in_which_a_head_may_not_come_in_counts_for_none() -> None:
    """What it had waited before counts still."""
    heads = Patience(patience=PATIENCE, hold=HOLD)
    heads.begin("a", now=300.0)
    heads.begin("b", now=300.0)
    heads.stand_still({"a"}, now=500.0)
    assert heads.impatient(now=700.0) == {"b"}
    heads.stand_still(frozenset(), now=800.0)
    assert heads.impatient(now=899.0) == {"b"}
    assert heads.impatient(now=900.0) == {"a", "b"}
    heads.stand_still({"a"}, now=910.0)
    assert heads.impatient(now=920.0) == {"b"}
    heads.stand_still(frozenset(), now=930.0)
    assert heads.impatient(now=930.0) == {"a", "b"}


def test_who_is_forgotten_while_it_stands_still_begins_anew() -> None:
    """It was let in, or is gone."""
    heads = Patience(patience=PATIENCE, hold=HOLD)
    heads.begin("a", now=300.0)
    heads.stand_still({"a"}, now=400.0)
    heads.forget("a")
    heads.begin("a", now=500.0)
    heads.stand_still(frozenset(), now=700.0)
    assert heads.impatient(now=800.0) == {"a"}


@pytest.mark.parametrize(("bad", "size"), [(1, 10), (16, 25), (40, 10)])
def test_a_large_job_of_a_user_in_doubt_is_in_as_soon_as_anybodys(bad: int, size: int) -> None:
    """Beside pods of that user's that nobody can bind, however often they try; others ask for single cards."""
    stage, chance = Stage({"a": queue(), "b": queue()}, nodes=(4,)), random.Random(1)
    ends: dict[str, float] = {}
    made, asked = 0, 4 * RUNS
    for number in range(bad):
        stage.submit(f"bad{number}", size, queue="a")
    while "big" not in ends:
        # Those that nobody can bind have lost their first turns by then.
        while stage.now > RUNS and sum(uid.startswith("o") for uid in stage.pods) < 12:
            made += 1
            stage.submit(f"o{made}", 100, queue="b", user="other")
        if stage.now >= asked and "big" not in stage.pods:
            stage.submit("big", 400, queue="a", notes={"gpus": "4"})
        for uid in stage.round(after=TICK):
            if uid.startswith("bad"):
                stage.lift(uid)
            else:
                stage.bind(uid)
                ends[uid] = stage.now + RUNS * chance.uniform(0.5, 1.0)
        for uid in [uid for uid, at in ends.items() if at <= stage.now and uid != "big"]:
            del ends[uid]
            stage.end(uid)
        assert stage.now - asked <= 2 * PATIENCE + RUNS + PROMISE
