"""Of each GPU: may it be given to a pod, and has it room for a piece."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aliquot_core.quantities import WHOLE
from aliquot_core.request import PodRequest
from aliquot_scheduler.fit.demand import Piece, suits
from aliquot_scheduler.picture.grid import Bools, Cells, Ints, Kind


def allowed_places(request: PodRequest, *, grid: Cells, suits: Callable[[Kind, PodRequest], bool] = suits) -> Bools:
    """The GPUs that may be given and that suit the pod by model and isolation."""
    if not grid.kinds:
        return grid.open
    suitable = np.array([suits(kind, request) for kind in grid.kinds], dtype=np.bool_)
    return grid.open & suitable[grid.kind]


def takes(piece: Piece, *, grid: Cells, allowed: Bools) -> Bools:
    """The GPUs that have room for a piece."""
    return allowed & has_compute(piece, grid=grid) & (grid.memory >= needed_memory(piece, grid=grid))


def has_compute(piece: Piece, *, grid: Cells) -> Bools:
    """The GPUs that have a piece's compute free; nobody is on one that it is to have whole."""
    free: Bools = ~grid.closed & (grid.compute >= piece.compute)
    return free & (grid.holders == 0) if piece.whole else free


def needed_memory(piece: Piece, *, grid: Cells) -> Ints:
    """MiB of each GPU that the piece needs there."""
    if not piece.portion:
        return np.broadcast_to(np.int32(piece.memory), grid.usable.shape)
    if piece.portion == WHOLE.value:
        return np.maximum(max(1, piece.memory), grid.usable)
    portion = np.maximum(1, grid.usable * np.int64(piece.portion) // WHOLE.value)
    memory: Ints = np.maximum(piece.memory, portion).astype(np.int32)
    return memory
