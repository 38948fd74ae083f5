"""How large the cards are that queues name, and how much of them is there: what the tree of queues is planted by."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aliquot_core.patterns import Patterns
from aliquot_core.quantities import WHOLE
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.said.dues import Hardware
from aliquot_scheduler.queues.said.things import patterns_of


def hardware_of(picture: Picture, models: Iterable[str]) -> Hardware:
    """What queues that name these models have to know of the cards."""
    grid = picture.grid
    largest, there, found = dict[str, int](), dict[str, tuple[int, int]](), dict[str, frozenset[int]]()
    for pattern in patterns_of(models):
        numbers = kinds_of(pattern, picture)
        cards = grid.open & np.isin(grid.kind, numbers)
        usable = grid.usable[cards]
        # Of an instance of MIG, a card that is cut into such ones: a part of it would bring too little memory along.
        largest[pattern] = int((usable.astype(np.int64) * WHOLE.value // grid.total[cards]).max(initial=0))
        there[pattern] = int(grid.total[cards].sum(dtype=np.int64)), int(usable.sum(dtype=np.int64))
        found[pattern] = frozenset(np.unique(grid.kind[cards]).tolist())
    return Hardware(largest=largest, there=there, kinds=found)


def kinds_of(pattern: str, picture: Picture) -> list[int]:
    """The numbers of the kinds of cards that a pattern of models means; of all kinds, if it is empty."""
    model = Patterns(allowed=(pattern.casefold(),) if pattern else ())
    return [number for number, kind in enumerate(picture.grid.kinds) if model.admits(*kind.models)]
