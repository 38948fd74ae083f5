"""Watches on any API server: nothing missed, nothing twice, and an honest end."""

from __future__ import annotations

import pytest

from conformance.contracts.space import Space
from support.http_api import Json


def told(events: list[Json]) -> list[tuple[str, str]]:
    """Give what happened, in short."""
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def create(space: Space, name: str, **labels: str) -> Json:
    """Store a lease: nothing else makes leases in the test's namespace."""
    return space.api.post(space.leases, {"metadata": {"name": name, "labels": labels}}).ok()


def change(space: Space, name: str, **labels: str | None) -> Json:
    """Change a lease's labels."""
    return space.api.patch(f"{space.leases}/{name}", {"metadata": {"labels": labels}}).ok()


class WatchesContract:
    """What a watcher is told."""

    def test_changes_after_a_list(self, space: Space) -> None:
        """A watch from a list's version tells all later changes, in order, under growing versions."""
        create(space, "before")
        start = space.api.get(space.leases).version
        create(space, "one")
        changed = change(space, "one", a="b")
        space.api.delete(f"{space.leases}/one").ok()
        with space.api.watch(space.leases, resourceVersion=start) as watch:
            events = [watch.next() for _ in range(3)]
            create(space, "late")
            events.append(watch.next())
        assert told(events) == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one"), ("ADDED", "late")]
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert versions == sorted(set(versions))
        assert versions[1] == int(changed["metadata"]["resourceVersion"])
        assert versions[2] > versions[1]
        assert {event["object"]["kind"] for event in events} == {"Lease"}
        assert events[2]["object"]["metadata"]["labels"] == {"a": "b"}

    @pytest.mark.parametrize("version", ["", "0"])
    def test_a_watch_without_a_version(self, space: Space, version: str) -> None:
        """It begins with what is there, as if it were added just now."""
        create(space, "one")
        create(space, "two")
        query = {"resourceVersion": version} if version else {}
        with space.api.watch(space.leases, **query) as watch:
            events = [watch.next() for _ in range(2)]
            create(space, "three")
            events.append(watch.next())
        assert sorted(told(events)) == [("ADDED", "one"), ("ADDED", "three"), ("ADDED", "two")]

    def test_a_selection_is_left_and_entered(self, space: Space) -> None:
        """For a watcher with a selector, leaving it is a deletion and entering it an addition."""
        start = space.api.get(space.leases).version
        create(space, "one", on="yes")
        change(space, "one", more="yes")
        left = change(space, "one", on="no")
        change(space, "one", on="no", more="no")
        change(space, "one", on="yes")
        create(space, "other")
        space.api.delete(f"{space.leases}/one").ok()
        with space.api.watch(space.leases, resourceVersion=start, labelSelector="on=yes") as watch:
            events = [watch.next() for _ in range(5)]
        kinds = ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
        assert told(events) == [(kind, "one") for kind in kinds]
        # It is shown as it last was inside, under the version at which it left.
        assert events[2]["object"]["metadata"]["labels"] == {"on": "yes", "more": "yes"}
        assert events[2]["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]

    def test_a_binding_enters_the_nodes_selection(self, space: Space) -> None:
        """A watcher of one node's pods is told of a pod when it is bound there."""
        start = space.api.get(space.pods).version
        space.create_pod("one")
        space.bind("one", "node-w", annotations={"grant": "x"})
        with space.api.watch(space.pods, resourceVersion=start, fieldSelector="spec.nodeName=node-w") as watch:
            event = watch.next()
        assert told([event]) == [("ADDED", "one")]
        assert event["object"]["metadata"]["annotations"]["grant"] == "x"

    def test_one_object(self, space: Space) -> None:
        """A watch by name tells of that object alone."""
        start = space.api.get(space.leases).version
        create(space, "other")
        create(space, "one")
        with space.api.watch(space.leases, resourceVersion=start, fieldSelector="metadata.name=one") as watch:
            assert told([watch.next()]) == [("ADDED", "one")]

    def test_initial_events_end_with_a_bookmark(self, space: Space) -> None:
        """A watch that lists too marks where the list ends."""
        create(space, "one")
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
        with space.api.watch(space.leases, **query) as watch:
            events = watch.until(lambda event: event["type"] == "BOOKMARK")
            create(space, "two")
            after = watch.next()
        assert told(events) == [("ADDED", "one"), ("BOOKMARK", "")]
        assert events[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert events[-1]["object"]["kind"] == "Lease"
        assert told([after]) == [("ADDED", "two")]

    def test_a_watch_ends_in_time(self, space: Space) -> None:
        """A watch ends when its time is over, quietly; bookmarks may come, and never lie behind."""
        create(space, "one")
        start = space.api.get(space.leases).version
        query = {"resourceVersion": start, "timeoutSeconds": "3", "allowWatchBookmarks": "true"}
        with space.api.watch(space.leases, **query) as watch:
            events = watch.rest()
        assert {event["type"] for event in events} <= {"BOOKMARK"}
        assert all(int(event["object"]["metadata"]["resourceVersion"]) >= int(start) for event in events)

    def test_without_leave_no_bookmarks(self, space: Space) -> None:
        """A watcher that did not ask for bookmarks gets none."""
        start = space.api.get(space.leases).version
        with space.api.watch(space.leases, resourceVersion=start, timeoutSeconds="2") as watch:
            assert watch.rest() == []

    def test_a_selection_that_can_not_be_read(self, space: Space) -> None:
        """A watch with a bad selector is refused before it begins."""
        reply = space.api.get(space.leases, watch="true", labelSelector="a b")
        assert (reply.code, reply.reason) == (400, "BadRequest")

    @pytest.mark.parametrize(
        "query", [{"sendInitialEvents": "true"}, {"resourceVersionMatch": "NotOlderThan"}], ids=["no match", "no list"]
    )
    def test_initial_events_need_a_match(self, space: Space, query: dict[str, str]) -> None:
        """SendInitialEvents and resourceVersionMatch come together or not at all."""
        reply = space.api.get(space.leases, watch="true", allowWatchBookmarks="true", **query)
        assert (reply.code, reply.reason, reply.fields) == (422, "Invalid", {"resourceVersionMatch"})
