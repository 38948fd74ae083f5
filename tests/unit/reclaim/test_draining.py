"""Whoever lies on a GPU that fails goes whatever else is under way, batch by batch, and nobody in circles."""

from __future__ import annotations

from itertools import pairwise

from support.centre import failing, gpus, make_node
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

AN_HOUR = 3_600.0
OPEN = {"blue": queue(), "red": queue()}


def _bad_card_of(stage: ReclaimStage, uid: str, *, count: int) -> str:
    """The card it lies on fails from now on."""
    ((_, bad),) = stage.picture.holdings.of(uid)
    stage.wear(bad, count=count)
    return bad


def _on(stage: ReclaimStage, gpu: str) -> list[str]:
    return sorted(uid for uid in stage.pods if any(card == gpu for _, card in stage.picture.holdings.of(uid)))


def _a_minute(stage: ReclaimStage) -> None:
    """As nodes tell that they are there meanwhile."""
    for _ in range(6):
        stage.now += 10.0
        stage.beat()
    stage.run()


def test_a_card_with_forty_pods_of_one_controller_is_drained_batch_by_batch() -> None:
    """No more are on the way than sixteen, and each batch goes as soon as those before it have come."""
    stage = ReclaimStage(OPEN, nodes=(2,))
    for number in range(40):
        stage.submit_made(f"p{number}", 2, 500, by="deployment", queue="blue")
        stage.run(after=1.0)
    bad = _bad_card_of(stage, "p0", count=2)
    stage.now += AN_HOUR
    left = [len(_on(stage, bad))]
    for batch in range(3):
        stage.consolidate(after=1.0)
        assert stage.consolidate(after=1.0) == []
        for number, uid in enumerate(stage.evict()):
            stage.gone(uid)
            stage.submit_made(f"s{batch}-{number}", 2, 500, by="deployment", queue="blue")
        stage.run(after=1.0)
        left.append(len(_on(stage, bad)))
    assert left == [40, 24, 8, 0]
    assert stage.evicted == [*dict.fromkeys(stage.evicted)]


def test_who_comes_again_and_lies_on_a_card_that_fails_by_then_is_left_alone_for_a_while() -> None:
    """Whatever it was that broke both cards may have come along with it."""
    stage = ReclaimStage(OPEN, nodes=(3,))
    stage.submit_made("p0", 100, by="job", queue="blue")
    stage.run(after=1.0)
    _bad_card_of(stage, "p0", count=3)
    moved_at = []
    for number in range(3 * 60):
        _a_minute(stage)
        stage.consolidate()
        for uid in stage.evict():
            moved_at.append(number)
            stage.gone(uid)
            stage.submit_made(again := f"again{number}", 100, by="job", queue="blue")
            assert stage.run(after=1.0) == [again]
            _bad_card_of(stage, again, count=3)
    gaps = [later - sooner for sooner, later in pairwise(moved_at)]
    # Ten minutes at the least, since it has to have run for so long; 20 and 40 after that.
    assert [round(gap, -1) for gap in gaps[:3]] == [10, 20, 40]


def test_a_card_is_drained_while_room_is_made_for_others() -> None:
    """On a busy cluster there is always somebody on the way; room that is made is not taken."""
    stage = ReclaimStage({"k": queue(guarantee=100), "blue": queue()}, nodes=(3,))
    for number in range(2):
        stage.submit_made(f"b{number}", 100, by=f"job{number}", queue="blue")
        stage.run(after=1.0)
    bad = _bad_card_of(stage, "b0", count=3)
    ((_, other),) = stage.picture.holdings.of("b1")
    stage.submit("k0", 100, queue="k", notes={"gpu-uuid": other})
    stage.run(after=20.0)
    (clearing,) = stage.decide(after=AN_HOUR)
    assert [victim.uid for victim in clearing.victims] == ["b1"]
    assert stage.consolidate(after=1.0) == ["b0"]
    assert sorted(stage.evict()) == ["b0", "b1"]
    for uid in ("b0", "b1"):
        stage.gone(uid)
    stage.submit_made("b0-again", 100, by="job0", queue="blue")
    assert sorted(stage.run(after=1.0)) == ["b0-again", "k0"]
    assert _on(stage, bad) == []
    assert _on(stage, other) == ["k0"]


def test_who_stays_is_told_so_while_others_are_on_the_way() -> None:
    """It was told nothing as long as there was any of these."""
    stage = ReclaimStage(OPEN, nodes=(2,))
    for uid in ("b0", "b1"):
        stage.submit_made(uid, 50, by=f"job-{uid}", queue="blue")
        stage.run(after=1.0)
    stage.submit_made("other", 50, by="job-other", queue="red")
    stage.run(after=1.0)
    bad = _bad_card_of(stage, "b0", count=2)
    assert _on(stage, bad) == ["b0", "b1"]
    first = stage.consolidate(after=AN_HOUR)
    assert len(first) == 1
    (left,) = {"b0", "b1"} - {*first}
    assert stage.consolidation.staying == {left: "no healthy GPU has room for it now"}


def test_a_card_is_drained_where_there_are_no_queues() -> None:
    """Who comes again gets the room that is kept for it, and not whoever came before."""
    stage = ReclaimStage({}, nodes=(2,))
    stage.submit_made("p0", 100, by="job")
    stage.run(after=1.0)
    bad = _bad_card_of(stage, "p0", count=2)
    assert stage.consolidate(after=AN_HOUR) == ["p0"]
    assert stage.evict() == ["p0"]
    stage.gone("p0")
    stage.submit("sooner", 100)
    stage.submit_made("again", 100, by="job")
    assert sorted(stage.run(after=1.0)) == ["again", "sooner"]
    assert _on(stage, bad) == ["sooner"]


def test_a_card_that_fails_somewhere_else_is_no_matter_of_pods_that_were_there_before() -> None:
    """Of a controller with pods on two cards those of the second go though those of the first went just before."""
    stage = ReclaimStage(OPEN, nodes=(4,))
    for number in range(2):
        stage.submit_made(f"p{number}", 100, by="deployment", queue="blue")
        stage.run(after=1.0)
    first = _bad_card_of(stage, "p0", count=4)
    assert stage.consolidate(after=AN_HOUR) == ["p0"]
    stage.evict()
    stage.gone("p0")
    stage.submit_made("again", 100, by="deployment", queue="blue")
    stage.run(after=1.0)
    ((_, second),) = stage.picture.holdings.of("p1")
    cards = [failing(card) if card.uuid in {first, second} else card for card in gpus("n0", 4)]
    stage.picture.node_seen(make_node("n0", cards))
    assert stage.consolidate(after=60.0) == ["p1"]
