"""Room that is kept for those who are moved, until the pod comes that takes one's place.

A pod can't be carried from card to card: it is asked to go, whoever made it makes another, and that one lies where room
is kept for it. Which one it is, is known by its controller (or its user, where it has none), its queue and its shape.
It is let in as others are for whom room was made (`clearings.py`); a refuge that nobody comes for is closed when its
time is over. The next leader reads it from the pod for whom the one is moved, or where it is kept of those who are
moved for nobody (`recalling.py`): the one itself may be gone by then, so what is known of it is written.

What must always hold: a refuge is room that was free when it was opened, or is so once those are gone who go for the
same clearing, and is kept for one pod alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import sha256

import msgspec

from aliquot_core.claims import Claim
from aliquot_core.objects import Pod
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.room.clearings import GpuKey, Place, has_room
from aliquot_scheduler.queues.waiting.makers import controller
from aliquot_scheduler.queues.waiting.waiter import Shape, Waiter


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Who is moved, as far as it tells who comes in its place: its controller, or whose it is, and what it asks."""

    uid: str
    namespace: str
    owner: str
    user: str
    queue: str
    asks: str
    # Of its node: CPU in thousandths, memory in bytes.
    host: tuple[int, int]


class Refuge(msgspec.Struct, frozen=True, kw_only=True):
    """Where the one is to lie who comes in its place.

    `whose` is for whom it goes, the first of them by UID; or for nobody else, and then `drains` is why, and `whose` is
    what is to stand empty, for which all go or nobody.
    """

    moved: Moved
    node: str
    claims: Mapping[str, Claim]
    until: float
    gpus: tuple[str, ...] = ()
    whose: str = ""
    drains: str = ""
    # The one who is moved; unknown where the leader before us moved it and it is gone.
    waiter: Waiter | None = None

    @property
    def uid(self) -> str:
        """Of the one who is moved."""
        return self.moved.uid

    @property
    def room(self) -> dict[GpuKey, Claim]:
        """By node and GPU."""
        return {(self.node, gpu): claim for gpu, claim in self.claims.items()}


class Refuges:
    """All that are open, by the UID of the one who is moved."""

    def __init__(self, *, picture: Picture) -> None:
        self._picture = picture
        self._open: dict[str, Refuge] = {}
        # Who makes pods for whom room was kept in vain (UIDs of controllers): whoever moves them takes note.
        self.in_vain: set[str] = set()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Refuge]:
        return iter(list(self._open.values()))

    def movers(self) -> set[str]:
        """Who is moved, whether it goes already or not (UIDs)."""
        return set(self._open)

    def open(self, places: Iterable[Place], *, until: float, whose: str = "", drains: str = "") -> None:
        """Keep room for whoever comes in the place of these."""
        for place in places:
            moved = _moved(place.waiter)
            self._keep(
                Refuge(
                    moved=moved,
                    node=place.node,
                    claims=place.claims,
                    gpus=place.gpus,
                    until=until,
                    whose=whose,
                    drains=drains,
                    waiter=place.waiter,
                )
            )

    def open_again(self, refuge: Refuge, *, leaving: Collection[str]) -> None:
        """Keep what another leader kept; not where it is not there once those are gone (UIDs): it was taken since."""
        self._keep(refuge)
        if not has_room(self._picture, refuge.node, refuge.claims, but=leaving):
            self.close(refuge.uid)

    def of(self, whose: str) -> list[Refuge]:
        """Of those who go for this one."""
        return [one for one in self if one.whose == whose]

    def _keep(self, refuge: Refuge) -> None:
        self._open[refuge.uid] = refuge
        key = key_of(refuge.uid)
        self._picture.keep(key, refuge.room)
        # As the cards count it: what is written of one that is moved says no more of our resources.
        amounts = [(one.compute.value, one.memory.value, int(not one.compute.value)) for one in refuge.claims.values()]
        compute, memory, best_effort = (sum(column) for column in zip(*amounts, strict=True))
        own = compute, memory, best_effort
        self._picture.hosts.keep(key, node=refuge.node, amounts=refuge.moved.host, own=own)

    def close(self, uid: str) -> None:
        """Nobody is moved there any more."""
        if self._open.pop(uid, None) is not None:
            self._picture.keep(key_of(uid), {})
            self._picture.hosts.keep_nothing(key_of(uid))

    def lapse(self, uid: str) -> None:
        """The one is moved, and nobody comes there in its place."""
        if (refuge := self._open.get(uid)) is not None:
            self.in_vain.add(refuge.moved.owner)
            self.close(uid)

    def refused(self, uid: str, *, going: Callable[[str], bool]) -> None:
        """One that was to be moved is kept; who was to go with it for the same end, and is not `going`, stays too."""
        refuge = self._open.get(uid)
        self.close(uid)
        for one in self.of(refuge.whose) if refuge and refuge.drains and refuge.whose else ():
            if not going(one.uid):
                self.close(one.uid)

    def draining(self) -> list[Refuge]:
        """Of those who go for nobody else, whether they are there still or not."""
        return [one for one in self if one.drains]

    def drained(self, bound: Mapping[str, Waiter]) -> list[Refuge]:
        """Of those who go for nobody else: whose pod runs, and is not on its way out."""
        there = [one for one in self.draining() if one.uid in bound]
        return [one for one in there if not bound[one.uid].pod.metadata.deletion_timestamp]

    def taken_by(self, waiter: Waiter) -> Refuge | None:
        """What is kept for one that comes for somebody who was moved; it is kept for nobody at this moment."""
        for uid, refuge in self._open.items():
            if uid != waiter.uid and _comes_for(waiter, refuge.moved):
                self.close(uid)
                return refuge
        return None

    def tell_time(self, now: float) -> None:
        """Nobody came in time, or the node is lost."""
        for uid, refuge in list(self._open.items()):
            known = self._picture.nodes.get(refuge.node)
            if now >= refuge.until or known is None or known.out:
                self.lapse(uid)


def controller_of(pod: Pod) -> str:
    """The UID of whoever makes another when this one is gone; empty if nobody does."""
    owner = controller(pod)
    return owner.uid if owner else ""


def _moved(waiter: Waiter) -> Moved:
    return Moved(
        uid=waiter.uid,
        namespace=waiter.pod.metadata.namespace,
        owner=controller_of(waiter.pod),
        user=waiter.user,
        queue=waiter.queue,
        asks=_short(waiter.shape),
        host=waiter.shape.host.amounts,
    )


def _comes_for(waiter: Waiter, moved: Moved) -> bool:
    """Made by the same; where nobody makes them, of the same user."""
    owner = controller_of(waiter.pod)
    return (
        (owner, waiter.pod.metadata.namespace, waiter.queue) == (moved.owner, moved.namespace, moved.queue)
        and (bool(owner) or moved.user == waiter.user)
        and _short(waiter.shape) == moved.asks
    )


def _short(shape: Shape) -> str:
    """The same for who asks the same, whoever leads; what rules say of it in words of their own is told as it reads."""
    said = msgspec.json.encode(msgspec.to_builtins(shape, enc_hook=repr, order="deterministic"), order="deterministic")
    return sha256(said).hexdigest()[:32]


def key_of(uid: str) -> str:
    """By which its room is kept: not the UID, since the one who is moved may hold a card of the same node still."""
    return f"{uid}/moved"
