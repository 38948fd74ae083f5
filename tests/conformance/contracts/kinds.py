"""What is particular to nodes, leases, events, config maps and priority classes on any API server."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.contracts.space import Space
from support.http_api import JSON_PATCH, Json

NODES = "/api/v1/nodes"
CAPACITY = "/status/capacity/aliquot.dev~1memory"


def without_servers(labels: Json) -> Json:
    """Give the labels that the test wrote (a cloud or a controller may add its own)."""
    return {key: value for key, value in labels.items() if "kubernetes.io" not in key}


def event_about(space: Space, name: str, **fields: Any) -> Json:
    """Spell an event about a pod."""
    about = {"kind": "Pod", "namespace": space.name, "name": name, "uid": f"uid-of-{name}"}
    return {"metadata": {"generateName": f"{name}."}, "involvedObject": about, "type": "Normal", **fields}


class KindsContract:
    """The edges of the kinds that Aliquot writes."""

    @pytest.fixture
    def node(self, space: Space) -> Any:
        """Give the name for a node, and take the node away afterwards."""
        name = f"node-of-{space.name}"
        yield name
        space.api.delete(f"{NODES}/{name}")

    def test_a_node_registers_with_its_status(self, space: Space, node: str) -> None:
        """What a kubelet says of its node at creation is kept, and all of it is allocatable."""
        status = {"capacity": {"cpu": "2000m", "aliquot.dev/memory": "81920"}}
        body = {"metadata": {"name": node, "labels": {"a": "b"}}, "status": status}
        created = space.api.post(NODES, body).ok()
        expected = {"cpu": "2", "aliquot.dev/memory": "81920"}
        assert (created["status"]["capacity"], created["status"]["allocatable"]) == (expected, expected)
        assert without_servers(created["metadata"]["labels"]) == {"a": "b"}
        assert "namespace" not in created["metadata"]

    def test_a_nodes_capacity_is_written_through_its_status(self, space: Space, node: str) -> None:
        """A JSON patch of the status sets one resource; the same on the node itself does nothing."""
        space.api.post(NODES, {"metadata": {"name": node}, "status": {"capacity": {"cpu": "2"}}}).ok()
        operations = [{"op": "add", "path": CAPACITY, "value": "163840"}]
        space.api.patch(f"{NODES}/{node}", operations, kind=JSON_PATCH).ok()
        assert "aliquot.dev/memory" not in space.api.get(f"{NODES}/{node}").ok()["status"]["capacity"]
        patched = space.api.patch(f"{NODES}/{node}/status", operations, kind=JSON_PATCH).ok()
        assert patched["status"]["capacity"] == {"cpu": "2", "aliquot.dev/memory": "163840"}

    def test_a_nodes_status_and_spec_are_apart(self, space: Space, node: str) -> None:
        """A write to the status leaves the spec, and keeps annotations."""
        space.api.post(NODES, {"metadata": {"name": node}}).ok()
        change = {"spec": {"unschedulable": True}, "metadata": {"annotations": {"aliquot.dev/inventory": "{}"}}}
        patched = space.api.patch(f"{NODES}/{node}/status", change).ok()
        assert "unschedulable" not in patched.get("spec", {})
        assert patched["metadata"]["annotations"]["aliquot.dev/inventory"] == "{}"
        cordoned = space.api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": True}}).ok()
        assert cordoned["spec"]["unschedulable"] is True
        found = space.listed(NODES, fieldSelector=f"spec.unschedulable=true,metadata.name={node}")
        assert [one["metadata"]["name"] for one in found] == [node]

    def test_extended_resources_are_whole(self, space: Space, node: str) -> None:
        """Half a MiB can't be published."""
        reply = space.api.post(
            NODES, {"metadata": {"name": node}, "status": {"capacity": {"aliquot.dev/memory": "0.5"}}}
        )
        assert (reply.code, reply.reason) == (422, "Invalid")
        assert "status.capacity.aliquot.dev/memory" in reply.fields

    def test_a_lease_is_taken_once(self, space: Space) -> None:
        """Of two who take a lease from the same version, one succeeds."""
        created = space.api.post(space.leases, {"metadata": {"name": "one"}}).ok()
        path = f"{space.leases}/one"
        replies = [
            space.api.put(path, {**created, "spec": {"holderIdentity": who, "leaseDurationSeconds": 15}})
            for who in ("first", "second")
        ]
        assert [reply.code for reply in replies] == [200, 409]
        assert space.api.get(path).ok()["spec"]["holderIdentity"] == "first"

    def test_a_lease_keeps_microseconds(self, space: Space) -> None:
        """The instant of a renewal is kept to the microsecond."""
        stamp = "2026-01-02T03:04:05.678901Z"
        body = {"metadata": {"name": "one"}, "spec": {"holderIdentity": "me", "renewTime": stamp}}
        assert space.api.post(space.leases, body).ok()["spec"]["renewTime"] == stamp

    def test_bad_leases(self, space: Space) -> None:
        """A lease of no duration, or whose number is a text, is refused."""
        nothing = space.api.post(space.leases, {"metadata": {"name": "one"}, "spec": {"leaseDurationSeconds": 0}})
        text = space.api.post(space.leases, {"metadata": {"name": "one"}, "spec": {"leaseDurationSeconds": "15"}})
        assert (nothing.code, nothing.fields) == (422, {"spec.leaseDurationSeconds"})
        assert (text.code, text.reason) == (400, "BadRequest")

    def test_events_are_found_by_what_they_are_about(self, space: Space) -> None:
        """Field selectors find the events of one object, as `kubectl describe` asks for them."""
        path = f"{space.path}/events"
        space.api.post(path, event_about(space, "one", reason="Started", message="it runs")).ok()
        space.api.post(path, event_about(space, "two", reason="Failed", type="Warning")).ok()
        for selector, found in (
            ("involvedObject.name=one,involvedObject.kind=Pod", ["one"]),
            (f"involvedObject.uid=uid-of-two,involvedObject.namespace={space.name}", ["two"]),
            ("reason=Failed", ["two"]),
            ("type=Warning", ["two"]),
        ):
            items = space.listed(path, fieldSelector=selector)
            assert [one["involvedObject"]["name"] for one in items] == found, selector

    def test_an_event_has_two_forms(self, space: Space) -> None:
        """An event written to one group is read from the other, under its names there."""
        space.api.post(f"{space.path}/events", event_about(space, "one", message="it runs", count=3)).ok()
        newer = f"/apis/events.k8s.io/v1/namespaces/{space.name}/events"
        (event,) = space.listed(newer)
        assert (event["note"], event["regarding"]["name"], event["deprecatedCount"]) == ("it runs", "one", 3)

    def test_an_event_lies_beside_its_object(self, space: Space) -> None:
        """An event about an object of another namespace is refused."""
        body = event_about(space, "one")
        body["involvedObject"]["namespace"] = "elsewhere"
        reply = space.api.post(f"{space.path}/events", body)
        assert (reply.code, reply.reason) == (422, "Invalid")

    def test_a_sealed_config_map(self, space: Space) -> None:
        """An immutable config map keeps its data, and takes labels."""
        space.api.post(space.config_maps, {"metadata": {"name": "one"}, "data": {"a": "1"}, "immutable": True}).ok()
        path = f"{space.config_maps}/one"
        assert space.api.patch(path, {"data": {"a": "2"}}).code == 422
        assert space.api.patch(path, {"immutable": None}).code == 422
        assert space.api.patch(path, {"metadata": {"labels": {"a": "b"}}}).code == 200

    def test_a_quota_has_quantities(self, space: Space) -> None:
        """The amounts of a quota are brought into their one form; what is none is refused."""
        path = f"{space.path}/resourcequotas"
        hard = {"requests.aliquot.dev/memory": "8000", "pods": "10"}
        created = space.api.post(path, {"metadata": {"name": "one"}, "spec": {"hard": hard}}).ok()
        refused = space.api.post(path, {"metadata": {"name": "two"}, "spec": {"hard": {"pods": "many"}}})
        assert created["spec"]["hard"] == {"requests.aliquot.dev/memory": "8k", "pods": "10"}
        assert (refused.code, refused.reason) == (400, "BadRequest")

    def test_system_classes_are_there(self, space: Space) -> None:
        """The two priority classes of the system exist from the start; users' classes stay below them."""
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        assert space.api.get(f"{path}/system-node-critical").ok()["value"] == 2_000_001_000
        reply = space.api.post(path, {"metadata": {"name": f"huge-{space.name}"}, "value": 1_500_000_000})
        assert (reply.code, reply.reason) == (422, "Invalid")
