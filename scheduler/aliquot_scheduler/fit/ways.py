"""Every way to lay containers on a node's GPUs, as long as there are not too many.

Pieces are laid one after another, each on any GPU with room, the fullest first; of GPUs that are alike, and hold the
same of the pod, one is tried, and what was seen to lead nowhere is not looked at again. What is looked at is counted,
and who asks says how much it may be.
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
    for way in _Search(containers, steps, modes).ways(fresh, so_far=((),)):
        yield [[fresh[at].untouched() for at in places] for places in way]


class _Search:
    """One of them; what was seen to lead nowhere is not looked at again."""

    def __init__(self, containers: Sequence[Sequence[Piece]], steps: Steps, modes: Sequence[str]) -> None:
        self._containers = containers
        self._steps = steps
        self._modes = modes
        self._dead = set[tuple[object, ...]]()

    def ways(self, cards: list[Card], *, so_far: _Way) -> Iterator[_Way]:
        """From there on."""
        *before, places = so_far
        if len(places) == len(self._containers[len(before)]):
            if len(so_far) == len(self._containers):
                yield so_far
            else:
                yield from self.ways(cards, so_far=(*so_far, ()))
            return
        reached = _reached(cards, so_far)
        if reached in self._dead:
            return
        found = False
        for way in self._on_each(self._containers[len(before)][len(places)], cards, so_far):
            found = True
            yield way
        if not found and self._steps.left >= 0:
            self._dead.add(reached)

    def _on_each(self, piece: Piece, cards: list[Card], so_far: _Way) -> Iterator[_Way]:
        """The fullest GPU first, of those that are alike one."""
        *before, places = so_far
        tried = set[tuple[object, ...]]()
        for at in sorted(range(len(cards)), key=lambda at: (*cards[at].free[:2], at)):
            card = cards[at]
            if at in places or not card.takes(piece):
                continue
            if not share_a_mode([card, *(cards[mine] for mine in places)], self._modes):
                continue
            if (state := _state(card, at, so_far)) in tried:
                continue
            if not self._steps.take():
                return
            tried.add(state)
            laid = [replace(one) if one is card else one for one in cards]
            laid[at].give(piece)
            yield from self.ways(laid, so_far=(*before, (*places, at)))


def _reached(cards: Sequence[Card], so_far: _Way) -> tuple[object, ...]:
    """All that decides whether what is left finds room: how far it is, and what GPUs have left."""
    left = sorted(
        (*card.free, card.gpu.memory, card.gpu.isolation, card.holders, card.parts > 0, at in so_far[-1])
        for at, card in enumerate(cards)
    )
    return len(so_far), len(so_far[-1]), *((*state[:4], tuple(state[4]), *state[5:]) for state in left)


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
