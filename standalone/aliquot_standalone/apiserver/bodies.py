"""Request bodies: bytes to objects, and refusals that say what could not be read."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from .failures import bad_request, needs_cluster, unsupported_media_type
from .protobuf import PROTOBUF, read_protobuf
from .shapes import without_nulls

if TYPE_CHECKING:
    from .catalogue import Resource
    from .exchange import Request
    from .store import Json

APPLY = "application/apply-patch+yaml"
_JSON_TYPES = frozenset({"", "application/json", "*/*"})
_YAML_TYPES = frozenset({"application/yaml", APPLY})


def media_type(header: str) -> str:
    """Give a content type without its parameters."""
    return header.partition(";")[0].strip().lower()


def read_json(body: bytes) -> Any:
    """Read a JSON body."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is no JSON: {error}") from error


def read_yaml(body: bytes) -> Any:
    """Read a YAML body; anchors are refused, since a few lines of them unfold to gigabytes."""
    if body.lstrip()[:1] == b"{":
        # What most clients send as YAML; a flow mapping that is no JSON goes on below.
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(body)
    try:
        text = body.decode()
        if any(isinstance(token, yaml.AnchorToken | yaml.AliasToken) for token in yaml.scan(text)):
            raise bad_request("the body is YAML with anchors, which are not taken")
        loaded = yaml.safe_load(text)
        # Back and forth through JSON: dates and other YAML types become what JSON can say.
        return msgspec.json.decode(msgspec.json.encode(loaded))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise bad_request(f"the body is no YAML: {error}") from error


def read_any(request: Request) -> Any:
    """Read a body by its content type."""
    kind = media_type(request.content_type)
    if kind in _JSON_TYPES:
        return read_json(request.body)
    if kind in _YAML_TYPES:
        return read_yaml(request.body)
    if kind == PROTOBUF:
        return read_protobuf(request.body)
    raise unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: application/json, "
        f"application/yaml; not {kind}"
    )


def read_object(request: Request, *, kind: str, api_version: str) -> Json:
    """Read an object and check that it is of the kind that the address takes; its kind goes, the address implies it."""
    found = read_any(request)
    # A null is always spelled so in JSON, and to look for it in whole objects takes longer than to read them.
    if b"null" in request.body or media_type(request.content_type) in _YAML_TYPES:
        found = without_nulls(found)
    if not isinstance(found, dict):
        raise bad_request(f"{kind} cannot be read: expected an object")
    said_kind, said_version = found.pop("kind", kind), found.pop("apiVersion", api_version)
    if said_kind != kind:
        raise bad_request(f"{said_kind} cannot be handled as a {kind}")
    if said_version != api_version:
        raise bad_request(
            f"the API version in the data ({said_version}) does not match the expected API version ({api_version})"
        )
    metadata = found.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request(f"{kind} cannot be read: Expected `object` - at `$.metadata`")
    return found


def read_resource(request: Request, resource: Resource) -> Json:
    """Read an object of a kind; a kind that nothing here makes work is refused in whatever form it comes."""
    if resource.needs_cluster:
        raise needs_cluster(resource)
    return read_object(request, kind=resource.kind, api_version=resource.api_version)


def read_applied(request: Request, resource: Resource) -> Json:
    """Read a configuration to apply: JSON is YAML too, and most clients send it."""
    obj = read_resource(request, resource)
    if obj["metadata"].get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    return obj
