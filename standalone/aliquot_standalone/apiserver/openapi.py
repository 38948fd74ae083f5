"""The schema documents that kubectl asks for before it applies: the addresses, and schemas of custom kinds alone.

kubectl looks up one thing: whether PATCH of a kind takes `fieldValidation`, that is, whether the server checks objects
itself. It does, so kubectl sends the object as it is, merges by the types it was built with, and shows our refusal.

Of a `kind: List` it never asks that: it takes the document of version 2, and checks by it what it finds there. There is
nothing in ours, so nothing is held against the items, and each is then checked by the server as any object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .exchange import Answer
from .failures import no_such_page

if TYPE_CHECKING:
    from .catalogue import Catalogue, Resource
    from .store import Json

# kubectl reads version 2 as protobuf alone.
_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_TITLE = "Aliquot", "v1"
_QUERY = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("dryRun", "fieldValidation")]


def openapi(catalogue: Catalogue, path: tuple[str, ...], *, accept: str) -> Answer:
    """Answer `/openapi/v2`, `/openapi/v3` and the document of one group and version below that."""
    if path == ("openapi", "v2"):
        return _version_2(as_protobuf="proto-openapi" in accept)
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
    document: Json = {"openapi": "3.0.0", "info": dict(zip(("title", "version"), _TITLE, strict=True))}
    document["paths"] = {_address(one): _operations(one) for one in served}
    document["components"] = {"schemas": dict(_schema(one) for one in served if one.definition)}
    return Answer(body=msgspec.json.encode(document))


def _version_2(*, as_protobuf: bool) -> Answer:
    """Give a document without paths and schemas: its version, and what a title there must be."""
    title, version = _TITLE
    if as_protobuf:
        info = _text(1, title.encode()) + _text(2, version.encode())
        return Answer(body=_text(1, b"2.0") + _text(2, info), content_type=_PROTOBUF)
    document: Json = {"swagger": "2.0", "info": {"title": title, "version": version}, "paths": {}}
    return Answer(body=msgspec.json.encode(document))


def _text(number: int, data: bytes) -> bytes:
    """Give a short field of a protobuf message."""
    return bytes([number << 3 | 2, len(data)]) + data


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
