"""Why a node does not take a pod, in numbers: "3 of 8 GPUs have 30 % free, none has also 20000 MiB".

Counted for all nodes at once; most refused nodes are refused for the same reason, so few sentences are written.
Whether evicting somebody could help is told apart: a card that is too small stays so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec
import numpy as np

from aliquot_core.counting import agreed, counted, none_of, some_of
from aliquot_core.names import Names
from aliquot_core.quantities import WHOLE
from aliquot_core.request import Kind, PodRequest
from aliquot_scheduler.fit.demand import Piece, admitted, demand_of, has_no_context, in_order, named, pieces_of, refused
from aliquot_scheduler.fit.emptied import Emptied, Fill
from aliquot_scheduler.fit.places import allowed_places, needed_memory
from aliquot_scheduler.picture.grid import Bools, Grid
from aliquot_scheduler.picture.picture import KnownNode
from aliquot_scheduler.picture.there import listed_models

# So many reasons of many nodes are told.
_TOLD = 3


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why not, and whether that stays so whoever is evicted."""

    why: str
    final: bool


def told_often(reasons: Counter[str]) -> str:
    """The most frequent of them, with how many nodes give each; of a single node no number is told."""
    if reasons.total() == 1:
        return next(iter(reasons))
    return "; ".join(f"{why} ({count})" for why, count in reasons.most_common(_TOLD))


class _Counts(NamedTuple):
    """How many of a node's GPUs there are, are meant, and so on: of each but the last four what is left of the last."""

    total: int
    meant: int
    # By their isolation they take the pod; and a context leaves it something.
    taking: int
    allowed: int
    large: int
    roomy: int
    free: int
    both: int
    # What a CUDA context takes where that is too much, in MiB.
    context: int


# Most GPUs can be given: what is said of those that can't is empty, and few sentences are written.
_Case = tuple[_Counts, Fill, str]


class Refusals:
    """Answers for one request and the grid as it is now."""

    def __init__(
        self, request: PodRequest, *, grid: Grid, names: Names, emptied: Emptied, named: Bools | None = None
    ) -> None:
        """`named`: the GPUs that the pod allows by their uuids, if it says any."""
        self._request = request
        self._emptied = emptied
        self._staying = len(in_order(request))
        self._named = named
        self._names = names
        self._grid = grid
        # What one container asks, and those that run before it on the same GPUs, is known as one.
        self._together = demand_of(request).pieces is None
        self._pieces = sorted(
            demand_of(request).pieces or (piece for one in request.containers for piece in pieces_of(one)),
            key=lambda piece: (-piece.compute, -piece.memory),
        )
        self._most = max((len(one.shares) for one in request.containers), default=1)
        self._counts = self._count(self._pieces[0])
        self._said: dict[_Case, Refusal] = {}

    def of(self, nodes: Mapping[str, KnownNode]) -> dict[str, Refusal]:
        """Why each of these nodes does not take the pod."""
        rows = [known.row for known in nodes.values()]
        of_nodes = zip(nodes.items(), self._find_room(rows), strict=True)
        return {name: self._say((self._counts[known.row], fill, known.lost)) for (name, known), fill in of_nodes}

    def of_all(self) -> str:
        """Of a pod that no node could take, were each of them empty: why."""
        total = sum(counts.total for counts in self._counts)
        if not total:
            return "no GPU is there yet that can be given"
        if not (meant := sum(counts.meant for counts in self._counts)):
            return self._not_allowed(total, 0) + self._models_there()
        if not any(counts.taking for counts in self._counts):
            takes = none_of(meant, "GPU", one="does not take", none="takes")
            return f"by their isolation {takes} what is {self._refused_classes()}"
        if not any(counts.allowed for counts in self._counts):
            least = min(counts.context for counts in self._counts if counts.context)
            return self._without_context(least, where="on each GPU that it may have")
        memory = max(piece.memory for piece in self._pieces)
        if too_much := self._too_much(memory):
            return too_much
        return self._of_one_node(memory)

    def _of_one_node(self, memory: int) -> str:
        """What it needs at one time, and no node has."""
        most = max(counts.allowed for counts in self._counts)
        if most < self._most:
            return f"it needs {self._most} GPUs of one node, and no node has more than {most} that it may have"
        rows = [row for row, counts in enumerate(self._counts) if counts.large >= self._most]
        best = max(self._find_room(rows), key=lambda fill: (fill.staying, not fill.stuck), default=self._all_in())
        if best.staying < self._staying:
            return f"on no node more than {self._so_many(best.staying)} find room"
        if best.stuck:
            return f"on no node its init container {best.stuck} finds room{self._beside(best.stuck)}"
        return f"it needs {counted(self._most, 'GPU')} of one node for up to {memory} MiB each, and none has so many"

    def _find_room(self, rows: Sequence[int]) -> list[Fill]:
        """Which of its containers do on each of these nodes, were it empty."""
        if not self._together:
            return [self._all_in()] * len(rows)
        where = np.array(rows, dtype=np.intp)
        return self._emptied.fills(self._request, where, grid=self._grid, allowed=self._allowed)

    def _all_in(self) -> Fill:
        return Fill(staying=self._staying)

    def _beside(self, init: str) -> str:
        """Sidecars run on while it runs, if any have started before it."""
        kinds = [one.kind for one in takewhile(lambda one: one.name != init, self._request.containers)]
        return " beside the sidecars before it" if Kind.SIDECAR in kinds else ""

    def _so_many(self, room: int) -> str:
        return f"{room} of its {counted(self._staying, 'container')}"

    def _models_there(self) -> str:
        """Those that it does not name, if it names models."""
        if not (self._request.models.allowed or self._request.models.forbidden):
            return ""
        kinds = [self._grid.kinds[number] for number in np.unique(self._grid.kind[self._grid.open]).tolist()]
        return f"; there are {listed_models(kind.models for kind in kinds)}"

    def _too_much(self, memory: int) -> str:
        """What it asks of one GPU that none has, in compute only instances of MIG have too little."""
        compute, largest = self._pieces[0].compute, self._grid.usable[self._allowed].max()
        if memory > largest:
            return f"it asks {memory} MiB of one GPU, and the largest that it may have has {largest} MiB"
        if compute > (most := self._grid.total[self._allowed].max()):
            return f"it asks {compute} % of one GPU, and the largest instance of MIG that it may have has {most} %"
        return ""

    def _count(self, piece: Piece) -> list[_Counts]:
        grid = self._grid
        meant = allowed_places(self._request, grid=grid, suits=named)
        if self._named is not None:
            meant = meant & self._named
        taking = meant & allowed_places(self._request, grid=grid, suits=admitted)
        allowed = self._allowed = taking & allowed_places(self._request, grid=grid)
        memory = needed_memory(piece, grid=grid)
        large = allowed & (grid.usable >= memory) & (grid.total >= piece.compute)
        free = allowed & ~grid.closed & (grid.compute >= piece.compute)
        if piece.whole:
            free &= grid.holders == 0
        roomy = allowed & (grid.memory >= memory)
        steps = (grid.open, meant, taking, allowed, large, roomy, free, free & roomy)
        contexts = np.array([kind.context or 0 for kind in grid.kinds] or [0], dtype=np.int64)
        context = np.where(taking & ~allowed, contexts[grid.kind], 0).max(axis=1)
        return [_Counts(*row) for row in np.stack([*(step.sum(axis=1) for step in steps), context], axis=1).tolist()]

    def _say(self, case: _Case) -> Refusal:
        if (said := self._said.get(case)) is None:
            counts, fill, lost = case
            said = self._said[case] = self._made(counts, fill=fill, lost=f"; {lost}" if lost else "")
        return said

    def _made(self, counts: _Counts, *, fill: Fill, lost: str) -> Refusal:
        if counts.large < self._most:
            return Refusal(why=self._never(counts, lost=lost), final=True)
        if fill.staying < self._staying:
            find = agreed(fill.staying, "finds", "find")
            return Refusal(why=f"{self._so_many(fill.staying)} {find} room even on an empty node{lost}", final=True)
        if fill.stuck:
            why = f"its init container {fill.stuck} finds no room{self._beside(fill.stuck)}, even on an empty node"
            return Refusal(why=why + lost, final=True)
        if counts.both >= self._most:
            why = f"its GPUs have room for one container, not for all {self._how_many()}"
        else:
            why = self._too_few(counts.total, counts.roomy, counts.free, counts.both)
        return Refusal(why=why + lost, final=False)

    def _never(self, counts: _Counts, *, lost: str) -> str:
        """What stays so whoever is evicted."""
        total = counts.total
        if not total:
            return f"none of its GPUs can be given: {lost.removeprefix('; ')}" if lost else "it has no GPUs"
        if counts.meant < self._most:
            why = self._not_allowed(total, counts.meant)
        elif counts.taking < self._most:
            takes = some_of(counts.taking, total, "GPU", one="takes", many="take")
            why = f"by their isolation {takes} what is {self._refused_classes()}"
        elif counts.allowed < self._most:
            where = f"on {counts.taking - counts.allowed} of {counted(total, 'GPU')}"
            why = self._without_context(counts.context, where=where) + self._needed()
        else:
            are = some_of(counts.large, total, "GPU", one="is", many="are")
            why = f"{are} large enough for {self._size()}{self._needed()}"
        return why + lost

    def _without_context(self, context: int, *, where: str) -> str:
        """Which container would have less than that, and how much."""
        kinds = [kind for kind in self._grid.kinds if kind.context == context]
        one = next(one for one in self._request.containers if any(has_no_context(one, kind) for kind in kinds))
        least = one.shares[-1]
        has = f"{least.compute} of its memory" if least.memory is None else str(least.memory)
        return f"a CUDA context takes {context} MiB {where}, and container {one.name} asks for {has} there"

    def _too_few(self, total: int, roomy: int, free: int, both: int) -> str:
        """Too few have both: what is true of each alone, too."""
        first, memory = f"{some_of(free, total, 'GPU')} {self._compute(1 in (free, total))}", self._memory()
        if not memory:
            return first + self._needed()
        if both:
            also = f"{both} {agreed(both, 'has', 'have')} also {memory}"
        elif free:
            also = f"but not {memory}" if free == 1 else f"none has also {memory}"
        else:
            also = f"{roomy} {agreed(roomy, 'has', 'have')} {memory}" if roomy else f"none has {memory} either"
        return f"{first}, {also}{self._needed()}"

    def _needed(self) -> str:
        return f", {self._most} are needed" if self._most > 1 else ""

    def _not_allowed(self, total: int, meant: int) -> str:
        said = " and ".join(self._what_says_so())
        if not said:
            return f"{meant} of {counted(total, 'GPU')} can be given{self._needed()}"
        if meant:
            what = some_of(meant, total, "GPU", one="is", many="are")
            return f"{what} what the pod allows ({said}){self._needed()}"
        what = "is what the pod allows"
        return f"{none_of(total, 'GPU', one='is not what the pod allows', none=what)} ({said})"

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

    def _compute(self, single: bool) -> str:  # noqa: FBT001 - of one GPU or of several
        piece, them = self._pieces[0], "it" if single else "them"
        if piece.whole:
            return f"nobody on {them}"
        return f"{piece.compute} % free" if piece.compute else f"no one who has {them} at {WHOLE}"

    def _memory(self) -> str:
        piece = self._pieces[0]
        if piece.memory:
            return f"{piece.memory} MiB"
        # A GPU that nobody is on has all of its memory.
        return f"{piece.portion} % of a GPU's memory" if piece.portion and not piece.whole else ""

    def _size(self) -> str:
        """What a GPU must have in all; every one has the compute but instances of MIG."""
        compute = f"{self._pieces[0].compute} %" if (self._allowed & self._grid.cut).any() else ""
        return " and ".join(filter(None, (compute, self._memory())))

    def _how_many(self) -> str:
        return f"{len(self._request.containers)} of the pod together"
