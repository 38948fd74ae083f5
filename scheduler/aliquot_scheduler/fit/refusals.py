"""Why a node does not take a pod, in numbers: "3 of 8 GPUs have 30 % free, none has also 20000 MiB".

Counted for all nodes at once; most refused nodes are refused for the same reason, so few sentences are written.
Whether evicting somebody could help is told apart: a card that is too small stays so.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from aliquot_core.names import Names
from aliquot_core.quantities import WHOLE
from aliquot_core.request import PodRequest
from aliquot_scheduler.fit.demand import Piece, named, pieces_of, refused
from aliquot_scheduler.fit.survey import allowed_places, needed_memory
from aliquot_scheduler.picture.grid import Bools, Grid


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why not, and whether that stays so whoever is evicted."""

    why: str
    final: bool


_Counts = tuple[int, ...]


class Refusals:
    """Answers for one request and the grid as it is now."""

    def __init__(self, request: PodRequest, *, grid: Grid, names: Names, named: Bools | None = None) -> None:
        """`named`: the GPUs that the pod allows by their uuids, if it says any."""
        self._request = request
        self._named = named
        self._names = names
        self._grid = grid
        self._pieces = sorted(
            (piece for one in request.containers for piece in pieces_of(one)),
            key=lambda piece: (-piece.compute, -piece.memory),
        )
        self._most = max((len(one.shares) for one in request.containers), default=1)
        self._counts = self._count(self._pieces[0])
        self._said: dict[_Counts, Refusal] = {}

    def of(self, rows: Mapping[str, int]) -> dict[str, Refusal]:
        """Why each of these nodes does not take the pod."""
        return {name: self._say(self._counts[row]) for name, row in rows.items()}

    def _count(self, piece: Piece) -> list[_Counts]:
        """Of each node's GPUs, how many are there, named, suit, are large enough, have compute, and memory too."""
        grid = self._grid
        meant = allowed_places(self._request, grid=grid, suits=named)
        if self._named is not None:
            meant = meant & self._named
        allowed = meant & allowed_places(self._request, grid=grid)
        memory = needed_memory(piece, grid=grid)
        large = allowed & (grid.usable >= memory)
        free = allowed & ~grid.closed & (grid.compute >= piece.compute)
        if piece.whole:
            free &= grid.holders == 0
        steps = (grid.open, meant, allowed, large, free, free & (grid.memory >= memory))
        return [tuple(row) for row in np.stack([step.sum(axis=1) for step in steps], axis=1).tolist()]

    def _say(self, counts: _Counts) -> Refusal:
        if counts not in self._said:
            self._said[counts] = self._made(counts)
        return self._said[counts]

    def _made(self, counts: _Counts) -> Refusal:
        total, meant, allowed, large, free, both = counts
        if meant < self._most:
            return Refusal(why=self._not_allowed(total, meant), final=True)
        if allowed < self._most:
            why = f"by their isolation {allowed} of {total} GPUs take what is {self._refused_classes()}"
            return Refusal(why=why, final=True)
        if large < self._most:
            return Refusal(why=f"{large} of {total} GPUs are large enough for {self._memory()}", final=True)
        if both >= self._most:
            return Refusal(why=f"its GPUs have room for one container, not for all {self._how_many()}", final=False)
        more = self._memory()
        if not more:
            return Refusal(why=f"{free} of {total} GPUs have {self._compute()}, {self._most} are needed", final=False)
        also = both or "none"
        return Refusal(why=f"{free} of {total} GPUs have {self._compute()}, {also} has also {more}", final=False)

    def _not_allowed(self, total: int, allowed: int) -> str:
        said = self._what_says_so()
        if allowed or not said:
            return f"{allowed} GPUs can be given, {self._most} are needed"
        return f"none of {total} GPUs is what the pod allows ({' and '.join(said)})"

    def _what_says_so(self) -> list[str]:
        request, names = self._request, self._names
        said = [
            (request.models.allowed or request.models.forbidden, names.gpu_model),
            (self._named is not None, names.gpu_uuid),
            (request.isolation, names.isolation),
        ]
        whole = [f"annotation {name}" for is_said, name in said if is_said]
        # A group's members are held to GPUs by their uuids too.
        return [*whole, "where its group lies"] if self._named is not None and request.group else whole

    def _refused_classes(self) -> str:
        """Those of the pod's that not every GPU takes which its annotations allow."""
        kinds = (kind for kind in self._grid.kinds if named(kind, self._request))
        return " or ".join(sorted(frozenset().union(*(refused(kind, self._request) for kind in kinds))))

    def _compute(self) -> str:
        piece = self._pieces[0]
        if piece.whole:
            return "nobody on them"
        return f"{piece.compute} % free" if piece.compute else f"no one who has them at {WHOLE}"

    def _memory(self) -> str:
        piece = self._pieces[0]
        return f"{piece.memory} MiB" if piece.memory else f"{piece.portion} % of their memory" if piece.portion else ""

    def _how_many(self) -> str:
        return f"{len(self._request.containers)} of the pod together"
