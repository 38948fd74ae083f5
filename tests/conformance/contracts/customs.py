"""Custom kinds on any API server: definitions, schemas, the status apart, columns."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from conformance.contracts.space import Space
from support.http_api import APPLY, JSON_PATCH, STRATEGIC, TABLE, HttpApi, Json, Reply

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "conformance.aliquot.dev"
SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "text": {"type": "string", "maxLength": 5, "pattern": "^[a-z]*$"},
        "parts": {
            "type": "array",
            "maxItems": 2,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id"],
            "items": {
                "type": "object",
                "required": ["id"],
                "properties": {"id": {"type": "string"}, "count": {"type": "integer", "default": 1}},
            },
        },
        "amounts": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "yes": {"type": "boolean"},
    },
}
STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Ready", "type": "string", "jsonPath": ".status.ready"},
    {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
]


def definition(plural: str, **spec: Any) -> Json:
    """Define a namespaced kind with a status of its own."""
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": COLUMNS,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}},
    }
    names = {"plural": plural, "kind": plural.capitalize(), "shortNames": [plural[:5]]}
    body = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version], **spec}
    return {"metadata": {"name": f"{plural}.{GROUP}"}, "spec": body}


def until_served(api: HttpApi, path: str) -> None:
    """Wait until the kind is there: a cluster's server takes a moment."""
    while api.get(path).code != 200:
        pass


@contextmanager
def defined(api: HttpApi) -> Iterator[str]:
    """A kind that nobody else has; its plural."""
    plural = f"toy{secrets.token_hex(3)}s"
    made = api.post(DEFINITIONS, definition(plural)).ok()
    assert made["spec"]["names"]["singular"] == plural
    until_served(api, f"/apis/{GROUP}/v1/namespaces/default/{plural}")
    yield plural
    api.delete(f"{DEFINITIONS}/{plural}.{GROUP}")


class Kind:
    """A kind that is served, and its objects in the test's namespace."""

    def __init__(self, space: Space, plural: str) -> None:
        self.api = space.api
        self.plural = plural
        self.definition = f"{DEFINITIONS}/{self.plural}.{GROUP}"
        self.path = f"/apis/{GROUP}/v1/namespaces/{space.name}/{self.plural}"

    def create(self, name: str = "one", status: Any = None, **spec: Any) -> Reply:
        """Create an object."""
        return self.api.post(self.path, self.body(name, spec=spec, **({"status": status} if status else {})))

    def body(self, name: str, **more: Any) -> Json:
        """An object of the kind as clients send it."""
        head = {"apiVersion": f"{GROUP}/v1", "kind": self.plural.capitalize()}
        return {**head, "metadata": {"name": name}, **more}


class CustomsContract:
    """The edges of custom kinds."""

    @pytest.fixture(scope="class")
    @classmethod
    def plural(cls, api_under_test: HttpApi) -> Iterator[str]:
        """A kind for all tests that leave its definition as it is: a cluster's server takes 2 s to serve one."""
        with defined(api_under_test) as plural:
            yield plural

    @pytest.fixture
    def kind(self, space: Space, plural: str) -> Kind:
        """Of which the test's namespace has no object yet."""
        return Kind(space, plural)

    def test_what_is_defined_is_served(self, kind: Kind) -> None:
        """Discovery names it, with its short name and its status."""
        found: Json = {}
        while kind.plural not in found:
            # A cluster's discovery lags behind what it serves.
            listed = kind.api.get(f"/apis/{GROUP}/v1").body
            found = {one["name"]: one for one in listed["resources"]} if isinstance(listed, dict) else {}
        assert found[kind.plural]["shortNames"] == [kind.plural[:5]]
        assert f"{kind.plural}/status" in found
        conditions = kind.api.get(kind.definition).ok()["status"]["conditions"]
        assert {one["type"] for one in conditions if one["status"] == "True"} >= {"Established", "NamesAccepted"}

    def test_defaults_are_filled_in_and_the_unknown_goes(self, kind: Kind) -> None:
        """Inside lists too; where the schema keeps the unknown, it stays."""
        made = kind.create(
            size=3, strange=1, parts=[{"id": "a", "odd": True}], open={"any": [1]}, amounts={"cpu": "1", "n": 2}
        )
        assert made.ok()["spec"] == {
            "size": 3,
            "colour": "red",
            "parts": [{"id": "a", "count": 1}],
            "open": {"any": [1]},
            "amounts": {"cpu": "1", "n": 2},
        }
        assert made.ok()["metadata"]["generation"] == 1

    def test_unknown_fields_are_warned_of_unless_the_client_says_otherwise(self, kind: Kind) -> None:
        """By their paths; in what is sent as a whole, and in what a patch leaves. They are dropped all the same."""
        spec, said = (
            {"size": 3, "strange": 1, "parts": [{"id": "a", "odd": 1}]},
            ("spec.parts[0].odd", "spec.strange", "top"),
        )
        body = kind.body("one", top=1, spec=spec)
        warned = tuple(f'unknown field "{path}"' for path in said)
        assert kind.api.post(kind.path, body, dryRun="All").warnings == warned
        made = kind.api.post(kind.path, body, fieldValidation="Warn")
        assert (made.warnings, made.ok()["spec"]) == (
            warned,
            {"size": 3, "colour": "red", "parts": [{"id": "a", "count": 1}]},
        )
        path = f"{kind.path}/one"
        live = kind.api.get(path).ok()
        assert kind.api.put(path, {**live, "spec": spec}).warnings == warned[:2]
        assert kind.api.patch(path, {"spec": {"strange": 2}, "blurb": 1}).warnings == (
            'unknown field "blurb"',
            'unknown field "spec.strange"',
        )
        added = [{"op": "add", "path": "/spec/strange", "value": 1}]
        assert kind.api.patch(path, added, kind=JSON_PATCH).warnings == warned[1:2]
        for ignored in (
            kind.api.put(path, {**live, "spec": spec}, fieldValidation="Ignore"),
            kind.api.patch(path, added, kind=JSON_PATCH, fieldValidation="Ignore"),
        ):
            assert (ignored.code, ignored.warnings) == (200, ())
        known = kind.api.patch(
            path, {"spec": {"open": {"any": 1}, "amounts": {"cpu": 1}}, "metadata": {"labels": {"a": "b"}}}
        )
        assert (known.code, known.warnings) == (200, ())

    def test_unknown_fields_are_refused_where_the_client_is_strict(self, kind: Kind) -> None:
        """Nothing is written then, and the refusal names them."""
        spec = {"size": 3, "strange": 1}
        whole = kind.api.post(kind.path, kind.body("one", spec=spec, top=1), fieldValidation="Strict")
        name = kind.plural.capitalize()
        assert (whole.code, whole.reason) == (400, "BadRequest")
        unknown = 'unknown field "spec.strange", unknown field "top"'
        assert whole.body["message"] == (
            f'{name} in version "v1" cannot be handled as a {name}: strict decoding error: {unknown}'
        )
        kind.create(size=3).ok()
        path = f"{kind.path}/one"
        live = kind.api.get(path).ok()
        assert kind.api.put(path, {**live, "spec": spec}, fieldValidation="Strict").code == 400
        patched = kind.api.patch(path, {"spec": {"strange": 2, "size": 4}}, fieldValidation="Strict")
        assert (patched.code, patched.reason, patched.fields) == (422, "Invalid", {"patch"})
        assert patched.body["message"].endswith('strict decoding error: unknown field "spec.strange"')
        assert kind.api.get(path).ok() == live
        assert kind.api.patch(path, {"spec": {"size": 4}}, fieldValidation="Strict").warnings == ()

    def test_what_the_server_applies_is_declared(self, kind: Kind) -> None:
        """Whatever the client says of unknown fields."""
        kind.create(size=3).ok()
        config = kind.body("one", spec={"size": 4, "strange": 1})
        refused = kind.api.patch(f"{kind.path}/one", config, kind=APPLY, fieldManager="me", fieldValidation="Ignore")
        assert refused.code in {422, 500}
        assert "spec.strange: field not declared in schema" in refused.body["message"]

    def test_how_unknown_fields_are_taken_is_one_of_three(self, kind: Kind) -> None:
        """Another word is refused, of whatever is written."""
        for reply in (
            kind.api.post(kind.path, kind.body("one", spec={"size": 3}), fieldValidation="Odd"),
            kind.api.post(DEFINITIONS, definition("never"), fieldValidation="Odd"),
        ):
            assert (reply.code, reply.fields) == (422, {"fieldValidation"})

    @pytest.mark.parametrize(
        ("spec", "field"),
        [
            ({}, "spec.size"),
            ({"size": 0}, "spec.size"),
            ({"size": 11}, "spec.size"),
            ({"size": "3"}, "spec.size"),
            ({"size": 2.5}, "spec.size"),
            ({"size": 3, "colour": "green"}, "spec.colour"),
            ({"size": 3, "text": "longer"}, "spec.text"),
            ({"size": 3, "text": "A"}, "spec.text"),
            ({"size": 3, "parts": [{"id": "a"}, {"id": "b"}, {"id": "c"}]}, "spec.parts"),
            ({"size": 3, "parts": [{}]}, "spec.parts[0].id"),
            ({"size": 3, "amounts": {"cpu": True}}, "spec.amounts.cpu"),
            ({"size": 3, "yes": "yes"}, "spec.yes"),
        ],
    )
    def test_what_the_schema_does_not_allow(self, kind: Kind, spec: Json, field: str) -> None:
        """It is refused, naming the field."""
        reply = kind.create(**spec)
        assert (reply.code, reply.reason) == (422, "Invalid")
        assert field in reply.fields

    def test_spec_and_status_are_apart(self, kind: Kind) -> None:
        """Each is written at its own address alone, and only the spec counts generations."""
        assert "status" not in kind.create(size=3, status={"ready": "no"}).ok()
        path = f"{kind.path}/one"
        both = {"metadata": {"labels": {"a": "b"}}, "spec": {"size": 5}, "status": {"ready": "yes"}}
        told = kind.api.patch(f"{path}/status", both).ok()
        assert (told["spec"]["size"], told["status"], told["metadata"]["generation"]) == (3, {"ready": "yes"}, 1)
        assert "labels" not in told["metadata"]
        changed = kind.api.patch(path, {"spec": {"size": 5}, "status": {"ready": "no"}}).ok()
        assert (changed["spec"]["size"], changed["status"]) == (5, {"ready": "yes"})
        assert changed["metadata"]["generation"] == 2
        labelled = kind.api.patch(path, {"metadata": {"labels": {"a": "b"}}}).ok()
        assert labelled["metadata"]["generation"] == 2

    def test_columns_are_those_of_the_definition(self, kind: Kind) -> None:
        """What lies at their paths is shown; what is not there is not."""
        kind.create(size=3).ok()
        table = kind.api.get(kind.path, accept=TABLE).ok()
        assert [one["name"] for one in table["columnDefinitions"]] == ["Name", "Size", "Ready", "Colour"]
        assert [one["priority"] for one in table["columnDefinitions"]] == [0, 0, 0, 1]
        cells = table["rows"][0]["cells"]
        assert (cells[0], cells[1], cells[3]) == ("one", 3, "red")

    def test_patches_of_custom_objects(self, kind: Kind) -> None:
        """Merge patches and applying are taken; strategic ones are not, for nobody knows the strategy."""
        kind.create(size=3, parts=[{"id": "a", "count": 4}]).ok()
        path = f"{kind.path}/one"
        assert kind.api.patch(path, {"spec": {"size": 4}}).ok()["spec"]["size"] == 4
        assert kind.api.patch(path, {"spec": {"size": 5}}, kind=STRATEGIC).code == 415
        head = {"apiVersion": f"{GROUP}/v1", "kind": kind.plural.capitalize(), "metadata": {"name": "one"}}
        body = {**head, "spec": {"size": 4, "parts": [{"id": "b"}]}}
        applied = kind.api.patch(path, body, kind=APPLY, fieldManager="me").ok()
        assert [one["id"] for one in applied["spec"]["parts"]] == ["a", "b"]

    def test_watches_of_custom_objects(self, kind: Kind) -> None:
        """They tell what every watch tells."""
        with kind.api.watch(kind.path) as watch:
            kind.create(size=3).ok()
            assert watch.next()["type"] == "ADDED"
            kind.api.delete(f"{kind.path}/one").ok()
            assert watch.next()["type"] == "DELETED"

    def test_objects_go_with_their_definition(self, space: Space) -> None:
        """A kind that is defined anew begins empty."""
        with defined(space.api) as plural:
            kind = Kind(space, plural)
            kind.create(size=3).ok()
            kind.api.delete(kind.definition).ok()
            while kind.api.get(kind.definition).code != 404:
                pass
            kind.api.post(DEFINITIONS, definition(plural)).ok()
            until_served(kind.api, kind.path)
            assert kind.api.get(kind.path).ok()["items"] == []

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"group": "nodots"}, "spec.group"),
            ({"scope": "Everywhere"}, "spec.scope"),
        ],
    )
    def test_a_definition_that_is_none(self, space: Space, change: Json, field: str) -> None:
        """It is refused, naming the field."""
        body = definition("never", **change)
        body["metadata"]["name"] = f"never.{body['spec']['group']}"
        reply = space.api.post(DEFINITIONS, body)
        assert (reply.code, reply.reason) == (422, "Invalid")
        assert field in reply.fields
