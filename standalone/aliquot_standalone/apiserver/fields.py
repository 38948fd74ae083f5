"""Fields of an object as paths, in the words of `managedFields`: `f:spec`, `k:{"name":"main"}`, `v:"x"`, `.`.

Which lists are maps by a key, and which are sets, is said by a custom kind's schema; of the other kinds the table of
strategic merge says it, by field name. What is neither is atomic: it has one owner and is replaced whole.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from .strategic import merge_key, merges_as_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .catalogue import Definition
    from .store import Json

Path = tuple[str, ...]
Paths = frozenset[Path]
# Maps that have one owner although their fields could be told apart.
_ATOMIC_MAPS = frozenset(
    {
        "configMapKeyRef",
        "fieldRef",
        "matchLabels",
        "nodeSelector",
        "resourceFieldRef",
        "secretKeyRef",
        "selector",
        "scopeSelector",
    }
)
# The server's own, of which nobody is the owner.
_OF_NOBODY = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


class Rule(msgspec.Struct, frozen=True):
    """How one field merges."""

    name: str = ""
    # None: one of Kubernetes's own kinds.
    schema: Json | None = None

    def below(self, name: str) -> Rule:
        """Give the rule of a field of this object."""
        if self.schema is None or self.name == "metadata":
            return Rule(name)
        known, others = self.schema.get("properties", {}), self.schema.get("additionalProperties")
        return Rule(name, known.get(name) or (others if isinstance(others, dict) else {}))

    @property
    def items(self) -> Rule:
        """Give the rule of the items of this list."""
        return Rule("", None if self.schema is None else self.schema.get("items", {}))

    def keys(self, items: list[Any]) -> tuple[str, ...]:
        """Give the fields by which items are matched, where this list is a map."""
        if self.schema is None:
            key = merge_key(self.name)
            there = bool(key) and all(isinstance(one, dict) and key in one for one in items)
            return (key,) if key and there else ()
        if self.schema.get("x-kubernetes-list-type") != "map":
            return ()
        keys = tuple(self.schema.get("x-kubernetes-list-map-keys", ()))
        return keys if all(isinstance(one, dict) and all(key in one for key in keys) for one in items) else ()

    @property
    def is_set(self) -> bool:
        """Whether this list is a set."""
        if self.schema is None:
            return merges_as_set(self.name)
        return bool(self.schema.get("x-kubernetes-list-type") == "set")

    @property
    def is_atomic_map(self) -> bool:
        """Whether this object is replaced whole."""
        if self.schema is None:
            return self.name in _ATOMIC_MAPS
        return bool(self.schema.get("x-kubernetes-map-type") == "atomic")


def rule_of(definition: Definition | None) -> Rule:
    """Give the rule of a kind's objects."""
    return Rule("", None if definition is None else definition.schema)


def leaves(obj: Json, rule: Rule) -> dict[Path, Any]:
    """Give every field that can have an owner, with its value."""
    found: dict[Path, Any] = {}
    for name, value in obj.items():
        if name == "metadata":
            owned = {key: one for key, one in value.items() if key not in _OF_NOBODY}
            found.update(_leaves(owned, rule.below(name), ("f:metadata",)) if owned else ())
        elif name not in {"apiVersion", "kind"}:
            found.update(_leaves(value, rule.below(name), (f"f:{name}",)))
    return found


def _leaves(value: Any, rule: Rule, at: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value and not rule.is_atomic_map:
        for name, one in value.items():
            yield from _leaves(one, rule.below(name), (*at, f"f:{name}"))
    elif isinstance(value, list) and (keys := rule.keys(value)) and value:
        for one in value:
            here = (*at, item_step(one, keys))
            yield (*here, "."), None
            for name, inner in one.items():
                yield from _leaves(inner, rule.items.below(name), (*here, f"f:{name}"))
    elif isinstance(value, list) and value and rule.is_set:
        for one in value:
            yield (*at, f"v:{_text(one)}"), one
    else:
        yield at, value


def item_step(item: Json, keys: tuple[str, ...]) -> str:
    """Spell which item of a list that is a map."""
    return f"k:{_text({key: item[key] for key in sorted(keys)})}"


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def tree_of(paths: Iterable[Path]) -> Json:
    """Give paths as `fieldsV1` has them."""
    tree: Json = {}
    for path in sorted(paths):
        here = tree
        for step in path:
            here = here.setdefault(step, {})
    return tree


def paths_of(tree: Json, at: Path = ()) -> Iterator[Path]:
    """Give the paths of a `fieldsV1`; raises ValueError where it is none."""
    for step, below in tree.items():
        if not isinstance(below, dict):
            raise ValueError(step)  # noqa: TRY004 - it is text of a client's that is wrong, no type of ours
        if below:
            yield from paths_of(below, (*at, step))
        else:
            yield (*at, step)


def merged(live: Any, applied: Any, rule: Rule) -> Any:
    """Lay what is applied over what is there; lists that are maps or sets grow, all else is replaced."""
    if isinstance(live, dict) and isinstance(applied, dict) and not rule.is_atomic_map:
        result = dict(live)
        for name, value in applied.items():
            result[name] = merged(live[name], value, rule.below(name)) if name in live else value
        return result
    if isinstance(live, list) and isinstance(applied, list):
        if keys := rule.keys([*live, *applied]):
            return _merged_items(live, applied, keys, rule.items)
        if rule.is_set:
            return [*live, *(one for one in applied if one not in live)]
    return applied


def _merged_items(live: list[Any], applied: list[Any], keys: tuple[str, ...], rule: Rule) -> list[Any]:
    by_step = {item_step(one, keys): one for one in live}
    for one in applied:
        step = item_step(one, keys)
        by_step[step] = merged(by_step[step], one, rule) if step in by_step else one
    return list(by_step.values())


def without(obj: Any, path: Path) -> None:
    """Take a field out, in place, and what is empty then; where it is not there, nothing happens."""
    step, rest = path[0], path[1:]
    if isinstance(obj, dict) and step.startswith("f:"):
        name = step[2:]
        if name not in obj:
            return
        if rest:
            without(obj[name], rest)
        if not rest or obj[name] in ({}, []):
            del obj[name]
    elif isinstance(obj, list) and step.startswith("v:"):
        obj[:] = [one for one in obj if _text(one) != step[2:]]
    elif isinstance(obj, list) and step.startswith("k:"):
        wanted = json.loads(step[2:])
        for one in [one for one in obj if isinstance(one, dict) and wanted.items() <= one.items()]:
            if rest == (".",):
                obj.remove(one)
            else:
                without(one, rest)
