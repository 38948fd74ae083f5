"""Room that is kept for those who are moved, until the pod comes that takes one's place.

A pod can't be carried from card to card: it is asked to go, whoever made it makes another, and that one lies where room
is kept for it. Which one it is, is known by its controller (or its user, where it has none), its queue and its shape.
It is let in as others are for whom room was made (`clearings.py`); a refuge that nobody comes for is closed when its
time is over.

What must always hold: a refuge is room that was free when it was opened, or is so once those are gone who go for the
same clearing, and is kept for one pod alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from aliquot_core.objects import Pod
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.room.clearings import Place
from aliquot_scheduler.queues.waiting.line import Waiter


class Refuge(msgspec.Struct, frozen=True, kw_only=True):
    """Where the one is to lie who takes the place of this waiter; `drains` is why it has to go, if for nobody else."""

    place: Place
    until: float
    drains: str = ""


class Refuges:
    """All that are open, by the UID of the one who is moved."""

    def __init__(self, *, picture: Picture) -> None:
        self._picture = picture
        self._open: dict[str, Refuge] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Refuge]:
        return iter(list(self._open.values()))

    def movers(self) -> set[str]:
        """Who is moved, whether it goes already or not (UIDs)."""
        return set(self._open)

    def open(self, places: Iterable[Place], *, until: float, drains: str = "") -> None:
        """Keep room for whoever comes in the place of these."""
        for place in places:
            self._open[place.waiter.uid] = Refuge(place=place, until=until, drains=drains)
            key = key_of(place.waiter.uid)
            self._picture.keep(key, place.room)
            self._picture.hosts.keep(key, node=place.node, amounts=place.waiter.shape.host.amounts)

    def close(self, uid: str) -> None:
        """Nobody is moved there any more."""
        if self._open.pop(uid, None) is not None:
            self._picture.keep(key_of(uid), {})
            self._picture.hosts.keep_nothing(key_of(uid))

    def drained(self, bound: Mapping[str, Waiter]) -> list[Refuge]:
        """Of those who go for nobody else: whose pod runs, and is not on its way out."""
        there = [one for one in self if one.drains and one.place.waiter.uid in bound]
        return [one for one in there if not bound[one.place.waiter.uid].pod.metadata.deletion_timestamp]

    def taken_by(self, waiter: Waiter) -> Refuge | None:
        """What is kept for one that comes for somebody who was moved; it is kept for nobody at this moment."""
        for uid, refuge in self._open.items():
            if uid != waiter.uid and _is_its_place(refuge.place.waiter, waiter):
                self.close(uid)
                place = msgspec.structs.replace(refuge.place, waiter=waiter)
                return msgspec.structs.replace(refuge, place=place)
        return None

    def tell_time(self, now: float) -> None:
        """Nobody came in time, or the node is lost."""
        for uid, refuge in list(self._open.items()):
            known = self._picture.nodes.get(refuge.place.node)
            if now >= refuge.until or known is None or known.out:
                self.close(uid)


def controller_of(pod: Pod) -> str:
    """The UID of whoever makes another when this one is gone; empty if nobody does."""
    return next((one.uid for one in pod.metadata.owner_references if one.controller), "")


def _is_its_place(moved: Waiter, waiter: Waiter) -> bool:
    """Made by the same; where nobody makes them, of the same user."""
    owner = controller_of(moved.pod)
    return (
        owner == controller_of(waiter.pod)
        and (bool(owner) or moved.user == waiter.user)
        and moved.pod.metadata.namespace == waiter.pod.metadata.namespace
        and (moved.queue, moved.shape) == (waiter.queue, waiter.shape)
    )


def key_of(uid: str) -> str:
    """By which its room is kept: not the UID, since the one who is moved may hold a card of the same node still."""
    return f"{uid}/moved"
