"""JSON Patch (RFC 6902) and merge patch (RFC 7396). Each gives a new document and leaves the old one alone."""

from __future__ import annotations

from typing import Any

from .copying import copied
from .failures import bad_request, unprocessable

_MOST_OPERATIONS = 10_000


def merge_patch(document: Any, patch: Any) -> Any:
    """Lay a merge patch over an object: null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        raise bad_request("a merge patch of an object is an object")
    return _merged(document, patch)


def _merged(document: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def json_patch(document: Any, operations: Any) -> Any:
    """Carry out a JSON Patch; one operation that can't be carried out refuses the whole."""
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise bad_request("a JSON Patch is a list of operations")
    if len(operations) > _MOST_OPERATIONS:
        raise bad_request(f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}")
    result = copied(document)
    for operation in operations:
        result = _apply(result, operation)
    return result


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    name, path = operation.get("op"), _pointer(operation.get("path"))
    if name in {"add", "replace", "test"}:
        return _with_value(document, name, path, operation.get("value"))
    if name == "remove":
        return _remove(document, path)
    if name in {"move", "copy"}:
        source = _pointer(operation.get("from"))
        value = copied(_find(document, source))
        return _add(_remove(document, source) if name == "move" else document, path, value)
    raise unprocessable(f"JSON Patch operation {name!r} is not known")


def _with_value(document: Any, name: str, path: list[str], value: Any) -> Any:
    if name == "add":
        return _add(document, path, copied(value))
    if name == "replace":
        return _replace(document, path, copied(value))
    if not _same(_find(document, path), value):
        raise unprocessable(f"JSON Patch test failed at /{'/'.join(path)}")
    return document


def _same(left: Any, right: Any) -> bool:
    # Python takes True for 1; JSON does not.
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise unprocessable(f"not a JSON pointer: {text!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _index(step: str, *, length: int) -> int:
    if not step.isascii() or not step.isdigit() or (len(step) > 1 and step[0] == "0") or len(step) > 6:  # noqa: PLR2004 - no list here is longer
        raise unprocessable(f"JSON Patch: {step!r} is no index of a list")
    if int(step) >= length:
        raise unprocessable(f"JSON Patch: index {step} is beyond the list")
    return int(step)


def _find(document: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(document, list):
            document = document[_index(step, length=len(document))]
        elif isinstance(document, dict) and step in document:
            document = document[step]
        else:
            raise unprocessable(f"JSON Patch: there is nothing at /{'/'.join(path)}")
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(last, length=len(parent) + 1), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise unprocessable(f"JSON Patch: there is nothing to add to at /{'/'.join(path[:-1])}")
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent[_index(last, length=len(parent))] = value
    elif isinstance(parent, dict):
        # As kube-apiserver has it, unlike the RFC: a key that is not there is added.
        parent[last] = value
    else:
        raise unprocessable(f"JSON Patch: there is nothing to replace at /{'/'.join(path)}")
    return document


def _remove(document: Any, path: list[str]) -> Any:
    _find(document, path)
    if not path:
        raise unprocessable("JSON Patch: the whole object can't be removed")
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        del parent[_index(last, length=len(parent))]
    else:
        del parent[last]
    return document
