"""Room that is being made: for whom, where, and who goes for it.

Theory of operation. A clearing is decided at once and comes true over seconds: its victims are asked to go, and until
their slices are free all that is meant for the members is kept for them in the picture, so nobody else takes it. The
members rest meanwhile, and ask for nothing: what they were promised is kept, not held back. As soon as all of it is
there, they are let in.

A clearing ends when they are in, when one of them is gone, when one of its nodes is, when its time is over, or when
another is called off on whose victims it had counted too. Whoever was not asked to go by then is spared. A leader that
begins anew reads from the pods where room was being made for them (`recalling.py`), and sees who is on the way out.

What must always hold: what is kept for somebody is kept by one clearing, and of no GPU more is kept than it has once
all are gone who were asked to go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from aliquot_core.claims import Claim, overdrawn
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.room.graces import grace_of, is_slow
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter, summed

GpuKey = tuple[str, str]

# A limit may still be charged with who goes elsewhere: to try costs a search, and all who wait are looked at anew.
_AGAIN = 1.0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where one pod is to lie."""

    waiter: Waiter
    node: str
    claims: Mapping[str, Claim]
    # Of a group that has to lie together: on these GPUs alone.
    gpus: tuple[str, ...] = ()

    @property
    def room(self) -> dict[GpuKey, Claim]:
        """By node and GPU."""
        return {(self.node, gpu): claim for gpu, claim in self.claims.items()}


class Clearing(msgspec.Struct, frozen=True, kw_only=True):
    """One decision; `victims` are those who are asked to go for it, in the order in which they are asked."""

    candidate: Candidate
    places: tuple[Place, ...]
    victims: tuple[Waiter, ...]
    until: float
    # Since when, and how long at most, by the clock on the wall; nobody knows of what the leader before us began.
    since_wall: float | None = None
    until_wall: float | None = None
    # Of victims who are moved: where room is kept for those who come in their place.
    moves: tuple[Place, ...] = ()
    # Victims (UIDs) whom a disruption budget may keep by the time they are asked: the others are asked after them.
    covered: frozenset[str] = frozenset()
    # Of victims (UIDs) whose disruption budget is set aside for it.
    against_budgets: frozenset[str] = frozenset()
    # Whether it is for a guarantee, and not by priority inside a queue.
    reclaims: bool = False
    # Of its room, the GPUs that failed when it was chosen: nothing better was found.
    known_to_fail: frozenset[GpuKey] = frozenset()
    # Who was moved (UIDs), and whose room is kept for nobody any more, since it is in the way.
    gives_up: frozenset[str] = frozenset()

    @property
    def uid(self) -> str:
        """By which it is known."""
        return self.candidate.uid

    def held(self, hold: Callable[[Place], Waiter]) -> Clearing:
        """The same, each kept off models on which it has no place there (`hold`)."""
        places, candidate = held(self.places, self.candidate, hold)
        return msgspec.structs.replace(self, candidate=candidate, places=places)

    def begun(self, *, now: float, wall: float) -> Clearing:
        """The same, with what the clock on the wall says of it."""
        return msgspec.structs.replace(self, since_wall=wall, until_wall=wall + self.until - now)

    @property
    def nodes(self) -> list[str]:
        """Where room is made."""
        return sorted({place.node for place in self.places})


def held(
    places: Sequence[Place], candidate: Candidate, hold: Callable[[Place], Waiter]
) -> tuple[tuple[Place, ...], Candidate]:
    """Places, and who is to lie there, kept off models on which they have none: so they will be let in."""
    kept = tuple(msgspec.structs.replace(place, waiter=hold(place)) for place in places)
    by_uid = {place.waiter.uid: place.waiter for place in kept}
    members = tuple(by_uid.get(member.uid, member) for member in candidate.members)
    return kept, Candidate(members=members, amounts=summed(members))


class Clearings:
    """All that stand."""

    def __init__(self, *, picture: Picture, max_grace: int) -> None:
        self._picture = picture
        self.max_grace = max_grace
        self._standing: dict[str, Clearing] = {}
        self._whose: dict[str, str] = {}
        # Victims who were asked to go (UIDs).
        self._asked: set[str] = set()
        # A place of each that was not free when it was looked at; and when to try again.
        self._taken: dict[str, Place | None] = {}
        self._not_before: dict[str, float] = {}
        # For whom a room was given up since a GPU of it began to fail: not once more, or who borrows would go for one
        # GPU after the other.
        self._had_another: set[str] = set()

    def __len__(self) -> int:
        return len(self._standing)

    def __iter__(self) -> Iterator[Clearing]:
        """Those that stand when it is their turn: what is done with one may end others."""
        for uid in list(self._standing):
            if (clearing := self._standing.get(uid)) is not None:
                yield clearing

    def __contains__(self, uid: str) -> bool:
        """Whether room is being made for this pod."""
        return uid in self._whose

    def whose(self, uid: str) -> Clearing | None:
        """The one by which room is made for a pod."""
        return self._standing.get(self._whose.get(uid, ""))

    def victims(self) -> set[str]:
        """Who goes for others, whether or not they were asked yet (UIDs)."""
        return {victim.uid for clearing in self._standing.values() for victim in clearing.victims}

    def counting_on(self, uid: str) -> Clearing | None:
        """The one for which this pod goes."""
        return next((one for one in self if any(victim.uid == uid for victim in one.victims)), None)

    def make(self, clearing: Clearing) -> None:
        """Keep the room."""
        self._standing[clearing.uid] = clearing
        for place in clearing.places:
            self._whose[place.waiter.uid] = clearing.uid
            self._picture.keep(place.waiter.uid, place.room)
            asked = place.waiter.shape.host
            self._picture.hosts.keep(place.waiter.uid, node=place.node, amounts=asked.amounts, own=asked.own)

    def drop(self, clearing: Clearing) -> None:
        """Keep nothing any more of what is kept by now."""
        standing = self._standing.pop(clearing.uid, None)
        if standing is None:
            return
        for place in standing.places:
            del self._whose[place.waiter.uid]
            self._picture.keep(place.waiter.uid, {})
            self._picture.hosts.keep_nothing(place.waiter.uid)
        self._taken.pop(clearing.uid, None)
        self._not_before.pop(clearing.uid, None)

    def read_anew(self, read: Callable[[Place], Waiter]) -> None:
        """Pods come to something else now, by other queues or hardware; `read` says what, of all of them."""
        for uid, clearing in self._standing.items():
            self._standing[uid] = clearing.held(read)

    def unasked(self, clearing: Clearing, *, bound: Mapping[str, Waiter]) -> list[Waiter]:
        """Who is to be asked to go now; of those who run, by the last word on each, not who goes by itself in time."""
        there = [bound[victim.uid] for victim in clearing.victims if victim.uid in bound]
        return [one for one in there if one.uid not in self._asked and not self._goes_by_itself(one)]

    def _goes_by_itself(self, one: Waiter) -> bool:
        return bool(one.pod.metadata.deletion_timestamp) and not is_slow(one.pod, most=self.max_grace)

    def asked(self, uid: str) -> None:
        """A victim was asked to go: it is not asked twice."""
        self._asked.add(uid)

    def all_asked(self) -> list[str]:
        """Who was asked to go and is there still (UIDs)."""
        return sorted(self._asked)

    def was_asked(self, uid: str) -> bool:
        """Whether a pod was asked to go, by whatever clearing; the watch may tell of it later."""
        return uid in self._asked

    def gone(self, uid: str) -> None:
        """A pod is gone, whoever it was."""
        self._asked.discard(uid)
        self._had_another.discard(uid)

    def not_asked(self, uid: str) -> None:
        """It could not be: it is to be asked once more."""
        self._asked.discard(uid)

    def why_void(self, clearing: Clearing, *, now: float) -> str:
        """Why it can't come true any more; empty if it can."""
        if now >= clearing.until:
            return "those who were to go are there still"
        for place in clearing.places:
            known = self._picture.nodes.get(place.node)
            if known is None or known.out:
                return f"node {place.node} is out"
        return ""

    def has_begun_to_fail(self, clearing: Clearing) -> bool:
        """Whether a GPU of an owner's room has: another is looked for (`reclaim/swapping.py`), but had only once."""
        if not clearing.reclaims or clearing.uid in self._had_another:
            return False
        return bool(self.failing(clearing) - clearing.known_to_fail)

    def has_another(self, uid: str) -> None:
        """It was given another room, since a GPU of the one before had begun to fail."""
        self._had_another.add(uid)

    def failing(self, clearing: Clearing) -> frozenset[GpuKey]:
        """Which GPUs of its room are degraded by what is the matter with the card."""
        nodes, failing = self._picture.nodes, self._picture.grid.failing
        if not failing.any():
            return frozenset()
        room = [(nodes.get(node), gpu) for place in clearing.places for node, gpu in place.room]
        return frozenset(
            (known.name, gpu)
            for known, gpu in room
            if known and gpu in known.columns and failing[known.row, known.columns[gpu]]
        )

    def comes_true(self, clearing: Clearing, *, leaving: Collection[str]) -> bool:
        """Whether its room on GPUs is there once those are gone (UIDs), beside what is kept for others."""
        return all(has_room(self._picture, place.node, place.claims, but=leaving) for place in clearing.places)

    def is_free(self, clearing: Clearing, *, now: float) -> bool:
        """Whether all of its room is there, and whether to try now: not again and again where it was not enough."""
        if now < self._not_before.get(clearing.uid, now):
            return False
        if any(place.node not in self._picture.nodes for place in clearing.places):
            return False
        # The one that was taken at the last look is so most of the time; asked with every event, all would be slow.
        taken = self._taken.get(clearing.uid)
        if taken is not None and not self._is_free(taken):
            return False
        self._taken[clearing.uid] = next((place for place in clearing.places if not self._is_free(place)), None)
        return self._taken[clearing.uid] is None

    def failed(self, clearing: Clearing, *, now: float) -> None:
        """All of it was there, and yet not all could be let in; the room is kept on."""
        self.make(clearing)
        self._not_before[clearing.uid] = now + _AGAIN

    def _is_free(self, place: Place) -> bool:
        known = self._picture.nodes[place.node]
        left = zip(place.waiter.shape.host.on_node, self._picture.hosts.free[known.row].tolist(), strict=True)
        return has_room(self._picture, place.node, place.claims) and not any(asked and part < 0 for asked, part in left)


def has_room(picture: Picture, node: str, gpus: Iterable[str], *, but: Collection[str] = ()) -> bool:
    """Whether these GPUs of a node hold all that is kept and held on them, once those are gone (UIDs)."""
    if (known := picture.nodes.get(node)) is None:
        return False
    cards = {gpu.uuid: gpu for gpu in known.inventory.gpus}
    for gpu in gpus:
        total, holders = picture.holdings.total((node, gpu), but=but)
        card = cards.get(gpu)
        if not card or overdrawn(total, memory=card.usable, holders=holders, compute=card.compute):
            return False
    return True


def longest_grace(going: Iterable[Waiter], *, most: int) -> int:
    """In how many seconds all of these are gone who are asked to go now; of those who leave no more is left."""
    return max((grace_of(one.pod, most=most) for one in going), default=0)
