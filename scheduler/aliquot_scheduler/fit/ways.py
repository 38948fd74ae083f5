"""Every way to lay containers on a node's GPUs, as long as there are not too many.

Pieces are laid one after another, each on any GPU with room; of GPUs that are alike, and hold the same of the pod, one
is tried. What is looked at is counted, and who asks says how much it may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aliquot_scheduler.fit.card import Card
from aliquot_scheduler.fit.demand import Piece
from aliquot_scheduler.fit.modes import share_a_mode

# By container its GPUs, by their places.
_Way = tuple[tuple[int, ...], ...]


@dataclass
class Steps:
    """How many more pieces may be laid; below nothing, not every way was looked at."""

    left: int

    def take(self) -> bool:
        """Whether there is one more."""
        self.left -= 1
        return self.left >= 0


def ways(
    containers: Sequence[Sequence[Piece]], cards: Sequence[Card], steps: Steps, *, modes: Sequence[str] = ()
) -> Iterator[list[list[Card]]]:
    """By container the GPUs that it is given, none of which has more on it than it has.

    In one of these modes a container may lie on several (`modes.modes_of`).
    """
    if too_much(containers, [card.free for card in cards]):
        return
    fresh = [card.untouched() for card in cards]
    for way in _ways(containers, fresh, steps, modes=modes, so_far=((),)):
        yield [[fresh[at].untouched() for at in places] for places in way]


def _ways(
    containers: Sequence[Sequence[Piece]], cards: list[Card], steps: Steps, *, modes: Sequence[str], so_far: _Way
) -> Iterator[_Way]:
    *before, places = so_far
    if len(places) == len(containers[len(before)]):
        if len(so_far) == len(containers):
            yield so_far
        else:
            yield from _ways(containers, cards, steps, modes=modes, so_far=(*so_far, ()))
        return
    piece, tried = containers[len(before)][len(places)], set[tuple[object, ...]]()
    for at, card in enumerate(cards):
        if at in places or not card.takes(piece) or not share_a_mode([card, *(cards[one] for one in places)], modes):
            continue
        if (state := _state(card, at, so_far)) in tried:
            continue
        if not steps.take():
            return
        tried.add(state)
        laid = [replace(one) if one is card else one for one in cards]
        laid[at].give(piece)
        yield from _ways(containers, laid, steps, modes=modes, so_far=(*before, (*places, at)))


def _state(card: Card, at: int, so_far: _Way) -> tuple[object, ...]:
    """What tells GPUs apart: what it is, who else holds it, and who of the pod lies there."""
    gpu, held = card.gpu, card.held
    who = tuple(number for number, places in enumerate(so_far) if at in places)
    return gpu.memory, gpu.compute, gpu.instance is None, *gpu.isolation, held, card.holders, who


def too_much(containers: Sequence[Sequence[Piece]], there: Sequence[tuple[int, int, bool]]) -> bool:
    """In all, or more large ones than there are places for, whichever way they lie.

    `there`: what each GPU has free of compute and memory, and whether it can be shared.
    """
    asked = [(piece.compute, piece.memory) for pieces in containers for piece in pieces]
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
