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
from dataclasses import replace
from functools import cached_property
from itertools import groupby, islice

import numpy as np
import numpy.typing as npt

from aliquot_scheduler.fit.demand import Demand, Piece, admitted, in_order, named, pieces_of
from aliquot_scheduler.fit.emptied import Emptied, Fill
from aliquot_scheduler.fit.finding import NO_COUNTS, Counts, Finding, NodeCause, OfModes, Part, PartCounts, Spread
from aliquot_scheduler.fit.modes import apart_by_mode
from aliquot_scheduler.fit.places import allowed_places, has_compute, needed_memory, takes
from aliquot_scheduler.picture.grid import Bools, Cells, Rows

# Where no more than one row in so many is asked about, the others are not counted.
_FEW = 4
# Of these the words name what is wrong with which kinds of GPUs.
_BY_KIND = frozenset({NodeCause.ISOLATION, NodeCause.CONTEXT})
# Of each container that needs several GPUs the least that it asks of one, and what there is by mode.
_OfModes = Sequence[tuple[Part, dict[str, Spread]]]
_OF_ALL, _OF_PART, _OF_MODE = len(Counts._fields), len(PartCounts._fields), len(Spread._fields)


class Causes:
    """Of one demand and the cells as they are now."""

    def __init__(self, demand: Demand, *, grid: Cells, emptied: Emptied, named: Bools | None = None) -> None:
        """`named`: the GPUs that the pod allows by their uuids, if it says any."""
        self._demand, self.request = demand, demand.request
        # What one container asks, and those that run before it on the same GPUs, is known as one.
        self._is_one = demand.pieces is not None
        # So many of its containers hold slices at the same time.
        self.staying = len(in_order(demand.request))
        self._emptied = emptied
        self.named = named
        self.grid = grid
        containers = [list(parts) for parts in parts_of(demand)]
        # The largest first: that is what is told where several are the cause.
        self.parts = sorted({part for parts in containers for part in parts}, key=_largest_first)
        # By mode the GPUs that one container may have, where that is more than one set; and who needs several.
        self._sets = apart_by_mode(self.request, grid=grid)
        self._spread = [parts for parts in containers if parts[-1].needed > 1] if self._sets else []
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
        return self._have(self._with_room)

    def _have(self, takers: Callable[[Piece], Bools]) -> Bools:
        have = np.ones(self.grid.rows, dtype=np.bool_)
        for piece, needed in self.parts:
            have &= takers(piece).sum(axis=1) >= needed
        for parts in self._spread:
            in_some = np.zeros_like(have)
            for those in self._sets.values():
                in_some |= _so_many(parts, takers, those) == parts[-1].needed
            have &= in_some
        return have

    def _with_room(self, piece: Piece) -> Bools:
        return takes(piece, grid=self.grid, allowed=self.allowed)

    def lack_of_a_mode(self) -> tuple[int, OfModes] | None:
        """How many GPUs of one mode some container needs that no node has, and how many of them each mode has."""
        if not self._spread or self.able_for_each().any():
            return None
        # Each may find a node, and none takes all: then of the one that needs most.
        most = [
            (
                parts[-1].needed,
                tuple((mode, int(_so_many(parts, self.large, those).max())) for mode, those in self._sets.items()),
            )
            for parts in self._spread
        ]
        return min(most, key=lambda one: (max(count for _, count in one[1]) >= one[0], -one[0]))

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """By row the numbers of `Counts`, then of each part those of `PartCounts`, of those who are spread."""
        steps = [self.grid.open, self.meant, self.taking, self.allowed, self.allowed & (self.grid.holders == 0)]
        for piece, _ in self.parts:
            roomy = self.allowed & (self.grid.memory >= needed_memory(piece, grid=self.grid))
            free = self.allowed & has_compute(piece, grid=self.grid)
            steps += [self.large(piece), roomy, free, roomy & free]
        numbers = [step.sum(axis=1) for step in steps]
        for parts in self._spread:
            for those in self._sets.values():
                numbers += [_so_many(parts, takers, those) for takers in (self.large, self._with_room)]
        return np.stack(numbers, axis=1)

    # --- of some -----------------------------------------------------------------------------------------------------
    def of(self, rows: Sequence[int]) -> list[Finding]:
        """The cause of each of these, none of which has room for the pod."""
        if not rows:
            return []
        where = np.array(rows, dtype=np.intp)
        if len(rows) * _FEW <= self.grid.rows:
            return self._among(where).of(range(len(rows)))
        found = []
        for case in zip(map(tuple, self.counts[where].tolist()), self.fills(where), strict=True):
            if (finding := self._known.get(case)) is None:
                finding = self._known[case] = self._find(*case)
            found.append(finding)
        if any(one.cause in _BY_KIND for one in self._known.values()):
            return [self._with_kinds(one, row) for one, row in zip(found, rows, strict=True)]
        return found

    def _among(self, rows: Rows) -> Causes:
        """The same of these rows alone."""
        named = None if self.named is None else self.named[rows]
        return Causes(self._demand, grid=self.grid.part(rows), emptied=self._emptied, named=named)

    def fills(self, rows: Rows) -> list[Fill]:
        """Which of its containers find room on each of these, were it empty."""
        if self._is_one:
            return [Fill(staying=self.staying)] * len(rows)
        return self._emptied.fills(self.request, rows, grid=self.grid, allowed=self.allowed)

    def _find(self, numbers: tuple[int, ...], fill: Fill) -> Finding:
        """The first that holds."""
        counts, of_modes = Counts(*numbers[:_OF_ALL]), _OF_ALL + _OF_PART * len(self.parts)
        starts = range(_OF_ALL, of_modes, _OF_PART)
        of_parts = [PartCounts(*numbers[start : start + _OF_PART]) for start in starts]
        parts, spread = list(zip(self.parts, of_parts, strict=True)), list(self._in_modes(numbers[of_modes:]))
        if cause := self._which_gpus(counts):
            return Finding(cause, counts)
        if small := next((one for one in parts if one[1].large < one[0].needed), None):
            return Finding(NodeCause.TOO_SMALL, counts, *small)
        if apart := _apart(spread, "large"):
            return Finding(NodeCause.NO_SHARED_MODE, counts, *apart)
        if fill != Fill(staying=self.staying):
            together = fill.staying == self.staying
            return Finding(NodeCause.INIT_STUCK if together else NodeCause.NOT_TOGETHER, counts, fill=fill)
        return _full(counts, parts, spread)

    def _in_modes(self, numbers: Sequence[int]) -> Iterator[tuple[Part, dict[str, Spread]]]:
        """Of each container that needs several GPUs the least that it asks of one, and what there is by mode."""
        pairs = (Spread(*numbers[start : start + _OF_MODE]) for start in range(0, len(numbers), _OF_MODE))
        for parts in self._spread:
            yield parts[-1], dict(zip(self._sets, islice(pairs, len(self._sets)), strict=True))

    def _which_gpus(self, counts: Counts) -> NodeCause | None:
        """Whether there are too few that it may have, and why."""
        causes = NodeCause.NONE_GIVEN, NodeCause.NOT_MEANT, NodeCause.ISOLATION, NodeCause.CONTEXT
        least = 1, *[self.most] * len(causes[1:])
        return next((one for one, count, few in zip(causes, counts, least, strict=False) if count < few), None)

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


def parts_of(demand: Demand) -> Iterator[Iterator[Part]]:
    """What it asks of one node; of several containers each counts by itself."""
    for pieces in [demand.pieces] if demand.pieces else map(pieces_of, demand.request.containers):
        yield _parts(pieces)


def _parts(pieces: Sequence[Piece]) -> Iterator[Part]:
    needed = 0
    for piece, same in groupby(pieces):
        needed += len(list(same))
        yield Part(piece, needed)


def _so_many(parts: Sequence[Part], takers: Callable[[Piece], Bools], those: Bools) -> npt.NDArray[np.int64]:
    """By row for how many of a container's pieces there is one of those GPUs: what takes one takes all that follow."""
    lack = np.zeros(those.shape[0], dtype=np.int64)
    for piece, needed in parts:
        lack = np.maximum(lack, needed - (takers(piece) & those).sum(axis=1))
    found: npt.NDArray[np.int64] = parts[-1].needed - lack
    return found


def _full(counts: Counts, parts: Sequence[tuple[Part, PartCounts]], spread: _OfModes) -> Finding:
    """What is taken of its GPUs, where an empty one would do."""
    if full := next((one for one in parts if one[1].both < one[0].needed), None):
        return Finding(NodeCause.NO_ROOM, counts, *full)
    if apart := _apart(spread, "both"):
        return Finding(NodeCause.NO_ROOM_IN_A_MODE, counts, *apart)
    # On an empty node there may be a way for all that stay: else that was said before.
    given_up = counts.untouched == counts.allowed
    return Finding(NodeCause.NO_WAY_FOUND if given_up else NodeCause.NO_ROOM_TOGETHER, counts)


def _apart(spread: _OfModes, what: str) -> tuple[Part, PartCounts, OfModes] | None:
    """The first container for which no mode has GPUs enough, and how many each has."""
    for part, of_modes in spread:
        counts = [(mode, getattr(found, what)) for mode, found in of_modes.items()]
        if all(count < part.needed for _, count in counts):
            return part, NO_COUNTS, tuple(counts)
    return None


def _largest_first(part: Part) -> tuple[int, ...]:
    return -part.piece.compute, -part.piece.memory, -part.piece.portion, part.needed
