"""Pods on any API server: defaults, what a write may touch, binding, eviction, deletion in two steps."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.contracts.space import Space, pod
from support.http_api import JSON_PATCH, Json

GATE = [{"name": "aliquot.dev/queue"}]


def resources(**parts: Json) -> Json:
    """Spell a container's resources."""
    return {"resources": parts}


def affinity_to(*values: str, key: str = "zone") -> Json:
    """Spell a required node affinity."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


class PodsContract:
    """The life of a pod, as the API server sees it."""

    def test_defaults(self, space: Space) -> None:
        """What a pod leaves out is filled in."""
        created = space.create_pod("one", container=resources(limits={"cpu": "2"}))
        spec, container = created["spec"], created["spec"]["containers"][0]
        expected = {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "nobody",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "enableServiceLinks": True,
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        assert {key: spec.get(key) for key in expected} == expected
        assert {one["key"] for one in spec["tolerations"]} == {
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
        }
        assert container["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}
        assert container["imagePullPolicy"] == "IfNotPresent"
        assert container["terminationMessagePath"] == "/dev/termination-log"
        assert container["terminationMessagePolicy"] == "File"
        assert created["status"]["phase"] == "Pending"
        assert created["metadata"]["generation"] == 1

    @pytest.mark.parametrize(
        ("written", "read"),
        [
            ("8000", "8k"),
            (8000, "8k"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1e3"),
            ("12345", "12345"),
            ("0", "0"),
            ("1000000Ki", "1000000Ki"),
            ("1Gi", "1Gi"),
            ("1000Mi", "1000Mi"),
            ("0.1m", "1m"),
            ("1.0000000001", "1001m"),
            ("1.5e3", "1500"),
            ("100000e3", "100e6"),
            ("1E3", "1E3"),
            ("500Mi", "500Mi"),
            ("100Ki", "100Ki"),
            ("0.5Ki", "512"),
            ("2000000", "2M"),
        ],
    )
    def test_quantities_have_one_form(self, space: Space, written: Any, read: str) -> None:
        """A quantity is read back in its one form, whatever way it was written."""
        created = space.create_pod("one", container=resources(requests={"memory": written}))
        assert created["spec"]["containers"][0]["resources"]["requests"]["memory"] == read

    @pytest.mark.parametrize(
        ("container", "quality"),
        [
            ({}, "BestEffort"),
            (resources(requests={"cpu": "1"}), "Burstable"),
            (resources(limits={"cpu": "1", "memory": "1Gi"}), "Guaranteed"),
            (resources(limits={"cpu": "1", "memory": "1Gi"}, requests={"cpu": "500m"}), "Burstable"),
            (resources(limits={"aliquot.dev/compute": "5"}), "BestEffort"),
        ],
    )
    def test_quality_of_service(self, space: Space, container: Json, quality: str) -> None:
        """The class of a pod follows from its CPU and memory."""
        assert space.create_pod("one", container=container)["status"]["qosClass"] == quality

    @pytest.mark.parametrize(
        ("container", "spec", "field"),
        [
            ({"name": "Upper"}, {}, "spec.containers[0].name"),
            ({"name": ""}, {}, "spec.containers[0].name"),
            ({"image": ""}, {}, "spec.containers[0].image"),
            (resources(limits={"cpu": "much"}), {}, None),
            (resources(limits={"cpu": "-1"}), {}, "spec.containers[0].resources.limits[cpu]"),
            (resources(limits={"unknown": "1"}), {}, "spec.containers[0].resources.limits[unknown]"),
            (
                resources(limits={"cpu": "1"}, requests={"cpu": "2"}),
                {},
                "spec.containers[0].resources.requests",
            ),
            (
                resources(limits={"aliquot.dev/compute": "2"}, requests={"aliquot.dev/compute": "1"}),
                {},
                "spec.containers[0].resources.requests",
            ),
            (
                resources(requests={"aliquot.dev/compute": "1"}),
                {},
                "spec.containers[0].resources.limits",
            ),
            (
                resources(limits={"aliquot.dev/compute": "1500m"}),
                {},
                "spec.containers[0].resources.limits[aliquot.dev/compute]",
            ),
            ({"volumeMounts": [{"name": "none", "mountPath": "/x"}]}, {}, "spec.containers[0].volumeMounts[0].name"),
            ({}, {"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
            ({}, {"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds"),
            ({}, {"nodeName": "one", "schedulingGates": GATE}, "spec.nodeName"),
            ({}, {"schedulingGates": [{"name": "a b"}]}, "spec.schedulingGates[0]"),
            ({}, {"nodeSelector": {"a": "not valid"}}, "spec.nodeSelector"),
            ({}, {"initContainers": [{"name": "main", "image": "i"}]}, "spec.initContainers[0].name"),
            (
                {},
                {"initContainers": [{"name": "side", "image": "i", "restartPolicy": "Sometimes"}]},
                "spec.initContainers[0].restartPolicy",
            ),
            ({}, {"volumes": [{"name": "v"}, {"name": "v"}]}, "spec.volumes[1].name"),
            (
                {},
                {"resources": {"limits": {"aliquot.dev/compute": "50"}}},
                "spec.resources.limits[aliquot.dev/compute]",
            ),
            (
                {},
                {"resources": {"requests": {"aliquot.dev/memory": "1000"}}},
                "spec.resources.requests[aliquot.dev/memory]",
            ),
            ({}, {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}, "spec.resources.requests"),
            (
                resources(requests={"cpu": "2"}),
                {"resources": {"requests": {"cpu": "1"}}},
                "spec.resources.requests[cpu]",
            ),
        ],
    )
    def test_bad_specs_are_named(self, space: Space, container: Json, spec: Json, field: str | None) -> None:
        """A pod that can't be is refused with the field that is wrong; what is no quantity can't even be read."""
        reply = space.api.post(space.pods, pod("one", container=container, **spec))
        if field is None:
            assert (reply.code, reply.reason) == (400, "BadRequest")
        else:
            assert (reply.code, reply.reason) == (422, "Invalid")
            assert field in reply.fields

    @pytest.mark.parametrize(
        ("container", "of_all", "requests"),
        [
            ({}, {"limits": {"cpu": "2"}}, {"cpu": "2"}),
            (resources(requests={"cpu": "500m"}), {"limits": {"cpu": "2"}}, {"cpu": "500m"}),
            (resources(requests={"memory": "1Gi"}), {"limits": {"cpu": "2"}}, {"cpu": "2", "memory": "1Gi"}),
            (resources(requests={"cpu": "1"}), {"requests": {"cpu": "3"}}, {"cpu": "3"}),
        ],
    )
    def test_what_a_pod_asks_for_all_its_containers(
        self, space: Space, container: Json, of_all: Json, requests: Json
    ) -> None:
        """A limit without a request asks for what the containers ask, or for itself where they ask nothing."""
        created = space.create_pod("one", container=container, resources=of_all)
        assert created["spec"]["resources"]["requests"] == requests

    def test_a_pod_needs_containers(self, space: Space) -> None:
        """A pod without containers is none."""
        reply = space.api.post(space.pods, {"metadata": {"name": "one"}, "spec": {"containers": []}})
        assert (reply.code, reply.fields) == (422, {"spec.containers"})

    def test_an_unknown_priority_class(self, space: Space) -> None:
        """A pod can't have a priority that nobody defined, nor make one up."""
        unknown = space.api.post(space.pods, pod("one", priorityClassName="none-such"))
        made_up = space.api.post(space.pods, pod("one", priority=7))
        assert (unknown.code, unknown.reason) == (403, "Forbidden")
        assert (made_up.code, made_up.reason) == (403, "Forbidden")

    def test_a_priority_class(self, space: Space) -> None:
        """A pod takes the value and the policy of its class."""
        name = f"high-{space.name}"
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        space.api.post(path, {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"}).ok()
        created = space.create_pod("one", priorityClassName=name)
        changed = space.api.patch(f"{path}/{name}", {"value": 2000})
        space.api.delete(f"{path}/{name}").ok()
        assert (created["spec"]["priority"], created["spec"]["preemptionPolicy"]) == (1000, "Never")
        assert changed.code == 422

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

    def test_a_deleted_pod_is_not_bound(self, space: Space) -> None:
        """A pod that is going is given no node."""
        body = pod("one")
        body["metadata"]["finalizers"] = ["aliquot.dev/test"]
        space.api.post(space.pods, body).ok()
        space.api.delete(f"{space.pods}/one").ok()
        reply = space.api.post(f"{space.pods}/one/binding", {"metadata": {"name": "one"}, "target": {"name": "n"}})
        space.api.patch(f"{space.pods}/one", {"metadata": {"finalizers": None}}).ok()
        assert (reply.code, reply.reason) == (409, "Conflict")

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
