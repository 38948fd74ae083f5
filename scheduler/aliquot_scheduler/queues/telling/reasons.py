"""Why a pod waits, to whoever may read pods, nodes and queues; with what each queue on the way up has of what it asks.

By the numbers of the moment, and by the leader's last word of what it alone remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from aliquot_scheduler.queues.judging.rules import Cause, Refusal, no_room
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT, UNLIMITED, Node
from aliquot_scheduler.queues.said.units import bare, spoken
from aliquot_scheduler.queues.telling.named import with_names
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.why import (
    BEHIND,
    GANG_WAITS,
    IN_DOUBT,
    MAKING_ROOM,
    NOBODY_GOES,
    OF_ROOM,
    TURN_LOST,
    Why,
    shown_in_vain,
    why,
)
from aliquot_scheduler.queues.telling.wording import Wording
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.gathering import Gathering
from aliquot_scheduler.queues.waiting.states import State
from aliquot_scheduler.queues.waiting.waiter import Waiter

# What one that waits is told of what it is guaranteed; empty if it is not.
Due = Callable[[Waiter], str]
_FIRST = frozenset({Cause.QUOTA, Cause.FIRM})
# So many of those who go are named.
_NAMED = 3


def why_it_waits(waiter: Waiter, standing: Standing) -> Why:
    """What keeps one pod from being let in, were it the first of all."""
    if gates := standing.foreign_gates(waiter):
        # It is in no line, and nothing is written on it.
        return Why("", lambda: f"it joins the line once others have lifted their gates: {', '.join(gates)}")
    return why(waiter, _Reader(standing))


def of_queues(why: Why, waiter: Waiter, standing: Standing) -> str:
    """What queues say against it beside all that nodes do; empty if nothing."""
    if why.word not in OF_ROOM:
        return why.sentence()
    refusal = standing.refusal(waiter)
    return "" if refusal is None else standing.wording.of_refusal(refusal, waiter)


class _Reader:
    """What a standing shows."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    @property
    def books(self) -> Books:
        return self._standing.books

    def making_room(self, waiter: Waiter) -> Why | None:
        if found := self._leaders(waiter, {MAKING_ROOM}):
            return Why(found.word, lambda: "; ".join([found.sentence(), *self._who_goes(waiter)]))
        # Who goes is on the way seconds before the leader has found the time to write the condition.
        if waiter.pod.spec.scheduling_gates and self._standing.going_for(waiter):
            return Why(MAKING_ROOM, lambda: "; ".join(["room is being made for it", *self._who_goes(waiter)]))
        return None

    def turn_lost(self, waiter: Waiter) -> Why | None:
        """By who has no gate any more."""
        lost = self._standing.state(waiter) is State.LET_IN_NO_MORE
        return self._leaders(waiter, {TURN_LOST}) if lost else None

    def why_nowhere(self, waiter: Waiter) -> str:
        return self._standing.why_never(waiter)

    def is_barred(self, waiter: Waiter) -> bool:
        return self._standing.is_barred(waiter)

    def gathering(self, waiter: Waiter) -> Gathering | None:
        return self._standing.gathering(waiter)

    def mates(self, waiter: Waiter, count: int) -> Sequence[Waiter]:
        return self._standing.candidate(waiter).members[:count]

    def refusal(self, waiter: Waiter) -> Refusal | None:
        """As the leader finds it: what no card has room for is not asked further."""
        refusal, may_fit = self.numbers(waiter), self._standing.may_fit(waiter)
        if refusal is not None and (may_fit or refusal.cause in _FIRST):
            return refusal
        return None if may_fit and self._standing.has_room(waiter) else self._no_room(waiter, may_fit=may_fit)

    def numbers(self, waiter: Waiter) -> Refusal | None:
        return self._standing.refusal(waiter)

    def passed(self, waiter: Waiter) -> Why | None:
        """For whom, or that its gang finds no place as a whole: to know that, it would have to be laid."""
        return self._leaders(waiter, {BEHIND, GANG_WAITS})

    def nobody_goes(self, waiter: Waiter, found: Why) -> Why | None:
        del found
        return self._leaders(waiter, {NOBODY_GOES})

    def in_doubt(self, waiter: Waiter, found: Why) -> Why | None:
        del found
        return self._leaders(waiter, {IN_DOUBT})

    def shown_in_vain(self, waiter: Waiter) -> str:
        showing, spec = self._standing.showing(waiter), self.books.ledger.tree.nodes[waiter.queue].spec
        if showing is None or not showing.over:
            return ""
        return shown_in_vain(showing, minutes=spec.autoscale_minutes, again=showing.again)

    def wording(self) -> Wording:
        return self._standing.wording

    def _no_room(self, waiter: Waiter, *, may_fit: bool) -> Refusal:
        return no_room(self._standing.why_no_node(waiter) if may_fit else "")

    def _who_goes(self, waiter: Waiter) -> Iterator[str]:
        """By name, as far as they were asked by now: others may go than were to when its condition was written."""
        if going := self._standing.going_for(waiter):
            names = [f"{one.pod.key} of queue {one.queue}" for one in going[:_NAMED]]
            more = [f"and {len(going) - _NAMED} more"] if len(going) > _NAMED else []
            yield f"on their way out of the GPUs that are kept for it: {', '.join([*names, *more])}"

    def _leaders(self, waiter: Waiter, words: set[str]) -> Why | None:
        """The leader's last word, if it is one of these; with the names that it keeps from who waits."""
        said = self._standing.leaders_word(waiter)
        if said is None or said.reason not in words:
            return None
        return Why(said.reason, partial(with_names, said.message, self._standing.names_by_uid))


def quota_of_path(waiter: Waiter, standing: Standing) -> list[str]:
    """What each queue on the way up has of what the pod asks: its use, and what it may have."""
    lines = []
    tree, accounts, dimensions = standing.plan.tree, standing.books.ledger.accounts, standing.plan.tree.dimensions
    for name in tree.path(waiter.queue):
        if name == ROOT or name not in accounts:
            continue
        account = accounts[name]
        for dimension in (COMPUTE, MEMORY):
            ceiling, due = account.node.ceiling[dimension], account.node.guarantee[dimension]
            most = "no limit" if ceiling >= UNLIMITED else f"at most {bare(ceiling, dimension, of=dimensions)}"
            used = spoken(account.used[dimension], dimension, of=dimensions)
            sure = f"{bare(due, dimension, of=dimensions)} guaranteed{_why_guaranteed(account.node, dimension)}"
            lines.append(f"queue {name}: {used} in use, {sure}, {most}")
    return lines


def _why_guaranteed(node: Node, dimension: int) -> str:
    other = "memory" if dimension == COMPUTE else "compute"
    return f" with the {other} that it keeps idle" if node.kept[dimension] and node.implied[dimension] else ""
