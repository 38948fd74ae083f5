"""What was found for a pod, for the questions that follow."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot_core.objects import Pod
from aliquot_scheduler.extender.decisions import BEST_GRADE
from aliquot_scheduler.fit.survey import Room, Survey
from aliquot_scheduler.picture.picture import Picture


def takes_any_node(pod: Pod) -> bool:
    """Whether any node with room is as good as another to this pod."""
    spec = pod.spec
    return not (spec.affinity or spec.topology_spread_constraints or spec.node_selector)


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that were named, what they cost, and which is best."""

    survey: Survey
    room: Room
    best: str


class Offers:
    """The last offer to each pod."""

    def __init__(self, *, picture: Picture) -> None:
        self._picture = picture
        self._made: dict[str, Offer] = {}
        # Whose turn has found room, and kube-scheduler has not asked for them since.
        self._unasked: set[str] = set()

    def __len__(self) -> int:
        """How many pods anything is kept of."""
        return len(self._made.keys() | self._unasked)

    def make(self, uid: str, offer: Offer) -> None:
        """Keep what was found."""
        self._made[uid] = offer

    def expect(self, uid: str) -> None:
        """A turn has found room: kube-scheduler will ask."""
        self._unasked.add(uid)

    def was_expected(self, uid: str) -> bool:
        """Whether this is the first time that it asks since then."""
        expected = uid in self._unasked
        self._unasked.discard(uid)
        return expected

    def forget(self, uid: str) -> None:
        """Nobody asks any more."""
        self._made.pop(uid, None)
        self._unasked.discard(uid)

    def grades(self, uid: str, nodes: Sequence[str]) -> list[int]:
        """How good each node is; the one with the promised room is a little better than its equals.

        kube-scheduler draws among equals, and would scatter what was meant to be packed.
        """
        offer = self._made.get(uid)
        if offer is None:
            return [0] * len(nodes)
        if nodes == offer.room.nodes:
            # As they were answered: to look 1,000 up again takes longer than all the rest.
            found = offer.survey.grades(offer.room.rows, best=BEST_GRADE)
            found[nodes.index(offer.best)] += 1
            return found
        known, rows = self._picture.rows_of(nodes)
        grades = dict(zip(known, offer.survey.grades(rows, best=BEST_GRADE), strict=True))
        if offer.best in grades:
            grades[offer.best] += 1
        return [grades.get(node, 0) for node in nodes]
