"""What pods of one shape come to: worked out once for all of them, and anew when hardware or nodes' labels change.

A shape that no node could take if all were empty is known to be so, and why.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from aliquot_core.names import Names
from aliquot_scheduler.fit.bounds import without_models
from aliquot_scheduler.fit.causes import Causes
from aliquot_scheduler.fit.demand import Demand, demand_of
from aliquot_scheduler.fit.ground import HostAsk
from aliquot_scheduler.fit.nowhere import why_nowhere
from aliquot_scheduler.fit.refusals import Refusals, told_often
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.said.tree import Dimensions, Vector
from aliquot_scheduler.queues.waiting.waiter import Shape


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is worked out once for each shape."""

    demand: Demand
    amounts: Vector
    # Why no node could take it if all were empty; empty if one could.
    never: str

    def counts_as(self, other: Known) -> bool:
        """Whether nothing else comes of it; of a reason only whether there is one."""
        return self.amounts == other.amounts and bool(self.never) == bool(other.never)


class Shapes:
    """All shapes that were asked for, by the cards of the moment."""

    def __init__(self, *, names: Names, cards: Cards, dimensions: Dimensions) -> None:
        self._names = names
        self._cards = cards
        self._model_of = dimensions.model_of
        self._known: dict[Shape, Known] = {}
        self._least: dict[Shape, Vector] = {}
        self._numbers: dict[Shape, int] = {}
        self._hardware = cards.hardware()
        # As of which change of nodes, and by what is asked of them, the nodes that could take it.
        self._lasting = cards.ground.lasting
        self._could: dict[HostAsk, int] = {}

    # --- what is known of one ----------------------------------------------------------------------------------------
    def of(self, shape: Shape) -> Known:
        """What it comes to."""
        if shape not in self._known:
            demand = demand_of(shape.request)
            amounts = (*self._cards.amounts(demand), *shape.host.amounts)
            self._known[shape] = Known(demand=demand, amounts=amounts, never=self._never(demand, shape.host))
            if (host := shape.host.lasting) not in self._could:
                self._could[host] = self._cards.ground.digest(host)
        return self._known[shape]

    def number(self, shape: Shape) -> int:
        """The number by which the cards say whether it may fit."""
        if shape not in self._numbers:
            self._numbers[shape] = self._cards.register(self.of(shape).demand)
        return self._numbers[shape]

    def least(self, shape: Shape) -> Vector:
        """Of each model only where it has no card of others: one that is full need not keep it out."""
        if shape not in self._least:
            model_of, amounts = self._model_of, self.of(shape).amounts
            asked = {model for dim, amount in enumerate(amounts) if amount and (model := model_of(dim))}
            needless = {model for model in asked if not self.of(kept_off(shape, model)).never}
            self._least[shape] = tuple(0 if model_of(dim) in needless else one for dim, one in enumerate(amounts))
        return self._least[shape]

    # --- how long that holds -----------------------------------------------------------------------------------------
    def changed(self) -> bool:
        """Whether hardware or nodes' labels are others than when this was asked last."""
        return self._cards.hardware() != self._hardware or self._cards.ground.lasting != self._lasting

    def work_out_anew(self) -> bool:
        """After such a change; whether any shape comes to something else by it."""
        asks = self._asks_that_changed()
        hardware = self._cards.hardware()
        same = hardware == self._hardware
        self._hardware = hardware
        before = {shape: known for shape, known in self._known.items() if not same or shape.host.lasting in asks}
        for shape in before:
            del self._known[shape]
        return not all(self.of(shape).counts_as(known) for shape, known in before.items())

    def _asks_that_changed(self) -> set[HostAsk]:
        if (lasting := self._cards.ground.lasting) == self._lasting:
            return set()
        self._lasting = lasting
        changed = {ask for ask, could in self._could.items() if self._cards.ground.digest(ask) != could}
        for ask in changed:
            del self._could[ask]
        return changed

    # --- whether it could lie anywhere -------------------------------------------------------------------------------
    def _never(self, demand: Demand, ask: HostAsk) -> str:
        causes = self._cards.causes(demand)
        able = causes.able()
        if (able & self._cards.ground.could(ask)).any():
            return ""
        if why := self._cards.obstacles.why_never(ask, able=able):
            return why + self._of_others(causes, able)
        return f"no node could take it, even if it were empty: {why_nowhere(causes, names=self._names)}"

    def _of_others(self, causes: Causes, able: Bools) -> str:
        """Of the nodes that have GPUs and no such ones, which may look the same to who asks."""
        picture = self._cards.picture
        others = picture.grid.open.any(axis=1) & ~able
        named = {name: known for name, known in picture.nodes.items() if others[known.row]}
        reasons = Counter(one.why for one in Refusals(causes, names=self._names).of(named).values())
        return f"; {reasons.total()} more can't take it: {told_often(reasons)}" if reasons else ""


def kept_off(shape: Shape, model: str) -> Shape:
    """What asks the same, and for no cards of that model."""
    request = without_models(shape.request, (model.casefold(),))
    return msgspec.structs.replace(shape, request=request)
