"""The leader dies when some of a group have gone for another: the next one sends back who is left of too few."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_scheduler.queues.room.recalling import words_for
from aliquot_scheduler.queues.room.torn_groups import MOST_GROUPS, Going, going_for, going_said, words_of_going
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


def still_going(stage: ReclaimStage) -> list[Going]:
    """What is put down at this moment."""
    register = stage.queues.register
    return register.making_room.still_going(is_short=register.stale.is_short)


def next_leader(before: ReclaimStage, *, kept: str | None = None) -> ReclaimStage:
    """What the one before has only thought is lost; `kept` is what it had put down, if that is known."""
    stage = ReclaimStage(QUEUES, nodes=(4,))
    kept = words_of_going(still_going(before)) if kept is None else kept
    stage.queues.register.making_room.torn_groups.put_down(going_said(kept))
    return followed(before, stage)


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


def test_who_is_left_is_not_sent_back_at_once_where_others_have_the_room() -> None:
    """The group went for another one: it has a minute, as any other."""
    stage = cleared()
    went = in_its_room(stage)
    some_gone(stage, *went)
    stage = next_leader(stage, kept=words_of_going([Going(whose="another", named=tuple(JOB))]))
    assert stage.run(after=1.0) == ["r0"]
    assert sent_back(stage) == []
    stage.run(after=A_MINUTE)
    assert sent_back(stage) == sorted(set(JOB) - set(went))


def test_so_it_is_where_the_one_for_whom_they_went_is_deleted_while_nobody_leads() -> None:
    """Nobody who waits is left to say why they went."""
    stage = cleared()
    went = in_its_room(stage)[:1]
    some_gone(stage, *went)
    stage.gone("r0")
    stage = next_leader(stage)
    stage.run(after=1.0)
    assert sent_back(stage) == []
    stage.run(after=A_MINUTE)
    assert sent_back(stage) == sorted(set(JOB) - set(went))


def test_so_it_is_where_no_room_was_made_any_more_when_the_leader_died() -> None:
    """The one for whom they went waits on, and says nothing of room."""
    stage = cleared()
    went = in_its_room(stage)[:1]
    some_gone(stage, *went)
    making_room = stage.queues.register.making_room
    making_room.call_off(*making_room.clearings)
    stage.note("r0", {NAMES.room: ""})
    stage = next_leader(stage)
    stage.run(after=1.0)
    assert sent_back(stage) == []
    stage.run(after=A_MINUTE)
    assert sent_back(stage) == sorted(set(JOB) - set(went))


@pytest.mark.parametrize(
    "kept",
    ["", words_of_going([Going(whose="r0", named=("b0", "b1", "b2"))]), '[{"whose": 7}]', "no page of ours"],
    ids=["of which nothing is said", "that was to go", "of which it can't be read", "of which nothing can be read"],
)
def test_a_group_of_which_nobody_went_runs_on(kept: str) -> None:
    """It lacks one that had finished and was deleted before anybody was to go, as far as the next leader can tell."""
    stage = cleared()
    some_gone(stage, "b3")
    stage = next_leader(stage, kept=kept)
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


def test_a_group_that_goes_is_put_down_until_no_leader_need_know_of_it() -> None:
    """Before anybody is asked, as long as too few are left of it; else a later leader took it to have been torn."""
    stage = cleared()
    (going,) = still_going(stage)
    assert (going.whose, sorted(going.named)) == ("r0", JOB)
    making_room = stage.queues.register.making_room
    first, *others = going.named
    making_room.clearings.asked(first)
    making_room.call_off(*making_room.clearings)
    assert still_going(stage) == [going], "one of it is on the way out, and no room is made any more"
    stage.gone(first)
    sent_back(stage)
    assert still_going(stage) == [going], "it lacks one"
    for uid in others:
        stage.gone(uid)
    assert still_going(stage) == []


def test_a_group_of_which_nobody_was_asked_is_put_down_no_more() -> None:
    """No room is made any more for whom it was to go."""
    stage = cleared()
    making_room = stage.queues.register.making_room
    making_room.call_off(*making_room.clearings)
    assert still_going(stage) == []


def test_a_group_that_has_again_as_many_as_it_needs_is_put_down_no_more() -> None:
    """Another one came in the place of who had gone."""
    stage = cleared()
    (going,) = still_going(stage)
    making_room = stage.queues.register.making_room
    making_room.clearings.asked(going.named[0])
    making_room.call_off(*making_room.clearings)
    stage.gone(going.named[0])
    stage.gone("r0")
    stage.submit("b4", 100, queue="blue", group="job", notes=NOTES)
    assert stage.run(after=1.0) == ["b4"]
    sent_back(stage)
    assert still_going(stage) == []


def test_of_a_large_group_some_are_named_and_of_very_many_groups_the_first() -> None:
    """A ConfigMap holds 1 MiB, and not this alone: who is asked first is named, and who last."""
    (clearing,) = cleared().queues.register.clearings
    one, longest = clearing.victims[0], "-" * 32
    pods = [msgspec.structs.replace(one.pod.metadata, uid=f"{longest}{number:04}") for number in range(1_000)]
    many = tuple(one.of(msgspec.structs.replace(one.pod, metadata=meta)) for meta in pods)
    covered = frozenset({f"{longest}0500"})
    (going,) = going_for(msgspec.structs.replace(clearing, victims=many, covered=covered))
    named = [int(uid.removeprefix(longest)) for uid in going.named]
    assert named == [500, 0, 1, 2, 996, 997, 998, 999]
    groups = [Going(whose=f"{longest}{number:04}", named=going.named) for number in range(MOST_GROUPS + 1)]
    words = words_of_going(groups)
    assert going_said(words) == groups[:-1]
    assert len(words) < 200 * 1024
