"""The reflector, rule by rule: what it asks for next, how long it rests, and what it makes of an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Deleted, Synced
from aliquot_kube.errors import (
    GoneError,
    InvalidError,
    NotFoundError,
    ServerTroubleError,
    ThrottledError,
    UnreachableError,
)
from aliquot_kube.reflector import FetchPage, Freshness, OpenWatch, Reflector, Rest, Tuning
from support.pod_store import PodStore, pod_json


@pytest.fixture
def reflector() -> Reflector[Pod]:
    """A reflector that knows pod `a` at version 100 and wants to watch."""
    machine = Reflector(kind=Pod, random=lambda: 0.5)
    body = PodStore().page(items=[pod_json(name="a", uid="1", version=90)], version=100)
    changes = machine.page(body, asked_at=0.0, now=1.0)
    assert [type(change) for change in changes] == [Added, Synced]
    return machine


def line(kind: str, *, version: int, uid: str = "1", name: str = "a") -> bytes:
    """Spell a watch line."""
    return json.dumps({"type": kind, "object": pod_json(name=name, uid=uid, version=version)}).encode()


def in_kind(reflector: Reflector[Pod]) -> type:
    """What kind of thing it wants."""
    return type(reflector.intent)


def rest_after(reflector: Reflector[Pod], error: Any, *, now: float = 0.0) -> float:
    """Let it fail, rest, and say for how long."""
    reflector.failed(error, now=now)
    assert isinstance(reflector.intent, Rest)
    seconds = reflector.intent.seconds
    reflector.rested()
    return seconds


def test_watch_resumes_from_the_last_event_or_bookmark(reflector: Reflector[Pod]) -> None:
    """The next watch starts at the last version seen, be it of an event or of a bookmark."""
    reflector.opened(now=1.0)
    reflector.line(line("MODIFIED", version=777), now=2.0)
    reflector.ended(now=3.0)
    assert isinstance(reflector.intent, OpenWatch)
    assert reflector.intent.resource_version == "777"
    reflector.opened(now=3.0)
    store = PodStore(version=900)
    assert reflector.line(store.bookmark(), now=4.0) == []
    reflector.failed(UnreachableError("cut"), now=4.0)
    reflector.rested()
    assert isinstance(reflector.intent, OpenWatch)
    assert reflector.intent.resource_version == "900"


def test_watch_seconds_are_spread_over_their_range() -> None:
    """The server is asked for 240 to 300 seconds, as chance will have it."""
    chances = iter([0.0, 0.999, 0.5])
    machine = Reflector(kind=Pod, random=lambda: next(chances))
    seen = []
    for _ in range(3):
        machine.page(PodStore().page(items=[], version=100), asked_at=0.0, now=0.0)
        assert isinstance(machine.intent, OpenWatch)
        seen.append(machine.intent.timeout_seconds)
    assert seen == [240, 300, 270]


def test_rests_grow_and_a_served_watch_forgives(reflector: Reflector[Pod]) -> None:
    """Failures in a row rest longer up to the limit; after a good line the first rest is short again."""
    rests = [rest_after(reflector, UnreachableError("refused")) for _ in range(12)]
    assert rests[:3] == [0.375, 0.75, 1.5]
    assert rests[-1] == 22.5
    assert isinstance(reflector.intent, OpenWatch)
    reflector.opened(now=0.0)
    reflector.line(line("MODIFIED", version=101), now=0.0)
    assert reflector.freshness(now=0.0).failures == 0
    assert rest_after(reflector, UnreachableError("cut")) == 0.375


def test_lists_that_work_do_not_forgive_watches_that_fail(reflector: Reflector[Pod]) -> None:
    """A server that answers lists and refuses each watch is asked ever more seldom."""
    rests = []
    for _ in range(6):
        rests.append(rest_after(reflector, GoneError("expired", status=410)))
        assert isinstance(reflector.intent, FetchPage)
        reflector.page(PodStore().page(items=[], version=100), asked_at=0.0, now=0.0)
    assert rests == sorted(rests)
    assert rests[-1] > 8


def test_a_server_that_was_away_is_followed_at_once_when_it_is_back(reflector: Reflector[Pod]) -> None:
    """Restarted it knows no old versions: the list after its first Gone must not wait as long as it was away."""
    for _ in range(8):
        rest_after(reflector, UnreachableError("refused"))
    assert rest_after(reflector, GoneError("too old resource version", status=410)) == 0.375
    assert isinstance(reflector.intent, FetchPage)
    assert rest_after(reflector, GoneError("too old resource version", status=410)) == 0.75


def test_silent_watch_cut_by_a_load_balancer_costs_only_a_short_rest(reflector: Reflector[Pod]) -> None:
    """A quiet resource whose watch is cut every minute stays at the shortest rest and is never listed again."""
    for minute in range(20):
        reflector.opened(now=minute * 60.0)
        assert rest_after(reflector, UnreachableError("cut"), now=minute * 60.0 + 60.0) == 0.375
        assert isinstance(reflector.intent, OpenWatch)


def test_watches_turned_away_again_and_again_lead_to_a_new_list(reflector: Reflector[Pod]) -> None:
    """A version that no watch is served from, as after etcd was restored, is given up after five tries."""
    trouble = ServerTroubleError("too large resource version", status=504)
    for _ in range(4):
        rest_after(reflector, trouble)
        assert isinstance(reflector.intent, OpenWatch)
    rest_after(reflector, trouble)
    assert reflector.intent == FetchPage(limit=500)
    changes = reflector.page(PodStore().page(items=[], version=7), asked_at=0.0, now=0.0)
    assert [type(change) for change in changes] == [Deleted, Synced]
    assert reflector.resource_version == "7"


def test_a_server_that_is_away_causes_no_new_list(reflector: Reflector[Pod]) -> None:
    """When the server cannot be reached, the watch goes on from where it was, however long that took."""
    for _ in range(50):
        rest_after(reflector, UnreachableError("refused"))
    assert isinstance(reflector.intent, OpenWatch)
    assert reflector.intent.resource_version == "100"


def test_watch_that_ends_at_once_counts_as_a_failure(reflector: Reflector[Pod]) -> None:
    """A watch closed in good order but without service is not opened again in a busy loop."""
    reflector.opened(now=0.0)
    reflector.ended(now=0.1)
    assert isinstance(reflector.intent, Rest)


@pytest.mark.parametrize(("asked", "least", "most"), [(7.0, 7.0, 8.0), (86400.0, 120.0, 121.0)])
def test_retry_after_is_the_least_rest(reflector: Reflector[Pod], asked: float, least: float, most: float) -> None:
    """The server's wish is honoured, up to two minutes."""
    rest = rest_after(reflector, ThrottledError("later", status=429, retry_after=asked))
    assert least <= rest <= most


def test_list_that_expires_between_pages_is_asked_for_whole(reflector: Reflector[Pod]) -> None:
    """A 410 in the middle of a list starts it over, in one answer, and shows nothing of the half list."""
    rest_after(reflector, GoneError("expired", status=410))
    half = PodStore().page(items=[pod_json(name="b", uid="2", version=95)], version=100, token="t")
    assert reflector.page(half, asked_at=0.0, now=0.0) == []
    assert reflector.intent == FetchPage(limit=500, token="t")
    rest_after(reflector, GoneError("expired", status=410))
    assert reflector.intent == FetchPage(limit=0)
    assert list(reflector.objects) == ["default/a"]
    reflector.page(PodStore().page(items=[], version=200), asked_at=0.0, now=0.0)
    assert list(reflector.objects) == []
    rest_after(reflector, GoneError("expired", status=410))
    assert reflector.intent == FetchPage(limit=500)


def test_deletion_of_a_predecessor_is_old_news(reflector: Reflector[Pod]) -> None:
    """A DELETED of the pod that bore the name before does not take its successor away."""
    reflector.opened(now=0.0)
    assert reflector.line(line("DELETED", version=200, uid="0"), now=0.0) == []
    assert list(reflector.objects) == ["default/a"]


def test_object_that_did_not_change_stays_the_one_we_have(reflector: Reflector[Pod]) -> None:
    """A new list does not keep a second copy of what is known."""
    known = reflector.objects["default/a"]
    rest_after(reflector, GoneError("expired", status=410))
    reflector.page(PodStore().page(items=[pod_json(name="a", uid="1", version=90)], version=200), asked_at=0.0, now=0.0)
    assert reflector.objects["default/a"] is known


@pytest.mark.parametrize(
    ("error", "token"), [(ServerTroubleError("x", status=503), "t"), (InvalidError("bad token", status=400), "")]
)
def test_half_list_goes_on_after_passing_trouble_only(reflector: Reflector[Pod], error: Any, token: str) -> None:
    """A 5xx keeps the pages that came; a refused token starts over."""
    rest_after(reflector, GoneError("expired", status=410))
    reflector.page(PodStore().page(items=[], version=100, token="t"), asked_at=0.0, now=0.0)
    rest_after(reflector, error)
    assert reflector.intent == FetchPage(limit=500, token=token)


def test_object_that_can_not_be_read_hides_no_other(reflector: Reflector[Pod]) -> None:
    """Of a list with one pod beyond our structs the others arrive, and the last readable state of that one stays."""
    rest_after(reflector, GoneError("expired", status=410))
    odd: dict[str, Any] = {**pod_json(name="a", uid="1", version=200), "spec": {"containers": 5}}
    body = PodStore().page(items=[odd, pod_json(name="b", uid="2", version=201)], version=300)
    changes = reflector.page(body, asked_at=0.0, now=0.0)
    assert [type(change) for change in changes] == [Added, Synced]
    assert reflector.objects["default/a"].metadata.resource_version == "90"


def test_unreadable_successor_still_ends_its_predecessor(reflector: Reflector[Pod]) -> None:
    """When a pod we can't read takes the name of one that we knew, the old one is told of as deleted."""
    odd = {**pod_json(name="a", uid="other", version=200), "spec": {"containers": 5}}
    reflector.opened(now=0.0)
    changes = reflector.line(json.dumps({"type": "ADDED", "object": odd}).encode(), now=0.0)
    assert [type(change) for change in changes] == [Deleted]
    assert isinstance(reflector.intent, OpenWatch)


def test_freshness_counts_from_the_question_not_from_the_answer(reflector: Reflector[Pod]) -> None:
    """A list is as old as when it was asked for; contact is as old as the last word that confirms the copy."""
    freshness = reflector.freshness(now=11.0)
    assert (freshness.list_age, freshness.contact_age, freshness.synced) == (11.0, 10.0, True)
    rest_after(reflector, ServerTroubleError("x", status=500), now=20.0)
    assert reflector.freshness(now=21.0).contact_age == 20.0
    assert reflector.freshness(now=21.0).failures == 1
    reflector.opened(now=30.0)
    reflector.line(PodStore().bookmark(), now=31.0)
    assert reflector.freshness(now=31.0).contact_age == 0.0
    fresh = Reflector(kind=Pod, random=lambda: 0.5).freshness(now=5.0)
    assert (fresh.list_age, fresh.contact_age, fresh.synced) == (None, None, False)


def test_resource_that_is_taken_away_is_empty_and_looked_for_again(reflector: Reflector[Pod]) -> None:
    """A watch that finds no such resource asks for the list; if that is not there either, all objects are gone."""
    rest_after(reflector, NotFoundError("no such resource", status=404))
    assert in_kind(reflector) is FetchPage
    changes = reflector.absent(asked_at=20.0, now=21.0)
    assert [type(change) for change in changes] == [Deleted, Synced]
    assert reflector.freshness(now=22.0) == Freshness(contact_age=1.0, list_age=2.0, failures=0, synced=True)
    assert isinstance(reflector.intent, Rest)
    assert reflector.intent.seconds == Tuning().absent_seconds
    reflector.rested()
    assert in_kind(reflector) is FetchPage
    body = PodStore().page(items=[pod_json(name="a", uid="2", version=90)], version=100)
    assert [type(change) for change in reflector.page(body, asked_at=30.0, now=30.0)] == [Added, Synced]
