"""Where the pods of a group lie, all of them: no small one takes the place that a large one can't do without.

Theory of operation. Those who are hardest to place come first: who has the fewest cards, then the largest. Each gets
the first node with room, there the card that it fills best; where somebody finds none, the one before tries its next
place, and so on. Nodes in equal state are one, and what was found to lead nowhere is not looked at again, so equal pods
are not tried in every order.

What must always hold: what is found fits; the same cards and pods give the same answer; if all was tried (`Tries`),
nothing is found only where there is nothing. Of pods whose containers may share cards (`Demand.pieces` is None) not all
ways are tried: as one is laid that is alone, and each card by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from aliquot_core.claims import Claim
from aliquot_core.inventory import Gpu
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_scheduler.fit.card import Card
from aliquot_scheduler.fit.demand import Demand, Piece, pieces_of
from aliquot_scheduler.fit.ground import NOBODY
from aliquot_scheduler.fit.layout import lay_out
from aliquot_scheduler.fit.left import Left
from aliquot_scheduler.fit.modes import modes_of, sharing
from aliquot_scheduler.picture.host_room import HostAmounts, enough

# All that decides what a GPU takes; and a node.
_CardState = tuple[int, ...]
_State = tuple[object, ...]


class Spot(NamedTuple):
    """A node, or some of its GPUs, as it is supposed to be; while places are tried it is changed, and changed back."""

    node: str
    gpus: Sequence[Gpu]
    left: Sequence[Left]
    # The number of each GPU's kind.
    kinds: Sequence[int]
    host: list[int]


class Sort(msgspec.Struct, frozen=True, kw_only=True):
    """What those ask who ask the same, and which GPUs they may have of which nodes, by their places there."""

    pod: Pod
    demand: Demand
    host: HostAmounts
    may: Mapping[str, Sequence[int]]


class Lying(NamedTuple):
    """Where one lies."""

    node: str
    gpus: tuple[str, ...]


class _Placed(NamedTuple):
    """One of them, for now: on which spot, of what sort, and what it takes of which of its GPUs."""

    spot: int
    sort: Sort
    claims: Mapping[int, Claim]


@dataclass
class Tries:
    """How many placements may be tried still, by all who are looked for one after the other."""

    left: int


def pieces_apart(demand: Demand) -> Sequence[Piece]:
    """The largest first; of pods whose containers may share cards, as if none did."""
    apart = [piece for one in demand.request.containers for piece in pieces_of(one)]
    return demand.pieces or sorted(apart, key=lambda piece: (-piece.compute, -piece.memory))


def largest_first(demand: Demand) -> tuple[int, ...]:
    """By which those are put in order who have the same choice: more cards, more of them, more of one."""
    pieces = pieces_apart(demand)
    return -len(pieces), -sum(piece.compute for piece in pieces), -pieces[0].memory, -pieces[0].portion


class Laying:
    """One search."""

    def __init__(self, members: Sequence[int], sorts: Mapping[int, Sort], spots: Sequence[Spot]) -> None:
        """Of each member the number of its sort; spots in the order in which they are to be taken."""
        self._members = members
        self._sorts = sorts
        self._spots = spots
        # No more of a node's own room counts than they ask together.
        self._asked = [sum(sorts[number].host[column] for number in members) for column in range(len(NOBODY.on_node))]
        self._who = [self._who_may(spot) for spot in spots]
        # The same number for nodes in the same state, from which the same follows.
        self._numbers: dict[_State, int] = {}
        self._states = [self._state(place) for place in range(len(spots))]

    def found(self, tries: Tries) -> dict[int, Lying] | None:
        """Where each lies, by its place among the members, in the order in which they were placed; or nothing."""
        order = self._hardest_first()
        ways: list[Iterator[_Placed]] = []
        placed: list[_Placed] = []
        # How many were placed, and the states of all nodes then.
        seen: set[tuple[int, ...]] = set()
        while len(placed) < len(order):
            state = (len(placed), *sorted(self._states))
            # Where that led nowhere already there are no ways on.
            ways.append(iter(()) if state in seen else self._ways(self._sorts[self._members[order[len(placed)]]]))
            seen.add(state)
            while (way := self._next(ways[-1], tries)) is None:
                ways.pop()
                if not ways:
                    return None
                self._put(placed.pop(), sign=-1)
            self._put(way, sign=+1)
            placed.append(way)
        for one in reversed(placed):
            self._put(one, sign=-1)
        return {member: self._lying(one) for member, one in zip(order, placed, strict=True)}

    @staticmethod
    def _next(ways: Iterator[_Placed], tries: Tries) -> _Placed | None:
        if tries.left <= 0:
            return None
        way = next(ways, None)
        tries.left -= way is not None
        return way

    def _hardest_first(self) -> list[int]:
        ease = {number: self._ease(sort) for number, sort in self._sorts.items()}
        return sorted(range(len(self._members)), key=lambda one: (ease[self._members[one]], self._members[one], one))

    def _ease(self, sort: Sort) -> tuple[int, ...]:
        """How many cards could be its first, on nodes with enough of them; and how much it asks."""
        first, least = pieces_apart(sort.demand)[0], len(sort.demand.pieces or (0,))
        able = (sum(spot.left[at].takes(first) for at in sort.may.get(spot.node, ())) for spot in self._spots)
        return sum(cards for cards in able if cards >= least), *largest_first(sort.demand)

    # --- the ways of one ---------------------------------------------------------------------------------------------
    def _ways(self, sort: Sort) -> Iterator[_Placed]:
        """All of its places as things are, but one of those that are equal."""
        looked_at: set[int] = set()
        for place, spot in enumerate(self._spots):
            may = sort.may.get(spot.node)
            if may is None or self._states[place] in looked_at:
                continue
            looked_at.add(self._states[place])
            if enough(sort.host, spot.host):
                for claims in self._on(place, sort, may):
                    yield _Placed(place, sort, claims)

    def _on(self, place: int, sort: Sort, may: Sequence[int]) -> Iterator[Mapping[int, Claim]]:
        """Each way to lie there, the cards that it fills best first."""
        spot = self._spots[place]
        fullest = sorted(may, key=lambda at: (spot.left[at].compute, spot.left[at].memory, at))
        pieces = sort.demand.pieces
        if pieces is None:
            alone = ([at] for at in self._unlike(place, fullest))
            yield from filter(None, (self._laid(spot, sort, some) for some in (may, *alone)))
        elif len(pieces) > 1:
            choices = (some for own in self._hands(spot, sort, fullest) for some in self._choices(place, pieces, own))
            yield from filter(None, (self._laid(spot, sort, some) for some in choices))
        else:
            able = [at for at in fullest if spot.left[at].takes(pieces[0])]
            yield from ({at: pieces[0].claim_on(spot.gpus[at])} for at in self._unlike(place, able))

    def _choices(
        self, place: int, pieces: Sequence[Piece], fullest: Sequence[int], taken: tuple[int, ...] = ()
    ) -> Iterator[Sequence[int]]:
        """A card for each piece; of equal pieces the next one gets a later card."""
        if len(taken) == len(pieces):
            yield taken
            return
        piece, left = pieces[len(taken)], self._spots[place].left
        again = bool(taken) and pieces[len(taken) - 1] == piece
        able = fullest[fullest.index(taken[-1]) + 1 :] if again else fullest
        free = [at for at in able if at not in taken and left[at].takes(piece)]
        for at in self._unlike(place, free):
            yield from self._choices(place, pieces, fullest, (*taken, at))

    def _unlike(self, place: int, cards: Sequence[int]) -> list[int]:
        """One of those in equal state."""
        return list({self._card_state(place, at): at for at in reversed(cards)}.values())[::-1]

    @staticmethod
    def _hands(spot: Spot, sort: Sort, fullest: Sequence[int]) -> list[list[int]]:
        """Of these cards those that can be one container's."""
        offered = [spot.gpus[at].isolation for at in fullest]
        return [[fullest[at] for at in own] for own in sharing(offered, modes_of(sort.demand.request))]

    @staticmethod
    def _laid(spot: Spot, sort: Sort, some: Sequence[int]) -> Mapping[int, Claim] | None:
        """By the code that will lay it out when it is let in."""
        cards = [_card(spot.gpus[at], spot.left[at]) for at in some]
        plan = lay_out(sort.pod, sort.demand, node=spot.node, cards=cards)
        return (
            {at: plan.claims[spot.gpus[at].uuid] for at in some if spot.gpus[at].uuid in plan.claims} if plan else None
        )

    # --- what is supposed --------------------------------------------------------------------------------------------
    def _put(self, one: _Placed, *, sign: int) -> None:
        spot = self._spots[one.spot]
        for at, claim in one.claims.items():
            spot.left[at].take(claim, sign=sign)
        for column, asked in enumerate(one.sort.host):
            spot.host[column] -= sign * asked
        self._states[one.spot] = self._state(one.spot)

    def _who_may(self, spot: Spot) -> list[int]:
        """Of each GPU, which sorts may have it."""
        who = [0] * len(spot.gpus)
        for bit, sort in enumerate(self._sorts.values()):
            for at in sort.may.get(spot.node, ()):
                who[at] |= 1 << bit
        return who

    def _state(self, place: int) -> int:
        host = (min(there, asked) for there, asked in zip(self._spots[place].host, self._asked, strict=True))
        cards = (self._card_state(place, at) for at, who in enumerate(self._who[place]) if who)
        return self._numbers.setdefault((*host, *sorted(cards)), len(self._numbers))

    def _card_state(self, place: int, at: int) -> _CardState:
        spot = self._spots[place]
        left = spot.left[at]
        return (
            self._who[place][at],
            spot.kinds[at],
            left.usable,
            left.compute,
            left.memory,
            left.holders > 0,
            left.closed,
        )

    def _lying(self, one: _Placed) -> Lying:
        spot = self._spots[one.spot]
        return Lying(spot.node, tuple(spot.gpus[at].uuid for at in one.claims))


def _card(gpu: Gpu, left: Left) -> Card:
    compute, memory = gpu.compute.value - left.compute, left.usable - left.memory
    held = Claim(compute=Percent(compute), memory=MiB(max(0, memory)), closes=left.closed)
    return Card(gpu=gpu, held=held, holders=left.holders)
