"""The leader dies when some of a group have gone for another: the next one sends back who is left of too few."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_scheduler.queues.room.recalling import words_for, words_left
from aliquot_scheduler.queues.room.torn_groups import groups_of
from support.centre import NAMES
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage, followed

QUEUES = {"red": queue(guarantee=200), "blue": queue()}
NOTES = {"group-size": "4", "group-min": "4"}
JOB = ["b0", "b1", "b2", "b3"]
# A group that lacks somebody is sent back after a minute, and waits that long for who comes in the place.
A_MINUTE = 61.0


def cleared() -> ReclaimStage:
    """All four of a group are to go for one pod, which says so; nobody was asked yet."""
    stage = ReclaimStage(QUEUES, nodes=(4,))
    for uid in JOB:
        stage.submit(uid, 100, queue="blue", group="job", notes=NOTES)
    assert sorted(stage.run(after=1.0)) == JOB
    stage.submit("r0", 200, queue="red")
    stage.run(after=1.0)
    stage.decide(after=1.0)
    (clearing,) = stage.queues.register.clearings
    assert sorted(one.uid for one in clearing.victims) == JOB
    stage.note("r0", {NAMES.room: words_for(clearing, clearing.places[0])})
    return stage


def some_gone(stage: ReclaimStage, *uids: str) -> None:
    """These were asked, and are gone."""
    for uid in uids:
        stage.leave(uid)
        stage.gone(uid)


def next_leader(before: ReclaimStage) -> ReclaimStage:
    """What the one before has only thought is lost."""
    return followed(before, ReclaimStage(QUEUES, nodes=(4,)))


def sent_back(stage: ReclaimStage) -> list[str]:
    """Who is to start anew with its group."""
    return sorted(pod.metadata.uid for pod in stage.queues.stale_gangs(now=stage.now))


def in_its_room(stage: ReclaimStage) -> list[str]:
    """Of who is to go, those without whom the pod has its room."""
    (clearing,) = stage.queues.register.clearings
    (place,) = clearing.places
    return [uid for uid in JOB if place.room.keys() & set(stage.picture.holdings.of(uid))]


def test_who_is_left_of_a_group_is_sent_back_as_soon_as_others_have_its_room() -> None:
    """By whoever leads next, though nobody saw that any of them went."""
    stage = cleared()
    went = in_its_room(stage)
    some_gone(stage, *went)
    stage = next_leader(stage)
    assert sent_back(stage) == []
    assert stage.run(after=1.0) == ["r0"]
    assert sent_back(stage) == sorted(set(JOB) - set(went))


def test_so_it_is_where_the_one_for_whom_they_went_is_bound_by_then() -> None:
    """After the time that any group has which lacks members: who leads next knows not since when."""
    stage = cleared()
    went = in_its_room(stage)
    some_gone(stage, *went)
    assert stage.run(after=1.0) == ["r0"]
    stage = next_leader(stage)
    stage.run(after=1.0)
    assert sent_back(stage) == []
    stage.run(after=A_MINUTE)
    assert sent_back(stage) == sorted(set(JOB) - set(went))


def test_who_has_gone_too_few_to_make_room_tears_the_group_all_the_same() -> None:
    """No room is made any more as it was decided, and the others go in any case: for the same pod, or by themselves."""
    stage = cleared()
    went = in_its_room(stage)[:1]
    some_gone(stage, *went)
    stage = next_leader(stage)
    stage.run(after=1.0)
    stage.gone("r0")
    stage.run(after=1.0)
    assert sent_back(stage) == []
    stage.run(after=A_MINUTE)
    assert sent_back(stage) == sorted(set(JOB) - set(went))


@pytest.mark.parametrize("groups", [[], [["b0", "b1", "b2"]]], ids=["of which nothing is said", "that was to go"])
def test_a_group_of_which_nobody_went_runs_on(groups: list[list[str]]) -> None:
    """It lacks one that had finished and was deleted before anybody was to go, as far as the next leader can tell."""
    stage = cleared()
    said = msgspec.json.decode(stage.pods["r0"].metadata.annotations[NAMES.room])
    stage.note("r0", {NAMES.room: msgspec.json.encode(said | {"groups": groups}).decode()})
    some_gone(stage, "b3")
    stage = next_leader(stage)
    stage.run(after=1.0)
    sent_back(stage)
    stage.run(after=A_MINUTE)
    assert sent_back(stage) == []


def test_who_is_on_the_way_out_tears_its_group() -> None:
    """The eviction was taken, and the leader died before its time was over."""
    stage = cleared()
    went = in_its_room(stage)
    for uid in went:
        stage.leave(uid)
    stage = next_leader(stage)
    stage.run(after=1.0)
    for uid in went:
        stage.gone(uid)
    assert stage.run(after=1.0) == ["r0"]
    assert sent_back(stage) == sorted(set(JOB) - set(went))


def test_what_a_bound_pod_says_of_a_group_is_taken_off_where_that_runs_on() -> None:
    """Else a later leader took it to have been torn by that, when one of it has finished."""
    words = cleared().pods["r0"].metadata.annotations[NAMES.room]
    assert words_left(words, kept=(), is_over=lambda _: False) == words
    left = words_left(words, kept=(), is_over=lambda group: set(group) == set(JOB))
    assert (msgspec.json.decode(left).get("groups"), msgspec.json.decode(words)["claims"]) == (
        None,
        msgspec.json.decode(left)["claims"],
    )


def test_of_a_large_group_some_are_named() -> None:
    """A pod bears no more than 256 KiB of annotations: who is asked first is named, and who last."""
    (clearing,) = cleared().queues.register.clearings
    one = clearing.victims[0]
    pods = [msgspec.structs.replace(one.pod.metadata, uid=f"u{number:04}") for number in range(1_000)]
    many = tuple(one.of(msgspec.structs.replace(one.pod, metadata=meta)) for meta in pods)
    (named,) = groups_of(msgspec.structs.replace(clearing, victims=many, covered=frozenset({"u0500"})))
    assert (named[0], named[1], named[-1], len(named)) == ("u0500", "u0000", "u0999", 40)
