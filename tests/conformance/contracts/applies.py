"""Server-side apply on any API server: who owns which field."""

from __future__ import annotations

from typing import Any

from conformance.contracts.space import Space, pod
from support.http_api import APPLY, Json, Reply

MANAGER = "fieldManager"


def apply(space: Space, body: Json, *, by: str, force: bool = False, path: str = "") -> Reply:
    """Apply a configuration."""
    query = {MANAGER: by} | ({"force": "true"} if force else {})
    return space.api.patch(path or f"{space.config_maps}/one", body, kind=APPLY, **query)


def config(space: Space, **data: str) -> Json:
    """A config map as somebody wants it."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": space.name}, "data": data}


def owners(reply: Reply) -> dict[tuple[str, str], Json]:
    """Who owns which fields."""
    entries = reply.ok()["metadata"]["managedFields"]
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in entries}


def data(space: Space) -> Json:
    """What is in the config map."""
    found: Json = space.api.get(f"{space.config_maps}/one").ok().get("data", {})
    return found


class AppliesContract:
    """What applying does to fields and to their owners."""

    def test_applying_creates_and_then_does_nothing(self, space: Space) -> None:
        """The first creates the object; the same again changes nothing, not even the version."""
        first = apply(space, config(space, a="1"), by="me")
        assert first.code == 201
        assert owners(first) == {("me", "Apply"): {"f:data": {"f:a": {}}}}
        again = apply(space, config(space, a="1"), by="me")
        assert (again.code, again.version) == (200, first.version)

    def test_what_is_not_applied_any_more_goes(self, space: Space) -> None:
        """Unless somebody else owns it too."""
        apply(space, config(space, a="1", b="2", c="3"), by="me").ok()
        apply(space, config(space, b="2"), by="you").ok()
        apply(space, config(space, c="3"), by="me").ok()
        assert data(space) == {"b": "2", "c": "3"}

    def test_another_value_of_anothers_field_is_a_conflict(self, space: Space) -> None:
        """It names owner and field; by force the field changes hands."""
        apply(space, config(space, a="1"), by="me").ok()
        refused = apply(space, config(space, a="2"), by="you")
        assert (refused.code, refused.reason) == (409, "Conflict")
        cause = refused.body["details"]["causes"][0]
        assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".data.a")
        assert 'conflict with "me"' in cause["message"]
        assert data(space) == {"a": "1"}
        forced = apply(space, config(space, a="2"), by="you", force=True)
        assert owners(forced) == {("you", "Apply"): {"f:data": {"f:a": {}}}}

    def test_other_writes_take_what_they_change(self, space: Space) -> None:
        """Who patches a field owns it from then on."""
        apply(space, config(space, a="1", b="2"), by="me").ok()
        patched = space.api.patch(f"{space.config_maps}/one", {"data": {"a": "9"}}, fieldManager="editor")
        assert owners(patched) == {
            ("me", "Apply"): {"f:data": {"f:b": {}}},
            ("editor", "Update"): {"f:data": {"f:a": {}}},
        }
        assert apply(space, config(space, a="1", b="2"), by="me").code == 409

    def test_items_of_lists_have_owners(self, space: Space) -> None:
        """A container's image is a field of that container."""
        path = f"{space.pods}/one"
        head = {"apiVersion": "v1", "kind": "Pod"}
        created = apply(space, {**head, **pod("one")}, by="me", path=path)
        spec = owners(created)["me", "Apply"]["f:spec"]["f:containers"]
        assert spec['k:{"name":"main"}'] == {".": {}, "f:image": {}, "f:name": {}}
        image = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "main", "image": "none:2"}]}}
        refused = apply(space, {**head, **image}, by="you", path=path)
        assert refused.body["details"]["causes"][0]["field"] == '.spec.containers[name="main"].image'
        forced = apply(space, {**head, **image}, by="you", path=path, force=True)
        assert forced.ok()["spec"]["containers"][0]["image"] == "none:2"

    def test_conditions_of_two_owners(self, space: Space) -> None:
        """Each applies its own condition through the status, and takes back its own."""
        space.create_pod("one")
        path = f"{space.pods}/one/status"

        def tell(by: str, *kinds: str) -> list[str]:
            conditions = [{"type": kind, "status": "True"} for kind in kinds]
            body: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}
            reply = apply(space, {**body, "status": {"conditions": conditions}}, by=by, path=path)
            return [one["type"] for one in reply.ok()["status"].get("conditions", [])]

        assert tell("me", "A") == ["A"]
        assert sorted(tell("you", "B")) == ["A", "B"]
        assert tell("me") == ["B"]

    def test_what_can_not_be_applied(self, space: Space) -> None:
        """Nobody's configuration, one that says who owns what, and one that names an object that is not there."""
        body = config(space, a="1")
        assert space.api.patch(f"{space.config_maps}/one", body, kind=APPLY).code == 422
        assert space.api.patch(f"{space.config_maps}/one", body, fieldManager="me", force="true").code == 422
        apply(space, body, by="me").ok()
        owned = {**body, "metadata": {**body["metadata"], "managedFields": [{"manager": "x"}]}}
        assert apply(space, owned, by="me").code == 400
        other = {**body, "metadata": {"name": "two", "namespace": space.name}}
        assert apply(space, other, by="me").code == 400
        identity = {"namespace": space.name, "uid": "00000000-0000-4000-8000-000000000000"}
        replaced = {**body, "metadata": {"name": "one", **identity}}
        assert apply(space, replaced, by="me").code == 422
        gone = {**body, "metadata": {"name": "gone", **identity}}
        assert apply(space, gone, by="me", path=f"{space.config_maps}/gone").code == 409

    def test_what_is_filled_in_is_not_taken_out_by_its_maker(self, space: Space) -> None:
        """Who made a pod with another command and now applies the same: kubectl makes it the owner of all that."""
        body = {"apiVersion": "v1", "kind": "Pod", **pod("one")}
        made = space.api.post(space.pods, body, fieldManager="before").ok()
        (entry,) = made["metadata"]["managedFields"]
        assert "f:restartPolicy" in entry["fieldsV1"]["f:spec"]
        assert not {"f:serviceAccountName", "f:tolerations", "f:priority"} & entry["fieldsV1"]["f:spec"].keys()
        assert "f:status" not in entry["fieldsV1"]
        owned = {"metadata": {"managedFields": [{**entry, "manager": "me", "operation": "Apply"}]}}
        space.api.patch(f"{space.pods}/one", owned, fieldManager="me").ok()
        again = apply(space, body, by="me", path=f"{space.pods}/one")
        assert again.ok()["spec"] == made["spec"]

    def test_a_quantity_spelled_otherwise_is_another_value(self, space: Space) -> None:
        """The server keeps a text where a number was sent, and compares as it is sent."""
        body: Json = {"apiVersion": "v1", "kind": "Pod", **pod("one")}
        body["spec"]["containers"][0]["resources"] = {"limits": {"aliquot.dev/compute": 5}}
        space.api.post(space.pods, body, fieldManager="before").ok()
        refused = apply(space, body, by="me", path=f"{space.pods}/one")
        field = '.spec.containers[name="main"].resources.limits.aliquot.dev/compute'
        assert [cause["field"] for cause in refused.body["details"]["causes"]] == [field]
