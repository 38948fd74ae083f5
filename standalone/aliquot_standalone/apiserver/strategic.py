"""Strategic merge patch: a merge patch that knows which lists are maps by a key, and which are sets.

Kubernetes keeps this knowledge beside the fields of its types; here it is one table by field name, for the fields that
users of this server touch. A list that is not in the table is replaced whole, as Kubernetes does with lists it has no
rule for. Directives: `$patch: delete | replace | merge`, `$retainKeys`, `$deleteFromPrimitiveList/x`,
`$setElementOrder/x`.
"""

from __future__ import annotations

from typing import Any

from .failures import bad_request

# field -> the key by which its items are matched.
_MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
    "volumesAttached": "name",
}
# `ports` merge by another key in a container than in a service; only containers are served here.
_MERGE_KEYS["ports"] = "containerPort"
_SETS = {"finalizers", "podCIDRs"}
_ORDER, _FROM_SET, _RETAIN = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys"


def merge_key(field: str) -> str:
    """Give the key by which the items of a list of this name are matched; empty where they are not."""
    return _MERGE_KEYS.get(field, "")


def merges_as_set(field: str) -> bool:
    """Tell whether lists of this name are sets."""
    return field in _SETS


def strategic_merge(document: Any, patch: Any) -> Any:
    """Lay a strategic merge patch over a document, which stays as it is."""
    if not isinstance(patch, dict):
        raise bad_request("a strategic merge patch is an object")
    return _merge_object(document if isinstance(document, dict) else {}, patch)


def _merge_object(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    merged = _retained(document, patch)
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_field(merged, key, value)
    for key, value in patch.items():
        if key.startswith(_FROM_SET):
            _take_from_set(merged, key[len(_FROM_SET) :], value)
        elif key.startswith(_ORDER):
            _put_in_order(merged, key[len(_ORDER) :], value)
    return merged


def _retained(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    if _RETAIN not in patch:
        return dict(document)
    kept = _list(patch[_RETAIN], where=_RETAIN)
    return {key: value for key, value in document.items() if key in kept}


def _merge_field(merged: dict[str, Any], key: str, value: Any) -> None:
    before = merged.get(key)
    if value is None:
        merged.pop(key, None)
    elif isinstance(value, dict):
        merged[key] = _merge_object(before if isinstance(before, dict) else {}, value)
    elif isinstance(value, list):
        merged[key] = _merge_list(before if isinstance(before, list) else [], value, field=key)
    else:
        merged[key] = value


def _merge_list(before: list[Any], patch: list[Any], *, field: str) -> list[Any]:
    if field in _SETS:
        return [*before, *(one for one in patch if one not in before)]
    # The items say which list of that name this is: a node's `volumesAttached` has objects, `args` has not.
    key = _MERGE_KEYS.get(field)
    if key is None or not all(isinstance(one, dict) for one in [*before, *patch]):
        return [_clean(one) for one in patch]
    if any(one.get("$patch") == "replace" for one in patch):
        return [_clean(one) for one in patch if "$patch" not in one]
    return _merge_by_key(before, patch, key=key, field=field)


def _merge_by_key(before: list[Any], patch: list[Any], *, key: str, field: str) -> list[Any]:
    merged = list(before)
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {field} does not contain declared merge key: {key}")
        at = next((index for index, one in enumerate(merged) if one.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del merged[at]
        elif at is None:
            merged.append(_clean(item))
        else:
            merged[at] = _merge_object(merged[at], item)
    return merged


def _clean(item: Any) -> Any:
    return _merge_object({}, item) if isinstance(item, dict) else item


def _take_from_set(merged: dict[str, Any], field: str, gone: Any) -> None:
    unwanted = _list(gone, where=_FROM_SET + field)
    if isinstance(merged.get(field), list):
        merged[field] = [one for one in merged[field] if one not in unwanted]


def _put_in_order(merged: dict[str, Any], field: str, order: Any) -> None:
    wanted = _list(order, where=_ORDER + field)
    items = merged.get(field)
    if not isinstance(items, list):
        return
    key = _MERGE_KEYS.get(field)
    names = [one.get(key) if isinstance(one, dict) else one for one in wanted]

    def place(numbered: tuple[int, Any]) -> tuple[int, int]:
        index, item = numbered
        name = item.get(key) if isinstance(item, dict) else item
        # What the patch does not name stays behind what it names, in its old order.
        return (names.index(name) if name in names else len(names), index)

    merged[field] = [item for _, item in sorted(enumerate(items), key=place)]


def _list(value: Any, *, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request(f"{where} must be a list")
    return value
