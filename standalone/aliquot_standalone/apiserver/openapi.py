"""The schema documents that kubectl asks for before it applies: the addresses, and schemas of custom kinds alone.

kubectl looks up one thing: whether PATCH of a kind takes `fieldValidation`, that is, whether the server checks objects
itself. It does, so kubectl sends the object as it is, merges by the types it was built with, and shows our refusal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .exchange import Answer
from .failures import no_such_page

if TYPE_CHECKING:
    from .catalogue import Catalogue, Resource
    from .store import Json

_QUERY = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("dryRun", "fieldValidation")]


def openapi(catalogue: Catalogue, path: tuple[str, ...]) -> Answer:
    """Answer `/openapi/v3` and the document of one group and version below it."""
    if path[:2] != ("openapi", "v3"):
        raise no_such_page()
    group_versions = sorted({_root(one)[1:] for one in catalogue.resources})
    wanted = "/".join(path[2:])
    if not wanted:
        paths = {one: {"serverRelativeURL": f"/openapi/v3/{one}"} for one in group_versions}
        return Answer(body=msgspec.json.encode({"paths": paths}))
    if wanted not in group_versions:
        raise no_such_page()
    served = [one for one in catalogue.resources if _root(one)[1:] == wanted]
    document: Json = {"openapi": "3.0.0", "info": {"title": "Aliquot", "version": "v1"}}
    document["paths"] = {_address(one): _operations(one) for one in served}
    document["components"] = {"schemas": dict(_schema(one) for one in served if one.definition)}
    return Answer(body=msgspec.json.encode(document))


def _schema(resource: Resource) -> tuple[str, Json]:
    """Give the schema of a custom kind, for `kubectl explain`; of the others kubectl would merge lists by ours."""
    about = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    schema = resource.definition.schema if resource.definition else {}
    head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    properties = {**head, **schema.get("properties", {})}
    name = ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
    return name, {**schema, "properties": properties, "x-kubernetes-group-version-kind": [about]}


def _root(resource: Resource) -> str:
    return f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"


def _address(resource: Resource) -> str:
    within = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"{_root(resource)}{within}/{resource.plural}/{{name}}"


def _operations(resource: Resource) -> Json:
    about = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    patch = {"x-kubernetes-group-version-kind": about, "x-kubernetes-action": "patch", "parameters": _QUERY}
    return {"patch": {**patch, "responses": {"200": {"description": "OK"}}}}
