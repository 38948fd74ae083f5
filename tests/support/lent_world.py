"""Queues of every depth that lend all, a part or nothing of what they are guaranteed, and pods of all sorts in them.

Whoever is sent away comes again at once, and asks for the same.
"""

from __future__ import annotations

import random

import msgspec

from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

CARD = 80_000
# What pods ask, and what they count as: compute, and memory that a whole GPU counts with.
WHOLE, DOUBLE, THIN, BARE = (100, CARD), (200, 2 * CARD), (10, CARD), (0, CARD)
KINDS = ("compute", "memory", "both")
_ROUNDS = 100
# So many rounds last longer than a head of a line may hold up those behind it.
_HELD_UP = 30


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: how many cards of which kind it is guaranteed, and how many of those it keeps even when idle."""

    parent: str
    cards: int
    kept: int
    kind: str
    leaf: bool


class LentWorld:
    """One of them, with its pods by UID."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        nodes = self.chance.choice([(2,), (3,), (4,), (2, 2), (1, 1, 2)])
        self.queues: dict[str, Own] = {}
        self._plant("", sum(nodes), "abc"[: self.chance.choice([2, 3])])
        self.stage = ReclaimStage({name: _spec(own) for name, own in self.queues.items()}, nodes=nodes)
        self.asked: dict[str, tuple[str, tuple[int, int]]] = {}

    def _plant(self, parent: str, left: int, names: str, kind: str = "") -> None:
        for letter in names:
            cards = min(left, self.chance.choice([0, 1, 1, 2]))
            left -= cards
            own = kind or self.chance.choice(KINDS)
            kept = min(cards, self.chance.choice([0, 0, 1, 1, 2]))
            leaf = len(parent) > 1 or self.chance.random() < 0.6
            self.queues[parent + letter] = Own(parent=parent, cards=cards, kept=kept, kind=own, leaf=leaf)
            if not leaf:
                self._plant(parent + letter, cards, "xy"[: self.chance.choice([1, 2])], own)

    # --- what happens ------------------------------------------------------------------------------------------------
    def come(self) -> None:
        """Pods of one queue, more than its part: most of the time somebody borrows."""
        name = self.chance.choice([name for name, own in self.queues.items() if own.leaf])
        shape = self.chance.choice([WHOLE, WHOLE, DOUBLE, THIN, BARE])
        for _ in range(self.chance.choice([1, 2, 4])):
            self._submit(name, shape)

    def end(self) -> None:
        """One that runs has ended."""
        if running := [uid for uid in sorted(self.asked) if self._runs(uid)]:
            uid = self.chance.choice(running)
            self.stage.end(uid)
            del self.asked[uid]

    def rest(self) -> bool:
        """Whether it comes to rest: nothing happens, and who stands behind one that waits has had a chance to pass."""
        quiet = 0
        for _ in range(_ROUNDS):
            let_in, gone = self.stage.run(after=31.0), self.stage.reclaimed()
            for uid in gone:
                self._submit(*self.asked.pop(uid))
            quiet = 0 if let_in or gone else quiet + 1
            if quiet > _HELD_UP or (quiet and not self._is_anybody_behind()):
                return True
        return False

    def _is_anybody_behind(self) -> bool:
        queues = self.stage.queues
        return any(queues.notice(waiter).reason == "Behind" for waiter in queues.waiting())

    def _submit(self, name: str, shape: tuple[int, int]) -> None:
        uid = f"{name}-{len(self.stage.turns) + len(self.stage.pods) + self.chance.randrange(10**9)}"
        self.asked[uid] = name, shape
        self.stage.submit(uid, shape[0] or None, shape[1], queue=name)

    def _runs(self, uid: str) -> bool:
        return bool(self.stage.pods[uid].spec.node_name)

    # --- what has to hold --------------------------------------------------------------------------------------------
    def wronged(self) -> list[str]:
        """Who waits though its queue, or one above it, is guaranteed all that it asks, and has not got it."""
        return [
            uid for uid, (name, shape) in self.asked.items() if not self._runs(uid) and self._is_inside(name, shape)
        ]

    def _is_inside(self, name: str, shape: tuple[int, int]) -> bool:
        below, kept = "", 0
        while name:
            kept += self._kept_below(name) - (self._kept(below) if below else 0)
            own, used, card = self.queues[name], self._used(name), (100, CARD)
            speaks = own.kind == "both" or bool(shape[KINDS.index(own.kind)])
            within = (had + kept * of + more <= own.cards * of for had, more, of in zip(used, shape, card, strict=True))
            # One card is always whole somewhere; two may not lie together.
            if own.cards and speaks and shape != DOUBLE and all(within):
                return True
            below, name = name, own.parent
        return False

    def _used(self, name: str) -> tuple[int, int]:
        there = [shape for uid, (of, shape) in self.asked.items() if of.startswith(name) and self._runs(uid)]
        return sum(shape[0] for shape in there), sum(shape[1] for shape in there)

    def _kept(self, name: str) -> int:
        own, (compute, memory) = self.queues[name], self._used(name)
        used = memory // CARD if own.kind == "memory" else compute // 100
        return max(own.kept - used, self._kept_below(name))

    def _kept_below(self, name: str) -> int:
        return sum(self._kept(child) for child, own in self.queues.items() if own.parent == name)


def _spec(own: Own) -> QueueSpec:
    lent = None if not own.kept else own.cards - own.kept
    if not own.cards:
        return queue(own.parent)
    memory = Quota(guarantee=own.cards * CARD, lending_limit=None if lent is None else lent * CARD)
    if own.kind == "memory":
        return queue(own.parent, memory=memory)
    percent = None if lent is None else lent * 100
    return queue(own.parent, guarantee=own.cards * 100, lend=percent, memory=memory if own.kind == "both" else None)
