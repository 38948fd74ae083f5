"""One try to place one pod, as kube-scheduler makes it. Pure: a generator that yields what is to be asked.

The nominated node is tried first and alone. Else all nodes that can take the pod are offered to the extender, those
that are left are graded (by what the pod prefers, and by the extender), and the best is chosen. With one node left
nothing is graded. A pod that is none of the extender's business is placed without it.

What a pod prefers is worth 100 times 100 points, a grade of the extender ten of up to 900: as Aliquot's profile has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from aliquot_core.counting import counted
from aliquot_standalone.scheduling.demands import Demand
from aliquot_standalone.scheduling.fitting import idleness, liking, obstacle
from aliquot_standalone.scheduling.picture import Seat

_PREFERRED = 100
_GRADED = 10
_MOST_REASONS = 5


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the extender."""

    verb: Literal["filter", "prioritize"]
    nodes: list[str]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What it said: which nodes are left and why the others are not, or how good each is."""

    nodes: list[str] = []
    failed: Mapping[str, str] = {}
    grades: Mapping[str, int] = {}


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The pod goes there."""

    node: str


class Unfit(msgspec.Struct, frozen=True, kw_only=True):
    """The pod can go nowhere now."""

    why: str


Attempt = Generator[Ask, Answer, Chosen | Unfit]


def attempt(demand: Demand, *, seats: Mapping[str, Seat], nominated: str = "") -> Attempt:
    """Try to place a pod."""
    if demand.beyond:
        return Unfit(why=f"{demand.beyond} needs a cluster: nothing here places pods by it")
    if nominated in seats and not obstacle(demand, seats[nominated]):
        left = [nominated] if not demand.extended else (yield Ask(verb="filter", nodes=[nominated])).nodes
        if left:
            return Chosen(node=nominated)
    obstacles = {name: obstacle(demand, seat) for name, seat in seats.items()}
    able = [name for name, why in obstacles.items() if not why]
    failed = {name: why for name, why in obstacles.items() if why}
    if demand.extended and able:
        answer = yield Ask(verb="filter", nodes=able)
        # Only of those that were offered: an extender can't bring in others.
        able, failed = [name for name in able if name in set(answer.nodes)], {**failed, **answer.failed}
    if not able:
        return Unfit(why=why_none(failed, nodes=len(seats)))
    if len(able) == 1:
        return Chosen(node=able[0])
    grades = (yield Ask(verb="prioritize", nodes=able)).grades if demand.extended else {}
    return Chosen(node=_best(demand, [seats[name] for name in able], grades=grades))


def _best(demand: Demand, seats: Sequence[Seat], *, grades: Mapping[str, int]) -> str:
    def points(index: int) -> int:
        # Without an extender the emptiest of equals: it has no grade by which to choose.
        own = _GRADED * grades.get(seats[index].name, 0) if demand.extended else idleness(demand, seats[index])
        return _PREFERRED * liked[index] + own

    liked = liking(demand, seats)
    return seats[max(range(len(seats)), key=points)].name


def why_none(failed: Mapping[str, str], *, nodes: int) -> str:
    """Say in one sentence why no node will do."""
    if not nodes:
        return "there are no nodes"
    reasons = Counter(failed.values()).most_common()
    told = [f"{count}: {reason}" for reason, count in reasons[:_MOST_REASONS]]
    if rest := sum(count for _, count in reasons[_MOST_REASONS:]):
        told.append(f"{rest}: other reasons")
    return f"0 of {counted(nodes, 'node')} can take the pod; {_joined(told)}"


def _joined(parts: Iterable[str]) -> str:
    return "; ".join(parts)
