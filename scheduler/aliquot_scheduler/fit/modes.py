"""The isolation mode as an axis of fit: a container that lies on several GPUs is held in one mode that all offer.

So which GPUs it may have is no one set: there is one for each mode that reaches over several. Each container has its
own mode, and one that lies on a single GPU has whichever that offers; so do pods whose containers all do, and for them,
as where one mode is offered everywhere, there is one set as ever.

What must always hold: the sets hold whatever GPUs some mode could hold together; none of them lies within another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from aliquot_core.isolation import offers, shared_modes
from aliquot_core.request import PodRequest
from aliquot_scheduler.fit.card import Card
from aliquot_scheduler.fit.demand import Piece, suits
from aliquot_scheduler.picture.grid import Bools, Cells, Kind

# A piece, how often it is asked for, and the GPUs that take it.
Placed = tuple[Piece, int, Bools]


def modes_of(request: PodRequest) -> tuple[str, ...]:
    """In which a container of it may lie on several GPUs; empty if none does."""
    return shared_modes(least=request.isolation, wholes=request.wholes, qualities=request.qualities)


def mask_of(isolation: Sequence[str], modes: Sequence[str]) -> int:
    """A bit for each of these modes that a GPU offers."""
    return sum(offers(isolation, mode) << bit for bit, mode in enumerate(modes))


def kinds_together(kinds: Iterable[Kind], request: PodRequest) -> dict[str, list[bool]]:
    """By mode which kinds of GPUs suit the pod and can be one container's; the largest of these sets."""
    kinds = list(kinds)
    suitable, modes = [suits(kind, request) for kind in kinds], modes_of(request)
    if not modes:
        return {"": suitable}
    of_modes = [
        (mode, [may and offers(kind.isolation, mode) for may, kind in zip(suitable, kinds, strict=True)])
        for mode in modes
    ]
    found: dict[str, list[bool]] = {}
    # Stronger modes come first: of those that the same GPUs offer their containers get that.
    for mode, own in sorted(of_modes, key=lambda one: -sum(one[1])):
        if not any(all(had or not has for had, has in zip(other, own, strict=True)) for other in found.values()):
            found[mode] = own
    return found or {"": suitable}


def apart_by_mode(request: PodRequest, *, grid: Cells) -> dict[str, Bools]:
    """The same of all GPUs of a grid, room or not; only where that is more than one set, else nothing."""
    if len(request.wholes) == 1:
        return {}
    sets = kinds_together(grid.kinds, request)
    return {mode: np.array(own, dtype=np.bool_)[grid.kind] for mode, own in sets.items()} if len(sets) > 1 else {}


def in_one_mode(asked: Sequence[Placed], sets: Collection[Bools]) -> list[Placed]:
    """Of what takes each of one container's pieces, in falling order, what does so in a mode with GPUs for all.

    Without sets everything.
    """
    if not sets:
        return list(asked)
    found = [np.zeros_like(places) for *_, places in asked]
    for those in sets:
        enough, so_far = np.ones(those.shape[0], dtype=np.bool_), 0
        own = [places & those for *_, places in asked]
        for (_, count, _), places in zip(asked, own, strict=True):
            so_far += count
            enough &= places.sum(axis=1) >= so_far
        for some, places in zip(found, own, strict=True):
            np.logical_or(some, places & enough[:, np.newaxis], out=some)
    return [(piece, count, some) for (piece, count, _), some in zip(asked, found, strict=True)]


def sharing(offered: Sequence[Sequence[str]], modes: Sequence[str]) -> list[list[int]]:
    """Which of a node's GPUs, by their places, share one of these modes; the largest of these sets."""
    found: list[list[int]] = []
    of_modes = [[at for at, isolation in enumerate(offered) if offers(isolation, mode)] for mode in modes]
    for own in sorted(of_modes, key=lambda places: -len(places)):
        if own and not any(set(own) <= set(other) for other in found):
            found.append(own)
    return found or [list(range(len(offered)))]


def hands(cards: Sequence[Card], modes: Sequence[str]) -> list[list[Card]]:
    """The same of cards."""
    return [[cards[at] for at in own] for own in sharing([card.gpu.isolation for card in cards], modes)]


def share_a_mode(cards: Sequence[Card], modes: Sequence[str]) -> bool:
    """Whether these can be one container's; a single one can."""
    return len(cards) < 2 or any(all(offers(card.gpu.isolation, mode) for card in cards) for mode in modes)  # noqa: PLR2004 - several
