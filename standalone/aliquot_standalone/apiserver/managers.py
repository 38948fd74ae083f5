"""Who owns which field: `managedFields`, server-side apply, and what other writes do to owners.

An owner that applies anew gives up what it does not name any more: what nobody else owns goes. What another owns with
another value is a conflict, unless it is forced. Any other write takes what it changes.

Differs from a cluster in one thing: an object has owners only from its first write that names a `fieldManager` (kubectl
always does). Programs that name none, such as our own, cost nothing here; what they wrote before is then owned by
`before-first-apply`, as on a cluster that was upgraded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from aliquot_core.instants import second_time

from .catalogue import Resource
from .copying import copied
from .failures import ApiError, bad_request, forbidden_field, invalid, required, wrong
from .fields import Path, Paths, leaves, merged, paths_of, rule_of, tree_of, without

if TYPE_CHECKING:
    from .store import Json
    from .terms import Target

Operation = Literal["Apply", "Update"]
_BEFORE = "before-first-apply"
_LONGEST = 128
_OPTIONS = Resource(group="meta.k8s.io", plural="", singular="", kind="PatchOptions")


class Manager(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes, and how."""

    name: str
    operation: Operation = "Update"
    subresource: str = ""
    # Whether the client named itself.
    named: bool = True
    force: bool = False


class _Owner(msgspec.Struct, frozen=True, kw_only=True):
    manager: str
    operation: str
    subresource: str
    api_version: str
    time: str
    paths: Paths

    def is_of(self, manager: Manager) -> bool:
        return (self.manager, self.operation, self.subresource) == (
            manager.name,
            manager.operation,
            manager.subresource,
        )

    def entry(self) -> Json:
        entry: Json = {"manager": self.manager, "operation": self.operation, "apiVersion": self.api_version}
        entry |= {"time": self.time, "fieldsType": "FieldsV1", "fieldsV1": tree_of(self.paths)}
        return entry | ({"subresource": self.subresource} if self.subresource else {})


def _owners(obj: Json) -> list[_Owner]:
    found = []
    for entry in obj["metadata"].get("managedFields", []):
        try:
            paths = frozenset(paths_of(entry.get("fieldsV1", {})))
        except (ValueError, AttributeError) as error:
            raise bad_request(f"metadata.managedFields can't be read: {error}") from error
        text = {name: str(entry.get(name, "")) for name in ("manager", "operation", "subresource", "time")}
        found.append(_Owner(api_version=str(entry.get("apiVersion", "")), paths=paths, **text))
    return found


def _put(obj: Json, owners: list[_Owner]) -> None:
    entries = [owner.entry() for owner in owners if owner.paths]
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)


def note_write(new: Json, old: Json | None, manager: Manager, *, resource: Resource, now: float) -> None:
    """Give the writer what it changed, in place; an object of which nobody has named himself has no owners."""
    if old is not None and new["metadata"].get("managedFields") != old["metadata"].get("managedFields"):
        # Who writes the owners means them so; one that is empty says: nobody.
        _put(new, _owners(new))
        return
    before = _owners(old) if old is not None else []
    if not before and (old is not None or not manager.named):
        return
    rule = rule_of(resource.definition)
    was, now_is = leaves(old or {}, rule), leaves(new if old is not None else _made(new, resource), rule)
    changed = frozenset(path for path, value in now_is.items() if path not in was or was[path] != value)
    gone = frozenset(was.keys() - now_is.keys())
    _put(new, _after_write(before, manager, changed, gone, resource=resource, now=now))


def _made(new: Json, resource: Resource) -> Json:
    """Give what is its maker's: the status is not."""
    return {part: value for part, value in new.items() if part != "status" or "status" not in resource.subresources}


def _after_write(
    before: list[_Owner], manager: Manager, changed: Paths, gone: Paths, *, resource: Resource, now: float
) -> list[_Owner]:
    owners, mine = [], frozenset[Path]()
    for owner in before:
        if owner.is_of(manager):
            mine = owner.paths
        else:
            owners.append(msgspec.structs.replace(owner, paths=owner.paths - changed - gone))
    if not changed and not gone:
        return before
    return [*owners, _owner(manager, (mine | changed) - gone, resource=resource, now=now)]


def _owner(manager: Manager, paths: Paths, *, resource: Resource, now: float) -> _Owner:
    return _Owner(
        manager=manager.name,
        operation=manager.operation,
        subresource=manager.subresource,
        api_version=resource.api_version,
        time=second_time(now),
        paths=paths,
    )


def applied(config: Json, live: Json | None, manager: Manager, *, target: Target, now: float) -> Json:
    """Give what an applied configuration makes of an object, with its owners."""
    rule = rule_of(target.resource.definition)
    wanted = leaves(_of_this_address(config, target), rule)
    paths = frozenset(wanted)
    if live is None:
        result = dict(config)
        _put(result, [_owner(manager, paths, resource=target.resource, now=now)])
        return result
    owners = _owners(live) or [_before_first(live, target=target, now=now)]
    is_now = leaves(live, rule)
    mine = next((owner for owner in owners if owner.is_of(manager)), None)
    others = [owner for owner in owners if owner is not mine]
    differing = frozenset(path for path, value in wanted.items() if path in is_now and is_now[path] != value)
    others = _settled(others, differing, manager, target=target)
    result = merged(live, _of_this_address(config, target), rule)
    kept = frozenset[Path]().union(*(owner.paths for owner in others), paths)
    for path in sorted(mine.paths - paths if mine else (), key=_items_first):
        if path not in kept and not _holds_kept(path, kept):
            without(result, path)
    if mine is not None and mine.paths == paths:
        others.append(mine)
    else:
        others.append(_owner(manager, paths, resource=target.resource, now=now))
    _put(result, others)
    return copied(result)


def _items_first(path: Path) -> tuple[bool, Path]:
    # An item that goes is found by its keys, so before they go.
    return path[-1] != ".", path


def _holds_kept(path: Path, kept: Paths) -> bool:
    """Whether an item of a list has fields that somebody still owns."""
    return path[-1] == "." and any(one[: len(path) - 1] == path[:-1] for one in kept)


def _of_this_address(config: Json, target: Target) -> Json:
    """The status is applied at its own address, and only it there."""
    if target.subresource:
        return {part: value for part, value in config.items() if part == target.subresource}
    apart = {"status"} if "status" in target.resource.subresources else set[str]()
    return {part: value for part, value in config.items() if part not in apart}


def _before_first(live: Json, *, target: Target, now: float) -> _Owner:
    paths = frozenset(leaves(live, rule_of(target.resource.definition)))
    return _owner(Manager(name=_BEFORE), paths, resource=target.resource, now=now)


def _settled(others: list[_Owner], differing: Paths, manager: Manager, *, target: Target) -> list[_Owner]:
    """Refuse what others own with another value, or take it from them."""
    if manager.force:
        return [msgspec.structs.replace(owner, paths=owner.paths - differing) for owner in others]
    conflicts = [(owner, path) for owner in others for path in sorted(owner.paths & differing)]
    if conflicts:
        raise _conflict(conflicts, target=target)
    return others


def _conflict(conflicts: list[tuple[_Owner, Path]], *, target: Target) -> ApiError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{owner.manager}"'
            + (f" using {owner.api_version}" if owner.operation == "Update" else ""),
            "field": _shown(path),
        }
        for owner, path in conflicts
    ]
    some = "; ".join(f"{cause['message']}: {cause['field']}" for cause in causes[:10])
    count = len(causes)
    what = f"Apply failed with {count} conflict{'s' if count > 1 else ''}: {some}"
    details = {"name": target.name, "kind": target.resource.plural, "causes": causes}
    return ApiError(what, code=409, reason="Conflict", details=details)


def _shown(path: Path) -> str:
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step != ".":
            found: Any = msgspec.json.decode(step[2:])
            named = found if isinstance(found, dict) else {"": found}
            text += f"[{','.join(f'{key}={msgspec.json.encode(one).decode()}' for key, one in named.items())}]"
    return text


def manager_of(name: str, *, agent: str, operation: Operation, subresource: str, force: bool) -> Manager:
    """Name who writes: as the request says, or by the program that sent it."""
    causes = []
    if len(name) > _LONGEST or not name.isprintable():
        causes.append(wrong("fieldManager", name, f"at most {_LONGEST} printable characters"))
    if operation == "Apply" and not name:
        causes.append(required("fieldManager", "is required for apply patch"))
    if force and operation != "Apply":
        causes.append(forbidden_field("force", "may not be specified for non-apply patch"))
    if causes:
        raise invalid(_OPTIONS, "", causes)
    named = name or agent.partition("/")[0][:_LONGEST] or "unknown"
    return Manager(name=named, operation=operation, subresource=subresource, named=bool(name), force=force)
