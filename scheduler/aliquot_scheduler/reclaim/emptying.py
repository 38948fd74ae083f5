"""Who could be moved so that one more GPU, or node, stands empty: each to a GPU that is in use already.

Theory of operation. Of all GPUs (or nodes) from which everybody may be moved those come first where least is lost. For
each of those who lie there a place is searched, as for any who are moved (`moving.py`), and no place is one on what is
empty now, or on what is to be emptied. If one finds none, nobody goes, and the next is tried.

What must always hold: one more stands empty afterwards, and none less; so whoever goes on for long enough comes to an
end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.room.clearings import GpuKey
from aliquot_scheduler.reclaim.moving import Move, Mover
from aliquot_scheduler.reclaim.residents import Resident, Residents
from aliquot_scheduler.reclaim.returning import Returning

# Those are tried in one look where least is lost: each costs some searches, and nobody is answered meanwhile.
_MOST_TRIED = 8


class Emptied(msgspec.Struct, frozen=True, kw_only=True):
    """What will stand empty, in words, and who is moved for that, in the order in which they are asked."""

    what: str
    moves: tuple[Move, ...]


class _Unit(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    gpus: frozenset[GpuKey]
    there: tuple[Resident, ...]

    @property
    def lost(self) -> int:
        return sum(one.lost for one in self.there)


class Emptying:
    """One look at everything."""

    def __init__(
        self,
        *,
        picture: Picture,
        cards: Cards,
        residents: Residents,
        returning: Returning,
        may_go: Callable[[Resident], bool],
        of_nodes: bool,
    ) -> None:
        """`residents` are those who may be moved at all; `of_nodes` whether whole nodes are to stand empty, or GPUs."""
        self._picture = picture
        self._cards = cards
        self._returning = returning
        self._residents = residents
        self._may_go = may_go
        self._of_nodes = of_nodes

    def plan(self, *, most: int) -> Emptied | None:
        """The one where least is lost, of those for which so many have to be moved at the most."""
        empty = frozenset(gpu for _, gpus in self._units() if not any(map(self._is_used, gpus)) for gpu in gpus)
        units = [unit for unit in self._movable() if len(unit.there) <= most]
        for unit in sorted(units, key=lambda unit: (unit.lost, unit.what))[:_MOST_TRIED]:
            if not self._residents.let_go({one.uid for one in unit.there}):
                continue
            shut = empty | unit.gpus
            mover = Mover(
                picture=self._picture,
                cards=self._cards,
                residents=self._residents,
                returning=self._returning,
                shut=shut,
            )
            if moves := mover.all_of(self._residents.in_turn(unit.there)):
                return Emptied(what=unit.what, moves=moves)
        return None

    def _movable(self) -> Iterator[_Unit]:
        """Those from which everybody may be moved, and for whose sake nobody is awaited."""
        holdings, may = self._picture.holdings, self._residents.by_uid
        for what, gpus in self._units():
            uids = sorted({uid for gpu in gpus for uid in holdings.on(gpu)})
            if (
                uids
                and all(uid in may and self._may_go(may[uid]) for uid in uids)
                and not any(map(holdings.kept, gpus))
            ):
                yield _Unit(what=what, gpus=frozenset(gpus), there=tuple(may[uid] for uid in uids))

    def _units(self) -> Iterator[tuple[str, Sequence[GpuKey]]]:
        for name, known in self._picture.nodes.items():
            if not self._picture.grid.bindable[known.row]:
                continue
            gpus = [(name, gpu) for gpu in self._sound(known)]
            if self._of_nodes and gpus:
                # With all of them, whatever their health: who lies on any keeps the node.
                yield f"node {name}", [(name, gpu.uuid) for gpu in known.inventory.gpus]
            elif not self._of_nodes:
                yield from ((f"GPU {gpu} of node {name}", [key]) for key in gpus for gpu in key[1:])

    def _sound(self, known: KnownNode) -> list[str]:
        grid = self._picture.grid
        columns = known.columns.items()
        return [gpu for gpu, at in columns if grid.open[known.row, at] and not grid.degraded[known.row, at]]

    def _is_used(self, gpu: GpuKey) -> bool:
        return bool(self._picture.holdings.on(gpu) or self._picture.holdings.kept(gpu))
