"""Who leaves already when somebody is looked at: on which GPUs they leave room, and how long that takes.

Whoever lies where they leave waits for them too; for whom nobody has to go and nobody goes, a turn is all it needs. Of
those who leave, hundreds at times, the GPUs are known, and whoever of them has the most time left for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from aliquot_scheduler.picture.host_room import enough
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.room.clearings import Clearing, longest_grace
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.reclaim.residents import Resident


class OnTheWay:
    """Those who leave, and those who go for whoever was looked at before."""

    def __init__(self, *, picture: Picture, leaving: Collection[Resident], most: int) -> None:
        """`most` is how many seconds of grace anybody is given."""
        self._picture = picture
        self._most = most
        self._vacated = {gpu for one in leaving for gpu in one.claims}
        self._slowest = self._slowest_of(one.waiter for one in leaving)

    def go(self, victims: Collection[Resident]) -> None:
        """These go too: who comes after it may lie where they leave room, and waits for them."""
        self._vacated |= {gpu for one in victims for gpu in one.claims}
        self._slowest = self._slowest_of([*(one.waiter for one in victims), *self._slowest])

    @property
    def takes(self) -> int:
        """In how many seconds all of them are gone."""
        return longest_grace(self._slowest, most=self._most)

    def keep_waiting(self, clearing: Clearing) -> bool:
        """Whether somebody has to go for it, or goes already; else a turn is all that it needs."""
        if (
            clearing.victims
            or clearing.gives_up
            or any(gpu in self._vacated for place in clearing.places for gpu in place.room)
        ):
            return True
        return any(self._lacks_now(node, clearing) for node in {node for node, _ in self._vacated})

    def _slowest_of(self, going: Iterable[Waiter]) -> list[Waiter]:
        return sorted(going, key=lambda one: longest_grace([one], most=self._most))[-1:]

    def _lacks_now(self, node: str, clearing: Clearing) -> bool:
        """Whether a node has less CPU or memory than those ask who come to it, as long as nobody has left."""
        asked = [place.waiter.shape.host.on_node for place in clearing.places if place.node == node]
        if not asked:
            return False
        free = self._picture.hosts.free[self._picture.nodes[node].row].tolist()
        return not enough([sum(column) for column in zip(*asked, strict=True)], free)
