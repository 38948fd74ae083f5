"""Why a pod waits, as the leader knows it: for its condition and Event, what its namespace is shown, and metrics.

Only the gist is compared: numbers change with every pod that comes or goes, and `aliquot explain` tells those of the
moment when it is asked. So the numbers in a condition are those of when it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil
from typing import NamedTuple

import msgspec

from aliquot_core.counting import agreed, counted
from aliquot_core.instants import second_time
from aliquot_core.names import Names
from aliquot_core.objects import Pod, PodCondition
from aliquot_core.quantities import WHOLE
from aliquot_scheduler.fit.counted import blames
from aliquot_scheduler.queues.judging.elsewhere import admissible
from aliquot_scheduler.queues.judging.rules import Cause, Refusal, Rules, no_room
from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.telling.why import (
    IN_DOUBT,
    MAKING_ROOM,
    NO_NODE,
    NOBODY_GOES,
    TURN_LOST,
    WAITING,
    Why,
    as_shown,
    says_shown,
    shown_in_vain,
    why,
)
from aliquot_scheduler.queues.telling.wording import Promised, Wording
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.gathering import Gathering
from aliquot_scheduler.queues.waiting.waiter import Waiter

_GIBI = 1024


class Gist(NamedTuple):
    """What makes it another condition: its word, and whether it says that the pod is shown to a cluster autoscaler.

    And whether others are in the way that somebody is to delete: nobody is to look for them once they are gone.
    """

    reason: str
    shown: bool = False
    blames: bool = False

    @classmethod
    def of(cls, said: Notice | PodCondition) -> Gist:
        """Of what is to be told, or was."""
        blame = said.reason == NO_NODE and blames(said.message)
        return cls(reason=said.reason, shown=says_shown(said.message), blames=blame)


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What a condition says."""

    reason: str
    message: str


def turn_lost(register: Register, pod: Pod) -> str:
    """Of a pod whose turns have led to nothing."""
    uid, scheduler = pod.metadata.uid, pod.spec.scheduler_name
    lost = f"its turn led to no binding ({counted(register.lost_turns.missed_by(uid), 'time')}); it gets a new one"
    if not register.lost_turns.rests_unheard(uid):
        return lost
    return f"{lost} late: no scheduler by its spec.schedulerName {scheduler} has asked for any pod, and it must ask us"


def in_doubt(register: Register, waiter: Waiter) -> str:
    """Of a pod of a user in doubt; when, by the clock on the wall."""
    queue, user = whose = waiter.whose
    now, wall_ahead = register.now, register.growth.wall_ahead
    debt = register.lost_turns.debt(whose, now=now)
    last, ends = second_time(debt.last + wall_ahead), second_time(debt.ends + wall_ahead)
    pauses = f", and while others wait none before {second_time(debt.pauses + wall_ahead)}" if debt.pauses > now else ""
    runs = waiter.gang is not None and register.books.runs.staying(waiter.gang)
    stay = "; those of its group that run stay meanwhile" if runs else ""
    compute, memory = ceil(debt.owes[COMPUTE] / WHOLE.value), ceil(debt.owes[MEMORY] / _GIBI)
    return (
        f"turns of its user {user} in queue {queue} led to nothing, that of {debt.pod} last, at {last}, so the user's"
        f" other pods come one at a time{pauses}, until what was kept for nothing is paid:"
        f" {counted(compute, 'GPU-second')} and {counted(memory, 'GiB-second')} of memory, by pods of theirs that run"
        f" meanwhile; until {ends} at the latest, if no other turn leads to nothing{stay}"
    )


def why_nowhere(register: Register, waiter: Waiter) -> str:
    """Why it can't be let in whatever others do; empty if it could. Who rests is in no line that would know."""
    if why := register.hall.why_nowhere(waiter.uid):
        return why
    rests = register.hall.rests_until(waiter.uid) is not None
    return register.enrolment.why_never(waiter) if rests and register.enrolment.is_barred(waiter) else ""


def making_room(clearing: Clearing) -> str:
    """Of a pod for which others have to go, leave already, or were moved; who they are may change (`reasons.py`)."""
    count, nodes = len(clearing.victims), clearing.nodes
    where = nodes[0] if len(nodes) == 1 else f"{nodes[0]} and {counted(len(nodes) - 1, 'more node')}"
    if not count:
        return f"room is kept for it on {where}"
    who = f"{counted(count, 'pod')} {agreed(count, 'has', 'have')} to go for it"
    return f"{who}{_when(clearing)}, and it gets the room on {where}"


def _when(clearing: Clearing) -> str:
    """By then they are gone, or others are chosen."""
    if clearing.since_wall is None or clearing.until_wall is None:
        return ""
    since, until = second_time(clearing.since_wall), second_time(clearing.until_wall)
    return f" since {since}, until {until} at the latest"


class Notices:
    """Of all who wait."""

    def __init__(self, register: Register, *, names: Names) -> None:
        self._register = register
        self._knows = _Leader(register, names=names)

    def word(self, waiter: Waiter) -> str:
        """Why somebody waits, in a word."""
        return why(waiter, self._knows).word

    def gist(self, waiter: Waiter, word: str, *, said: Gist) -> Gist:
        """What is to be told of somebody who says that.

        Who is put out and waits for the same word goes on saying that it is shown, for it is again without a gate that
        is lifted: else each pod that comes in beside it, and ends, would be two writes.
        """
        uid, register = waiter.uid, self._register
        showings, node = register.showings, register.books.ledger.tree.nodes.get(waiter.queue)
        put_out = said.shown and showings.runs(uid) and node is not None and node.spec.autoscale
        return Gist(reason=word, shown=put_out or uid in showings.shown, blames=self._blames(waiter, word, said=said))

    def _blames(self, waiter: Waiter, word: str, *, said: Gist) -> bool:
        """Asked where it may be so, or was: for thousands at a look."""
        if word != NO_NODE or not (said.blames or self._register.cards.picture.hosts.ungranted):
            return False
        refusal = self._knows.refusal(waiter)
        return refusal is not None and blames(refusal.why)

    def of(self, waiter: Waiter) -> Notice:
        """The same with a sentence."""
        word, sentence = why(waiter, self._knows)
        is_shown = waiter.uid in self._register.showings.shown
        return Notice(reason=word, message=as_shown(sentence()) if is_shown else sentence())


class _Leader:
    """What the leader knows, by its register."""

    def __init__(self, register: Register, *, names: Names) -> None:
        self._register = register
        self._names = names

    @property
    def books(self) -> Books:
        return self._register.books

    def making_room(self, waiter: Waiter) -> Why | None:
        # Who waits for room that is made rests as well: it may have lost a turn before.
        clearing = self._register.clearings.whose(waiter.uid)
        return Why(MAKING_ROOM, partial(making_room, clearing)) if clearing else None

    def turn_lost(self, waiter: Waiter) -> Why | None:
        uid, register = waiter.uid, self._register
        if register.lost_turns.missed_by(uid) and register.hall.rests_until(uid) is not None:
            return Why(TURN_LOST, partial(turn_lost, register, waiter.pod))
        return None

    def why_nowhere(self, waiter: Waiter) -> str:
        return why_nowhere(self._register, waiter)

    def is_barred(self, waiter: Waiter) -> bool:
        return self._register.enrolment.is_barred(waiter)

    def gathering(self, waiter: Waiter) -> Gathering | None:
        return self._register.hall.gathering(waiter, books=self.books, names=self._names)

    def mates(self, waiter: Waiter, count: int) -> Sequence[Waiter]:
        return self._register.hall.lines[waiter.queue].mates(waiter)[:count]

    def refusal(self, waiter: Waiter) -> Refusal | None:
        """Of the last round; who was not asked in it would have found no card, nor would its quota do, perhaps."""
        register = self._register
        if found := register.memory.sayings.why(waiter.queue, waiter.mark):
            return found
        # For thousands at a look, so that all rules are asked for few of them. A sweep that was broken off has not come
        # to all: what is over a limit by now was not when the one before did, or the other way round.
        candidate = self._register.hall.candidate(waiter, books=self.books)
        over = register.books.ledger.over(waiter.queue, candidate.amounts)
        if over and not register.books.ledger.tree.dimensions.model_of(over[1]):
            account, dimension = over
            asked, pods = candidate.amounts[dimension], len(candidate.members)
            return Refusal(cause=Cause.QUOTA, queue=account.node.name, dimension=dimension, asked=asked, pods=pods)
        before = register.memory.why_before(waiter.queue, waiter.mark)
        if before and (over or before.cause is not Cause.QUOTA):
            return before
        refused = register.memory.refused.get(waiter.number)
        if register.cards.fitting()[waiter.number] and refused is None:
            return None
        found = self.numbers(waiter) if over or waiter.shape.firm else None
        return found if found and found.cause in {Cause.QUOTA, Cause.FIRM} else no_room(refused or "")

    def numbers(self, waiter: Waiter) -> Refusal | None:
        register, candidate = self._register, self._register.hall.candidate(waiter, books=self.books)
        rules, dimensions = Rules(ledger=self.books.ledger, cards=register.cards), self.books.ledger.tree.dimensions
        return admissible(candidate, rules=rules, dimensions=dimensions, without=register.enrolment.without)[1]

    def passed(self, waiter: Waiter) -> Why | None:
        del waiter
        return None

    def nobody_goes(self, waiter: Waiter, found: Why) -> Why | None:
        standoff = self._register.standoffs.of(waiter)
        return Why(NOBODY_GOES, lambda: f"{found.sentence()}; {standoff}") if standoff else None

    def in_doubt(self, waiter: Waiter, found: Why) -> Why | None:
        register = self._register
        if not register.lost_turns.is_doubted(waiter):
            return None
        if found.word == WAITING or register.lost_turns.is_closed(waiter):
            # It was not looked at.
            return Why(IN_DOUBT, partial(in_doubt, register, waiter))
        return Why(IN_DOUBT, lambda: f"{in_doubt(register, waiter)}; {found.sentence()}")

    def shown_in_vain(self, waiter: Waiter) -> str:
        register, showing = self._register, self._register.showings.of(waiter.uid)
        spec = self.books.ledger.tree.nodes[waiter.queue].spec
        if showing is None or not showing.over or not spec.autoscale:
            return ""
        again = showing.again + register.growth.wall_ahead
        return shown_in_vain(showing, minutes=spec.autoscale_minutes, again=again)

    def wording(self) -> Wording:
        register = self._register
        promised = Promised.of(register.inside.promised(), ledger=self.books.ledger)
        cards = register.cards
        return Wording(ledger=self.books.ledger, stock=cards.stock(), promised=promised, away=cards.away())
