"""What the server says about itself: its version, its groups, the kinds in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .catalogue import ALL_VERBS
from .failures import no_such_page

if TYPE_CHECKING:
    from .catalogue import Catalogue, Resource
    from .store import Json

# The release whose behaviour is followed, and measured against in tests/conformance.
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.3-aliquot", "platform": "any/any"}
_SUBRESOURCE_VERBS = ("get", "patch", "update")
_PLACING_KINDS = {"binding": ("", "v1", "Binding"), "eviction": ("policy", "v1", "Eviction")}


def discover(catalogue: Catalogue, path: tuple[str, ...]) -> Json:
    """Answer `/api`, `/apis` and what lies one or two steps below, without a name of a kind."""
    if path == ("api",):
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == ("apis",):
        groups = [_group(name, versions) for name, versions in catalogue.groups().items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if path[0] == "api":
        return _resources(catalogue, group="", version=path[1])
    if len(path) == 2:  # noqa: PLR2004 - /apis/GROUP
        return _one_group(catalogue, path[1])
    return _resources(catalogue, group=path[1], version=path[2])


def _group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _one_group(catalogue: Catalogue, name: str) -> Json:
    versions = catalogue.groups().get(name)
    if versions is None:
        raise no_such_page()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _resources(catalogue: Catalogue, *, group: str, version: str) -> Json:
    found = catalogue.of_group(group=group, version=version)
    if not found:
        raise no_such_page()
    listed = [entry for resource in found for entry in _entries(resource)]
    if not group:
        listed.append({"name": "bindings", "singularName": "binding", "namespaced": True, "kind": "Binding"})
        listed[-1]["verbs"] = ["create"]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def _entries(resource: Resource) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(ALL_VERBS),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return [entry, *(_sub_entry(resource, name) for name in resource.subresources)]


def _sub_entry(resource: Resource, name: str) -> Json:
    entry: Json = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
    if name in _PLACING_KINDS:
        group, version, kind = _PLACING_KINDS[name]
        return {**entry, "group": group, "version": version, "kind": kind, "verbs": ["create"]}
    verbs = ["get"] if name == "log" else list(_SUBRESOURCE_VERBS)
    return {**entry, "kind": resource.kind, "verbs": verbs}


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def wants_all_at_once(accept: str, path: tuple[str, ...]) -> bool:
    """Tell whether a client asks for all kinds in one document, as kubectl does first."""
    return path in {("api",), ("apis",)} and any(part.strip().startswith(AGGREGATED) for part in accept.split(","))


def discover_all(catalogue: Catalogue, path: tuple[str, ...]) -> Json:
    """Give all kinds of the core group, or of all others, in one document."""
    groups = {"": ["v1"]} if path == ("api",) else catalogue.groups()
    items = [_aggregated_group(catalogue, name, versions) for name, versions in groups.items()]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_group(catalogue: Catalogue, name: str, versions: list[str]) -> Json:
    listed = [
        {
            "version": version,
            "freshness": "Current",
            "resources": [_aggregated(one) for one in catalogue.of_group(group=name, version=version)],
        }
        for version in versions
    ]
    return {"metadata": {"name": name}, "versions": listed}


def _aggregated(resource: Resource) -> Json:
    own = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    entry: Json = {
        "resource": resource.plural,
        "responseKind": own,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(ALL_VERBS),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [_aggregated_part(resource, name, own) for name in resource.subresources]
    return entry


def _aggregated_part(resource: Resource, name: str, own: Json) -> Json:
    entry = _sub_entry(resource, name)
    kind = {part: entry[part] for part in ("group", "version", "kind")} if name in _PLACING_KINDS else own
    return {"subresource": name, "responseKind": kind, "verbs": entry["verbs"]}
