"""Why a node does not take a pod: one cause for each node, of one closed list, with the numbers that show it.

Theory of operation. What a pod asks of a node is made into `Part`s: so many GPUs that take pieces of one size. Of each
node it is counted how many of its GPUs are there, are meant, are of an isolation that takes the pod, leave it something
beside a context, are large enough for a part, and have room for it: the first of these numbers that is too small is the
cause. Each part counts by itself, as a node's GPUs may differ: the smaller pieces of a pod may lie on the smaller ones.
What several containers have room for together on an empty node, `emptied` says.

What must always hold: a cause is final exactly where the node would not take the pod if nobody were on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aliquot_scheduler.fit.demand import Demand, Piece, admitted, in_order, named, pieces_of
from aliquot_scheduler.fit.emptied import Emptied, Fill
from aliquot_scheduler.fit.places import allowed_places, has_compute, needed_memory, takes
from aliquot_scheduler.picture.grid import Bools, Cells, Kind, Rows


class NodeCause(Enum):
    """In the order in which they are looked for."""

    # Whoever asks, or by something else than its GPUs.
    UNKNOWN = "nobody knows such a node"
    OUTSIDE = "it is not the pod's to have"
    OUT = "it takes nobody"
    RULE = "a rule of the cluster's own refuses it"
    # By its GPUs, whoever is on them.
    NONE_GIVEN = "none of its GPUs can be given"
    NOT_MEANT = "too few of them are what the pod allows"
    ISOLATION = "too few of them are of an isolation that takes the pod"
    CONTEXT = "on too many of them a CUDA context takes all that it asks"
    TOO_SMALL = "too few of them are large enough"
    NOT_TOGETHER = "its containers do not lie on them together"
    INIT_STUCK = "one of its init containers does not"
    # By its GPUs as they are now.
    NO_ROOM = "too few of them have room", False
    NO_ROOM_TOGETHER = "they have room for each container and not for all", False

    def __init__(self, _: str, final: bool = True) -> None:  # noqa: FBT001, FBT002 - as members are written
        # Whether that stays so whoever is evicted; asked of each node that refuses a pod.
        self.final = final


# Of these the words name what is wrong with which kinds of GPUs.
_BY_KIND = frozenset({NodeCause.ISOLATION, NodeCause.CONTEXT})


class Part(NamedTuple):
    """Pieces of one size, and how many GPUs of one node have to take such a one: with those for larger pieces."""

    piece: Piece
    needed: int


class Counts(NamedTuple):
    """How many of a node's GPUs there are, are meant, and so on: of each but the first what is left of the last."""

    total: int
    meant: int
    # By their isolation they take the pod.
    taking: int
    # And a context leaves it something.
    allowed: int


class PartCounts(NamedTuple):
    """How many of the GPUs that are allowed are large enough for a part, and have room: of memory, of compute, both."""

    large: int
    roomy: int
    free: int
    both: int


_NO_PART, _NONE, _NOBODY = Part(Piece(compute=0), 0), PartCounts(0, 0, 0, 0), Fill(staying=0)
_OF_ALL, _OF_PART = len(Counts._fields), len(PartCounts._fields)


@dataclass(frozen=True, eq=False)
class Finding:
    """The cause and its numbers; to nodes that are alike it is the same one, and is asked for by that."""

    cause: NodeCause
    counts: Counts
    # Where one part is the cause.
    part: Part = _NO_PART
    of_part: PartCounts = _NONE
    # Where containers do not lie together.
    fill: Fill = _NOBODY
    # How many of the GPUs that fail are of each kind, where that is the cause.
    kinds: tuple[tuple[Kind, int], ...] = ()


class Causes:
    """Of one demand and the cells as they are now."""

    def __init__(self, demand: Demand, *, grid: Cells, emptied: Emptied, named: Bools | None = None) -> None:
        """`named`: the GPUs that the pod allows by their uuids, if it says any."""
        self.request = demand.request
        # What one container asks, and those that run before it on the same GPUs, is known as one.
        self._is_one = demand.pieces is not None
        # So many of its containers hold slices at the same time.
        self.staying = len(in_order(demand.request))
        self._emptied = emptied
        self.named = named
        self.grid = grid
        # The largest first: that is what is told where several are the cause.
        self.parts = sorted(set(parts_of(demand)), key=_largest_first)
        # So many GPUs of one node it needs.
        self.most = max(part.needed for part in self.parts)
        self._known: dict[tuple[tuple[int, ...], Fill], Finding] = {}
        self._of_kinds: dict[tuple[Finding, tuple[tuple[int, int], ...]], Finding] = {}

    @cached_property
    def meant(self) -> Bools:
        """The GPUs that the pod's annotations allow."""
        meant = allowed_places(self.request, grid=self.grid, suits=named)
        return meant if self.named is None else meant & self.named

    @cached_property
    def taking(self) -> Bools:
        """Those of them that take it by their isolation."""
        return self.meant & allowed_places(self.request, grid=self.grid, suits=admitted)

    @cached_property
    def allowed(self) -> Bools:
        """Those of them on which a context leaves each container something."""
        allowed = allowed_places(self.request, grid=self.grid)
        return allowed if self.named is None else allowed & self.named

    def large(self, piece: Piece) -> Bools:
        """Those of them that would take a piece if nobody were on them."""
        enough = self.grid.usable >= needed_memory(piece, grid=self.grid)
        return self.allowed & enough & (self.grid.total >= piece.compute)

    # --- of all rows -------------------------------------------------------------------------------------------------
    def able(self) -> Bools:
        """The rows whose cause, if there is one, is not final."""
        return self._emptied.takes_all(self.request, self.able_for_each(), grid=self.grid, allowed=self.allowed)

    def able_for_each(self) -> Bools:
        """The rows whose GPUs take each container by itself if nobody is on them: known without trying anything."""
        return self._have(self.large)

    def roomy(self) -> Bools:
        """The rows with room for each container by itself."""
        return self._have(lambda piece: takes(piece, grid=self.grid, allowed=self.allowed))

    def _have(self, takers: Callable[[Piece], Bools]) -> Bools:
        have = np.ones(self.grid.rows, dtype=np.bool_)
        for piece, needed in self.parts:
            have &= takers(piece).sum(axis=1) >= needed
        return have

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """By row the numbers of `Counts`, then of each part those of `PartCounts`."""
        steps = [self.grid.open, self.meant, self.taking, self.allowed]
        for piece, _ in self.parts:
            roomy = self.allowed & (self.grid.memory >= needed_memory(piece, grid=self.grid))
            free = self.allowed & has_compute(piece, grid=self.grid)
            steps += [self.large(piece), roomy, free, roomy & free]
        return np.stack([step.sum(axis=1) for step in steps], axis=1)

    # --- of some -----------------------------------------------------------------------------------------------------
    def of(self, rows: Sequence[int]) -> list[Finding]:
        """The cause of each of these, none of which has room for the pod."""
        if not rows:
            return []
        where = np.array(rows, dtype=np.intp)
        found = []
        for case in zip(map(tuple, self.counts[where].tolist()), self.fills(where), strict=True):
            if (finding := self._known.get(case)) is None:
                finding = self._known[case] = self._find(*case)
            found.append(finding)
        if any(one.cause in _BY_KIND for one in self._known.values()):
            return [self._with_kinds(one, row) for one, row in zip(found, rows, strict=True)]
        return found

    def fills(self, rows: Rows) -> list[Fill]:
        """Which of its containers find room on each of these, were it empty."""
        if self._is_one:
            return [Fill(staying=self.staying)] * len(rows)
        return self._emptied.fills(self.request, rows, grid=self.grid, allowed=self.allowed)

    def _find(self, numbers: tuple[int, ...], fill: Fill) -> Finding:
        """The first that holds."""
        counts, starts = Counts(*numbers[:_OF_ALL]), range(_OF_ALL, len(numbers), _OF_PART)
        of_parts = [PartCounts(*numbers[start : start + _OF_PART]) for start in starts]
        parts = list(zip(self.parts, of_parts, strict=True))
        if cause := self._which_gpus(counts):
            return Finding(cause, counts)
        if small := next((one for one in parts if one[1].large < one[0].needed), None):
            return Finding(NodeCause.TOO_SMALL, counts, *small)
        if fill != Fill(staying=self.staying):
            together = fill.staying == self.staying
            return Finding(NodeCause.INIT_STUCK if together else NodeCause.NOT_TOGETHER, counts, fill=fill)
        if full := next((one for one in parts if one[1].both < one[0].needed), None):
            return Finding(NodeCause.NO_ROOM, counts, *full)
        return Finding(NodeCause.NO_ROOM_TOGETHER, counts)

    def _which_gpus(self, counts: Counts) -> NodeCause | None:
        """Whether there are too few that it may have, and why."""
        causes = NodeCause.NONE_GIVEN, NodeCause.NOT_MEANT, NodeCause.ISOLATION, NodeCause.CONTEXT
        least = 1, *[self.most] * len(counts[1:])
        return next((one for one, count, few in zip(causes, counts, least, strict=True) if count < few), None)

    def _with_kinds(self, found: Finding, row: int) -> Finding:
        """What of the node's GPUs the words have to name."""
        if found.cause not in _BY_KIND:
            return found
        before, after = (self.meant, self.taking) if found.cause is NodeCause.ISOLATION else (self.taking, self.allowed)
        numbers = tuple(sorted(Counter(self.grid.kind[row][before[row] & ~after[row]].tolist()).items()))
        if (finding := self._of_kinds.get((found, numbers))) is None:
            kinds = tuple((self.grid.kinds[number], count) for number, count in numbers)
            finding = self._of_kinds[found, numbers] = replace(found, kinds=kinds)
        return finding


def parts_of(demand: Demand) -> Iterator[Part]:
    """What it asks of one node; of several containers each counts by itself."""
    for pieces in [demand.pieces] if demand.pieces else map(pieces_of, demand.request.containers):
        needed = 0
        for piece, same in groupby(pieces):
            needed += len(list(same))
            yield Part(piece, needed)


def _largest_first(part: Part) -> tuple[int, ...]:
    return -part.piece.compute, -part.piece.memory, -part.piece.portion, part.needed
