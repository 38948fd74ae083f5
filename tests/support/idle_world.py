"""Queues of every depth with guarantees and limits of compute and of memory, on cards that pods take as a whole.

What has to hold is worked out from what was written and asked, not from the books by which it is decided.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.queue_stage import Stage

CARD = 80_000
# A whole card; as much memory with little compute, or with none.
SHAPES = ((100, CARD), (100, CARD), (30, CARD), (0, CARD))
_ROUNDS = 40
Pair = tuple[int, int]


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: its parent, and of compute and memory what it is guaranteed (0: nothing) and its limit."""

    parent: str
    guarantee: Pair
    limit: tuple[int | None, int | None]
    leaf: bool


class IdleWorld:
    """One of them, with its pods by UID."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.cards = self._chance.choice([2, 3, 4, 6])
        self.queues: dict[str, Own] = {}
        self._plant("", self.cards, "abc"[: self._chance.choice([2, 3])])
        self.stage = Stage({name: _spec(own) for name, own in self.queues.items()}, nodes=(self.cards,))
        self.asked: dict[str, tuple[str, Pair]] = {}

    def _plant(self, parent: str, left: int, names: str) -> None:
        lefts = [left, left]
        for letter in names:
            cards = [min(lefts[of], self._chance.choice([0, 1, 2])) * self._chance.choice([0, 1]) for of in (0, 1)]
            lefts = [lefts[of] - cards[of] for of in (0, 1)]
            most = [self._chance.choice([None, None, max(1, cards[of]), cards[of] + 1]) for of in (0, 1)]
            leaf = len(parent) > 1 or self._chance.random() < 0.5
            self.queues[parent + letter] = Own(
                parent=parent,
                guarantee=(100 * cards[0], CARD * cards[1]),
                limit=(most[0] and 100 * most[0], most[1] and CARD * most[1]),
                leaf=leaf,
            )
            if not leaf:
                self._plant(parent + letter, min(cards), "xy"[: self._chance.choice([1, 2])])

    # --- what happens ------------------------------------------------------------------------------------------------
    def come(self) -> None:
        """Some pods of one queue."""
        name = self._chance.choice([name for name, own in self.queues.items() if own.leaf])
        shape = self._chance.choice(SHAPES)
        for _ in range(self._chance.choice([1, 2, 4])):
            uid = f"{name}-{len(self.stage.turns)}-{len(self.asked)}-{self._chance.randrange(10**9)}"
            self.asked[uid] = name, shape
            self.stage.submit(uid, shape[0] or None, shape[1], queue=name)

    def end(self) -> None:
        """One that runs has ended."""
        if running := [uid for uid in sorted(self.asked) if self._runs(uid)]:
            uid = self._chance.choice(running)
            self.stage.end(uid)
            del self.asked[uid]

    def rest(self) -> bool:
        """Whether it comes to rest."""
        return any(not self.stage.run(after=1.0) for _ in range(_ROUNDS))

    def _runs(self, uid: str) -> bool:
        return bool(self.stage.pods[uid].spec.node_name)

    # --- what has to hold --------------------------------------------------------------------------------------------
    def wronged(self) -> list[str]:
        """Who waits beside a free card, though no limit keeps it out, and nobody else has a right to that card."""
        if self.cards <= sum(self._runs(uid) for uid in self.asked):
            return []
        waiting = [uid for uid in self.asked if not self._runs(uid)]
        able = [uid for uid in waiting if not self._limits_over(uid)]
        # What others have borrowed under a limit is given back to whom a queue below that limit guarantees it.
        due = {uid for uid in waiting if self._has_a_right(uid) and all(map(self._is_lent, self._limits_over(uid)))}
        return [uid for uid in able if not due - {uid}]

    def over_a_limit(self) -> list[str]:
        """Queues that use more than they may."""
        used = {name: self._used(name) for name in self.queues}
        return [
            name
            for name, own in self.queues.items()
            if any(most is not None and much > most for much, most in zip(used[name], own.limit, strict=True))
        ]

    def _limits_over(self, uid: str) -> list[tuple[str, str, int]]:
        """Which limits keep it out: at which queue, and of what."""
        name, shape = self.asked[uid]
        return [
            (uid, at, of)
            for at in self._way(name)
            for of, (ask, most) in enumerate(zip(shape, self.queues[at].limit, strict=True))
            if most is not None and ask and self._used(at)[of] + ask > most
        ]

    def _is_lent(self, limit: tuple[str, str, int]) -> bool:
        """Whether a queue below this limit is guaranteed what it keeps out."""
        uid, top, of = limit
        name, shape = self.asked[uid]
        below = (at for at in self._way(name) if len(at) > len(top))
        return any(self._used(at)[of] + shape[of] <= self.queues[at].guarantee[of] for at in below)

    def _has_a_right(self, uid: str) -> bool:
        """Whether some queue on its way is guaranteed what it asks, of compute or of memory."""
        name, shape = self.asked[uid]
        return any(
            ask and much + ask <= due
            for at in self._way(name)
            for much, ask, due in zip(self._used(at), shape, self.queues[at].guarantee, strict=True)
        )

    def _way(self, name: str) -> Iterator[str]:
        while name:
            yield name
            name = self.queues[name].parent

    def _used(self, name: str) -> Pair:
        there = [shape for uid, (of, shape) in self.asked.items() if of.startswith(name) and self._runs(uid)]
        return sum(shape[0] for shape in there), sum(shape[1] for shape in there)


def _spec(own: Own) -> QueueSpec:
    compute, memory = (
        Quota(guarantee=due or None, limit=most) for due, most in zip(own.guarantee, own.limit, strict=True)
    )
    return QueueSpec(parent=own.parent, compute=compute, memory=memory, namespaces=("*",))
