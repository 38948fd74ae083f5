"""The definition of the Queue resource says what the code reads, no more and no less."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest
import yaml

from aliquot_scheduler.queues.said.spec import (
    LARGEST_QUOTA,
    LARGEST_WEIGHT,
    HostLimits,
    ModelQuota,
    Preemption,
    QueueSpec,
    Quota,
)
from aliquot_scheduler.queues.telling.status import Amounts, QueueStatus

FILE = Path(__file__).parents[3] / "daemonset" / "manifests" / "05-queue.yaml"
DEFINITION: dict[str, Any] = next(yaml.safe_load_all(FILE.read_text()))
VERSION: dict[str, Any] = DEFINITION["spec"]["versions"][0]
SPEC: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]["properties"]["spec"]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (QueueSpec, SPEC),
        (Quota, SPEC["properties"]["compute"]),
        (Quota, SPEC["properties"]["memory"]),
        (HostLimits, SPEC["properties"]["hosts"]),
        (ModelQuota, SPEC["properties"]["models"]["additionalProperties"]),
        (Preemption, SPEC["properties"]["preemption"]),
    ],
)
def test_fields_are_those_that_the_code_reads(kind: type[Any], schema: dict[str, Any]) -> None:
    """A field that only one of the two knows would be dropped silently, or never be allowed."""
    assert set(schema["properties"]) == {field.encode_name for field in msgspec.structs.fields(kind)}


@pytest.mark.parametrize("field", msgspec.structs.fields(Quota), ids=lambda field: field.name)
def test_quotas_have_the_code_s_bounds(field: msgspec.structs.FieldInfo) -> None:
    """Refused by the API server or by the centre: the same numbers."""
    bounds = SPEC["properties"]["compute"]["properties"][field.encode_name]
    assert bounds["minimum"] == 0
    assert bounds["maximum"] == (LARGEST_WEIGHT if field.name == "weight" else LARGEST_QUOTA)


@pytest.mark.parametrize(
    ("kind", "name", "schema"),
    [
        (QueueSpec, "stop", SPEC["properties"]["stop"]),
        (QueueSpec, "over_use", SPEC["properties"]["overUse"]),
        (Preemption, "within_queue", SPEC["properties"]["preemption"]["properties"]["withinQueue"]),
        (Preemption, "reclaim", SPEC["properties"]["preemption"]["properties"]["reclaim"]),
    ],
)
def test_words_are_the_code_s(kind: type[Any], name: str, schema: dict[str, Any]) -> None:
    """The enumerations are written in two places."""
    words = next(field.type for field in msgspec.structs.fields(kind) if field.name == name)
    assert get_origin(words) is not None
    assert set(schema["enum"]) == set(get_args(words))


@pytest.mark.parametrize("column", [one for one in VERSION["additionalPrinterColumns"] if "status" in one["jsonPath"]])
def test_columns_show_what_the_centre_writes(column: dict[str, Any]) -> None:
    """`kubectl get queues` reads the status by paths that our own struct has."""
    status: Any = msgspec.to_builtins(
        QueueStatus(used=Amounts(compute=1), borrowed=Amounts(compute=1), fair_share=Amounts(compute=1), waiting=1)
    )
    for step in column["jsonPath"].removeprefix(".status.").split("."):
        status = status[step]
    assert status == 1
