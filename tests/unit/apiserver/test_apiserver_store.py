"""The store against a model: versions, history, snapshots of the past, watches, compaction."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from aliquot_standalone.apiserver.failures import ApiError
from aliquot_standalone.apiserver.store import Revision, Store
from aliquot_standalone.apiserver.watching import Watch

KEYS = st.sampled_from(["a/x", "a/y", "a-b/x", "b/x", "b/y"])
COLOURS = st.sampled_from(["red", "blue", "green"])
# So short that history is cut within an example.
KEEP = 4
TABLE = "things"

State = dict[str, tuple[int, str]]


class Watcher:
    """A client that began with a list, and believes only what it is told after it."""

    def __init__(self, *, store: Store, prefix: str, colour: str | None) -> None:
        self.prefix = prefix
        self.colour = colour
        self.told: State = {}
        self.last = store.version
        for one in store.snapshot(TABLE, prefix=prefix):
            if self.matches(one):
                self.told[one.key] = (one.version, one.labels["colour"])
        self.watch = Watch(store=store, table=TABLE, prefix=prefix, matches=self.matches, after=store.version)

    def matches(self, revision: Revision) -> bool:
        """Tell whether an object is of this watcher's colour."""
        return self.colour in {None, revision.labels["colour"]}

    def take(self, limit: int) -> None:
        """Believe some changes, and refuse those that can't be."""
        for notice in self.watch.take(limit=limit):
            one = notice.revision
            assert one.key.startswith(self.prefix)
            assert notice.version > self.last
            assert one.version == notice.version
            assert one.decode()["metadata"]["resourceVersion"] == str(notice.version)
            self.last = notice.version
            assert (one.key in self.told) == (notice.type != "ADDED")
            if notice.type == "DELETED":
                del self.told[one.key]
            else:
                self.told[one.key] = (one.version, one.labels["colour"])


class StoreAgainstAModel(RuleBasedStateMachine):
    """Any order of writes, reads of the past, watches and compactions agrees with a dict of states by version."""

    watchers: Bundle[Watcher] = Bundle("watchers")

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(keep=KEEP)
        self.now: State = {}
        self.states: dict[int, State] = {0: {}}

    def _remember(self) -> None:
        self.states[self.store.version] = dict(self.now)

    @rule(key=KEYS, colour=COLOURS)
    def write(self, key: str, colour: str) -> None:
        """Create or change an object."""
        obj: dict[str, Any] = {"metadata": {"name": key, "labels": {"colour": colour}}}
        before = self.store.version
        revision = self.store.put(TABLE, key, obj, fields={})
        assert revision.version == self.store.version == before + 1
        self.now[key] = (revision.version, colour)
        self._remember()

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        """Delete an object, if it is there."""
        stored = self.store.get(TABLE, key)
        assert (stored is not None) == (key in self.now)
        if stored is not None:
            self.store.remove(TABLE, key, stored.decode(), fields={})
            del self.now[key]
            self._remember()

    @rule(key=KEYS)
    def write_elsewhere(self, key: str) -> None:
        """Move the counter on by another table."""
        self.store.put("others", key, {"metadata": {"name": key}}, fields={})
        self._remember()

    @rule(back=st.integers(0, 3))
    def compact(self, back: int) -> None:
        """Forget history."""
        self.store.compact(max(0, self.store.version - back))

    @rule(target=watchers, prefix=st.sampled_from(["", "a/", "b/"]), colour=st.none() | COLOURS)
    def list_and_watch(self, prefix: str, colour: str | None) -> Watcher:
        """Begin a watch with a list."""
        return Watcher(store=self.store, prefix=prefix, colour=colour)

    @rule(target=watchers, watcher=consumes(watchers), limit=st.integers(1, 3))
    def deliver(self, watcher: Watcher, limit: int) -> Any:
        """Let a watcher take some changes; it ends when history has passed it."""
        if self._is_late(watcher):
            with pytest.raises(ApiError, match="too old"):
                watcher.take(limit)
            return multiple()
        watcher.take(limit)
        return watcher

    def _is_late(self, watcher: Watcher) -> bool:
        return watcher.watch.behind and watcher.watch.version < self.store.table(TABLE).compacted

    @rule(watcher=watchers)
    def catch_up(self, watcher: Watcher) -> None:
        """Let a watcher take all there is: then it knows what a list would show."""
        if self._is_late(watcher):
            return
        while watcher.watch.behind:
            watcher.take(2)
        expected = {
            key: value
            for key, value in self.now.items()
            if key.startswith(watcher.prefix) and watcher.colour in {None, value[1]}
        }
        assert watcher.told == expected
        assert watcher.watch.caught_up() == self.store.version

    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        """See any earlier state, as long as the changes since are kept."""
        version = data.draw(st.sampled_from(sorted(self.states)))
        if version < self.store.table(TABLE).compacted:
            with pytest.raises(ApiError, match="too old"):
                self.store.snapshot(TABLE, version=version)
            return
        found = self.store.snapshot(TABLE, version=version)
        assert {one.key: (one.version, one.labels["colour"]) for one in found} == self.states[version]
        assert [one.key for one in found] == sorted(self.states[version])

    @invariant()
    def the_present_agrees(self) -> None:
        """What is there now is what the model has."""
        found = self.store.snapshot(TABLE)
        assert [one.key for one in found] == sorted(self.now)
        assert {one.key: (one.version, one.labels["colour"]) for one in found} == self.now

    @invariant()
    def history_is_bounded(self) -> None:
        """However much happens, history stays short."""
        assert len(self.store.table(TABLE).changes) <= 2 * KEEP


TestStoreAgainstAModel = StoreAgainstAModel.TestCase
TestStoreAgainstAModel.settings = settings(max_examples=60, stateful_step_count=40)


def thing(name: str) -> dict[str, Any]:
    """Spell an object."""
    return {"metadata": {"name": name, "labels": {"colour": "red"}}}


def test_what_is_stored_can_not_be_changed() -> None:
    """Neither the writer's dict nor a reader's copy is what the store keeps."""
    store = Store()
    written = thing("one")
    store.put(TABLE, "one", written, fields={})
    written["metadata"]["labels"]["colour"] = "blue"
    read = store.snapshot(TABLE)[0].decode()
    read["metadata"]["labels"]["colour"] = "green"
    kept = store.snapshot(TABLE)[0]
    assert (kept.labels, kept.decode()["metadata"]["labels"]) == ({"colour": "red"}, {"colour": "red"})


def test_listeners_hear_each_write_after_it() -> None:
    """A listener is told of a write when readers can see it."""
    store = Store()
    heard: list[tuple[str, str, bool]] = []
    store.subscribe(lambda table, change: heard.append((table, change.type, store.get(table, "one") is not None)))
    store.put(TABLE, "one", thing("one"), fields={})
    store.put(TABLE, "one", thing("one"), fields={})
    store.remove(TABLE, "one", thing("one"), fields={})
    assert heard == [(TABLE, "ADDED", True), (TABLE, "MODIFIED", True), (TABLE, "DELETED", False)]


def test_a_version_of_the_future_is_refused() -> None:
    """Nobody is shown a state that has not been yet."""
    with pytest.raises(ApiError) as refusal:
        Store().snapshot(TABLE, version=1)
    assert (refusal.value.code, refusal.value.reason) == (504, "Timeout")


def test_a_table_made_after_a_compaction_knows_of_it() -> None:
    """What was compacted before a kind was first used is expired for that kind too."""
    store = Store()
    store.put("others", "one", thing("one"), fields={})
    store.compact(1)
    with pytest.raises(ApiError, match="too old"):
        store.table(TABLE).since(0)
