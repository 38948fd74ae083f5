"""Who waits, and who is let in together with whom or not at all: a candidate.

A shape is what a pod asks of cards, their node and quota: what was refused to one is refused to all of that shape. A
gang is a candidate once so many of its pods wait that, with those let in before, it has its minimum; the first of its
pods gives it its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import msgspec

from aliquot_core.membership import Group, Topology
from aliquot_core.objects import Pod
from aliquot_core.request import PodRequest
from aliquot_scheduler.fit.demand import Demand
from aliquot_scheduler.fit.ground import HostAsk
from aliquot_scheduler.queues.charged.askers import Ask
from aliquot_scheduler.queues.said.tree import Vector
from aliquot_scheduler.queues.waiting.users import Whose

# Lost turns (fewest first), priority (highest first), age, namespace, name, uid: no two are equal.
Place = tuple[int, int, str, str, str, str]
# Namespace and name of a group.
GroupKey = tuple[str, str]
# The same with the size and the minimum that a pod of it says, whose it is, and its run (`runs.py`): only who agrees in
# all of it is of one gang.
GangKey = tuple[str, str, int, int, str, str]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of GPUs and of their node, whoever asks it."""

    request: PodRequest
    host: HostAsk
    # Never to be evicted for others.
    firm: bool
    # What a cluster's own rules may tell it by from others.
    words: tuple[object, ...] = ()


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    """One pod that waits."""

    pod: Pod
    demand: Demand
    shape: Shape
    # The same number for the same shape: to compare two shapes takes as long as all they say.
    number: int
    amounts: Vector
    # What of that limits have to let in: without models that it can do without.
    least: Vector
    queue: str
    user: str
    # Among the pods of the same user.
    priority: int
    group: Group | None
    # Which run of its group it is of; empty for one that has not begun.
    run: str = ""
    # Patterns of models that it is kept off, since its queue may have none of them for it.
    off: tuple[str, ...] = ()
    # How many turns it has lost that had room.
    lost: int = 0

    def of(self, pod: Pod) -> Waiter:
        """The same, with a later word on the pod."""
        return msgspec.structs.replace(self, pod=pod)

    def asks_as(self, other: Waiter) -> bool:
        """Whether by another word on the same pod it waits in the same place, and asks the same."""
        return (self.queue, self.user, self.place, self.group, self.number, self.amounts, self.least, self.off) == (
            other.queue,
            other.user,
            other.place,
            other.group,
            other.number,
            other.amounts,
            other.least,
            other.off,
        )

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.pod.metadata.uid

    @property
    def is_going(self) -> bool:
        """Whether it is on the way out."""
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def whose(self) -> Whose:
        """Its queue and user."""
        return self.queue, self.user

    @property
    def place(self) -> Place:
        """Its place among those of the same user."""
        meta = self.pod.metadata
        return self.lost, -self.priority, meta.creation_timestamp or "", meta.namespace, meta.name, meta.uid

    @property
    def mark(self) -> tuple[str, Any]:
        """What it shares with those who are let in or refused with it: its user's pods of this shape, or its gang."""
        return self.user, self.gang or self.number

    @property
    def gang(self) -> GangKey | None:
        """Which group it is in, as it has it."""
        if (group := self.group) is None:
            return None
        return self.pod.metadata.namespace, group.name, group.size, group.minimum, self.user, self.run


class Candidate(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Pods that are let in together or not at all: one, or what a gang needs."""

    members: tuple[Waiter, ...]
    amounts: Vector

    @cached_property
    def first(self) -> Waiter:
        """Who stands for all."""
        return self.members[0]

    @cached_property
    def uid(self) -> str:
        """Of the first."""
        return self.first.uid

    @cached_property
    def number(self) -> int:
        """Of the first one's shape."""
        return self.first.number

    @cached_property
    def shape(self) -> Any:
        """The same for all that are refused alike."""
        if self.topology:
            # Where its group lies already, nobody else need lie.
            return self.first.gang, tuple(member.number for member in self.members)
        if len(self.members) == 1:
            return self.first.number
        return tuple(member.number for member in self.members)

    @property
    def one_piece(self) -> bool:
        """Whether one card takes all of it."""
        return len(self.members) == 1 and len(self.first.demand.pieces or ()) == 1

    @property
    def topology(self) -> Topology:
        """How its group wants to lie."""
        return self.first.group.topology if self.first.group else Topology.ANY

    @cached_property
    def firm(self) -> Vector:
        """What those of them ask who are never to be evicted; empty if nobody is."""
        return firm_part(self.members)


def of_each_user(waiters: Iterable[Waiter]) -> dict[Whose, list[Waiter]]:
    """By queue and user, each one's in the order of their line; beside another user's pod a place means nothing."""
    found = defaultdict[Whose, list[Waiter]](list)
    for waiter in sorted(waiters, key=lambda one: one.place):
        found[waiter.whose].append(waiter)
    return found


def summed(waiters: Iterable[Waiter]) -> Vector:
    """What they ask together; there is at least one."""
    return tuple(map(sum, zip(*(one.amounts for one in waiters), strict=True)))


def asked_by(waiters: Sequence[Waiter], *, quiet: bool = False, awaits_node: bool = False) -> Ask:
    """What they ask at once; who awaits a node is quiet."""
    least = tuple(map(sum, zip(*(one.least for one in waiters), strict=True)))
    return Ask(
        amounts=summed(waiters),
        least=least,
        firm=firm_part(waiters),
        quiet=quiet or awaits_node,
        awaits_node=awaits_node,
    )


def firm_part(waiters: Iterable[Waiter]) -> Vector:
    """What those of them ask together who are never to be evicted; empty if nobody is."""
    firm = [one for one in waiters if one.shape.firm]
    return summed(firm) if firm else ()
