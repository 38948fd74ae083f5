"""Room that the leader before was making: each pod for whom it is says where, and it is kept from the first turn on.

The first of those for whom it is says as well where room is kept for pods that are moved for it (`refuges.py`). For
those who go off a degraded GPU, for nobody, no pod is there that stays: theirs is kept beside the mix of requests
(`centre/moved_keeper.py`).

The word is written before the first victim is asked to go (`centre/room_writer.py`). Without it a new leader would find
cards free that somebody was sent away from, and give them to whoever comes first; then others would have to go for the
same pod. It stays when the gate is lifted. Once the pod is bound it counts for those alone who were moved for it, and
says no more of them than is kept still.

Nothing else is believed: who goes is seen at those who go, and room that is not to come true by them is called off at
the next look, and decided on anew by everybody's rights (`reclaim/reclaim.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated

import msgspec

from aliquot_core.claims import Claim
from aliquot_core.quantities import LARGEST, MiB, Percent
from aliquot_scheduler.queues.room.clearings import Clearing, GpuKey, Place
from aliquot_scheduler.queues.room.refuges import Moved, Refuge
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter, summed

# Less than nothing would be room that is not there.
_Amount = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
# By GPU: percent, MiB, and whether nobody else may lie there.
_Claims = dict[str, tuple[_Amount, _Amount, bool]]


class _Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where whoever comes in the place of one that is moved is to lie."""

    moved: Moved
    node: str
    claims: _Claims
    gpus: tuple[str, ...] = ()
    # Why it goes, if it goes for nobody.
    drains: str = ""


class _Room(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a pod says: for whom together, of how many it is one, in which queue they asked, and where it is to lie."""

    whose: str
    count: int
    queue: str
    node: str
    claims: _Claims
    gpus: tuple[str, ...] = ()
    # Of the first of them: where those lie again who are moved for it.
    refuges: tuple[_Kept, ...] = ()


def words_for(clearing: Clearing, place: Place, *, refuges: Iterable[Refuge] = ()) -> str:
    """What the pod of this place is to say; `refuges` are of those who are moved for it."""
    room = _Room(
        whose=clearing.uid,
        count=len(clearing.places),
        queue=place.waiter.queue,
        node=place.node,
        claims=_written(place.claims),
        gpus=place.gpus,
        refuges=tuple(map(_kept, refuges)) if place.waiter.uid == clearing.uid else (),
    )
    return msgspec.json.encode(room).decode()


def words_of_drained(refuges: Iterable[Refuge]) -> str:
    """What is to be kept of those who are moved for nobody else; empty if there are none."""
    kept = sorted(map(_kept, refuges), key=lambda one: one.moved.uid)
    return msgspec.json.encode(kept).decode() if kept else ""


def drained_said(words: str, *, until: float) -> list[Refuge]:
    """Of those who were moved for nobody else; what can't be read says nothing."""
    try:
        kept = msgspec.json.decode(words, type=list[_Kept]) if words else []
    except msgspec.DecodeError:
        return []
    return [_refuge(one, until=until) for one in kept]


def words_left(words: str, *, kept: Collection[str]) -> str:
    """What a pod that is bound is to say on, if room is kept for those alone who come in the place of these (UIDs)."""
    room = _read(words)
    if room is None:
        return words
    refuges = tuple(one for one in room.refuges if one.moved.uid in kept)
    if refuges == room.refuges:
        return words
    left = msgspec.structs.replace(room, refuges=refuges)
    return msgspec.json.encode(left).decode() if refuges or room.claims else ""


def recalled(unbound: Iterable[Waiter], *, bound: Iterable[Waiter] = (), word: str, until: float) -> list[Clearing]:
    """Room for those who are not bound yet, if all for whom it was say so; `word` is the annotation that says it."""
    by_whose: dict[str, list[tuple[Waiter, _Room]]] = {}
    for waiter, room in _saying(unbound, word=word):
        if room.queue == waiter.queue:
            by_whose.setdefault(room.whose, []).append((waiter, room))
    arrived = Counter(room.whose for _, room in _saying(bound, word=word)) if by_whose else Counter[str]()
    whole = (found for whose, found in by_whose.items() if len(found) + arrived[whose] == found[0][1].count)
    return sorted((_clearing(found, until=until) for found in whole), key=lambda one: one.candidate.first.place)


def room_said(waiter: Waiter, *, word: str) -> frozenset[GpuKey]:
    """On which GPUs room is kept for it, as it says itself."""
    return frozenset((room.node, gpu) for _, room in _saying([waiter], word=word) for gpu in room.claims)


def refuges_said(waiter: Waiter, *, word: str, until: float) -> Iterator[Refuge]:
    """Of those who were moved for it, as it says itself."""
    for _, room in _saying([waiter], word=word):
        yield from (_refuge(one, until=until, whose=waiter.uid) for one in room.refuges)


def _refuge(kept: _Kept, *, until: float, whose: str = "") -> Refuge:
    return Refuge(
        moved=kept.moved,
        node=kept.node,
        claims=_read_claims(kept.claims),
        gpus=kept.gpus,
        until=until,
        whose=whose,
        drains=kept.drains,
    )


def _kept(refuge: Refuge) -> _Kept:
    claims = _written(refuge.claims)
    return _Kept(moved=refuge.moved, node=refuge.node, claims=claims, gpus=refuge.gpus, drains=refuge.drains)


def _saying(some: Iterable[Waiter], *, word: str) -> Iterator[tuple[Waiter, _Room]]:
    for waiter in some:
        if (room := _read(waiter.pod.metadata.annotations.get(word, ""))) is not None:
            yield waiter, room


def _clearing(found: list[tuple[Waiter, _Room]], *, until: float) -> Clearing:
    """Of those who lie together; the first is who was it before."""
    found.sort(key=lambda one: (one[0].uid != one[1].whose, one[0].place))
    members = tuple(waiter for waiter, _ in found)
    return Clearing(
        candidate=Candidate(members=members, amounts=summed(members)),
        places=tuple(
            Place(waiter=waiter, node=room.node, claims=_read_claims(room.claims), gpus=room.gpus)
            for waiter, room in found
        ),
        victims=(),
        until=until,
    )


def _written(claims: Mapping[str, Claim]) -> _Claims:
    return {gpu: (claim.compute.value, claim.memory.value, claim.closes) for gpu, claim in claims.items()}


def _read_claims(claims: _Claims) -> dict[str, Claim]:
    return {
        gpu: Claim(compute=Percent(compute), memory=MiB(memory), closes=closes)
        for gpu, (compute, memory, closes) in claims.items()
    }


def _read(text: str) -> _Room | None:
    """What can't be read says nothing: room is made anew."""
    try:
        room = msgspec.json.decode(text, type=_Room) if text else None
    except msgspec.DecodeError:
        return None
    return room if room is not None and room.count > 0 else None
