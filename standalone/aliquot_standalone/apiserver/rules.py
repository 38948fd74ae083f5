"""What is particular to each kind: defaults, what each write may touch, what is valid, what is selectable."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from . import metadata, names, shapes
from .failures import Cause, forbidden_field, wrong
from .shapes import without_empty

if TYPE_CHECKING:
    import msgspec

    from .store import Json


class Rules:
    """The rules of a kind that has none of its own; kinds override what differs."""

    shape: type[msgspec.Struct] = shapes.AnyObject
    fields: ClassVar[tuple[str, ...]] = ()
    # Top-level maps and lists that are left out when they are empty.
    optional: ClassVar[tuple[str, ...]] = ()

    def valid_name(self, name: str) -> bool:
        """Tell whether an object of this kind may be called so."""
        return names.is_subdomain(name)

    def prepare_new(self, obj: Json, *, now: float) -> None:
        """Fill defaults of a new object and drop what a creator may not say."""

    def tidy(self, obj: Json) -> None:
        """Leave out what is empty, so that saying nothing and saying nothing at length are the same."""
        without_empty(obj["metadata"], metadata.OPTIONAL_COLLECTIONS)
        without_empty(obj, self.optional)

    def prepare_update(self, new: Json, old: Json) -> None:
        """Put back what a write to the object itself may not touch."""
        _carry(new, old, "status")

    def prepare_status(self, new: Json, old: Json) -> None:
        """Put back what a write to the status may not touch."""
        _carry(new, old, "spec")

    def causes(self, obj: Json) -> list[Cause]:
        """Name what is wrong with an object; may bring values into their one form."""
        return metadata.causes(obj, valid_name=self.valid_name)

    def update_causes(self, new: Json, old: Json) -> list[Cause]:
        """Name what may not change so."""
        return metadata.update_causes(new, old)

    def grace(self, obj: Json, requested: int | None) -> int:  # noqa: ARG002 - pods have one
        """Say for how many seconds a deleted object stays, for its owner to end it."""
        return 0

    @property
    def supported_fields(self) -> frozenset[str]:
        """The paths that a field selector may name."""
        return frozenset({"metadata.name", "metadata.namespace", *self.fields})

    def selectable(self, obj: Json) -> dict[str, str]:
        """Give the values of the selectable fields."""
        found = {
            "metadata.name": obj["metadata"]["name"],
            "metadata.namespace": obj["metadata"].get("namespace", ""),
        }
        for path in self.fields:
            found[path] = _text_at(obj, path)
        return found


def _carry(new: Json, old: Json, part: str) -> None:
    if part in old:
        new[part] = old[part]
    else:
        new.pop(part, None)


@lru_cache(maxsize=256)
def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _text_at(obj: Json, path: str) -> str:
    value: object = obj
    for step in _steps(path):
        value = value.get(step, "") if isinstance(value, dict) else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class NodeRules(Rules):
    """Nodes register with their status, and change it only through the subresource."""

    shape = shapes.Node
    fields = ("spec.unschedulable",)

    def tidy(self, obj: Json) -> None:
        """Let all that a node has be allocatable, unless it is said otherwise."""
        super().tidy(obj)
        status = obj.get("status", {})
        if "capacity" in status:
            status.setdefault("allocatable", dict(status["capacity"]))

    def causes(self, obj: Json) -> list[Cause]:
        """Check metadata and bring the resource lists into their one form."""
        found = super().causes(obj)
        for part in ("capacity", "allocatable"):
            amounts = obj.get("status", {}).get(part, {})
            names.rewrite_quantities(amounts)
            found += names.whole_causes(amounts, at=f"status.{part}.{{}}".format)
        return found

    def selectable(self, obj: Json) -> dict[str, str]:
        """Say `false` where nothing is said."""
        found = super().selectable(obj)
        found["spec.unschedulable"] = found["spec.unschedulable"] or "false"
        return found


class NamespaceRules(Rules):
    """Namespaces are active until they are deleted, and gone when they are empty."""

    shape = shapes.Namespace
    fields = ("status.phase",)

    def valid_name(self, name: str) -> bool:
        """Namespaces appear in host names, so they are one label."""
        return names.is_label(name)

    def prepare_new(self, obj: Json, *, now: float) -> None:  # noqa: ARG002 - a rule's signature
        """Begin active, with the label by which others select a namespace by its name."""
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}
        if name := obj["metadata"].get("name"):
            obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name

    def prepare_update(self, new: Json, old: Json) -> None:
        """Keep the spec too: only the finalize subresource changes it, and nobody needs that here."""
        super().prepare_update(new, old)
        _carry(new, old, "spec")
        new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = old["metadata"]["name"]


class LeaseRules(Rules):
    """Leases say who holds them and for how long."""

    shape = shapes.Lease

    def prepare_status(self, new: Json, old: Json) -> None:
        """Leases have no status."""

    def causes(self, obj: Json) -> list[Cause]:
        """Check metadata and the two numbers."""
        found = super().causes(obj)
        spec = obj.get("spec", {})
        if spec.get("leaseDurationSeconds", 1) <= 0:
            found.append(wrong("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"))
        if spec.get("leaseTransitions", 0) < 0:
            found.append(wrong("spec.leaseTransitions", spec["leaseTransitions"], "must be 0 or more"))
        if spec.get("holderIdentity", "held") == "":
            found.append(wrong("spec.holderIdentity", "", "must not be empty"))
        return found


class EventRules(Rules):
    """Events are selectable by what they are about."""

    shape = shapes.Event
    fields = (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    )

    def causes(self, obj: Json) -> list[Cause]:
        """Check metadata, and that the event lies where its object does."""
        found = super().causes(obj)
        about = obj.get("involvedObject", {}).get("namespace", "")
        here = obj["metadata"].get("namespace", "")
        if here != (about or "default"):
            found.append(wrong("involvedObject.namespace", about, "does not match event.namespace"))
        return found

    def selectable(self, obj: Json) -> dict[str, str]:
        """Name the component that reported it, as selectors call it."""
        found = super().selectable(obj)
        component = obj.get("source", {}).get("component", "")
        found["source"] = component or obj.get("reportingComponent", "")
        return found


class PriorityClassRules(Rules):
    """A priority class keeps its value for life."""

    shape = shapes.PriorityClass
    _HIGHEST_OF_USERS = 1_000_000_000

    def prepare_new(self, obj: Json, *, now: float) -> None:  # noqa: ARG002 - a rule's signature
        """Preempt, unless it is said otherwise."""
        obj.setdefault("value", 0)
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def causes(self, obj: Json) -> list[Cause]:
        """Check metadata and who may be so high."""
        found = super().causes(obj)
        name = obj["metadata"].get("name", "")
        if obj.get("value", 0) > self._HIGHEST_OF_USERS and not name.startswith("system-"):
            found.append(forbidden_field("value", f"a user's class is at most {self._HIGHEST_OF_USERS}"))
        return found

    def update_causes(self, new: Json, old: Json) -> list[Cause]:
        """Refuse another value."""
        found = super().update_causes(new, old)
        found += [
            forbidden_field(field, "may not be changed in an update")
            for field in ("value", "preemptionPolicy")
            if new.get(field) != old.get(field)
        ]
        return found


class ConfigMapRules(Rules):
    """Configuration by key, which may be sealed."""

    shape = shapes.ConfigMap
    optional = ("data", "binaryData")

    def update_causes(self, new: Json, old: Json) -> list[Cause]:
        """Refuse changes of a sealed one."""
        found = super().update_causes(new, old)
        changed = any(new.get(part) != old.get(part) for part in ("data", "binaryData", "immutable"))
        if old.get("immutable") and changed:
            found.append(forbidden_field("data", "field is immutable when `immutable` is set"))
        return found


class ResourceQuotaRules(Rules):
    """Quotas; what is used of them is counted beside the store (`quotas`)."""

    shape = shapes.ResourceQuota

    def prepare_new(self, obj: Json, *, now: float) -> None:  # noqa: ARG002 - a rule's signature
        """Nobody has counted yet."""
        obj["status"] = {}

    def causes(self, obj: Json) -> list[Cause]:
        """Check metadata and bring the amounts into their one form."""
        names.rewrite_quantities(obj.get("spec", {}).get("hard", {}))
        return super().causes(obj)

    def update_causes(self, new: Json, old: Json) -> list[Cause]:
        """Refuse other scopes: what is used is counted by them."""
        found = super().update_causes(new, old)
        before, after = old.get("spec", {}), new.get("spec", {})
        if any(before.get(part) != after.get(part) for part in ("scopes", "scopeSelector")):
            found.append(wrong("spec.scopes", after.get("scopes", []), "field is immutable"))
        return found
