"""The reflector against a model of the API server that lags, drops, repeats, forgets and garbles."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.errors import (
    GoneError,
    ServerTroubleError,
    UnreachableError,
)
from aliquot_kube.reflector import FetchPage, OpenWatch, Reflector, Rest, Tuning
from support.pod_store import GONE_EVENT, PodStore

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
TUNING = Tuning(page_limit=2)
NOT_UTF_8 = b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}'
NESTED = b'{"metadata":' + b"[" * 100_000


class Copy:
    """A consumer that believes only the changes, and refuses those that can't be."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}

    def apply(self, changes: list[Change[Pod]]) -> None:
        """Take in changes as a consumer would."""
        for change in changes:
            if isinstance(change, Added):
                assert change.new.key not in self.pods
                self.pods[change.new.key] = change.new
            elif isinstance(change, Modified):
                assert self.pods[change.new.key] is change.old
                assert change.old.metadata.uid == change.new.metadata.uid
                assert change.old.metadata.resource_version != change.new.metadata.resource_version
                self.pods[change.new.key] = change.new
            elif isinstance(change, Deleted):
                assert self.pods.pop(change.old.key) is change.old


def in_short(pods: Any) -> dict[str, tuple[str, str]]:
    """Key to uid and version."""
    return {key: (pod.metadata.uid, pod.metadata.resource_version) for key, pod in pods.items()}


class AgainstAModel(RuleBasedStateMachine):
    """Any order of writes, deliveries and faults leaves the copy at a state that the server really had."""

    def __init__(self) -> None:
        super().__init__()
        self.store = PodStore()
        self.now = 0.0
        self.reflector = Reflector(kind=Pod, random=lambda: 0.5, tuning=TUNING)
        self.copy = Copy()
        self.states: dict[int, dict[str, tuple[str, str]]] = {self.store.version: {}, 0: {}}
        self.frozen: tuple[int, list[Any]] = (0, [])
        self.open_at: int | None = None

    def _remember(self) -> None:
        self.states[self.store.version] = self.store.uids()

    @rule(name=NAMES)
    def put(self, name: str) -> None:
        """A user creates or changes a pod."""
        self.store.put(name)
        self._remember()

    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        """A user deletes a pod."""
        self.store.drop(name)
        self._remember()

    @rule(name=NAMES)
    def replace(self, name: str) -> None:
        """A pod is deleted and made again under its name."""
        self.store.drop(name)
        self._remember()
        self.put(name)

    @rule()
    def compact(self) -> None:
        """The server forgets its history."""
        self.store.compact()

    @rule(seconds=st.floats(0.1, 20))
    def pass_time(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds

    @rule(steps=st.integers(1, 8), lines=st.integers(1, 4), back=st.integers(0, 4), bookmark=st.booleans())
    def serve(self, *, steps: int, lines: int, back: int, bookmark: bool) -> None:
        """The server gives what is wanted, some steps far: late, and some of it twice."""
        for _ in range(steps):
            if isinstance(self.reflector.intent, Rest):
                self.reflector.rested()
            elif isinstance(self.reflector.intent, FetchPage):
                self.answer_page(self.reflector.intent)
            else:
                self.deliver(self.reflector.intent, lines=lines, back=back, bookmark=bookmark)

    def answer_page(self, wanted: FetchPage) -> None:
        """The server answers a page, or that the list has expired."""
        self.open_at = None
        if not wanted.token:
            self.frozen = (self.store.version, list(self.store.pods.values()))
        version, items = self.frozen
        if version < self.store.compacted:
            self.reflector.failed(GoneError("expired", status=410), now=self.now)
            return
        start = int(wanted.token or 0)
        end = start + wanted.limit if wanted.limit else len(items)
        body = self.store.page(items=items[start:end], version=version, token=str(end) if end < len(items) else "")
        self.copy.apply(self.reflector.page(body, asked_at=self.now, now=self.now))

    def deliver(self, wanted: OpenWatch, *, lines: int, back: int, bookmark: bool) -> None:
        """The server sends some of what happened; it or a proxy may send again what it sent before."""
        if self.open_at is None:
            self.open_at = int(wanted.resource_version)
            self.reflector.opened(now=self.now)
        events = self.store.events_after(max(self.open_at - back, self.store.compacted))
        if self.open_at < self.store.compacted or events is None:
            self.take(GONE_EVENT)
            self.open_at = None
            return
        for event in events[: lines + back]:
            self.take(json.dumps(event).encode())
            assert self.reflector.intent is wanted
            self.open_at = max(self.open_at, int(event["object"]["metadata"]["resourceVersion"]))
        if bookmark and self.open_at == self.store.version:
            self.take(self.store.bookmark())

    def take(self, line: bytes) -> None:
        """Hand a line over; all must hold after each."""
        self.copy.apply(self.reflector.line(line, now=self.now))
        self.the_consumer_knows_what_the_reflector_knows()
        self.the_copy_is_a_state_that_the_server_had()

    @precondition(lambda self: isinstance(self.reflector.intent, OpenWatch))
    @rule()
    def end(self) -> None:
        """The server ends the watch as agreed."""
        self.reflector.ended(now=self.now)
        self.open_at = None

    @precondition(lambda self: not isinstance(self.reflector.intent, Rest))
    @rule(error=st.sampled_from([UnreachableError("cut"), ServerTroubleError("etcd", status=500)]))
    def trouble(self, error: UnreachableError | ServerTroubleError) -> None:
        """A request fails."""
        self.reflector.failed(error, now=self.now)
        assert isinstance(self.reflector.intent, Rest)
        self.open_at = None

    @precondition(lambda self: not isinstance(self.reflector.intent, Rest))
    @rule(
        garbage=st.sampled_from(
            [b"<html>", b"{}", b'{"type":"ADDED","object":{}}', b'{"type":"ADD', b"\xff\x00", NOT_UTF_8, NESTED]
        )
    )
    def garble(self, garbage: bytes) -> None:
        """Something answers that is no API server."""
        if isinstance(self.reflector.intent, FetchPage):
            self.copy.apply(self.reflector.page(garbage, asked_at=self.now, now=self.now))
        else:
            self.copy.apply(self.reflector.line(garbage, now=self.now))
        assert isinstance(self.reflector.intent, Rest)
        self.open_at = None

    @invariant()
    def the_consumer_knows_what_the_reflector_knows(self) -> None:
        """Changes and copy agree."""
        assert in_short(self.copy.pods) == in_short(self.reflector.objects)

    @invariant()
    def the_copy_is_a_state_that_the_server_had(self) -> None:
        """Nothing of a half list shows, nothing is missed."""
        version = int(self.reflector.resource_version or 0)
        assert in_short(self.reflector.objects) == self.states[version]

    def teardown(self) -> None:
        """Left alone, it catches up within a few steps."""
        self.serve(steps=50, lines=4, back=0, bookmark=True)
        assert in_short(self.copy.pods) == self.store.uids()


AgainstAModel.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestAgainstAModel = AgainstAModel.TestCase
