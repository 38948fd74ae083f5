"""For whose sake who is in doubt, or has lost turns, lets cards stand idle: for who could use them, and nobody else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.said.spec import QueueSpec
from support.queue_stage import Stage, queue

WHOLE_NODE = {"gpus": "4"}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Who else waits, and what runs of that user's; and whether a user in doubt of queue `a` pauses for that."""

    specs: dict[str, QueueSpec] = {}
    where: str = "b"
    runs: int = 100
    waits: int = 100
    more: dict[str, Any] = {}
    stops: str = ""
    pauses: bool


CASES = {
    "it waits for cards": Case(specs={"b": queue()}, waits=400, more={"notes": WHOLE_NODE}, pauses=True),
    "its own limit keeps it out": Case(specs={"b": queue(limit=100)}, pauses=False),
    "a limit above it does": Case(specs={"o": queue(limit=100), "b": queue("o")}, pauses=False),
    "a limit that both are under does": Case(
        specs={"o": queue(limit=300), "a": queue("o"), "b": queue("o")}, runs=200, waits=200, pauses=True
    ),
    "it waits in the same queue": Case(specs={"a": queue(limit=300)}, where="a", runs=200, waits=200, pauses=True),
    "its queue lets nobody in": Case(specs={"b": queue()}, stops="b", pauses=False),
    "its group is not there": Case(
        specs={"b": queue()}, more={"group": "g", "notes": {"group-size": "2"}}, pauses=False
    ),
    "nobody is there": Case(specs={"b": queue()}, waits=0, pauses=False),
}


def played(case: Case) -> Stage:
    """A turn that was given in doubt has just led to nothing."""
    specs = {"a": queue()} | case.specs
    stage = Stage(specs, nodes=(4,))
    notes = {"gpus": str(case.runs // 100)}
    stage.submit("runs", case.runs, queue=case.where, user="other", notes=notes)
    assert stage.run() == ["runs"]
    for number in range(2):
        stage.submit(f"bad{number}", 10, queue="a")
        assert stage.round(after=PROMISE) == [f"bad{number}"]
        stage.round(after=PROMISE)
        stage.gone(f"bad{number}")
    if case.waits:
        more = {"notes": {"gpus": str(case.waits // 100)}} | case.more
        stage.submit("waits", case.waits, queue=case.where, user="other", **more)
    if case.stops:
        stage.queues.queues_seen(specs | {case.stops: queue(stop="hold")})
    assert stage.round() == []
    return stage


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_user_in_doubt_pauses_for_who_could_use_the_cards(case: Case) -> None:
    """While another waits for what no pause of his gives it, his good pods come one after the other."""
    stage = played(case)
    stage.submit("good", 50, queue="a")
    assert stage.round() == ([] if case.pauses else ["good"])


@pytest.mark.parametrize(
    ("others", "again"), [("b", True), ("", True), ("a", False)], ids=["under its own limit", "nobody", "in his queue"]
)
def test_who_has_lost_a_turn_tries_again_at_once_where_nobody_could_use_the_cards(
    others: str,
    again: bool,
) -> None:
    """Two that have lost their turns follow each other without the pause of 90 s."""
    stage = Stage({"a": queue(limit=300), "b": queue(limit=100)}, nodes=(4,))
    if others:
        size = {"a": 290, "b": 100}[others]
        notes = {"gpus": str(-(-size // 100))}
        stage.submit("runs", size, queue=others, user="other", notes=notes)
        stage.run()
        stage.submit("waits", size, queue=others, user="other", notes=notes)
    stage.submit("bad", 10, queue="a")
    turns = 0
    while stage.now < 4 * PROMISE:
        turns += stage.round(after=5.0).count("bad")
    assert (turns >= 3) is again
