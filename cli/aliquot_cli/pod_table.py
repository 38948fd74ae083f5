"""Rows of pods as a terminal shows them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_cli.pod_rows import GpuPart, PodRow, Used
from aliquot_cli.tables import ago

_UNKNOWN = "-"


def pod_table(rows: Sequence[PodRow], *, wide: bool, everywhere: bool, now: float) -> list[list[str]]:
    """The table with its heading, the same columns whoever tells of use: programs read it by them."""
    more = ["MODEL", "USER"] if wide else []
    names = ["NAMESPACE"] if everywhere else []
    heading = [*names, "NAME", "STATE", "QUEUE", "NODE", "GPU", "COMPUTE", "MEMORY", "USED", "AGE", *more, "WHY"]
    return [heading, *(_line(row, wide=wide, everywhere=everywhere, now=now) for row in rows)]


def _line(row: PodRow, *, wide: bool, everywhere: bool, now: float) -> list[str]:
    cells = [row.namespace] if everywhere else []
    state = f"{row.state} ({row.place})" if row.place else str(row.state)
    cells += [row.name, state, row.queue or _UNKNOWN, row.node or _UNKNOWN, gpus_text(row.gpus)]
    cells += [_amount(row.compute, "%"), _amount(row.memory, "MiB"), _used(row.used), ago(row.created, now=now)]
    if wide:
        models = ", ".join(sorted({part.model for part in row.gpus if part.model}))
        cells += [models or _UNKNOWN, row.user]
    return [*cells, row.why]


def gpus_text(parts: Sequence[GpuPart]) -> str:
    """GPUs by their numbers on the node, else by what their uuids begin with."""
    return ",".join(str(part.index) if part.index is not None else part.uuid[:12] for part in parts) or _UNKNOWN


def _used(used: Used) -> str:
    """What is told of it, and one mark where nothing is: of whoever waits."""
    told = [_amount(number, unit) for number, unit in ((used.compute, "%"), (used.memory, "MiB")) if number is not None]
    return ", ".join(told) or _UNKNOWN


def _amount(number: int | None, unit: str) -> str:
    return _UNKNOWN if number is None else f"{number} {unit}"
