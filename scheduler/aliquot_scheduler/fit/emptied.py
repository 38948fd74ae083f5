"""How many of a pod's containers find room on a node that nobody else is on: who has none even there never will.

Theory of operation. Of an empty node nothing counts but how large the GPUs are that the pod may have, so nodes that are
alike are asked once (`_sizes`). Most pods that find no room are known by how many places there are for pieces of a size
(`_too_much`). For the others, containers are laid the largest first, each piece on one GPU of every size and filling;
what comes to the same filling is looked at once. Init containers are left out: they run where the others lie.

What must always hold: who finds room in any way is never said to find none. So where there are too many ways to try
them all, there may be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from aliquot_core.request import ContainerRequest, PodRequest
from aliquot_scheduler.fit.demand import Piece, in_order, pieces_of
from aliquot_scheduler.picture.grid import Bools, Cells, Rows

# Looked at for one pod and kind of node: up to 10 ms of the leader's.
_MOST_WAYS = 200
# Pods whose answers are kept by what their containers ask, those that were used last.
_KEPT = 64

# The sizes of a node's GPUs that the pod may have, in bytes, and what each was put together of.
Sizes = bytes
_MEMORY, _CUT, _COMPUTE = 8, 1, 7

# What a GPU has left: whether the container that is being laid lies on it, compute, memory, memory in all, whether it
# can be shared. What is full is left out.
_Left = tuple[bool, int, int, int, bool]
_Filling = tuple[_Left, ...]


class Emptied:
    """Answers, kept by what is asked and by kind of node."""

    def __init__(self) -> None:
        self._kept: dict[tuple[ContainerRequest, ...], dict[Sizes, int]] = {}

    def takes_all(self, request: PodRequest, possible: Bools, *, grid: Cells, allowed: Bools) -> Bools:
        """Of these rows those that have room for all containers at one time, as far as is known."""
        staying = len(in_order(request))
        if staying > 1:
            rows = np.flatnonzero(possible)
            possible = possible.copy()
            possible[rows] = np.array(self.counts(request, rows, grid=grid, allowed=allowed), dtype=np.intp) == staying
        return possible

    def counts(self, request: PodRequest, rows: Rows, *, grid: Cells, allowed: Bools) -> list[int]:
        """Of the containers that stay, for how many each of these rows has room at one time, were it empty."""
        known = self._kept[request.containers] = self._kept.pop(request.containers, {})
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        found = []
        for sizes in _sizes(rows, grid=grid, allowed=allowed):
            if sizes not in known:
                known[sizes] = _how_many(request, sizes)
            found.append(known[sizes])
        return found


def _sizes(rows: Rows, *, grid: Cells, allowed: Bools) -> Iterator[Sizes]:
    """In any order of its GPUs a node is the same."""
    packed = (grid.usable[rows].astype(np.int64) << _MEMORY) | (grid.total[rows] << _CUT) | grid.cut[rows]
    packed = np.sort(np.where(allowed[rows], packed, 0), axis=1)
    whole, width = np.ascontiguousarray(packed).tobytes(), packed.shape[1] * packed.itemsize
    return (whole[start : start + width] for start in range(0, len(rows) * width, width))


def _how_many(request: PodRequest, sizes: Sizes) -> int:
    containers = [pieces_of(one) for one in in_order(request)]
    gpus = tuple(_gpu(packed) for packed in np.frombuffer(sizes, dtype=np.int64).tolist() if packed)
    if _all_lie(containers, gpus):
        return len(containers)
    count, filling = 0, gpus
    for pieces in containers:
        # Who finds no room is left out, and the next one is tried.
        laid = _first(pieces, _next_container(filling))
        count, filling = (count + 1, laid) if laid is not None else (count, filling)
    return count


def _gpu(packed: int) -> _Left:
    memory = packed >> _MEMORY
    return False, (packed >> _CUT) & ((1 << _COMPUTE) - 1), memory, memory, not packed & 1


def _all_lie(containers: Sequence[Sequence[Piece]], gpus: _Filling) -> bool:
    """Whether there is a way, or may be."""
    if _too_much([piece for pieces in containers for piece in pieces], gpus):
        return False
    steps = [(piece, at == 0) for pieces in containers for at, piece in enumerate(pieces)]
    open_ways, seen = [(0, gpus)], set[tuple[int, _Filling]]()
    while open_ways:
        step, filling = open_ways.pop()
        if step == len(steps):
            return True
        piece, is_first = steps[step]
        # The last way is the fullest GPU, and tried first.
        for after in _ways(piece, _next_container(filling) if is_first else filling):
            if (way := (step + 1, after)) not in seen:
                seen.add(way)
                open_ways.append(way)
        if len(seen) > _MOST_WAYS:
            return True
    return False


def _too_much(pieces: Sequence[Piece], gpus: _Filling) -> bool:
    """In all, or more large ones than there are places for, whichever way they lie."""
    asked = [(piece.compute, piece.memory) for piece in pieces]
    there = [(left[1], left[2], left[4]) for left in gpus]
    return any(
        sum(one[axis] for one in asked) > sum(gpu[axis] for gpu in there)
        or any(
            sum(one[axis] >= least for one in asked) > sum(_so_often(least, gpu[axis], shared=gpu[2]) for gpu in there)
            for least in {one[axis] for one in asked} - {0}
        )
        for axis in (0, 1)
    )


def _so_often(least: int, there: int, *, shared: bool) -> int:
    often = there // least
    return often if shared else min(1, often)


def _first(pieces: Sequence[Piece], filling: _Filling) -> _Filling | None:
    for piece in pieces:
        ways = list(_ways(piece, filling))
        if not ways:
            return None
        filling = ways[-1]
    return filling


def _ways(piece: Piece, filling: _Filling) -> Iterator[_Filling]:
    """What may come of laying a piece, the emptiest GPU first; no container has two pieces on one."""
    for at in reversed(range(len(filling))):
        if at and filling[at] == filling[at - 1]:
            continue
        is_mine, compute, memory, usable, shared = filling[at]
        needed = piece.memory_on(usable)
        untouched = not is_mine and memory == usable
        if is_mine or compute < piece.compute or memory < needed or (piece.whole and not untouched):
            continue
        rest = (*filling[:at], *filling[at + 1 :])
        full = piece.whole or not shared
        yield rest if full else tuple(sorted((*rest, (True, compute - piece.compute, memory - needed, usable, shared))))


def _next_container(filling: _Filling) -> _Filling:
    """For the next one all GPUs are there."""
    return tuple(sorted((False, *left[1:]) for left in filling))
