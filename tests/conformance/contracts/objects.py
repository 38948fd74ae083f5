"""What holds of any object on any API server: identity, versions, refusals, deletion."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.contracts.space import Space
from support.http_api import HttpApi


def config_map(name: str, **data: str) -> dict[str, Any]:
    """Spell the plainest of objects."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


class ObjectsContract:
    """Creation, replacement and deletion."""

    def test_creation_gives_identity(self, space: Space) -> None:
        """A new object has a uid, an instant, a version, and the namespace of the address."""
        reply = space.api.post(space.config_maps, config_map("one", a="1"))
        metadata = reply.ok()["metadata"]
        assert reply.code == 201
        assert (metadata["name"], metadata["namespace"]) == ("one", space.name)
        assert metadata["uid"]
        assert metadata["resourceVersion"].isdecimal()
        assert metadata["creationTimestamp"].endswith("Z")
        assert (reply.body["kind"], reply.body["apiVersion"], reply.body["data"]) == ("ConfigMap", "v1", {"a": "1"})

    def test_reading_gives_what_was_stored(self, space: Space) -> None:
        """GET answers what the creation answered."""
        created = space.api.post(space.config_maps, config_map("one", a="1")).ok()
        assert space.api.get(f"{space.config_maps}/one").ok() == created

    def test_a_name_is_taken_once(self, space: Space) -> None:
        """A second creation under the same name is refused, and says about what."""
        space.api.post(space.config_maps, config_map("one")).ok()
        reply = space.api.post(space.config_maps, config_map("one"))
        assert (reply.code, reply.reason) == (409, "AlreadyExists")
        assert reply.body["details"] == {"name": "one", "kind": "configmaps"}
        assert (reply.body["kind"], reply.body["apiVersion"], reply.body["status"]) == ("Status", "v1", "Failure")
        assert (reply.body["code"], reply.body["metadata"]) == (409, {})

    def test_generated_names_differ(self, space: Space) -> None:
        """GenerateName is completed by five characters, others each time."""
        body = {"metadata": {"generateName": "some-"}}
        names = {space.api.post(space.config_maps, body).ok()["metadata"]["name"] for _ in range(3)}
        assert len(names) == 3
        assert all(name.startswith("some-") and len(name) == 10 for name in names)

    def test_what_is_not_there_is_not_found(self, space: Space) -> None:
        """GET, PUT, PATCH and DELETE of a missing object say so alike."""
        path = f"{space.config_maps}/none"
        replies = [
            space.api.get(path),
            space.api.put(path, config_map("none")),
            space.api.patch(path, {}),
            space.api.delete(path),
        ]
        for reply in replies:
            assert (reply.code, reply.reason) == (404, "NotFound")
            assert reply.body["details"] == {"name": "none", "kind": "configmaps"}
            assert reply.body["message"] == 'configmaps "none" not found'

    def test_refusals_name_the_group(self, space: Space) -> None:
        """About a kind of a named group, the details name the group."""
        reply = space.api.get(f"{space.leases}/none")
        expected = {"name": "none", "group": "coordination.k8s.io", "kind": "leases"}
        assert reply.body["details"] == expected

    def test_a_namespace_must_exist(self, space: Space) -> None:
        """Nothing is created in a namespace that is not there."""
        reply = space.api.post("/api/v1/namespaces/nowhere-at-all/configmaps", config_map("one"))
        assert (reply.code, reply.reason) == (404, "NotFound")
        assert reply.body["details"] == {"name": "nowhere-at-all", "kind": "namespaces"}

    def test_a_new_object_brings_no_version(self, space: Space) -> None:
        """A creation that names a version is refused."""
        body = config_map("one")
        body["metadata"]["resourceVersion"] = "5"
        assert space.api.post(space.config_maps, body).code in {400, 500}
        assert space.api.get(f"{space.config_maps}/one").code == 404

    @pytest.mark.parametrize(
        ("metadata", "field"),
        [
            ({}, "metadata.name"),
            ({"name": "Upper"}, "metadata.name"),
            ({"name": "a" * 254}, "metadata.name"),
            ({"name": "x", "labels": {"a": "not valid"}}, "metadata.labels"),
            ({"name": "x", "labels": {"a/b/c": "v"}}, "metadata.labels"),
            ({"name": "x", "annotations": {"-": "v"}}, "metadata.annotations"),
            ({"name": "x", "annotations": {"a": "v" * 270_000}}, "metadata.annotations"),
        ],
    )
    def test_bad_metadata_is_named(self, space: Space, metadata: dict[str, Any], field: str) -> None:
        """Metadata that breaks a rule is refused with the name of the field."""
        reply = space.api.post(space.config_maps, {"metadata": metadata})
        assert (reply.code, reply.reason) == (422, "Invalid")
        assert reply.fields == {field}
        assert reply.body["details"]["kind"] == "ConfigMap"

    @pytest.mark.parametrize(
        "body",
        [
            b"{",
            b"[]",
            b'"text"',
            b'{"metadata": "x"}',
            b'{"metadata": {"name": 5}}',
            b'{"metadata": {"name": "x", "labels": {"a": 1}}}',
            b'{"metadata": {"name": "x"}, "data": []}',
            b'{"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "x"}}',
            b'{"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "x"}}',
            b'{"metadata": {"name": "x", "namespace": "another"}}',
        ],
    )
    def test_what_is_no_object_is_a_bad_request(self, space: Space, body: bytes) -> None:
        """A body that can't be read as the kind of its address is refused, and nothing is stored."""
        reply = space.api.call("POST", space.config_maps, body)
        assert (reply.code, reply.reason) == (400, "BadRequest")
        assert space.api.get(f"{space.config_maps}/x").code == 404

    def test_null_is_not_there(self, space: Space) -> None:
        """Fields that are null are as if they were left out."""
        body = {"metadata": {"name": "one", "labels": None, "creationTimestamp": None}, "data": None}
        created = space.api.post(space.config_maps, body).ok()
        assert "labels" not in created["metadata"]
        assert "data" not in created

    def test_formats_that_nobody_speaks(self, space: Space) -> None:
        """An unknown format in or out is refused as such."""
        sent = space.api.call("POST", space.config_maps, b"x", content_type="text/plain")
        wanted = space.api.call("GET", space.config_maps, accept="text/plain")
        assert (sent.code, sent.reason) == (415, "UnsupportedMediaType")
        assert (wanted.code, wanted.reason) == (406, "NotAcceptable")

    def test_addresses_and_methods_that_are_none(self, space: Space) -> None:
        """Unknown addresses are not found; methods that an address has not are not allowed."""
        unknown = space.api.get("/api/v1/nothings")
        wrong = space.api.post(f"{space.config_maps}/one", config_map("one"))
        assert (unknown.code, unknown.reason if isinstance(unknown.body, dict) else "NotFound") == (404, "NotFound")
        assert (wrong.code, wrong.reason) == (405, "MethodNotAllowed")

    def test_replacing_moves_the_version_on(self, space: Space) -> None:
        """A PUT with the newest version is stored under a greater one; uid and birth stay."""
        created = space.api.post(space.config_maps, config_map("one", a="1")).ok()
        changed = {**created, "data": {"a": "2"}}
        changed["metadata"] = {**created["metadata"], "uid": created["metadata"]["uid"], "generateName": "x"}
        replaced = space.api.put(f"{space.config_maps}/one", changed).ok()
        assert replaced["data"] == {"a": "2"}
        assert int(replaced["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
        assert replaced["metadata"]["uid"] == created["metadata"]["uid"]
        assert replaced["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]

    def test_a_stale_version_is_a_conflict(self, space: Space) -> None:
        """A PUT with an old version is refused, and nothing changes."""
        created = space.api.post(space.config_maps, config_map("one", a="1")).ok()
        space.api.patch(f"{space.config_maps}/one", {"data": {"a": "2"}}).ok()
        reply = space.api.put(f"{space.config_maps}/one", {**created, "data": {"a": "3"}})
        assert (reply.code, reply.reason) == (409, "Conflict")
        assert reply.body["details"] == {"name": "one", "kind": "configmaps"}
        assert space.api.get(f"{space.config_maps}/one").ok()["data"] == {"a": "2"}

    def test_without_a_version_the_last_writer_wins(self, space: Space) -> None:
        """A PUT without a version overwrites, where the kind allows it."""
        space.api.post(space.config_maps, config_map("one", a="1")).ok()
        assert space.api.put(f"{space.config_maps}/one", config_map("one", b="2")).ok()["data"] == {"b": "2"}

    def test_a_lease_is_replaced_only_with_a_version(self, space: Space) -> None:
        """A lease can't be overwritten blindly: it is what elections are made of."""
        space.api.post(space.leases, {"metadata": {"name": "one"}, "spec": {"holderIdentity": "me"}}).ok()
        reply = space.api.put(f"{space.leases}/one", {"metadata": {"name": "one"}, "spec": {"holderIdentity": "you"}})
        assert (reply.code, reply.reason, reply.fields) == (422, "Invalid", {"metadata.resourceVersion"})

    def test_a_put_may_create_a_lease(self, space: Space) -> None:
        """A PUT on a lease that is not there creates it."""
        reply = space.api.put(f"{space.leases}/one", {"metadata": {"name": "one"}, "spec": {"holderIdentity": "me"}})
        assert reply.code == 201
        assert space.api.get(f"{space.leases}/one").ok()["spec"] == {"holderIdentity": "me"}

    def test_a_write_that_changes_nothing_is_no_write(self, space: Space) -> None:
        """PUT and PATCH of what is there already keep the version."""
        created = space.api.post(space.config_maps, config_map("one", a="1")).ok()
        put = space.api.put(f"{space.config_maps}/one", created)
        patched = space.api.patch(f"{space.config_maps}/one", {"data": {"a": "1"}})
        assert put.version == patched.version == created["metadata"]["resourceVersion"]

    def test_name_and_uid_must_be_those_of_the_address(self, space: Space) -> None:
        """A PUT of another name is a bad request, of another uid a conflict."""
        created = space.api.post(space.config_maps, config_map("one")).ok()
        other_name = space.api.put(f"{space.config_maps}/one", config_map("two"))
        other = {**created, "metadata": {**created["metadata"], "uid": "00000000-0000-4000-8000-000000000000"}}
        other_uid = space.api.put(f"{space.config_maps}/one", other)
        assert (other_name.code, other_name.reason) == (400, "BadRequest")
        assert (other_uid.code, other_uid.reason) == (409, "Conflict")

    def test_a_dry_run_stores_nothing(self, space: Space) -> None:
        """With dryRun=All the answer is as if, and the store as before."""
        tried = space.api.post(space.config_maps, config_map("one", a="1"), dryRun="All")
        assert tried.code == 201
        assert tried.body["metadata"].get("resourceVersion", "") == ""
        assert space.api.get(f"{space.config_maps}/one").code == 404
        created = space.api.post(space.config_maps, config_map("one", a="1")).ok()
        patched = space.api.patch(f"{space.config_maps}/one", {"data": {"a": "2"}}, dryRun="All").ok()
        gone = space.api.delete(f"{space.config_maps}/one", dryRun="All")
        assert patched["data"] == {"a": "2"}
        assert gone.code == 200
        assert space.api.get(f"{space.config_maps}/one").ok() == created

    def test_deletion_says_what_went(self, space: Space) -> None:
        """A deletion that is done answers with a Status that names the object."""
        created = space.api.post(space.config_maps, config_map("one")).ok()
        gone = space.api.delete(f"{space.config_maps}/one")
        expected = {"name": "one", "kind": "configmaps", "uid": created["metadata"]["uid"]}
        assert (gone.code, gone.body["status"], gone.body["details"]) == (200, "Success", expected)
        assert space.api.get(f"{space.config_maps}/one").code == 404

    @pytest.mark.parametrize("field", ["uid", "resourceVersion"])
    def test_deletion_keeps_to_its_preconditions(self, space: Space, field: str) -> None:
        """A deletion meant for another object, or for another version of it, is a conflict."""
        created = space.api.post(space.config_maps, config_map("one")).ok()
        wrong = {"uid": "00000000-0000-4000-8000-000000000000", "resourceVersion": "1"}[field]
        refused = space.api.delete(f"{space.config_maps}/one", {"preconditions": {field: wrong}})
        assert (refused.code, refused.reason) == (409, "Conflict")
        right = {"preconditions": {field: created["metadata"][field]}}
        assert space.api.delete(f"{space.config_maps}/one", right).code == 200

    def test_finalizers_hold_an_object(self, space: Space) -> None:
        """A deleted object with a finalizer stays, marked, takes no new finalizer, and goes with the last one."""
        body = config_map("one")
        body["metadata"]["finalizers"] = ["aliquot.dev/test"]
        space.api.post(space.config_maps, body).ok()
        path = f"{space.config_maps}/one"
        marked = space.api.delete(path).ok()
        assert marked["metadata"]["deletionTimestamp"]
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
        added = space.api.patch(path, {"metadata": {"finalizers": ["aliquot.dev/test", "aliquot.dev/more"]}})
        assert (added.code, added.fields) == (422, {"metadata.finalizers"})
        assert space.api.patch(path, {"metadata": {"finalizers": []}}).code == 200
        assert space.api.get(path).code == 404

    def test_a_collection_is_deleted_by_selector(self, space: Space) -> None:
        """Deleting a collection takes what the selector means, and leaves the rest."""
        for name, team in (("one", "a"), ("two", "b"), ("three", "a")):
            body = config_map(name)
            body["metadata"]["labels"] = {"team": team}
            space.api.post(space.config_maps, body).ok()
        space.api.delete(space.config_maps, labelSelector="team=a").ok()
        left = [one["metadata"]["name"] for one in space.listed(space.config_maps, labelSelector="team")]
        assert left == ["two"]

    def test_a_namespace_goes_with_all_in_it(self, api_under_test: HttpApi) -> None:
        """A deleted namespace takes nothing new, and is gone when all in it has gone."""
        space = Space.make(api_under_test)
        space.api.post(space.config_maps, config_map("one")).ok()
        gone = space.api.delete(space.path)
        assert gone.code == 200
        with space.api.watch("/api/v1/namespaces", fieldSelector=f"metadata.name={space.name}") as watch:
            if space.api.get(space.path).code == 200:
                watch.until(lambda event: event["type"] == "DELETED")
        assert space.api.get(space.path).code == 404
        assert space.api.get(f"{space.config_maps}/one").code == 404

    def test_the_first_namespaces_stay(self, api_under_test: HttpApi) -> None:
        """The default namespace is there and can't be deleted."""
        assert api_under_test.get("/api/v1/namespaces/default").ok()["status"] == {"phase": "Active"}
        reply = api_under_test.delete("/api/v1/namespaces/default")
        assert (reply.code, reply.reason) == (403, "Forbidden")
