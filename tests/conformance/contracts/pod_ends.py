"""Pods that go on any API server: at once, in two steps, or evicted."""

from __future__ import annotations

from conformance.contracts.space import Space


class PodEndsContract:
    """How a pod goes."""

    def test_a_pod_without_a_node_goes_at_once(self, space: Space) -> None:
        """Nobody has to end it; the answer is the pod."""
        space.create_pod("one")
        gone = space.api.delete(f"{space.pods}/one")
        assert (gone.code, gone.body["kind"]) == (200, "Pod")
        assert space.api.get(f"{space.pods}/one").code == 404

    def test_a_pod_on_a_node_goes_in_two_steps(self, space: Space) -> None:
        """It is marked, with its grace; a shorter grace shortens; the kubelet's deletion without grace removes it."""
        space.create_pod("one")
        space.bind("one")
        path = f"{space.pods}/one"
        start = space.api.get(path).version
        marked = space.api.delete(path).ok()["metadata"]
        assert (marked["deletionGracePeriodSeconds"], marked["generation"] > 1) == (30, True)
        longer = space.api.delete(path, {"gracePeriodSeconds": 60}).ok()["metadata"]
        assert longer["deletionTimestamp"] == marked["deletionTimestamp"]
        shorter = space.api.delete(path, {"gracePeriodSeconds": 5}).ok()["metadata"]
        assert shorter["deletionGracePeriodSeconds"] == 5
        assert shorter["deletionTimestamp"] < marked["deletionTimestamp"]
        space.api.patch(f"{path}/status", {"status": {"phase": "Failed"}}).ok()
        assert space.api.delete(path, {"gracePeriodSeconds": 0}).code == 200
        assert space.api.get(path).code == 404
        with space.api.watch(space.pods, resourceVersion=start) as watch:
            events = watch.until(lambda event: event["type"] == "DELETED")
        assert [event["type"] for event in events] == ["MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]
        assert events[-2]["object"]["metadata"]["deletionGracePeriodSeconds"] == 0

    def test_one_that_leaves_for_long_is_hurried_by_an_eviction(self, space: Space) -> None:
        """Its time counts from when it was asked first."""
        space.create_pod("one")
        space.bind("one")
        path = f"{space.pods}/one"
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}
        assert space.api.delete(path, {"gracePeriodSeconds": 86_400}).code == 200
        start = space.api.get(path).body["metadata"]["deletionTimestamp"]
        hurried = {**eviction, "deleteOptions": {"gracePeriodSeconds": 60}}
        assert space.api.post(f"{path}/eviction", hurried).code in {200, 201}
        marked = space.api.get(path).body["metadata"]
        assert marked["deletionGracePeriodSeconds"] == 60
        assert marked["deletionTimestamp"] < start

    def test_a_pod_that_ended_goes_at_once(self, space: Space) -> None:
        """A pod that ran to its end needs no grace."""
        space.create_pod("one")
        space.bind("one")
        space.api.patch(f"{space.pods}/one/status", {"status": {"phase": "Succeeded"}}).ok()
        space.api.delete(f"{space.pods}/one").ok()
        assert space.api.get(f"{space.pods}/one").code == 404

    def test_eviction(self, space: Space) -> None:
        """An evicted pod says so in a condition, and goes with its grace."""
        space.create_pod("one")
        space.bind("one")
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}
        reply = space.api.post(f"{space.pods}/one/eviction", body)
        evicted = space.api.get(f"{space.pods}/one").ok()
        assert (reply.code, reply.body["status"]) == (201, "Success")
        assert evicted["metadata"]["deletionTimestamp"]
        condition = next(one for one in evicted["status"]["conditions"] if one["type"] == "DisruptionTarget")
        assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
        missing = space.api.post(f"{space.pods}/two/eviction", {**body, "metadata": {"name": "two"}})
        assert missing.code == 404

    def test_an_eviction_keeps_to_its_preconditions(self, space: Space) -> None:
        """An eviction meant for another pod of that name is a conflict."""
        space.create_pod("one")
        options = {"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}, "deleteOptions": options}
        reply = space.api.post(f"{space.pods}/one/eviction", body)
        assert (reply.code, reply.reason) == (409, "Conflict")
        assert "deletionTimestamp" not in space.api.get(f"{space.pods}/one").ok()["metadata"]
