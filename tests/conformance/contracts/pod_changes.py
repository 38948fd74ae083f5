"""Pods that are written again on any API server: what a write may touch, of spec, status, gates and place."""

from __future__ import annotations

import pytest

from conformance.contracts.space import GATE, Space, pod
from support.http_api import JSON_PATCH, Json


def affinity_to(*values: str, key: str = "zone") -> Json:
    """Spell a required node affinity."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


class PodChangesContract:
    """What may change."""

    def test_status_and_spec_are_apart(self, space: Space) -> None:
        """A creator and a writer of the spec can't set the status; a writer of the status can't set the spec."""
        body = {**pod("one"), "status": {"phase": "Running"}}
        assert space.api.post(space.pods, body).ok()["status"]["phase"] == "Pending"
        path = f"{space.pods}/one"
        space.api.patch(path, {"status": {"phase": "Running"}}).ok()
        assert space.api.get(path).ok()["status"]["phase"] == "Pending"
        change = {"status": {"phase": "Running"}, "spec": {"containers": [{"name": "main", "image": "none:2"}]}}
        space.api.patch(f"{path}/status", change, kind="application/strategic-merge-patch+json").ok()
        after = space.api.get(path).ok()
        assert after["status"]["phase"] == "Running"
        assert after["spec"]["containers"][0]["image"] == "none:1"

    def test_a_put_of_the_status(self, space: Space) -> None:
        """PUT of the status replaces the status alone, and keeps to the version."""
        created = space.create_pod("one")
        path = f"{space.pods}/one/status"
        put = space.api.put(path, {**created, "spec": {"containers": []}, "status": {"phase": "Running"}}).ok()
        stale = space.api.put(path, {**created, "status": {"phase": "Failed"}})
        assert (put["status"]["phase"], put["spec"]) == ("Running", created["spec"])
        assert (stale.code, stale.reason) == (409, "Conflict")

    def test_the_status_keeps_metadata_edits(self, space: Space) -> None:
        """Annotations written through the status are kept; owners are not."""
        space.create_pod("one", labels={"a": "1"})
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
        change = {"metadata": {"annotations": {"note": "kept"}, "ownerReferences": [owner]}}
        space.api.patch(f"{space.pods}/one/status", change).ok()
        metadata = space.api.get(f"{space.pods}/one").ok()["metadata"]
        assert (metadata["annotations"], metadata["labels"]) == ({"note": "kept"}, {"a": "1"})
        assert "ownerReferences" not in metadata

    def test_generation_counts_specs(self, space: Space) -> None:
        """A change of the spec raises the generation, of labels or status not."""
        space.create_pod("one")
        path = f"{space.pods}/one"
        space.api.patch(path, {"metadata": {"labels": {"a": "1"}}}).ok()
        space.api.patch(f"{path}/status", {"status": {"phase": "Running"}}).ok()
        assert space.api.get(path).ok()["metadata"]["generation"] == 1
        image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "none:2"}]
        assert space.api.patch(path, image, kind=JSON_PATCH).ok()["metadata"]["generation"] == 2

    @pytest.mark.parametrize(
        "operation",
        [
            {"op": "replace", "path": "/spec/containers/0/name", "value": "other"},
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "more", "image": "none:1"}},
            {"op": "add", "path": "/spec/containers/0/command", "value": ["x"]},
            {"op": "add", "path": "/spec/containers/0/resources", "value": {"limits": {"cpu": "1"}}},
            {"op": "add", "path": "/spec/nodeName", "value": "here"},
            {"op": "add", "path": "/spec/nodeSelector", "value": {"a": "b"}},
            {"op": "add", "path": "/spec/schedulingGates", "value": GATE},
            {"op": "add", "path": "/spec/affinity", "value": affinity_to("a")},
            {"op": "replace", "path": "/spec/priority", "value": 5},
            {"op": "remove", "path": "/spec/tolerations/0"},
        ],
    )
    def test_what_a_pod_keeps_for_life(self, space: Space, operation: Json) -> None:
        """The spec of a pod hardly changes."""
        space.create_pod("one", tolerations=[{"key": "own", "operator": "Exists"}])
        reply = space.api.patch(f"{space.pods}/one", [operation], kind=JSON_PATCH)
        assert (reply.code, reply.reason) == (422, "Invalid")

    def test_what_may_change(self, space: Space) -> None:
        """Images, the deadline, and more tolerations."""
        space.create_pod("one")
        path = f"{space.pods}/one"
        operations = [
            {"op": "replace", "path": "/spec/containers/0/image", "value": "none:2"},
            {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 100},
            {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "x", "operator": "Exists"}},
        ]
        assert space.api.patch(path, operations, kind=JSON_PATCH).code == 200
        longer = [{"op": "replace", "path": "/spec/activeDeadlineSeconds", "value": 200}]
        assert space.api.patch(path, longer, kind=JSON_PATCH).code == 422

    def test_gates_are_only_taken_away(self, space: Space) -> None:
        """A gated pod waits; its gates can be lifted, and never put back."""
        created = space.create_pod("one", schedulingGates=GATE)
        path = f"{space.pods}/one"
        (condition,) = created["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "SchedulingGated",
        )
        bound = space.api.post(f"{path}/binding", {"metadata": {"name": "one"}, "target": {"name": "n"}})
        assert (bound.code, bound.reason) == (409, "Conflict")
        lifted = space.api.patch(path, {"spec": {"schedulingGates": None}}).ok()
        assert "schedulingGates" not in lifted["spec"]
        assert space.api.patch(path, {"spec": {"schedulingGates": GATE}}).code == 422

    def test_a_gated_pods_place_is_only_narrowed(self, space: Space) -> None:
        """While a pod is gated its node selector and affinity may grow, and not shrink."""
        space.create_pod("one", schedulingGates=GATE, nodeSelector={"a": "b"}, affinity=affinity_to("x", "y"))
        path = f"{space.pods}/one"
        assert space.api.patch(path, {"spec": {"nodeSelector": {"c": "d"}}}).code == 200
        assert space.api.patch(path, {"spec": {"nodeSelector": {"a": None}}}).code == 422
        term = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0"
        field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
        narrower = [{"op": "add", "path": f"{term}/matchFields", "value": [field]}]
        wider = [{"op": "remove", "path": f"{term}/matchExpressions"}]
        assert space.api.patch(path, narrower, kind=JSON_PATCH).code == 200
        assert space.api.patch(path, wider, kind=JSON_PATCH).code == 422
