"""Who has to go for whom, on few cards: who lies there, who comes, who goes, and who lies there then."""

from __future__ import annotations

from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

OWNER = {"red": queue(guarantee=200), "blue": queue()}


def filled(stage: ReclaimStage, name: str, count: int, compute: int = 100, **more: object) -> None:
    """So many pods of a queue run."""
    for number in range(count):
        stage.submit(f"{name}{number}", compute, queue=name, **more)  # type: ignore[arg-type]
    while stage.run(after=1.0):
        pass
    assert all(stage.pods[f"{name}{number}"].spec.node_name for number in range(count))


def test_an_owner_takes_back_what_it_lent() -> None:
    """As much as its guarantee asks for, the youngest first, and no more; then it is let in."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    for number in range(3):
        stage.submit(f"red{number}", 100, queue="red")
    assert stage.reclaimed() == ["blue2", "blue3"]
    assert sorted(stage.run()) == ["red0", "red1"]
    assert stage.used("red")[0] == 200
    assert stage.victims(after=60.0) == []


def test_nobody_goes_where_there_is_room() -> None:
    """Whoever fits waits for its turn alone."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 3)
    stage.submit("red0", 100, queue="red")
    assert stage.victims() == []


def test_nobody_goes_for_one_that_then_does_not_fit() -> None:
    """Two halves on two cards are no whole card, whoever may be sent away of them."""
    stage = ReclaimStage({"red": queue(guarantee=200), "blue": queue(), "green": queue(guarantee=100)}, nodes=(2,))
    for number in range(2):
        stage.submit(f"green{number}", 50, queue="green", notes={"placement": "spread"})
    stage.run()
    filled(stage, "blue", 2, 50)
    assert {gpu for uid in ("green0", "green1") for _, gpu in stage.picture.holdings.of(uid)} == {
        "GPU-n0-0",
        "GPU-n0-1",
    }
    stage.submit("red0", 100, queue="red")
    assert stage.victims() == []


def test_the_room_is_kept_for_whom_it_was_made() -> None:
    """Others who come meanwhile don't get it, though their share is smaller."""
    stage = ReclaimStage(OWNER | {"green": queue()})
    filled(stage, "blue", 4)
    stage.submit("red0", 100, queue="red")
    stage.decide()
    (victim,) = stage.evict()
    stage.submit("green0", 10, queue="green")
    assert stage.run(after=1.0) == []
    stage.gone(victim)
    assert stage.run(after=1.0) == ["red0"]


def test_of_lower_priority_of_the_same_user_goes() -> None:
    """Inside a queue, and no more than is needed; others' pods and equals stay."""
    stage = ReclaimStage({"red": queue()}, nodes=(3,))
    stage.submit("low", 100, queue="red")
    stage.submit("equal", 100, queue="red", priority=10)
    stage.submit("other", 100, queue="red", user="else")
    stage.run()
    stage.submit("high", 100, queue="red", priority=10)
    assert stage.reclaimed() == ["low"]
    assert stage.run() == ["high"]
