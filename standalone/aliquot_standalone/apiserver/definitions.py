"""Custom kinds: a CustomResourceDefinition becomes kinds that the catalogue serves, with rules by their schema."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from aliquot_core.instants import second_time

from . import names, schemas
from .catalogue import DEFINITIONS, Definition, PrinterColumn, Resource
from .copying import copied
from .failures import Cause, forbidden_field, wrong
from .rules import Rules
from .shapes import Metadata, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .catalogue import Catalogue
    from .store import Change, Json, Store

Version = Annotated[str, msgspec.Meta(pattern=r"^v[0-9]+((alpha|beta)[0-9]+)?$")]


def _spelled(field: str) -> str:
    """Give the word of a schema that a field stands for."""
    extensions = {
        "keeps_unknown": "x-kubernetes-preserve-unknown-fields",
        "int_or_string": "x-kubernetes-int-or-string",
        "list_type": "x-kubernetes-list-type",
        "list_map_keys": "x-kubernetes-list-map-keys",
        "map_type": "x-kubernetes-map-type",
    }
    first, *others = field.split("_")
    return extensions.get(field) or first + "".join(map(str.capitalize, others))


class _Names(Shape, frozen=True):
    plural: str
    kind: str
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class _Node(Shape, frozen=True, rename=_spelled):
    """One place of a schema: the words that `schemas` reads."""

    type: Literal["object", "array", "string", "integer", "number", "boolean"] | None = None
    properties: dict[str, _Node] = msgspec.field(default_factory=dict)
    additional_properties: _Node | bool | None = None
    items: _Node | None = None
    required: tuple[str, ...] = ()
    enum: tuple[object, ...] | None = None
    pattern: str = ""
    nullable: bool = False
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: Annotated[float, msgspec.Meta(gt=0)] | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    keeps_unknown: bool = False
    int_or_string: bool = False
    list_type: Literal["atomic", "map", "set"] | None = None
    list_map_keys: tuple[str, ...] = ()
    map_type: Literal["atomic", "granular"] | None = None


class _Schema(Shape, frozen=True, rename={"schema": "openAPIV3Schema"}):
    schema: _Node


class _Subresources(Shape, frozen=True):
    status: dict[str, object] | None = None


class _Version(Shape, frozen=True):
    name: Version
    served: bool
    storage: bool
    schema: _Schema
    subresources: _Subresources = _Subresources()
    additional_printer_columns: tuple[PrinterColumn, ...] = ()


class _Spec(Shape, frozen=True):
    group: str
    names: _Names
    scope: str
    versions: list[_Version]


class _CustomResourceDefinition(Shape, frozen=True):
    spec: _Spec
    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()


class DefinitionRules(Rules):
    """Definitions are in force as soon as they are stored."""

    shape = _CustomResourceDefinition

    def prepare_new(self, obj: Json, *, now: float) -> None:
        """Fill in names, and say that it is established: nobody else has to look at it."""
        said = obj.get("spec", {}).get("names", {})
        said.setdefault("singular", said.get("kind", "").lower())
        said.setdefault("listKind", said.get("kind", "") + "List")
        obj["spec"].setdefault("conversion", {"strategy": "None"})
        head = {"status": "True", "lastTransitionTime": second_time(now)}
        obj["status"] = {
            "acceptedNames": said,
            "storedVersions": [one["name"] for one in obj["spec"].get("versions", []) if one.get("storage")],
            "conditions": [
                {**head, "type": "NamesAccepted", "reason": "NoConflicts", "message": "no conflicts found"},
                {**head, "type": "Established", "reason": "InitialNamesAccepted", "message": "the kind is served"},
            ],
        }

    def causes(self, obj: Json) -> list[Cause]:
        """Check what the server could not serve."""
        spec, found = obj["spec"], super().causes(obj)
        wanted = f"{spec['names']['plural']}.{spec['group']}"
        if obj["metadata"].get("name") != wanted:
            found.append(wrong("metadata.name", obj["metadata"].get("name"), f"must be {wanted}"))
        if not names.is_subdomain(spec["group"]) or "." not in spec["group"]:
            found.append(wrong("spec.group", spec["group"], "should be a domain with at least one dot"))
        if spec["scope"] not in {"Cluster", "Namespaced"}:
            found.append(wrong("spec.scope", spec["scope"], "Cluster or Namespaced"))
        if len([one for one in spec["versions"] if one["storage"]]) != 1:
            found.append(
                wrong("spec.versions", len(spec["versions"]), "must have exactly one version marked as storage")
            )
        if len(spec["versions"]) > 1:
            found.append(forbidden_field("spec.versions", "this server serves one version of a kind"))
        return found + [
            cause
            for index, one in enumerate(spec["versions"])
            for cause in _unheard(one["schema"]["openAPIV3Schema"], at=f"spec.versions[{index}].schema.openAPIV3Schema")
        ]

    def update_causes(self, new: Json, old: Json) -> list[Cause]:
        """Refuse another group, scope or kind: objects of the old one would be lost."""
        found = super().update_causes(new, old)
        for field in ("group", "scope"):
            if new["spec"][field] != old["spec"][field]:
                found.append(wrong(f"spec.{field}", new["spec"][field], "field is immutable"))
        if new["spec"]["names"]["kind"] != old["spec"]["names"]["kind"]:
            found.append(wrong("spec.names.kind", new["spec"]["names"]["kind"], "field is immutable"))
        return found


def _unheard(schema: object, *, at: str) -> Iterator[Cause]:
    if not isinstance(schema, dict):
        return
    try:
        re.compile(schema.get("pattern", ""))
    except re.error as error:
        yield wrong(f"{at}.pattern", schema["pattern"], f"must be a valid regular expression: {error}")
    for word in schemas.UNHEARD:
        if word in schema and not (word == "anyOf" and schema.get("x-kubernetes-int-or-string")):
            yield forbidden_field(f"{at}.{word}", "this server does not understand it")
    for name, inner in schema.get("properties", {}).items():
        yield from _unheard(inner, at=f"{at}.properties[{name}]")
    for part in ("items", "additionalProperties"):
        yield from _unheard(schema.get(part), at=f"{at}.{part}")


def resources_of(obj: Json) -> list[Resource]:
    """Give the kinds that a definition asks to serve."""
    spec = msgspec.convert(obj, _CustomResourceDefinition).spec
    schemas = [version["schema"]["openAPIV3Schema"] for version in obj["spec"]["versions"]]
    pairs = zip(spec.versions, schemas, strict=True)
    return [_resource(spec, version, schema) for version, schema in pairs if version.served]


def follow_definitions(store: Store, catalogue: Catalogue) -> None:
    """Serve what is defined, now and whenever a definition comes, changes or goes."""

    def follow(table: str, change: Change) -> None:
        if table != DEFINITIONS.table:
            return
        plural, _, group = change.revision.key.partition(".")
        catalogue.drop(group=group, plural=plural)
        if change.type != "DELETED":
            for resource in resources_of(change.revision.decode()):
                catalogue.add(resource)

    for one in store.snapshot(DEFINITIONS.table):
        for resource in resources_of(one.decode()):
            catalogue.add(resource)
    store.subscribe(follow)


def _resource(spec: _Spec, version: _Version, schema: Json) -> Resource:
    return Resource(
        group=spec.group,
        version=version.name,
        plural=spec.names.plural,
        singular=spec.names.singular or spec.names.kind.lower(),
        kind=spec.names.kind,
        namespaced=spec.scope == "Namespaced",
        short_names=spec.names.short_names,
        categories=spec.names.categories,
        subresources=("status",) if version.subresources.status is not None else (),
        generation=True,
        definition=Definition(schema=schema, columns=version.additional_printer_columns),
    )


class CustomRules(Rules):
    """Objects of a custom kind, by the schema of its definition."""

    def __init__(self, *, definition: Definition, has_status: bool) -> None:
        self._schema = definition.schema
        self._has_status = has_status

    def prepare_new(self, obj: Json, *, now: float) -> None:  # noqa: ARG002 - a rule's signature
        """Drop a status that only its subresource may write."""
        if self._has_status:
            obj.pop("status", None)

    def tidy(self, obj: Json) -> None:
        """Drop what the schema does not know, and fill in what it gives."""
        super().tidy(obj)
        schemas.prune(obj, self._schema, top=True)
        schemas.fill(obj, self._schema)

    def prepare_update(self, new: Json, old: Json) -> None:
        """Put the status back, where it has its own subresource."""
        if self._has_status:
            super().prepare_update(new, old)

    def prepare_status(self, new: Json, old: Json) -> None:
        """Put everything else back, metadata too."""
        status, owners = new.get("status"), new["metadata"].get("managedFields")
        new.clear()
        new.update(copied(old))
        if owners:
            new["metadata"]["managedFields"] = owners
        if status is not None:
            new["status"] = status
        else:
            new.pop("status", None)

    def causes(self, obj: Json) -> list[Cause]:
        """Check metadata and the schema."""
        return [*super().causes(obj), *schemas.causes(obj, self._schema)]


_STEP = re.compile(r"\.([^.\[\]\\]*(?:\\.[^.\[\]\\]*)*)|\[([0-9]+)\]|\['([^']*)'\]")


def at_path(obj: object, path: str) -> object:
    """Give what lies at a printer column's path, or nothing; of JSONPath, names and indices are understood."""
    position = 0
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            return None
        position = found.end()
        name, index, quoted = found.groups()
        if index is not None:
            obj = obj[int(index)] if isinstance(obj, list) and int(index) < len(obj) else None
        else:
            key = quoted if quoted is not None else name.replace("\\", "")
            obj = obj.get(key) if isinstance(obj, dict) else None
        if obj is None:
            return None
    return obj
