"""Every way to write what is there already: the same change, a merge patch, sent as each kind of request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliquot_kube.patches import JSON_PATCH, STRATEGIC_MERGE_PATCH
from aliquot_standalone.apiserver.patches import merge_patch
from cluster.harness.api import APPLY, Api, Json

# Each is given an API, an object as it is, the path to write to (its own, or its status), and the change.
Write = Callable[[Api, Json, str, Json], object]
FORGER = "forger"

WRITES: dict[str, Write] = {
    "merge patch": lambda api, _, path, change: api.patch(path, change),
    "strategic patch": lambda api, _, path, change: api.patch(path, change, kind=STRATEGIC_MERGE_PATCH),
    "json patch": lambda api, made, path, change: api.patch(path, operations(made, change), kind=JSON_PATCH),
    "apply": lambda api, made, path, change: api.request(
        "PATCH",
        path,
        body={"apiVersion": made["apiVersion"], "kind": made["kind"], **change},
        query={"fieldManager": FORGER, "force": "true"},
        content_type=APPLY,
    ),
    "replace": lambda api, made, path, change: api.put(path, merge_patch(made, change)),
}
# Who applies takes nothing away that somebody else wrote.
TAKING_AWAY = tuple(way for way in WRITES if way != "apply")
# Kubernetes knows no strategy for kinds that it did not bring.
OF_CUSTOM_KINDS = tuple(way for way in WRITES if way != "strategic patch")


def operations(made: Json, change: Json) -> list[Json]:
    """A JSON Patch that writes whole each field of metadata, spec or status in which the change is."""
    after = merge_patch(made, change)
    return [_operation(f"/{part}/{field}", after[part].get(field)) for part in change for field in change[part]]


def _operation(path: str, value: Any) -> Json:
    return {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}
