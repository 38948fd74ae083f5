"""Why a pod waits, in a word and a sentence: one order of reasons, whoever says it and wherever.

The leader asks this for conditions, Events, views, metrics and the page; `aliquot queue` and `aliquot explain` ask it
of a standing. They differ in what they know, not in what it means: what the leader alone remembers (a lost turn, room
that is being made, who is passed by whom) others read in the word that it wrote last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from aliquot_core.counting import counted
from aliquot_core.instants import second_time
from aliquot_scheduler.queues.judging.rules import Cause, Refusal
from aliquot_scheduler.queues.telling.wording import Wording
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.gathering import Gathering
from aliquot_scheduler.queues.waiting.showings import Showing
from aliquot_scheduler.queues.waiting.waiter import Waiter

NO_NODE_CAME = "NoNodeCame"
TURN_LOST, MAKING_ROOM, BEHIND, NOBODY_GOES = "TurnLost", "MakingRoom", "Behind", "NobodyGoes"
IN_DOUBT = "InDoubt"
NO_ROOM, NO_NODE, GANG_WAITS, WAITING = "NoRoom", "NoNode", "GangWaits", "Waiting"
NO_QUEUE_FOR_IT, NEVER_FITS = "NoQueue", "NeverFits"
# These hang on what nodes and GPUs have, of which there is more to say than of queues.
OF_ROOM = frozenset({NO_ROOM, NO_NODE, WAITING})

_WORDS = {
    Cause.QUOTA: "OverLimit",
    Cause.FIRM: "OutsideGuarantee",
    Cause.HELD_BACK: "HeldBack",
    Cause.BEHIND: BEHIND,
    Cause.CARDS: NO_ROOM,
    Cause.NODES: NO_NODE,
}
_OF_OTHERS = frozenset({Cause.FIRM, Cause.HELD_BACK})
# What a user's doubt counts before: it would not come in though that ended.
_OF_THE_MOMENT = frozenset({WAITING, NO_ROOM, NO_NODE, GANG_WAITS, BEHIND})
# Where another node would be of use.
_OF_NODES = frozenset({Cause.CARDS, Cause.NODES, Cause.HELD_BACK})


_SHOWN = "it is shown to a cluster autoscaler: "


def as_shown(sentence: str) -> str:
    """The same of one that is shown to a cluster autoscaler."""
    return f"{_SHOWN}{sentence}"


def says_shown(sentence: str) -> bool:
    """Whether it is such a one."""
    return sentence.startswith(_SHOWN)


def shown_in_vain(showing: Showing, *, minutes: int, again: float) -> str:
    """Of one that was shown to a cluster autoscaler for its time; `again` is by the clock on the wall."""
    so_long = f"{counted(minutes, 'minute')} ({counted(showing.times, 'time')})"
    once_more = f"it, or another that asks the same, is shown again at {second_time(again)} at the earliest"
    return f"no node came for it while it was shown to a cluster autoscaler for {so_long}; {once_more}"


class Why(NamedTuple):
    """The word of each is looked up often, and the sentence worked out only where it is to be told."""

    word: str
    sentence: Callable[[], str]


class Knowledge(Protocol):
    """What one side knows of who waits."""

    @property
    def books(self) -> Books:
        """Who is charged with what."""
        ...

    def making_room(self, waiter: Waiter) -> Why | None:
        """That room is being made for it, which counts before all else."""
        ...

    def turn_lost(self, waiter: Waiter) -> Why | None:
        """That its turn led to nothing, which counts before all numbers."""
        ...

    def why_nowhere(self, waiter: Waiter) -> str:
        """Why it can't be let in whatever others do; empty if it could."""
        ...

    def is_barred(self, waiter: Waiter) -> bool:
        """Whether that is since it may not wait in its queue, whatever it asks."""
        ...

    def gathering(self, waiter: Waiter) -> Gathering | None:
        """What its gang lacks to be let in as a whole."""
        ...

    def mates(self, waiter: Waiter, count: int) -> Sequence[Waiter]:
        """So many of its gang that wait."""
        ...

    def refusal(self, waiter: Waiter) -> Refusal | None:
        """Why it is not let in as a candidate."""
        ...

    def numbers(self, waiter: Waiter) -> Refusal | None:
        """What the numbers of queues say against it, whether or not there is room."""
        ...

    def passed(self, waiter: Waiter) -> Why | None:
        """What came of it when it was looked at, where only a word is known of that."""
        ...

    def nobody_goes(self, waiter: Waiter, found: Why) -> Why | None:
        """That others have borrowed what it is guaranteed and nobody goes, beside this; None where that is not so."""
        ...

    def in_doubt(self, waiter: Waiter, found: Why) -> Why | None:
        """That turns of its user's led to nothing and its others come one by one, beside this; None if not so."""
        ...

    def shown_in_vain(self, waiter: Waiter) -> str:
        """That it was shown to a cluster autoscaler for its time, and when it is again; empty if that is not so."""
        ...

    def wording(self) -> Wording:
        """What is said by the numbers of this moment."""
        ...


def why(waiter: Waiter, knows: Knowledge) -> Why:
    """Why somebody waits."""
    return knows.making_room(waiter) or _of_its_queue(waiter, knows) or _of_itself(waiter, knows)


def _of_its_queue(waiter: Waiter, knows: Knowledge) -> Why | None:
    """That it never comes in as things are, whoever goes."""
    if never := knows.why_nowhere(waiter):
        return Why(NO_QUEUE_FOR_IT if knows.is_barred(waiter) else NEVER_FITS, partial(str, never))
    node = knows.books.ledger.tree.nodes.get(waiter.queue)
    if node is None:
        # As it was told of when we looked last, or by the leader before us; with the next word on it that is known.
        return Why(NO_QUEUE_FOR_IT, partial(str, f"its queue {waiter.queue} is not there any more"))
    return Why("QueueHeld", lambda: knows.wording().of_stop(waiter.queue)) if node.stop else None


def _of_itself(waiter: Waiter, knows: Knowledge) -> Why:
    if found := knows.turn_lost(waiter):
        return found
    if lack := knows.gathering(waiter):
        return Why(lack.lack.value, partial(str, lack.message))
    return _of_a_candidate(waiter, knows)


def _of_a_candidate(waiter: Waiter, knows: Knowledge) -> Why:
    refusal, together = knows.refusal(waiter), knows.books.runs.still_needed(waiter)
    if found := knows.passed(waiter) if refusal is None or refusal.cause is Cause.CARDS else None:
        return found
    found = (
        _refused(waiter, refusal, knows, together=together)
        if refusal
        else Why(WAITING, partial(str, "it waits for its turn"))
    )
    if found.word in _OF_THE_MOMENT and (doubt := knows.in_doubt(waiter, found)):
        return doubt
    if refusal is None:
        return found
    if (other := knows.nobody_goes(waiter, found)) or refusal.cause not in _OF_NODES:
        return other or found
    vain = knows.shown_in_vain(waiter)
    return Why(NO_NODE_CAME, lambda: f"{vain}; {found.sentence()}") if vain else found


def _refused(waiter: Waiter, refusal: Refusal, knows: Knowledge, *, together: int) -> Why:
    if refusal.cause is not Cause.CARDS or together == 1:
        return Why(_WORDS[refusal.cause], lambda: _said(refusal, waiter, knows))
    return Why(GANG_WAITS, lambda: knows.wording().of_gang_without_room(knows.mates(waiter, together)))


def _said(refusal: Refusal, waiter: Waiter, knows: Knowledge) -> str:
    """Where room is missing, and more room alone would not do, that too."""
    wording = knows.wording()
    said = wording.of_refusal(refusal, waiter)
    also = knows.numbers(waiter) if refusal.cause is Cause.CARDS else None
    if also is None or also.cause not in _OF_OTHERS:
        return said
    return f"{said}; {wording.of_refusal(also, waiter)}"
