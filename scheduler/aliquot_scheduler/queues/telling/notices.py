"""Why a pod waits, as the leader puts it into the pod's condition: a word that seldom changes, and a sentence.

Only the word is compared: numbers change with every pod that comes or goes, and `aliquot explain` tells those of the
moment when it is asked. So the numbers in a condition are those of when it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from aliquot_core.counting import agreed, counted
from aliquot_core.instants import second_time
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.queues.judging.rules import Cause, Refusal, no_room
from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.telling.wording import Wording
from aliquot_scheduler.queues.waiting.line import Waiter, still_needed

_WORDS = {
    Cause.QUOTA: "OverLimit",
    Cause.FIRM: "OutsideGuarantee",
    Cause.HELD_BACK: "HeldBack",
    Cause.BEHIND: "Behind",
    Cause.CARDS: "NoRoom",
    Cause.NODES: "NoNode",
}


# So many of those who go are named.
_NAMED = 3


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What a condition says."""

    reason: str
    message: str


def turn_lost(register: Register, pod: Pod) -> str:
    """Of a pod whose turns have led to nothing."""
    uid, scheduler = pod.metadata.uid, pod.spec.scheduler_name
    lost = f"its turn led to no binding ({counted(register.lost[uid], 'time')}); it gets a new one"
    if not register.rests_unheard(uid):
        return lost
    return f"{lost} late: no scheduler by its spec.schedulerName {scheduler} has asked for any pod, and it must ask us"


def making_room(clearing: Clearing) -> str:
    """Of a pod for which others have to go, leave already, or were moved."""
    count, nodes = len(clearing.victims), clearing.nodes
    where = nodes[0] if len(nodes) == 1 else f"{nodes[0]} and {counted(len(nodes) - 1, 'more node')}"
    if not count:
        return f"room is kept for it on {where}"
    who = f"{counted(count, 'pod')} {agreed(count, 'has', 'have')} to go for it ({_named(clearing.victims)})"
    return f"{who}{_when(clearing)}, and it gets the room on {where}"


def _named(victims: Sequence[Waiter]) -> str:
    """By name and queue, the first of them."""
    first = [f"{one.pod.key} of queue {one.queue}" for one in victims[:_NAMED]]
    more = len(victims) - len(first)
    return ", ".join([*first, *([f"and {more} more"] if more else [])])


def _when(clearing: Clearing) -> str:
    """By then they are gone, or others are chosen."""
    if clearing.since_wall is None or clearing.until_wall is None:
        return ""
    since, until = second_time(clearing.since_wall), second_time(clearing.until_wall)
    return f" since {since}, until {until} at the latest"


class Notices:
    """Of all who wait; the word of each is looked up often, and the sentence only where it is to be told."""

    def __init__(self, register: Register, *, names: Names) -> None:
        self._register = register
        self._names = names

    def word(self, waiter: Waiter) -> str:
        """Why somebody waits, in a word."""
        return self._saying(waiter)[0]

    def of(self, waiter: Waiter) -> Notice:
        """The same with a sentence."""
        word, sentence = self._saying(waiter)
        return Notice(reason=word, message=sentence())

    def _saying(self, waiter: Waiter) -> tuple[str, Callable[[], str]]:
        uid, register = waiter.uid, self._register
        if uid in register.lost and register.hall.rests_until(uid) is not None:
            return "TurnLost", partial(turn_lost, register, waiter.pod)
        if clearing := register.clearings.whose(uid):
            return "MakingRoom", partial(making_room, clearing)
        if why := register.hall.why_nowhere(uid):
            is_there = waiter.queue in register.books.ledger.tree.nodes
            return "NeverFits" if is_there else "NoQueue", partial(str, why)
        if register.books.ledger.tree.nodes[waiter.queue].stop:
            return "QueueHeld", lambda: self._wording().of_stop(waiter.queue)
        if lack := register.hall.gathering(waiter, books=register.books, names=self._names):
            return lack.lack.value, partial(str, lack.message)
        return self._of_a_candidate(waiter)

    def _of_a_candidate(self, waiter: Waiter) -> tuple[str, Callable[[], str]]:
        refusal = self._register.memory.why(waiter.queue, waiter.mark) or self._unasked(waiter)
        together = still_needed(waiter, let_in=self._register.books.let_in)
        if refusal is None and together == 1:
            return "Waiting", partial(str, "it waits for its turn")
        word, sentence = self._refused(waiter, refusal, together=together)
        if standoff := self._register.standoffs.of(waiter):
            return "NobodyGoes", lambda: f"{sentence()}; {standoff}"
        return word, sentence

    def _refused(self, waiter: Waiter, refusal: Refusal | None, *, together: int) -> tuple[str, Callable[[], str]]:
        if refusal is not None and (refusal.cause is not Cause.CARDS or together == 1):
            return _WORDS[refusal.cause], lambda: self._wording().of_refusal(refusal, waiter)
        return "GangWaits", lambda: self._wording().of_gang_without_room(self._gang(waiter, together))

    def _unasked(self, waiter: Waiter) -> Refusal | None:
        """Why nobody asked for it in the last round: it would have found no card. Nor would its quota do, perhaps."""
        register = self._register
        refused = register.memory.refused.get(waiter.number)
        if register.cards.fitting()[waiter.number] and refused is None:
            return None
        over = register.books.ledger.over(waiter.queue, waiter.amounts)
        if over is None:
            return no_room(refused or "")
        account, dimension = over
        asked = waiter.amounts[dimension]
        return Refusal(cause=Cause.QUOTA, queue=account.node.name, dimension=dimension, asked=asked)

    def _gang(self, waiter: Waiter, together: int) -> list[Waiter]:
        return self._register.hall.lines[waiter.queue].mates(waiter)[:together]

    def _wording(self) -> Wording:
        return Wording(ledger=self._register.books.ledger, stock=self._register.cards.stock())
