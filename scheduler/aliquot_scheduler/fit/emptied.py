"""Which of a pod's containers find room on a node that nobody else is on: who has none even there never will.

Theory of operation. Of an empty node nothing counts but how large the GPUs are that the pod may have, so nodes that are
alike are asked once (`_sizes`). Most pods that find no room are known by how many places there are for pieces of a size
(`too_much`). For the others, containers are laid the largest first, each piece on one GPU of every size and filling;
what comes to the same filling is looked at once. So it is asked of the containers that stay, and of each init container
with the sidecars that have started before it.

An init container runs on its app containers' GPUs, so where each finds room by itself, they are laid once more with
those that stay, as `layout` lays them.

What must always hold: who finds room in any way is never said to find none. So where there are too many ways to try
them all, there may be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from aliquot_core.claims import NOTHING
from aliquot_core.inventory import Gpu, Instance
from aliquot_core.request import ContainerRequest, Kind, PodRequest
from aliquot_scheduler.fit.card import Card
from aliquot_scheduler.fit.demand import Piece, before_all, demand_of, in_order, pieces_of
from aliquot_scheduler.fit.layout import in_any_way
from aliquot_scheduler.fit.modes import kinds_together, mask_of, modes_of
from aliquot_scheduler.fit.ways import Steps, too_much
from aliquot_scheduler.picture.grid import Bools, Cells, Rows

# Looked at for one pod and kind of node: up to 10 ms of the leader's.
_MOST_WAYS = 200
# Of more init containers the others may find no room: that much for each.
_MOST_INITS = 16
# Pods whose answers are kept by what their containers ask, those that were used last.
_KEPT = 64

# The sizes of a node's GPUs that the pod may have, in bytes, and what each was put together of: memory above compute
# and whether it is cut, and above all the modes in which one container may have it beside others.
Sizes = bytes
_MODES, _MEMORY, _CUT, _COMPUTE = 48, 8, 1, 7

# What a GPU has left: whether the container that is being laid lies on it, compute, memory, memory in all, whether it
# can be shared, in which modes (bits). What is full is left out.
_Left = tuple[bool, int, int, int, bool, int]
_Filling = tuple[_Left, ...]
# How many pieces were laid, on what that leaves, and the modes in which the last one's container lies.
_Step = tuple[int, _Filling, int]
_ANY_MODE = -1


Masks = npt.NDArray[np.int64]


class Fill(NamedTuple):
    """For how many of the containers that stay there is room at one time, and the first init container without any."""

    staying: int
    stuck: str = ""
    # That one has room, and none on its app containers' GPUs.
    off_apps: bool = False


class Emptied:
    """Answers, kept by what is asked and by kind of node."""

    def __init__(self) -> None:
        self._kept: dict[tuple[ContainerRequest, ...], dict[Sizes, Fill]] = {}

    def takes_all(self, request: PodRequest, possible: Bools, *, grid: Cells, allowed: Bools) -> Bools:
        """Of these rows those that have room for all that is held at any one time, as far as is known."""
        if demand_of(request).pieces is None:
            rows = np.flatnonzero(possible)
            possible, all_in = possible.copy(), Fill(staying=len(in_order(request)))
            fills = self.fills(request, rows, grid=grid, allowed=allowed)
            possible[rows] = np.array([fill == all_in for fill in fills], dtype=np.bool_)
        return possible

    def fills(self, request: PodRequest, rows: Rows, *, grid: Cells, allowed: Bools) -> list[Fill]:
        """For which containers each of these rows has room, were it empty."""
        known = self._kept[request.containers] = self._kept.pop(request.containers, {})
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        found = []
        for sizes in _sizes(rows, grid=grid, allowed=allowed, masks=self._masks(request, grid)):
            if sizes not in known:
                known[sizes] = _fill(request, sizes)
            found.append(known[sizes])
        return found

    @staticmethod
    def _masks(request: PodRequest, grid: Cells) -> Masks | None:
        """By kind of GPU in which modes it may be had beside others; None where that is one for all."""
        if len(kinds_together(grid.kinds, request)) == 1:
            return None
        return np.array([mask_of(kind.isolation, modes_of(request)) for kind in grid.kinds], dtype=np.int64)


def _sizes(rows: Rows, *, grid: Cells, allowed: Bools, masks: Masks | None) -> Iterator[Sizes]:
    """In any order of its GPUs a node is the same."""
    packed = (grid.usable[rows].astype(np.int64) << _MEMORY) | (grid.total[rows] << _CUT) | grid.cut[rows]
    if masks is not None:
        packed |= masks[grid.kind[rows]] << _MODES
    packed = np.sort(np.where(allowed[rows], packed, 0), axis=1)
    whole, width = np.ascontiguousarray(packed).tobytes(), packed.shape[1] * packed.itemsize
    return (whole[start : start + width] for start in range(0, len(rows) * width, width))


def _fill(request: PodRequest, sizes: Sizes) -> Fill:
    gpus = tuple(_gpu(packed) for packed in np.frombuffer(sizes, dtype=np.int64).tolist() if packed)
    staying, stuck = _how_many([pieces_of(one) for one in in_order(request)], gpus), _stuck(request, gpus)
    if stuck or staying < len(in_order(request)):
        return Fill(staying=staying, stuck=stuck)
    stuck = _off_apps(request, gpus)
    return Fill(staying=staying, stuck=stuck, off_apps=bool(stuck))


def _stuck(request: PodRequest, gpus: _Filling) -> str:
    asked: dict[tuple[Sequence[Piece], ...], str] = {}
    for init, together in islice(before_all(request), _MOST_INITS):
        asked.setdefault(tuple(pieces_of(one) for one in together), init.name)
    return next((name for together, name in asked.items() if not _all_lie(together, gpus)), "")


def _off_apps(request: PodRequest, gpus: _Filling) -> str:
    """The init container that has no room on its app containers' GPUs, wherever these lie; empty if all may have."""
    inits = [one for one in request.containers if one.kind is Kind.INIT]
    if not inits or _starts(request, gpus):
        return ""
    for init in inits:
        others = tuple(one for one in request.containers if one is init or one.kind is not Kind.INIT)
        if not _starts(msgspec.structs.replace(request, containers=others), gpus):
            return init.name
    # Each has room where the others have none.
    return inits[-1].name


def _starts(request: PodRequest, gpus: _Filling) -> bool:
    """Whether there is a way in which all init containers have room, or may be."""
    modes = modes_of(request)
    steps, cards = Steps(_MOST_WAYS), [_card(at, left, modes) for at, left in enumerate(gpus)]
    return any(laid is not None for laid in in_any_way(request, cards, steps)) or steps.left < 0


def _card(at: int, left: _Left, modes: Sequence[str]) -> Card:
    """A GPU of that size, with those of these modes."""
    _, compute, memory, _, shared, mask = left
    cut = None if shared else Instance(parent="", gpu_instance=0, compute_instance=0, compute=compute)
    own = [mode for bit, mode in enumerate(modes) if mode and mask >> bit & 1]
    gpu = Gpu(uuid=str(at), index=at, model="", memory=memory, instance=cut, isolation=own)
    return Card(gpu=gpu, held=NOTHING, holders=0)


def _how_many(containers: Sequence[Sequence[Piece]], gpus: _Filling) -> int:
    if _all_lie(containers, gpus):
        return len(containers)
    count, filling = 0, gpus
    for pieces in containers:
        # Who finds no room is left out, and the next one is tried.
        laid = _first(pieces, _next_container(filling))
        count, filling = (count + 1, laid) if laid is not None else (count, filling)
    return count


def _gpu(packed: int) -> _Left:
    memory, modes = packed >> _MEMORY & ((1 << _MODES - _MEMORY) - 1), packed >> _MODES or _ANY_MODE
    return False, (packed >> _CUT) & ((1 << _COMPUTE) - 1), memory, memory, not packed & 1, modes


def _all_lie(containers: Sequence[Sequence[Piece]], gpus: _Filling) -> bool:
    """Whether there is a way, or may be."""
    if too_much(containers, [(left[1], left[2], left[4]) for left in gpus]):
        return False
    steps = [(piece, at == 0) for pieces in containers for at, piece in enumerate(pieces)]
    open_ways, seen = [(0, gpus, _ANY_MODE)], set[_Step]()
    while open_ways:
        step, filling, modes = open_ways.pop()
        if step == len(steps):
            return True
        piece, is_first = steps[step]
        before = (_next_container(filling), _ANY_MODE) if is_first else (filling, modes)
        # The last way is the fullest GPU, and tried first.
        for after in _ways(piece, *before):
            if (way := (step + 1, *after)) not in seen:
                seen.add(way)
                open_ways.append(way)
        if len(seen) > _MOST_WAYS:
            return True
    return False


def _first(pieces: Sequence[Piece], filling: _Filling) -> _Filling | None:
    modes = _ANY_MODE
    for piece in pieces:
        ways = list(_ways(piece, filling, modes))
        if not ways:
            return None
        filling, modes = ways[-1]
    return filling


def _ways(piece: Piece, filling: _Filling, modes: int) -> Iterator[tuple[_Filling, int]]:
    """What may come of laying a piece, the emptiest GPU first; no container has two pieces on one.

    `modes`: in which its container lies so far.
    """
    for at in reversed(range(len(filling))):
        if at and filling[at] == filling[at - 1]:
            continue
        is_mine, compute, memory, usable, shared, own = filling[at]
        needed = piece.memory_on(usable)
        untouched = not is_mine and memory == usable
        if is_mine or not modes & own or compute < piece.compute or memory < needed or (piece.whole and not untouched):
            continue
        rest = (*filling[:at], *filling[at + 1 :])
        full = piece.whole or not shared
        mine = (True, compute - piece.compute, memory - needed, usable, shared, own)
        yield rest if full else tuple(sorted((*rest, mine))), modes & own


def _next_container(filling: _Filling) -> _Filling:
    """For the next one all GPUs are there."""
    return tuple(sorted((False, *left[1:]) for left in filling))
