"""Objects as rows, for `kubectl get`: the server chooses the columns, the client only draws them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from .definitions import at_path
from .job_rows import cron_job_row, job_row
from .pod_rows import pod_row
from .spans import instant, span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .catalogue import Definition, PrinterColumn, Resource
    from .store import Json, Revision

TABLE_VERSIONS = ("v1", "v1beta1")


class Column(msgspec.Struct, frozen=True):
    """A column; from priority 1 on it is shown only when asked for (`-o wide`)."""

    name: str
    type: str = "string"
    priority: int = 0

    def describe(self) -> Json:
        """Give its definition as the API has it."""
        form = "name" if self.name == "Name" else ""
        return {"name": self.name, "type": self.type, "format": form, "description": "", "priority": self.priority}


Row = Callable[["Json", float], list[Any]]


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a kind, and how to fill them."""

    columns: tuple[Column, ...]
    row: Row


def age(stamp: object, now: float) -> str:
    """Say how long ago something was, shortly; who wrote the time may have written anything."""
    if not isinstance(stamp, str) or not stamp:
        return "<unknown>"
    begun = instant(stamp)
    return "<invalid>" if begun is None else span(now - begun)


def _columns(*names: str, wide: tuple[str, ...] = ()) -> tuple[Column, ...]:
    return (*(Column(name) for name in names), *(Column(name, priority=1) for name in wide))


def _plain_row(obj: Json, now: float) -> list[Any]:
    return [obj["metadata"]["name"], age(obj["metadata"].get("creationTimestamp"), now)]


def _pod(obj: Json, now: float) -> list[Any]:
    cells = pod_row(obj)
    created = age(obj["metadata"].get("creationTimestamp"), now)
    return [*cells[:4], created, *cells[4:]]


def _node(obj: Json, now: float) -> list[Any]:
    metadata, status = obj["metadata"], obj.get("status", {})
    info = status.get("nodeInfo", {})
    addresses = {one.get("type"): one.get("address") for one in status.get("addresses", [])}
    prefix = "node-role.kubernetes.io/"
    roles = sorted(label[len(prefix) :] for label in metadata.get("labels", {}) if label.startswith(prefix))
    return [
        metadata["name"],
        _node_state(obj),
        ",".join(roles) or "<none>",
        age(metadata.get("creationTimestamp"), now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage", "<unknown>"),
        info.get("kernelVersion", "<unknown>"),
        info.get("containerRuntimeVersion", "<unknown>"),
    ]


def _node_state(obj: Json) -> str:
    conditions = obj.get("status", {}).get("conditions", [])
    ready = next((one.get("status") for one in conditions if one.get("type") == "Ready"), None)
    words = {"True": "Ready", None: "Unknown"}
    state = words.get(ready, "NotReady")
    return f"{state},SchedulingDisabled" if obj.get("spec", {}).get("unschedulable") else state


def _namespace(obj: Json, now: float) -> list[Any]:
    return [obj["metadata"]["name"], obj["status"]["phase"], age(obj["metadata"].get("creationTimestamp"), now)]


def _lease(obj: Json, now: float) -> list[Any]:
    holder = obj.get("spec", {}).get("holderIdentity", "")
    return [obj["metadata"]["name"], holder, age(obj["metadata"].get("creationTimestamp"), now)]


def _event(obj: Json, now: float) -> list[Any]:
    about = obj.get("involvedObject", {})
    series = obj.get("series", {})
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("eventTime")
    source = obj.get("source", {})
    return [
        age(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        obj.get("message", "").strip(),
        about.get("fieldPath", ""),
        source.get("component") or obj.get("reportingComponent", ""),
        age(obj.get("firstTimestamp") or obj.get("eventTime"), now),
        series.get("count") or obj.get("count", 1),
        obj["metadata"]["name"],
    ]


def _config_map(obj: Json, now: float) -> list[Any]:
    entries = len(obj.get("data", {})) + len(obj.get("binaryData", {}))
    return [obj["metadata"]["name"], entries, age(obj["metadata"].get("creationTimestamp"), now)]


def _priority_class(obj: Json, now: float) -> list[Any]:
    created = age(obj["metadata"].get("creationTimestamp"), now)
    default = "true" if obj.get("globalDefault") else "false"
    return [obj["metadata"]["name"], obj.get("value", 0), default, created, obj.get("preemptionPolicy", "")]


def _quota(obj: Json, now: float) -> list[Any]:
    status = obj.get("status", {})
    used, parts = status.get("used", {}), {"requests": list[str](), "limits": list[str]()}
    for name, hard in sorted(status.get("hard", {}).items()):
        parts["limits" if name.startswith("limits.") else "requests"].append(f"{name}: {used.get(name, 0)}/{hard}")
    created = age(obj["metadata"].get("creationTimestamp"), now)
    return [obj["metadata"]["name"], ", ".join(parts["requests"]), ", ".join(parts["limits"]), created]


def _dated(obj: Json, _: float) -> list[Any]:
    return [obj["metadata"]["name"], obj["metadata"].get("creationTimestamp", "")]


_PLAIN = Layout(columns=_columns("Name", "Age"), row=_plain_row)
_NODE_WIDE = ("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime")
_LAYOUTS = MappingProxyType(
    {
        "pods": Layout(
            columns=_columns(
                *("Name", "Ready", "Status", "Restarts", "Age"),
                wide=("IP", "Node", "Nominated Node", "Readiness Gates"),
            ),
            row=_pod,
        ),
        "nodes": Layout(columns=_columns("Name", "Status", "Roles", "Age", "Version", wide=_NODE_WIDE), row=_node),
        "namespaces": Layout(columns=_columns("Name", "Status", "Age"), row=_namespace),
        "leases.coordination.k8s.io": Layout(columns=_columns("Name", "Holder", "Age"), row=_lease),
        "events": Layout(
            columns=_columns(
                *("Last Seen", "Type", "Reason", "Object", "Message"),
                wide=("Subobject", "Source", "First Seen", "Count", "Name"),
            ),
            row=_event,
        ),
        "resourcequotas": Layout(columns=_columns("Name", "Request", "Limit", "Age"), row=_quota),
        "limitranges": Layout(columns=_columns("Name", "Created At"), row=_dated),
        "customresourcedefinitions.apiextensions.k8s.io": Layout(columns=_columns("Name", "Created At"), row=_dated),
        "jobs.batch": Layout(
            columns=_columns("Name", "Status", "Completions", "Duration", "Age"), row=partial(job_row, age=age)
        ),
        "cronjobs.batch": Layout(
            columns=_columns("Name", "Schedule", "Timezone", "Suspend", "Active", "Last Schedule", "Age"),
            row=partial(cron_job_row, age=age),
        ),
        "configmaps": Layout(columns=_columns("Name", "Data", "Age"), row=_config_map),
        "priorityclasses.scheduling.k8s.io": Layout(
            columns=_columns("Name", "Value", "Global-Default", "Age", "PreemptionPolicy"), row=_priority_class
        ),
    }
)


def _custom_layout(definition: Definition) -> Layout:
    shown = definition.columns

    def row(obj: Json, now: float) -> list[Any]:
        return [obj["metadata"]["name"], *(_custom_cell(obj, column, now=now) for column in shown)]

    columns = (Column(column.name, column.type, column.priority) for column in shown)
    return Layout(columns=(Column("Name"), *columns), row=row)


def _custom_cell(obj: Json, column: PrinterColumn, *, now: float) -> Any:
    value = at_path(obj, column.json_path)
    if column.type == "date":
        return age(value, now)
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else value


def table(
    resource: Resource, revisions: Iterable[Revision], *, metadata: Json, now: float, version: str, whole: bool = False
) -> bytes:
    """Give objects as a table; beside each row travels its object, as far as the client wants it."""
    layout = _LAYOUTS.get(resource.table, _PLAIN)
    if resource.definition is not None and resource.definition.columns:
        layout = _custom_layout(resource.definition)
    body = {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "columnDefinitions": [column.describe() for column in layout.columns],
        "rows": [_row(resource, one, layout=layout, now=now, version=version, whole=whole) for one in revisions],
    }
    return msgspec.json.encode(body)


def _row(resource: Resource, one: Revision, *, layout: Layout, now: float, version: str, whole: bool) -> Json:
    obj = one.decode()
    cells = layout.row(obj, now)
    if whole:
        shown = {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
    else:
        kind, api_version = "PartialObjectMetadata", f"meta.k8s.io/{version}"
        shown = {"kind": kind, "apiVersion": api_version, "metadata": obj["metadata"]}
    return {"cells": cells, "object": shown}
