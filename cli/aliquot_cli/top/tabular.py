"""What a table of `aliquot top` is, and what its rows need to know of everything else. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from aliquot_cli.top.columns import Column, Layout
from aliquot_cli.top.ink import HUES, Line, Tone
from aliquot_scheduler.page.amounts import held_beside
from aliquot_scheduler.page.model import State

T = TypeVar("T")


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a row has no room for, and of whom it is."""

    of: str
    text: str


class Order(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A way to sort; the natural one may leave things as they come."""

    title: str
    key: Callable[[T], Any] | None = None


class Table(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One view."""

    title: str
    columns: Sequence[Column]
    orders: Sequence[Order[T]]
    things: Callable[[State], Sequence[T]]
    # What a filter looks through.
    words: Callable[[T], str]
    # As other commands call it, in this domain.
    name: Callable[[T, str], str]
    draw: Callable[[T, Layout, Scene], Line]
    # Where rows say more than fits them: all that one says, to be shown beneath the table.
    tell: Callable[[T], Told] | None = None
    # The column of it.
    told_in: str = ""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What rows need to know of everything else."""

    state: State
    hues: Mapping[str, Tone]
    used: Mapping[str, tuple[int | None, int | None]]
    slices: Mapping[str, Sequence[str]]
    # By node what pods hold of it beside all grants.
    beside: Mapping[str, str]
    # By node why no pod is bound there, where that is so.
    out: Mapping[str, str]

    @property
    def whole(self) -> int:
        """All compute there is."""
        return self.state.totals.compute


def scene_of(state: State) -> Scene:
    """Work out once what many rows ask for."""
    used: dict[str, tuple[int | None, int | None]] = {}
    slices: dict[str, list[str]] = {}
    for node in state.nodes:
        for gpu in node.gpus:
            for one in gpu.slices:
                compute, memory = used.get(one.pod, (None, None))
                used[one.pod] = _sum(compute, one.used_compute), _sum(memory, one.used_memory)
                slices.setdefault(one.pod, []).append(str(gpu.index))
    names = sorted({row.name for row in state.queues if row.leaf} | {pod.queue for pod in state.pods})
    hues = {name: HUES[number % len(HUES)] for number, name in enumerate(names)}
    beside = {node.name: held_beside(node.strays) for node in state.nodes if node.strays}
    out = {node.name: node.out for node in state.nodes if node.out}
    return Scene(state=state, hues=hues, used=used, slices=slices, beside=beside, out=out)


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
