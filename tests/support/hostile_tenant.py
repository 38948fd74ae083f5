"""A tenant who holds room by turns that lead to nothing, as chance has it; and honest others, who bind what they ask.

How he may do it is all that a user may do: pods that nobody can bind, deleted before their turn is over or after it,
good little ones among them, several users, several queues with a tiny guarantee each, groups, priorities, pods made
anew, and queues whose pods are shown to an autoscaler.
"""

from __future__ import annotations

import random
from math import inf

import msgspec

from aliquot_scheduler.queues.said.settings import QueueSettings
from support.queue_stage import Stage, queue

TICK = 2.5
CARDS = 4
ALL = 100 * CARDS
HONEST = "honest"
# Each has the half of the cluster: his queues are below one.
TREE = "his"


class Hog(msgspec.Struct, frozen=True, kw_only=True):
    """What he does; `dies` is how long after its turn came a pod of his is deleted that is not bound."""

    dies: float = inf
    # How many bad pods he has at a time, and what each asks.
    bad: int = 8
    sizes: tuple[int, ...] = (100,)
    # Which part of his pods are good: how large they are, and how long they run.
    good: float = 0.0
    good_size: int = 1
    runs: float = 0.0
    users: int = 1
    queues: int = 1
    guarantee: int | None = None
    gang: int = 1
    priorities: tuple[int, ...] = (0,)
    # Whether what has lost a turn is made anew.
    remade: bool = True
    autoscale: bool = False


class Asks(msgspec.Struct, frozen=True, kw_only=True):
    """What the honest ask: so many pods at once, which run for so long, and the next ones so long after those."""

    pods: int = 1
    gang: bool = False
    runs: float = 20.0
    pause: float = 20.0


class Came(msgspec.Struct, kw_only=True):
    """What came of it: percent of the cluster's time, but for the waits, in seconds."""

    held: float = 0.0
    denied: float = 0.0
    used: float = 0.0
    good: float = 0.0
    waits: list[float] = msgspec.field(default_factory=list)


def hog_of(seed: int) -> Hog:
    """One of all, by chance."""
    chance = random.Random(seed)
    return Hog(
        dies=chance.choice((inf, 29.0, 25.0, 15.0, 6.0, 4.0, 2.5)),
        bad=chance.choice((4, 8, 12)),
        sizes=chance.choice(((100,), (50,), (100, 25), (200,), (10, 60))),
        good=chance.choice((0.0, 0.0, 0.1, 0.5)),
        good_size=chance.choice((1, 10, 100)),
        runs=chance.choice((0.0, 10.0, 60.0)),
        users=chance.choice((1, 1, 2, 4)),
        queues=chance.choice((1, 1, 2, 4)),
        guarantee=chance.choice((None, 1, 1)),
        gang=chance.choice((1, 1, 2, 4)),
        priorities=chance.choice(((0,), (0, 1000))),
        remade=chance.choice((True, True, False)),
        autoscale=chance.choice((False, False, True)),
    )


class Play(Stage):
    """Both of them, for some hours."""

    def __init__(self, hog: Hog, asks: Asks, *, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.hog, self.asked, self.came = hog, asks, Came()
        his = {
            f"h{number}": queue(TREE, guarantee=hog.guarantee, autoscale=hog.autoscale) for number in range(hog.queues)
        }
        super().__init__({TREE: queue(), HONEST: queue(), **his}, nodes=(CARDS,), settings=QueueSettings())
        self._made = 0
        self._had: dict[str, float] = {}
        self._ends: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._next = 0.0

    def play(self, hours: float) -> Came:
        """So long."""
        ticks, since = 0, self.now
        while self.now - since < 3600.0 * hours:
            self._he_asks()
            self._they_ask()
            self._turns()
            self._ends_and_deletions()
            self._count()
            ticks += 1
        for part in ("held", "denied", "used", "good"):
            setattr(self.came, part, getattr(self.came, part) / ticks)
        return self.came

    # --- what they do ------------------------------------------------------------------------------------------------
    def _he_asks(self) -> None:
        hog = self.hog
        while sum(uid.startswith("bad") for uid in self.pods) < hog.bad:
            if (
                hog.good
                and self.chance.random() < hog.good
                and sum(uid.startswith("good") for uid in self.pods) < hog.bad
            ):
                self._he_submits("good", hog.good_size, 1)
            else:
                self._he_submits("bad", self.chance.choice(hog.sizes), hog.gang)

    def _he_submits(self, kind: str, size: int, gang: int) -> None:
        self._made += 1
        where, user = f"h{self.chance.randrange(self.hog.queues)}", f"u{self.chance.randrange(self.hog.users)}"
        notes = {"group-size": str(gang)} if gang > 1 else {}
        notes |= {"gpus": str(size // 100)} if size > 100 else {}
        for mate in range(gang):
            self.submit(
                f"{kind}{self._made}-{mate}",
                size,
                1000,
                queue=where,
                user=user,
                priority=self.chance.choice(self.hog.priorities),
                group=f"g{self._made}" if gang > 1 else "",
                notes=notes,
            )

    def _they_ask(self) -> None:
        if self.now < self._next or self._since or any(uid.startswith("j") for uid in self._ends):
            return
        self._made += 1
        notes = {"group-size": str(self.asked.pods)} if self.asked.gang else {}
        for number in range(self.asked.pods):
            uid = f"j{self._made}-{number}"
            self.submit(
                uid, 100, 1000, queue=HONEST, user="me", group=f"j{self._made}" if self.asked.gang else "", notes=notes
            )
            self._since[uid] = self.now

    def _turns(self) -> None:
        for uid in self.round(after=TICK):
            if uid.startswith("bad") or not self.turns[uid].promise:
                self.lift(uid)
                self._had[uid] = self.now
                continue
            self.bind(uid)
            if uid in self._since:
                self.came.waits.append(self.now - self._since.pop(uid))
            self._ends[uid] = self.now + (self.hog.runs if uid.startswith("good") else self.asked.runs)

    def _ends_and_deletions(self) -> None:
        for uid in [uid for uid, at in self._ends.items() if at <= self.now]:
            del self._ends[uid]
            self.end(uid)
            if uid.startswith("j"):
                self._next = self.now + self.asked.pause
        for uid in self.queues.overdue(self.now):
            self.queues.missed(self.pods[uid], now=self.now)
        coming, lost = self.queues.register.inside.coming, self.queues.register.lost_turns.times
        for uid in [uid for uid in self.pods if uid.startswith("bad")]:
            late = uid in coming and self.now - self._had.get(uid, self.now) >= self.hog.dies
            if late or (self.hog.remade and lost.get(uid, 0)):
                self.gone(uid)

    def _count(self) -> None:
        """Percent of all cards, at this tick."""
        held = sum(one.amounts[0] for uid, one in self.queues.register.inside.coming.items() if uid.startswith("bad"))
        asked = 100 * len(self._since)
        bound = self.queues.register.inside.bound
        self.came.held += 100 * held / ALL
        self.came.denied += 100 * min(held, asked) / ALL
        self.came.used += 100 * sum(one.amounts[0] for uid, one in bound.items() if uid.startswith("j")) / ALL
        self.came.good += 100 * sum(one.amounts[0] for uid, one in bound.items() if not uid.startswith("j")) / ALL
