"""Traces as people have them: comma-separated lists of nodes, pods, arrival orders and lines of equals.

The columns are those of benchmarks/placement/openb/README.md, in any order, others beside them; `gpu_memory_mib` may
come in addition (nodes: of each card; pods: of each GPU they ask for), and `labels` of nodes (`name=value;name=value`).
A line that can't be meant so is an error that names it: a number read wrongly gives a figure that looks right.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from aliquot_core.errors import UserError
from aliquot_scheduler.simulating.workload import MILLI, Longs, Machine, Need

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")
CARD_COLUMN = "gpu_memory_mib"
LABELS_COLUMN = "labels"
# What to do about a file that can't be read.
READABLE = "check its name; it is to be text in UTF-8, as it is or compressed with gzip"

# More than any machine has: 10,000 cores, 1 PiB, and what a node of today holds four times over.
_MOST_CORES = 10_000 * MILLI
_MOST_MEMORY = 2**30
_MOST_GPUS = 64
_QUOTED = 40


class TraceError(UserError):
    """A line of a trace that can't be meant so."""


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """What pods may ask of the machines: their models; and the first that says nothing of its cards' memory."""

    models: frozenset[str]
    silent: str

    @classmethod
    def of(cls, machines: Sequence[Machine]) -> Hardware:
        """Of those that have GPUs."""
        with_gpus = [machine for machine in machines if machine.gpus]
        return cls(
            models=frozenset(machine.model for machine in with_gpus),
            silent=next((machine.name for machine in with_gpus if not machine.card), ""),
        )


class PodList(msgspec.Struct, frozen=True, kw_only=True):
    """Distinct needs, and which one each pod has."""

    needs: tuple[Need, ...]
    pods: Longs


def read_nodes(lines: Iterable[str], *, name: str) -> tuple[Machine, ...]:
    """The machines of a list."""
    rows = rows_of(lines, name=name, columns=NODE_COLUMNS, optional=(CARD_COLUMN, LABELS_COLUMN))
    machines: dict[str, Machine] = {}
    for where, (serial, cores, memory, gpus, model, card, labels) in rows:
        if not serial or serial in machines:
            told = f"node {serial[:_QUOTED]!r} is {'there twice' if serial else 'without a name'}"
            raise TraceError(told, where=where, remedy="give each node a name of its own")
        count = number_of(gpus, column="gpu", most=_MOST_GPUS, where=where)
        if count and not model:
            raise TraceError("a node with GPUs names no model", where=where, remedy="fill the column model")
        machines[serial] = Machine(
            name=serial,
            cores=number_of(cores, column="cpu_milli", most=_MOST_CORES, where=where),
            memory=number_of(memory, column="memory_mib", most=_MOST_MEMORY, where=where),
            gpus=count,
            model=model,
            card=number_of(card or "0", column=CARD_COLUMN, most=_MOST_MEMORY, where=where),
            labels=_labels(labels, where=where),
        )
    if not machines:
        raise TraceError("it has no node", where=name, remedy="write a line for each, below the heading")
    if not any(machine.gpus for machine in machines.values()):
        told = "none of its nodes has a GPU"
        raise TraceError(told, where=name, remedy="fill the column gpu: all is told in percent of GPUs")
    return tuple(machines.values())


def read_pods(lines: Iterable[str], *, name: str, machines: Sequence[Machine]) -> PodList:
    """The pods of a list; each distinct need is looked at once, so a million rows take seconds."""
    hardware = Hardware.of(machines)
    numbers: dict[Sequence[str], int] = {}
    needs: dict[Need, int] = {}
    pods: list[int] = []
    for where, cells in rows_of(lines, name=name, columns=POD_COLUMNS, optional=(CARD_COLUMN,)):
        number = numbers.get(cells)
        if number is None:
            need = need_of(cells, where=where, hardware=hardware)
            number = numbers[cells] = needs.setdefault(need, len(needs))
        pods.append(number)
    if not pods:
        raise TraceError("it has no pod", where=name, remedy="write a line for each, below the heading")
    return PodList(needs=tuple(needs), pods=np.array(pods, dtype=np.int64))


def read_order(lines: Iterable[str], *, name: str, seed: int, pods: int) -> Longs:
    """Which pod arrives when: a column for each seed, rows of the pod list counted from 0, then empty cells."""
    order = _column(lines, name=name, seed=seed, most=pods - 1, what="pod")
    if not len(order):
        told = f"nobody arrives in column seed{seed}"
        raise TraceError(told, where=name, remedy="write the rows of pods in it, counted from 0")
    return order


def read_line(lines: Iterable[str], *, name: str, seed: int, nodes: int) -> Longs:
    """The line of equals: each node's place in it."""
    line = _column(lines, name=name, seed=seed, most=2**31, what="place")
    if len(line) != nodes:
        told = f"it has places for {len(line)} nodes, not for {nodes}"
        raise TraceError(told, where=name, remedy="give the line that was drawn for this list of nodes")
    return line


def _labels(text: str, *, where: str) -> tuple[tuple[str, str], ...]:
    pairs = [one.partition("=") for one in text.split(";") if one]
    if bad := next((name for name, sign, _ in pairs if not (name and sign)), None):
        raise TraceError(f"label {bad[:_QUOTED]!r} has no value", where=where, remedy="write name=value;name=value")
    return tuple((name, value) for name, _, value in pairs)


def need_of(cells: Sequence[str], *, where: str, hardware: Hardware) -> Need:
    """What a pod asks for, by the cells of `POD_COLUMNS` and `CARD_COLUMN`."""
    cores, memory, gpus, milli, spec, card = cells
    allowed = tuple(model.strip() for model in spec.split("|") if model.strip())
    need = Need(
        cores=number_of(cores, column="cpu_milli", most=_MOST_CORES, where=where),
        memory=number_of(memory, column="memory_mib", most=_MOST_MEMORY, where=where),
        gpus=number_of(gpus, column="num_gpu", most=_MOST_GPUS, where=where),
        milli=number_of(milli, column="gpu_milli", most=MILLI, where=where),
        card=number_of(card or "0", column=CARD_COLUMN, most=_MOST_MEMORY, where=where),
        models=allowed,
    )
    if bool(need.gpus) != bool(need.milli):
        told = f"num_gpu is {need.gpus} and gpu_milli {need.milli}"
        raise TraceError(told, where=where, remedy="both are 0, or neither")
    if need.gpus and (strangers := [model for model in allowed if model not in hardware.models]):
        told = f"gpu_spec names {', '.join(strangers)[:_QUOTED]!r}, which is no model of the nodes"
        raise TraceError(told, where=where, remedy=f"known: {', '.join(sorted(hardware.models))}")
    if need.gpus and need.card and hardware.silent:
        told = f"{CARD_COLUMN} is asked for, and node {hardware.silent[:_QUOTED]!r} does not say what its cards have"
        raise TraceError(
            told, where=where, remedy=f"fill the column {CARD_COLUMN} of all nodes with GPUs, or of no pod"
        )
    return need


def _column(lines: Iterable[str], *, name: str, seed: int, most: int, what: str) -> Longs:
    column = f"seed{seed}"
    numbers, ended = [], False
    for where, (cell,) in rows_of(lines, name=name, columns=(column,), optional=()):
        if not cell:
            ended = True
            continue
        if ended:
            told = f"column {column} goes on behind an empty cell"
            raise TraceError(told, where=where, remedy="leave cells empty at the end alone")
        numbers.append(number_of(cell, column=what, most=most, where=where))
    return np.array(numbers, dtype=np.int64)


def rows_of(
    lines: Iterable[str], *, name: str, columns: Sequence[str], optional: Sequence[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Where each row is, and its cells in the order of these columns; optional ones that are missing are empty."""
    reader = csv.reader(_clean(lines, name=name))
    try:
        heading = [cell.strip() for cell in next(reader, [])]
        if missing := [column for column in columns if column not in heading]:
            told = f"column {', '.join(missing)} is missing"
            raise TraceError(told, where=f"{name}, line 1", remedy=f"it has: {', '.join(heading)[:200] or 'nothing'}")
        places = [heading.index(column) if column in heading else len(heading) for column in (*columns, *optional)]
        for row in reader:
            if len(row) == len(heading):
                row.append("")
                yield f"{name}, line {reader.line_num}", tuple([row[place].strip() for place in places])
            elif row:
                told = f"it has {len(row)} cells, the heading has {len(heading)}"
                where = f"{name}, line {reader.line_num}"
                raise TraceError(told, where=where, remedy="put cells that hold a comma between quotes")
    except csv.Error as error:
        told, where = f"no comma-separated list: {error}", f"{name}, line {reader.line_num}"
        raise TraceError(told, where=where, remedy="save it as comma-separated values") from None


def _clean(lines: Iterable[str], *, name: str) -> Iterator[str]:
    try:
        for number, line in enumerate(lines):
            yield line if number else line.removeprefix("\ufeff")
    except (UnicodeDecodeError, EOFError, OSError) as error:
        raise TraceError(f"can't be read: {error}", where=name, remedy=READABLE) from None


def number_of(text: str, *, column: str, most: int, where: str) -> int:
    """A whole number that can be meant; a table program may have written 8 as 8.0."""
    try:
        number: float = int(text) if text.isdecimal() else float(text)
        whole = int(number)
    except (ValueError, OverflowError):
        number, whole = 0.5, 0
    if number != whole:
        told = f"{column} {text[:_QUOTED]!r} is not a whole number"
        raise TraceError(told, where=where, remedy="write one, without a unit")
    if not 0 <= whole <= most:
        told = f"{column} {text[:_QUOTED]} is not between 0 and {most}"
        raise TraceError(told, where=where, remedy="look whether it counts in another unit")
    return whole
