"""Patches on any API server, of all kinds."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.contracts.space import Space
from support.http_api import JSON_PATCH, MERGE, STRATEGIC, Json


def config_map(space: Space, **data: str) -> str:
    """Store a config map and give its address."""
    space.api.post(space.config_maps, {"metadata": {"name": "one", "labels": {"a": "1"}}, "data": data}).ok()
    return f"{space.config_maps}/one"


class PatchesContract:
    """What a patch makes of an object."""

    @pytest.mark.parametrize(
        ("operations", "data"),
        [
            ([{"op": "add", "path": "/data/b", "value": "2"}], {"a": "1", "b": "2"}),
            ([{"op": "replace", "path": "/data/a", "value": "2"}], {"a": "2"}),
            ([{"op": "remove", "path": "/data/a"}, {"op": "add", "path": "/data/b", "value": "2"}], {"b": "2"}),
            ([{"op": "copy", "from": "/data/a", "path": "/data/b"}], {"a": "1", "b": "1"}),
            ([{"op": "move", "from": "/data/a", "path": "/data/b"}], {"b": "1"}),
            (
                [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "add", "path": "/data/a", "value": "3"}],
                {"a": "3"},
            ),
            ([{"op": "test", "path": "/metadata/labels/a", "value": "1"}], {"a": "1"}),
        ],
    )
    def test_json_patch(self, space: Space, operations: list[Json], data: Json) -> None:
        """Every operation does what RFC 6902 says."""
        path = config_map(space, a="1")
        assert space.api.patch(path, operations, kind=JSON_PATCH).ok()["data"] == data

    def test_json_patch_escapes(self, space: Space) -> None:
        """A slash in a key is written ~1."""
        path = config_map(space)
        operations = [{"op": "add", "path": "/metadata/labels/aliquot.dev~1x", "value": "y"}]
        labels = space.api.patch(path, operations, kind=JSON_PATCH).ok()["metadata"]["labels"]
        assert labels == {"a": "1", "aliquot.dev/x": "y"}

    @pytest.mark.parametrize(
        "operations",
        [
            [{"op": "test", "path": "/data/a", "value": "2"}],
            [{"op": "add", "path": "/data/b", "value": "2"}, {"op": "test", "path": "/data/a", "value": "9"}],
            [{"op": "remove", "path": "/data/none"}],
            [{"op": "replace", "path": "/none/deep", "value": "x"}],
            [{"op": "explode", "path": "/data"}],
            [{"op": "add", "path": "no pointer", "value": "x"}],
            [{"op": "add", "path": "/none/deep", "value": "x"}],
        ],
    )
    def test_a_patch_that_can_not_be_carried_out(self, space: Space, operations: list[Json]) -> None:
        """A test that fails, or a place that is not there, refuses the whole patch."""
        path = config_map(space, a="1")
        before = space.api.get(path).ok()
        reply = space.api.patch(path, operations, kind=JSON_PATCH)
        assert (reply.code, reply.reason) == (422, "Invalid")
        assert space.api.get(path).ok() == before

    @pytest.mark.parametrize(
        ("kind", "body"),
        [
            (JSON_PATCH, {"data": {}}),
            (JSON_PATCH, b"["),
            (MERGE, b"{"),
            (MERGE, b"[]"),
            (MERGE, {"metadata": {"name": "two"}}),
            (STRATEGIC, b"{"),
        ],
    )
    def test_what_is_no_patch_is_a_bad_request(self, space: Space, kind: str, body: Any) -> None:
        """A patch that can't be read, or that makes another object of it, is refused and changes nothing."""
        path = config_map(space, a="1")
        before = space.api.get(path).ok()
        reply = space.api.patch(path, body, kind=kind)
        assert (reply.code, reply.reason) == (400, "BadRequest")
        assert space.api.get(path).ok() == before

    @pytest.mark.parametrize(
        ("kind", "body", "field"),
        [
            (MERGE, {"data": {"a": 5}}, "patch"),
            (STRATEGIC, {"data": {"a": 5}}, "patch"),
            (JSON_PATCH, [{"op": "replace", "path": "/data", "value": 5}], "patch"),
            (MERGE, {"metadata": 5}, "patch"),
            (MERGE, {"kind": "Secret"}, "patch"),
            (MERGE, {"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}}, "metadata.uid"),
            (MERGE, {"metadata": {"labels": {"a": "not valid"}}}, "metadata.labels"),
        ],
    )
    def test_a_patch_that_makes_no_valid_object(self, space: Space, kind: str, body: Any, field: str) -> None:
        """What would come out must be an object of the kind, and valid."""
        path = config_map(space, a="1")
        before = space.api.get(path).ok()
        reply = space.api.patch(path, body, kind=kind)
        assert (reply.code, reply.reason) == (422, "Invalid")
        assert field in reply.fields
        assert space.api.get(path).ok() == before

    def test_replace_adds_what_is_not_there(self, space: Space) -> None:
        """Unlike the RFC, `replace` of a key that is not there adds it: kube-apiserver has it so."""
        path = config_map(space, a="1")
        operations = [{"op": "replace", "path": "/data/b", "value": "2"}]
        assert space.api.patch(path, operations, kind=JSON_PATCH).ok()["data"] == {"a": "1", "b": "2"}

    def test_what_is_empty_is_left_out(self, space: Space) -> None:
        """Empty maps and lists of metadata are as if they were not there."""
        path = config_map(space, a="1")
        patched = space.api.patch(
            path, {"metadata": {"labels": {"a": None}, "finalizers": []}, "data": {"a": None}}
        ).ok()
        assert {"labels", "finalizers"} & set(patched["metadata"]) == set()
        assert "data" not in patched

    def test_an_unknown_kind_of_patch(self, space: Space) -> None:
        """A content type that is no patch is refused as such."""
        reply = space.api.patch(config_map(space), {}, kind="application/json")
        assert (reply.code, reply.reason) == (415, "UnsupportedMediaType")

    def test_merge_patch(self, space: Space) -> None:
        """Null takes out, objects merge, all else replaces."""
        path = config_map(space, a="1", b="2")
        body = {"metadata": {"labels": {"b": "2"}}, "data": {"a": None, "c": "3"}}
        patched = space.api.patch(path, body).ok()
        assert patched["data"] == {"b": "2", "c": "3"}
        assert patched["metadata"]["labels"] == {"a": "1", "b": "2"}

    def test_a_patch_with_an_old_version(self, space: Space) -> None:
        """A patch that names a version is a conflict when that is not the newest; with the newest it is taken."""
        path = config_map(space, a="1")
        old = space.api.get(path).version
        new = space.api.patch(path, {"data": {"a": "2"}}).version
        refused = space.api.patch(path, {"metadata": {"resourceVersion": old}, "data": {"a": "3"}})
        taken = space.api.patch(path, {"metadata": {"resourceVersion": new}, "data": {"a": "4"}})
        assert (refused.code, refused.reason) == (409, "Conflict")
        assert taken.ok()["data"] == {"a": "4"}

    def test_the_server_keeps_its_metadata(self, space: Space) -> None:
        """What only the server writes is not changed by a patch."""
        path = config_map(space)
        before = space.api.get(path).ok()["metadata"]
        body = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"b": "2"}}}
        after = space.api.patch(path, body).ok()["metadata"]
        assert after["creationTimestamp"] == before["creationTimestamp"]
        assert after["labels"] == {"a": "1", "b": "2"}

    def test_strategic_merge_knows_lists_by_key(self, space: Space) -> None:
        """Containers merge by name: one is changed, none is lost."""
        space.create_pod("one", initContainers=[{"name": "first", "image": "none:1"}])
        path = f"{space.pods}/one"
        body = {"spec": {"containers": [{"name": "main", "image": "none:2"}]}}
        patched = space.api.patch(path, body, kind=STRATEGIC).ok()
        assert [(one["name"], one["image"]) for one in patched["spec"]["containers"]] == [("main", "none:2")]
        assert [one["image"] for one in patched["spec"]["initContainers"]] == ["none:1"]

    def test_strategic_merge_of_conditions(self, space: Space) -> None:
        """Conditions merge by type; a new one is added, an old one deleted by directive."""
        space.create_pod("one")
        path = f"{space.pods}/one/status"
        for body in (
            {"conditions": [{"type": "A", "status": "True"}]},
            {"conditions": [{"type": "B", "status": "False"}]},
            {"conditions": [{"type": "A", "status": "False"}]},
        ):
            space.api.patch(path, {"status": body}, kind=STRATEGIC).ok()
        conditions = space.api.get(path).ok()["status"]["conditions"]
        assert {(one["type"], one["status"]) for one in conditions} == {("A", "False"), ("B", "False")}
        gone = {"status": {"conditions": [{"type": "A", "$patch": "delete"}]}}
        left = space.api.patch(path, gone, kind=STRATEGIC).ok()["status"]["conditions"]
        assert [one["type"] for one in left] == ["B"]

    def test_merge_patch_replaces_lists(self, space: Space) -> None:
        """A merge patch knows no keys: the list in it is the list."""
        space.create_pod("one")
        path = f"{space.pods}/one/status"
        for kind in ("A", "B"):
            space.api.patch(path, {"status": {"conditions": [{"type": kind, "status": "True"}]}}).ok()
        assert [one["type"] for one in space.api.get(path).ok()["status"]["conditions"]] == ["B"]
