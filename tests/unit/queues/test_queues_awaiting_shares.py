"""Whom no node that is there could take takes nothing of what others are due, until such a node comes."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from aliquot_scheduler.queues.charged.fair import due_of
from aliquot_scheduler.queues.said.spec import ModelQuota, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from support.centre import gpus, make_node
from support.growing import go
from support.queue_stage import A100, H100, Stage, queue
from support.waiting_oracle import Emptied

OF_H100 = {"gpu-model": "*H100*"}
GROWS = queue(autoscale=True)


def due(stage: Stage) -> dict[str, int]:
    """What each queue is told that it is due of compute."""
    told = stage.queues.statuses(now=stage.now, at="2026-11-24T00:00:00Z")
    return {name: told[name].fair_share.compute for name in "abc"}


def test_a_share_is_due_for_it_once_its_node_is_there() -> None:
    """By hand: of four GPUs two queues are due half; with three more the third one is due its three of seven."""
    stage = Stage({"a": queue(), "b": queue(), "c": GROWS}, nodes=(4,))
    stage.submit("c0", 300, queue="c", notes={**OF_H100, "gpus": "3"})
    for number in range(8):
        stage.submit(f"a{number}", queue="a")
        stage.submit(f"b{number}", queue="b")
    assert go(stage) == ["a0", "b0", "a1", "b1", "c0"]
    assert due(stage) == {"a": 200, "b": 200, "c": 0}
    stage.picture.node_seen(make_node("n1", gpus("n1", 3, model=H100)))
    stage.beat()
    stage.queues.register.tell_time(stage.now)
    assert due(stage) == {"a": 234, "b": 233, "c": 233}


@pytest.mark.parametrize("seed", range(40))
def test_whoever_awaits_a_node_changes_no_share(seed: int) -> None:
    """Of no queue and of no user, by compute, memory and model: all are due as if those did not wait at all."""
    chance = random.Random(seed)
    kept, limits = chance.choice((0, 100)), {"*H100*": ModelQuota(compute=Quota(limit=chance.choice((100, 400))))}
    specs = {"a": queue(), "b": queue(autoscale=True, models=limits), "c": queue(guarantee=100, autoscale=True)}
    stage = Stage({**specs, "k": queue(guarantee=kept, lend=0)}, nodes=())
    for name in ("n0", "n1"):
        cards = gpus(name, chance.choice((1, 2, 4)), memory=80_000, model=chance.choice((A100, H100)))
        stage.picture.node_seen(make_node(name, cards))
    for number in range(24):
        notes = chance.choice(({}, {}, OF_H100, {"gpu-model": "*A100*"}, {"gpus": "2"}))
        group = chance.choice(("", "", "", "g", "h"))
        notes = {**notes, "group-size": "3", "group-min": "2", "group-topology": "node"} if group else notes
        where, user = chance.choice("abc"), chance.choice(("one", "two"))
        compute = chance.choice((30, 100, 200, 300))
        stage.submit(f"p{number}", compute, queue=where, user=user, notes=notes, group=group and f"{group}-{where}")
        if chance.random() < 0.3:
            go(stage, after=1.0)
    found = shares(stage)
    away = awaiting(stage)
    for uid in away:
        stage.end(uid)
    stage.queues.register.tell_time(stage.now)
    assert shares(stage) == found, away


def awaiting(stage: Stage) -> list[str]:
    """Who of the queues that grow could come in nowhere if nobody else were there, found by trying."""
    nobody = Emptied(
        tree=stage.queues.books.ledger.tree,
        capacity=stage.queues.stock().capacity,
        nodes=[known.inventory.gpus for known in stage.picture.nodes.values()],
    )
    lone = [one for one in stage.queues.waiting() if one.queue in "bc" and not one.group]
    return [one.uid for one in lone if not nobody.has_room([one])]


def shares(stage: Stage) -> Mapping[object, object]:
    """Of each queue, and what each user in it could have."""
    register = stage.queues.register
    reach, ledger = register.cards.reach(), register.books.ledger
    of_queues = [due_of(ledger, dimension=dim, reach=reach) for dim in (COMPUTE, MEMORY)]
    lines = register.hall.lines
    of_users = {(name, user): line.could_have(user) for name, line in lines.items() for user in line.users()}
    return {"queues": of_queues, "users": {who: part for who, part in of_users.items() if any(part)}}
