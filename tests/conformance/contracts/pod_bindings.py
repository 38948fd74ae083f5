"""Pods that are bound on any API server: once, by one write, and by nobody who means another pod."""

from __future__ import annotations

import pytest

from conformance.contracts.space import Space, pod


class PodBindingsContract:
    """How a node is given."""

    def test_a_binding_carries_metadata(self, space: Space) -> None:
        """One write gives the pod its node, and the binding's annotations and labels over its own."""
        created = space.create_pod("one", labels={"a": "old", "b": "kept"})
        annotations, labels = {"aliquot.dev/grant": "{}"}, {"a": "new", "c": "more"}
        body = {"metadata": {"name": "one", "annotations": annotations, "labels": labels}}
        with space.api.watch(space.pods, resourceVersion=created["metadata"]["resourceVersion"]) as watch:
            reply = space.api.post(f"{space.pods}/one/binding", {**body, "target": {"kind": "Node", "name": "n"}})
            event = watch.next()
        assert (reply.code, reply.body["status"]) == (201, "Success")
        bound = event["object"]
        assert (bound["spec"]["nodeName"], bound["metadata"]["generation"]) == ("n", 1)
        assert bound["metadata"]["annotations"] == annotations
        assert bound["metadata"]["labels"] == {"a": "new", "b": "kept", "c": "more"}
        condition = next(one for one in bound["status"]["conditions"] if one["type"] == "PodScheduled")
        assert condition["status"] == "True"
        assert bound == space.api.get(f"{space.pods}/one").ok()

    def test_a_pod_is_bound_once(self, space: Space) -> None:
        """A second binding is a conflict and leaves no trace."""
        space.create_pod("one")
        space.bind("one", "first", annotations={"a": "1"})
        before = space.api.get(f"{space.pods}/one").ok()
        for node in ("first", "second"):
            body = {"metadata": {"name": "one", "annotations": {"a": "2"}}, "target": {"name": node}}
            again = space.api.post(f"{space.pods}/one/binding", body)
            assert (again.code, again.reason) == (409, "Conflict")
        assert space.api.get(f"{space.pods}/one").ok() == before

    @pytest.mark.parametrize("field", ["uid", "resourceVersion"])
    def test_a_binding_keeps_to_its_preconditions(self, space: Space, field: str) -> None:
        """A binding meant for another pod of that name, or for another version of it, is a conflict."""
        created = space.create_pod("one")
        stale = {"uid": "00000000-0000-4000-8000-000000000000", "resourceVersion": "1"}[field]
        path = f"{space.pods}/one/binding"
        refused = space.api.post(path, {"metadata": {"name": "one", field: stale}, "target": {"name": "n"}})
        assert (refused.code, refused.reason) == (409, "Conflict")
        right = {"name": "one", field: created["metadata"][field]}
        assert space.api.post(path, {"metadata": right, "target": {"name": "n"}}).code == 201

    def test_bindings_that_are_none(self, space: Space) -> None:
        """A binding without a node, of another kind of thing, or of another pod is refused."""
        space.create_pod("one")
        path = f"{space.pods}/one/binding"
        nowhere = space.api.post(path, {"metadata": {"name": "one"}, "target": {}})
        no_node = space.api.post(path, {"metadata": {"name": "one"}, "target": {"kind": "Rack", "name": "r"}})
        other = space.api.post(path, {"metadata": {"name": "two"}, "target": {"name": "n"}})
        missing = space.api.post(f"{space.pods}/two/binding", {"metadata": {"name": "two"}, "target": {"name": "n"}})
        # A real server says 500 to the first two; that it refuses is what counts.
        assert nowhere.code in {422, 500}
        assert no_node.code in {422, 500}
        assert (other.code, other.reason) == (400, "BadRequest")
        assert (missing.code, missing.reason) == (404, "NotFound")

    def test_the_older_address_of_bindings(self, space: Space) -> None:
        """The resource `bindings` binds as pods/binding does."""
        space.create_pod("one")
        body = {"metadata": {"name": "one", "annotations": {"a": "1"}}, "target": {"kind": "Node", "name": "n"}}
        assert space.api.post(f"{space.path}/bindings", body).code == 201
        bound = space.api.get(f"{space.pods}/one").ok()
        assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == ("n", {"a": "1"})

    def test_a_deleted_pod_is_not_bound(self, space: Space) -> None:
        """A pod that is going is given no node."""
        body = pod("one")
        body["metadata"]["finalizers"] = ["aliquot.dev/test"]
        space.api.post(space.pods, body).ok()
        space.api.delete(f"{space.pods}/one").ok()
        reply = space.api.post(f"{space.pods}/one/binding", {"metadata": {"name": "one"}, "target": {"name": "n"}})
        space.api.patch(f"{space.pods}/one", {"metadata": {"finalizers": None}}).ok()
        assert (reply.code, reply.reason) == (409, "Conflict")
