"""What a fair share is by definition, looked for in the result: it repeats no step by which shares are worked out.

Shares of leaves are fair if they can be given, and no leaf may rise any more:

- *Can be given*: no leaf has more than it asks, no queue holds more than its ceiling, all hold at most what there is.
  A queue holds what those below hold, and no less than what it keeps idle.
- *Alone*: no leaf can have a little more while all others keep what they have.
- *From another*: no leaf with the better claim can have a little more if another has as much less. Where the ways of
  the two part, two siblings stand side by side. Who holds less than promised comes before who holds more, and of two
  who hold less, who holds the smaller part of its promise. Of two with all that is promised the higher priority comes
  first, then who borrows less by weight.

All in exact rationals. Trees must be sound, and what is promised must be there where something is kept idle: what is
cut otherwise, `share_oracle.py` knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from random import Random

import msgspec

from aliquot_scheduler.queues.said.spec import QueueSpec, Quota

ALL = ""
# So little that nobody comes level with anybody by it: shares here are fractions of far smaller denominators.
_LITTLE = Fraction(1, 10**60)
Shares = Mapping[str, Fraction]


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """A sound tree in one dimension, what leaves ask, and what there is."""

    parents: Mapping[str, str]
    priorities: Mapping[str, int]
    quotas: Mapping[str, Quota]
    asked: Mapping[str, int]
    capacity: int

    def way(self, name: str) -> list[str]:
        """From a queue up to below the root."""
        return [name, *(self.way(self.parents[name]) if self.parents[name] != ALL else [])]

    def below(self, name: str) -> list[str]:
        """Those that hang on it."""
        return [one for one, parent in self.parents.items() if parent == name]

    def guarantee(self, name: str) -> int:
        """What it says, and no less than those below."""
        return max(self.quotas[name].guarantee or 0, sum(map(self.guarantee, self.below(name))))

    def ceiling(self, name: str) -> int | float:
        """What it may never exceed."""
        quota = self.quotas[name]
        borrows = 0 if quota.weight == 0 else quota.borrowing_limit
        most = float("inf") if borrows is None else self.guarantee(name) + borrows
        return most if quota.limit is None else min(most, quota.limit)

    def idle(self, name: str) -> int:
        """What it keeps, used or not."""
        lends = self.quotas[name].lending_limit
        return 0 if lends is None else max(0, self.guarantee(name) - lends)

    def most(self, name: str) -> Fraction:
        """All that it could hold if it were alone."""
        below = self.below(name)
        wanted = sum(map(self.most, below), Fraction(0)) if below else Fraction(self.asked[name])
        return Fraction(min(self.ceiling(name), max(wanted, Fraction(self.idle(name)))))

    def promised(self, name: str) -> Fraction:
        """What it holds before anybody borrows."""
        below = sum(map(self.promised, self.below(name)), Fraction(0))
        return max(below, min(Fraction(self.guarantee(name)), self.most(name)))

    def short(self) -> bool:
        """Whether there is less than is promised."""
        return sum(map(self.promised, self.below(ALL))) > self.capacity


class Judge:
    """Looks for a leaf that is due more."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._ways = {name: claims.way(name) for name in claims.parents}
        self._below = {name: claims.below(name) for name in (ALL, *claims.parents)}
        self._ceilings = {name: claims.ceiling(name) for name in claims.parents}
        self._idle = {name: claims.idle(name) for name in claims.parents}
        self._promised = {name: claims.promised(name) for name in claims.parents}

    def faults(self, shares: Shares) -> Iterator[str]:
        """Each way in which these are no fair shares."""
        holds = self._holdings(shares)
        if not self._given(shares, holds):
            yield f"can't be given: {_told(shares)}"
            return
        for leaf in shares:
            more = {**shares, leaf: shares[leaf] + _LITTLE}
            if self._given(more, self._holdings(more)):
                yield f"{leaf} could have more, and nobody less"
                continue
            for other in shares:
                if other == leaf or shares[other] < _LITTLE or not self._claims_more(leaf, other, holds):
                    continue
                moved = {**more, other: shares[other] - _LITTLE}
                if self._given(moved, self._holdings(moved)):
                    yield f"{leaf} is due some of what {other} has"

    def _holdings(self, shares: Shares) -> dict[str, Fraction]:
        holds: dict[str, Fraction] = {}

        def look(name: str) -> Fraction:
            below = self._below[name]
            used = sum(map(look, below), Fraction(0)) if below else shares[name]
            holds[name] = max(used, Fraction(self._idle.get(name, 0)))
            return holds[name]

        look(ALL)
        return holds

    def _given(self, shares: Shares, holds: Shares) -> bool:
        asked, capacity = self._claims.asked, self._claims.capacity
        return (
            all(0 <= share <= asked[leaf] for leaf, share in shares.items())
            and all(holds[name] <= ceiling for name, ceiling in self._ceilings.items())
            and holds[ALL] <= capacity
        )

    def _claims_more(self, leaf: str, other: str, holds: Shares) -> bool:
        """Whether the first has the better claim, where their ways part."""
        mine, its = next(
            (mine, its)
            for mine, its in zip(reversed(self._ways[leaf]), reversed(self._ways[other]), strict=False)
            if mine != its
        )
        lacks, other_lacks = (self._promised[one] - holds[one] for one in (mine, its))
        if lacks > 0:
            return other_lacks < 0 or holds[mine] * self._promised[its] < holds[its] * self._promised[mine]
        if other_lacks >= 0:
            return False
        first, second = self._claims.priorities[mine], self._claims.priorities[its]
        if first != second:
            return first > second
        weights = [self._claims.quotas[one].weight for one in (mine, its)]
        return -lacks * weights[1] < -other_lacks * weights[0]


def _told(shares: Shares) -> dict[str, str]:
    return {name: str(share) for name, share in shares.items()}


def sound_trees(chance: Random) -> tuple[dict[str, QueueSpec], Claims, Claims]:
    """Random queues without contradictions, and what is claimed of compute and of memory."""
    parents: dict[str, str] = {}
    for number in range(chance.randint(1, 12)):
        shallow = [name for name in parents if _depth(name, parents) < 4]
        parents[f"q{number:02}"] = chance.choice([ALL, *shallow])
    priorities = {name: chance.choice([0, 0, 0, 1]) for name in parents}
    compute, memory = (_claims(chance, parents, priorities) for _ in range(2))
    specs = {
        name: QueueSpec(
            parent=parent, priority=priorities[name], compute=compute.quotas[name], memory=memory.quotas[name]
        )
        for name, parent in parents.items()
    }
    return specs, compute, memory


def _claims(chance: Random, parents: dict[str, str], priorities: Mapping[str, int]) -> Claims:
    guaranteed: dict[str, int] = {}
    for name in reversed(parents):
        below = sum(guaranteed[one] for one, parent in parents.items() if parent == name)
        guaranteed[name] = below + chance.choice([0, 0, chance.randint(0, 300)])
    quotas = {name: _quota(chance, own) for name, own in guaranteed.items()}
    leaves = sorted(parents.keys() - set(parents.values()))
    asked = {leaf: chance.choice([0, chance.randint(0, 99), chance.randint(0, 900)]) for leaf in leaves}
    capacity = chance.choice([0, 100, chance.randint(1, 400), chance.randint(1, 3000)])
    made = Claims(parents=parents, priorities=priorities, quotas=quotas, asked=asked, capacity=capacity)
    if made.short() and any(map(made.idle, parents)):
        enough = int(sum(map(made.promised, made.below(ALL)))) + chance.choice([0, chance.randint(0, 500)])
        made = msgspec.structs.replace(made, capacity=enough)
    return made


def _quota(chance: Random, guaranteed: int) -> Quota:
    def maybe(least: int, most: int, often: float) -> int | None:
        return chance.randint(least, least + most) if chance.random() < often else None

    # The guarantee is said each time: of whoever says none and keeps the other dimension idle, one is derived.
    return Quota(
        guarantee=guaranteed,
        limit=maybe(guaranteed, 400, 0.3),
        weight=chance.choice([0, 1, 1, 1, 2, 3, 7]),
        lending_limit=None if chance.random() < 0.75 else chance.randint(0, guaranteed),
        borrowing_limit=maybe(0, 300, 0.2),
    )


def _depth(name: str, parents: Mapping[str, str]) -> int:
    return 1 + _depth(parents[name], parents) if name != ALL else 0
