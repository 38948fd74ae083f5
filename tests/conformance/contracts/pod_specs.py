"""Pods as they are made on any API server: what is filled in, and what is refused with its field."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.contracts.space import GATE, Space, pod
from support.http_api import Json


def resources(**parts: Json) -> Json:
    """Spell a container's resources."""
    return {"resources": parts}


class PodSpecsContract:
    """What may be made."""

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
