"""Room for those whom the leader before us has let in: where it was, before anybody else is let in or placed.

All who find theirs as it was have it, the oldest first, and then the others, wherever there is room. Of a group that
wants to lie together or apart (`gangs.py`) those who don't find theirs are placed as it wants to lie: beside, or away
from, those who have room or are bound; where that can't be, all of them elsewhere, if none is bound yet. And each is
held to that when kube-scheduler asks. Where a node is silent, who was there waits for it. For whom there is none
nothing is kept: it loses its turn as others do.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot_core.membership import Topology
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.deciding.turns import Rooms
from aliquot_scheduler.fit.bounds import ANYWHERE, Bounds
from aliquot_scheduler.fit.links import islands
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.planting import Planting
from aliquot_scheduler.queues.judging.stayers import Stayers
from aliquot_scheduler.queues.letting_in.gangs import Placing
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.inside import Inside, Way
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter, summed

_NOWHERE: frozenset[str] = frozenset()


class RoomAgain:
    """For whom it is to be kept, until it is or there is none."""

    def __init__(self, *, planting: Planting, inside: Inside, books: Books, stayers: Stayers, picture: Picture) -> None:
        self._planting = planting
        self._inside = inside
        self._books = books
        self._stayers = stayers
        self._picture = picture
        self._roomless: dict[str, Bounds] = {}

    def expect(self, waiter: Waiter, where: Bounds) -> None:
        """One was adopted for whom room was kept there; of a group, kube-scheduler may not choose another place."""
        self._roomless[waiter.uid] = where
        if _topology(waiter) is not Topology.ANY:
            self._hold_to(waiter, self._place_of(waiter, where))

    def keep(self, rooms: Rooms, *, now: float) -> None:
        """For all of them whose nodes are heard."""
        self._roomless = {uid: where for uid, where in self._roomless.items() if self._inside.way(uid) is Way.ADOPTED}
        heard = {uid: where for uid, where in self._roomless.items() if not self._is_silent(where.node)}
        if not heard:
            return
        displaced = [uid for uid, where in heard.items() if not self._is_kept(uid, where, rooms=rooms, now=now)]
        for members in self._together([self._inside.coming[uid] for uid in displaced]):
            if _topology(members[0]) is Topology.ANY:
                self._is_kept(members[0].uid, ANYWHERE, rooms=rooms, now=now)
            else:
                self._keep_together(members, heard, rooms=rooms, now=now)
        for uid in heard:
            del self._roomless[uid]

    def _is_silent(self, node: str) -> bool:
        """Whether it may come back, with the room that is there."""
        known = self._picture.nodes.get(node)
        return known is not None and bool(known.out)

    def _is_kept(self, uid: str, where: Bounds, *, rooms: Rooms, now: float) -> bool:
        """Whether there was room, which is kept from now on."""
        waiter, held_to = self._inside.coming[uid], self._inside.bounds.get(uid, ANYWHERE)
        bounds = msgspec.structs.replace(where, off=held_to.off)
        promise = rooms.promise_best(waiter.pod, waiter.demand, bounds, now=now)
        if promise is not None:
            # As kube-scheduler will ask for it: else the room would be given up for another as good.
            rooms.narrow(promise, held_to.narrowed(waiter.demand))
            self._enter([promise])
        return promise is not None

    def _enter(self, promises: Sequence[Promise]) -> None:
        for promise in promises:
            self._inside.enter(self._inside.coming[promise.pod.metadata.uid], way=Way.KEPT, until=promise.until)

    # --- groups ------------------------------------------------------------------------------------------------------
    @staticmethod
    def _together(displaced: Sequence[Waiter]) -> list[list[Waiter]]:
        """Those of one group that lies together or apart, at the place of the oldest; all others by themselves."""
        found: dict[object, list[Waiter]] = {}
        for waiter in displaced:
            found.setdefault(waiter.uid if _topology(waiter) is Topology.ANY else waiter.gang, []).append(waiter)
        return list(found.values())

    def _keep_together(self, members: Sequence[Waiter], heard: dict[str, Bounds], *, rooms: Rooms, now: float) -> None:
        """All of them, or none, where their group lies or away from there; or the whole group elsewhere."""
        if promises := self._placed(members, rooms=rooms, now=now):
            self._enter(promises)
            return
        gang = members[0].gang
        mates = self._books.runs.staying(gang) - {one.uid for one in members} if gang else set[str]()
        if not mates or not mates <= heard.keys():
            # Who is bound, or asked for, stays where it is; and a node that is silent may be heard again.
            return
        whole = [self._inside.coming[uid] for uid in heard if uid in mates] + list(members)
        for uid in mates:
            rooms.take_back(uid)
        if promises := self._placed(whole, rooms=rooms, now=now):
            self._enter(promises)
            return
        for uid in sorted(mates):
            self._is_kept(uid, heard[uid], rooms=rooms, now=now)

    def _placed(self, members: Sequence[Waiter], *, rooms: Rooms, now: float) -> list[Promise]:
        placing = Placing(
            picture=self._picture,
            cards=self._planting.cards,
            rooms=rooms,
            runs=self._books.runs,
            bounds=self._inside.bounds,
            stayers=self._stayers,
            now=now,
        )
        return placing.place(Candidate(members=tuple(members), amounts=summed(members)), but=_NOWHERE)

    def _hold_to(self, waiter: Waiter, place: Bounds) -> None:
        self._inside.bounds[waiter.uid] = msgspec.structs.replace(place, off=waiter.off)

    def _place_of(self, waiter: Waiter, where: Bounds) -> Bounds:
        """Of its whole group, as far as it lies in one place: of GPUs that NVLinks join, all of these."""
        if _topology(waiter) is not Topology.NVLINK:
            return Bounds(node=where.node)
        known = self._picture.nodes.get(where.node)
        found = [one for one in islands(known.inventory.gpus) if set(where.gpus) <= set(one)] if known else []
        return Bounds(node=where.node, gpus=found[0] if found else where.gpus)


def _topology(waiter: Waiter) -> Topology:
    return waiter.group.topology if waiter.group else Topology.ANY
