"""What a user in doubt is told: the word, what is owed, whose turn was lost last, and until when at most."""

from __future__ import annotations

import pytest

from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.lost.doubts import Doubts, Kept
from support.queue_stage import Stage, queue

WHOLE_NODE = {"gpus": "4"}
# The stage's clock on the wall begins at 10:00:00.
SAID = (
    "turns of its user team in queue a led to nothing, that of team/pod-bad last, at 2026-11-21T10:00:30Z, so the"
    " user's other pods come one at a time{pauses}, until what was kept for nothing is paid: {owed}, by pods of theirs"
    " that run meanwhile; until 2026-11-21T11:00:30Z at the latest, if no other turn leads to nothing"
)


def doubted() -> Stage:
    """A pod of the user has lost its turn; it held 50 % and 2048 MiB for half a minute."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=(4,))
    stage.submit("bad", 50, 2048, queue="a")
    assert stage.round() == ["bad"]
    stage.round(after=PROMISE)
    return stage


def said(stage: Stage, uid: str) -> tuple[str, str]:
    """The word and the sentence of one that waits."""
    notice = stage.queues.notice(next(one for one in stage.queues.waiting() if one.uid == uid))
    return notice.reason, notice.message


def test_who_waits_for_its_turn_while_another_comes_is_told_what_is_owed() -> None:
    """With all cards free, and nobody else there."""
    stage = doubted()
    for uid in ("first", "second"):
        stage.submit(uid, 100, queue="a")
    assert stage.round() == ["first"]
    pauses = ", and while others wait none before 2026-11-21T10:00:35Z"
    owed = "15 GPU-seconds and 60 GiB-seconds of memory"
    assert said(stage, "second") == ("InDoubt", SAID.format(owed=owed, pauses=pauses))
    stage.bind("first")
    stage.submit("third", 100, queue="a")
    assert stage.round(after=10.0) == ["second", "bad"]
    owed = "5 GPU-seconds and 0 GiB-seconds of memory"
    assert said(stage, "third") == ("InDoubt", SAID.format(owed=owed, pauses=""))


def test_who_finds_no_room_either_is_told_both_by_one_word() -> None:
    """Else its condition would be written anew with each pause that begins or ends."""
    stage = doubted()
    stage.submit("runs", 1, queue="b", user="other")
    assert "runs" in stage.run(after=10.0)
    stage.submit("big", 400, queue="a", notes=WHOLE_NODE)
    stage.round()
    word, sentence = said(stage, "big")
    assert word == "InDoubt"
    assert sentence.partition("if no other turn leads to nothing; ")[2].startswith("it counts as 400 % of compute")


@pytest.mark.parametrize(
    ("limit", "guarantee", "uid", "word"),
    [
        (100, None, "good", "OverLimit"),
        (None, 400, "good", "NoRoom"),
        (None, None, "bad", "TurnLost"),
        (None, None, "good", "InDoubt"),
    ],
)
def test_what_a_doubt_is_not_why_is_told_by_its_own_word(
    limit: int | None, guarantee: int | None, uid: str, word: str
) -> None:
    """What a limit keeps out, what stays inside a guarantee, and who has lost a turn itself."""
    stage = Stage({"a": queue(limit=limit, guarantee=guarantee), "b": queue()}, nodes=(4,))
    if not limit:
        stage.submit("runs", 300, queue="b", user="other", notes={"gpus": "3"})
        stage.run()
    stage.submit("bad", 50, 2048, queue="a")
    assert stage.round() == ["bad"]
    stage.round(after=PROMISE)
    stage.submit("fills", 100, queue="a" if limit else "b", user="other")
    assert stage.run() == ["fills"]
    stage.submit("good", 100, queue="a")
    stage.round()
    assert said(stage, uid)[0] == word


def test_who_could_not_be_told_of_its_turn_is_told_why_where_nobody_stands_in_line() -> None:
    """Another's pod of its shape has found no room, so all are asked for numbers; and its queue has no line then."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=(2,))
    stage.submit("runs", 100, queue="b", user="other")
    stage.run()
    stage.submit("bad", 10, queue="a")
    stage.round()
    stage.round(after=PROMISE)
    stage.gone("bad")
    stage.submit("mine", 100, queue="a")
    stage.submit("another", 100, queue="b", user="other")
    assert stage.round(after=60.0) == ["mine"]
    stage.queues.not_told(stage.pods["mine"], now=stage.now)
    assert {waiter.uid: word for waiter, word in stage.queues.words()} == {"mine": "InDoubt", "another": "NoRoom"}


def test_a_pause_is_what_the_documents_work_out_by_hand() -> None:
    """The table of docs/queues.md: of four cards, from 10:00:00 on, in seconds and GPU-seconds."""
    doubts, who = Doubts(), ("a", "team")
    rows = [
        (10, 0.0, 30.0, False, 3, 35.0),
        (10, 60.0, 90.0, False, 6, 180.0),
        (100, 180.0, 200.0, False, 26, 260.0),
        (10, 300.0, 330.0, True, 29, 335.0),
        (400, 360.0, 370.0, False, 69, 400.0),
    ]
    for compute, began, ended, again, owes, pauses in rows:
        kept = Kept(amounts=(compute, 0), part=compute / 400, lasted=ended - began)
        doubts.came_to_nothing(who, kept, pod="team/pod", again=again, now=ended)
        debt = doubts.debt(who, now=ended)
        assert (debt.owes[0], debt.pauses) == (100 * owes, pauses)
    doubts.bound("good", who, (100, 0), now=420.0)
    assert doubts.tell_time(488.0) == {}
    assert doubts.tell_time(489.0) == {who: True}
