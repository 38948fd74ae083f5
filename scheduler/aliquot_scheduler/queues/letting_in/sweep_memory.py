"""What is known from one sweep over the candidates to the next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf
from typing import Any, NamedTuple

from aliquot_scheduler.queues.judging.rules import Refusal
from aliquot_scheduler.queues.judging.stayers import MOST_DOUBLINGS
from aliquot_scheduler.queues.letting_in.siblings import Dues, Left, Sibling, Side
from aliquot_scheduler.queues.said.tree import Tree
from aliquot_scheduler.queues.waiting.waiter import Candidate

# Which of a user's candidates.
Mark = tuple[str, Any]
# Seconds for which what all are due is not worked out anew: with hundreds of queues it costs more than all else of a
# sweep, and in so little time it is not what moves.
_DUE_FOR = 1.0
# Seconds for which a head that finds no room is not looked at again while no card has room for it, and how many are
# looked at in one sweep though none has: to look at 200 of them took 200 ms, and the nodes that are kept for them stay.
_LOOKED_FOR = 1.0
_MOST_LOOKED_AT = 8


class Look(NamedTuple):
    """When a head was looked at, and whom what was said then is about."""

    at: float
    said_of: tuple[str, Mark]


class SweepMemory:
    """Whom no card was found for, who was refused for what, and since when heads of lines are."""

    def __init__(self, *, patience: float, hold: float, owed: float) -> None:
        """`owed` is after how long a guarantee is owed to who waits for a piece of it."""
        self._patience = patience
        self._owed_after = owed
        self._hold = hold
        # Shapes that no card was found for, and why no node took them that had one; or none beside the nodes that are
        # kept for others, and what is said of that.
        self.refused: dict[Any, str] = {}
        self.refused_beside: dict[tuple[Any, frozenset[str]], Refusal] = {}
        self._refused_at = -1
        self._broken_off = False
        # Since when the head of a line is refused, by the UID of its first pod.
        self._since: dict[str, float] = {}
        # Who of them has lost patience at this instant, until they change.
        self._impatient_now: tuple[float, set[str]] | None = None
        self._kept: dict[str, tuple[str, ...]] = {}
        # For whom a node is chosen anew, since somebody else came to the one that is kept.
        self._came_to: set[str] = set()
        # Of whom other nodes are kept than at the beginning of the sweep before.
        self._moved: set[str] = set()
        # The same of this instant, until it changes.
        self._kept_now: tuple[float, dict[str, tuple[str, ...]]] | None = None
        # How each head was found when it was looked at last since it lost patience; who of them kept quota from others
        # then, and what was said of them.
        self._looks: dict[str, Look] = {}
        self._closing: set[str] = set()
        self._said_of_heads: dict[tuple[str, Mark], Refusal] = {}
        # For whom as a candidate, and on which sides its share reaches so far (`keeping.py`).
        self._keeping: dict[str, tuple[Candidate, set[Side]]] = {}
        # What all were due, in which tree, and when.
        self._due: tuple[Tree, float, Dues] | None = None
        # The same of queues among those below one, with what they used lately; and what that leaves to each of them
        # that holds so much: what a queue uses changes with each pod.
        self.siblings: dict[str, Mapping[Side, Sibling]] = {}
        self.left: dict[Side, tuple[Sequence[int], Left]] = {}
        # The head whose guarantee is free in pieces, none of which it fits.
        self._owed = ""
        # Of this sweep, and of the one before it: those to whom this one has not come yet.
        self._said: dict[tuple[str, Mark], Refusal] = {}
        self._said_before: dict[tuple[str, Mark], Refusal] = {}

    def begin(self, *, version: int) -> None:
        """A sweep begins, or goes on."""
        if self._broken_off:
            return
        self._said, self._said_before = {}, self._said
        if version != self._refused_at:
            self._forget_refused()

    def end(self, *, version: int, broken_off: bool, complete: bool) -> None:
        """What was refused is so for these cards, unless some of it was for others before."""
        if complete:
            # Who was not asked now need not be refused any more for what was said then.
            self._said_before.clear()
        self._refused_at = -1 if self._broken_off else version
        self._broken_off = broken_off

    def everything_changed(self, *, now: float) -> None:
        """Nothing that was refused need be so any more; and who is owed a guarantee may be so no more."""
        self.owe_no_more(self._owed, now=now)
        self._keeping.clear()
        self._looks.clear()
        self._closing.clear()
        self._said_of_heads.clear()
        self._kept_now = None
        self._due = None
        self._forget_refused()
        self._said.clear()
        self._said_before.clear()
        self._broken_off = False

    def due(self, tree: Tree, *, now: float, work_out: Callable[[], Dues]) -> Dues:
        """What each queue is due, or was a moment ago."""
        if self._due is None or self._due[0] is not tree or not 0.0 <= now - self._due[1] < _DUE_FOR:
            self._due = tree, now, work_out()
            self.siblings.clear()
            self.left.clear()
        return self._due[2]

    def refuse(self, candidate: Candidate, *, why: str) -> None:
        """No card was found; or `why` no node takes it that has one."""
        self.refused[candidate.shape] = why

    def _forget_refused(self) -> None:
        self.refused.clear()
        self.refused_beside.clear()

    def said(self, queue: str, mark: Mark, refusal: Refusal) -> None:
        """Why a candidate was passed over."""
        self._said[queue, mark] = refusal

    def say_again(self, queue: str, mark: Mark) -> None:
        """What was said of it in the sweep before holds still."""
        if refusal := self._said_before.get((queue, mark)):
            self._said.setdefault((queue, mark), refusal)

    def why(self, queue: str, mark: Mark) -> Refusal | None:
        """Why such a candidate was passed over in the last sweep, if it was."""
        return self._said.get((queue, mark))

    def why_before(self, queue: str, mark: Mark) -> Refusal | None:
        """The same of the sweep before, if the last one has not come to it; or of a head, when it was looked at."""
        return self._said_before.get((queue, mark)) or self._said_of_heads.get((queue, mark))

    def head_refused(self, uid: str, *, now: float) -> None:
        """A head of a line is passed over."""
        if uid not in self._since:
            self._since[uid] = now
            self._impatient_now = self._kept_now = None

    # --- whom a guarantee is owed -------------------------------------------------------------------------------------
    def owed(self, *, now: float) -> frozenset[str]:
        """The one for whom nodes are kept, with or without patience; for no longer than heads may hold."""
        since = self._since.get(self._owed)
        lasts = since is not None and now - since < self._hold
        return frozenset((self._owed,)) if lasts else frozenset()

    def may_be_owed(self, uid: str, *, now: float) -> bool:
        """Whether it is the one, or could be: it has waited longer than the one that is."""
        if not self._owed_after <= now - self._since[uid] < self._hold:
            return False
        owed = self.owed(now=now)
        return not owed or uid in owed or self._since[uid] < self._since[self._owed]

    def owe(self, uid: str, *, now: float) -> None:
        """It is the one from now on."""
        if self._owed != uid:
            self.owe_no_more(self._owed, now=now)
            self._owed = uid
            self._kept_now = None

    def owe_no_more(self, uid: str, *, now: float) -> None:
        """It is not, if it was; who has lost patience has its nodes by that alone."""
        if uid and self._owed == uid:
            self._owe_nobody(but=uid if self.is_impatient(uid, now=now) else "")

    def _owe_nobody(self, *, but: str = "") -> None:
        """No node is kept for who was the one, but where it is kept for another reason."""
        uid, self._owed = self._owed, ""
        self._kept_now = None
        if uid and uid != but:
            self.keep(uid, ())

    def forget(self, uid: str) -> None:
        """It is a head no more."""
        if self._owed == uid:
            self._owe_nobody()
        if self._since.pop(uid, None) is not None:
            self._impatient_now = None
        self._not_looked_at(uid)
        self._came_to.discard(uid)
        if uid in self._kept:
            self.keep(uid, ())
            del self._kept[uid]
            self._kept_now = None

    # --- who has lost patience ----------------------------------------------------------------------------------------
    def impatient(self, *, now: float) -> AbstractSet[str]:
        """The heads that were passed long enough, unless they have held others up for too long."""
        if self._impatient_now is None or self._impatient_now[0] != now:
            self._impatient_now = now, {uid for uid in self._since if self.is_impatient(uid, now=now)}
        return self._impatient_now[1]

    def to_look_at(self, impatient: AbstractSet[str], *, now: float) -> set[str]:
        """Of heads that have lost patience those who were not looked at lately, a few at a time, in turns."""
        last = {uid: look.at for uid, look in self._looks.items()}
        due = [uid for uid in impatient if uid not in last or not 0.0 <= now - last[uid] < _LOOKED_FOR]
        return set(sorted(due, key=lambda uid: (last.get(uid, -inf), self._since[uid], uid))[:_MOST_LOOKED_AT])

    def said_of_head(self, uid: str) -> Refusal | None:
        """Why one that has lost patience was refused when it was looked at last."""
        look = self._looks.get(uid)
        return self._said_of_heads.get(look.said_of) if look else None

    def closing(self) -> AbstractSet[str]:
        """Those of them who kept quota from who came after, when they were looked at last."""
        return self._closing

    def looked_at(self, one: Candidate, refusal: Refusal, *, now: float, closes: bool, closely: bool = True) -> None:
        """One of them was refused; that is said of it until it is looked at again, `closely` in its turn."""
        before = self._looks.get(one.uid)
        self._not_looked_at(one.uid)
        at = now if closely or before is None else before.at
        self._looks[one.uid] = look = Look(at=at, said_of=(one.first.queue, one.first.mark))
        self._said_of_heads[look.said_of] = refusal
        if closes:
            self._closing.add(one.uid)

    def _not_looked_at(self, uid: str) -> None:
        self._closing.discard(uid)
        if (look := self._looks.pop(uid, None)) is not None:
            self._said_of_heads.pop(look.said_of, None)

    def is_impatient(self, uid: str, *, now: float, beyond: bool = False) -> bool:
        """Whether a head is; `beyond` its share it never holds others up for longer than heads may as it comes."""
        since = self._since.get(uid)
        if since is None or not self._hold or now - since < self._patience:
            return False
        # The time in which all may pass grows too: whatever it is that keeps it out must not stop a cluster.
        times = 1 if beyond else 2 ** self.doublings(uid, now=now)
        return now % (times * (self._patience + self._hold)) >= times * self._patience

    def doublings(self, uid: str, *, now: float) -> int:
        """How often the time has doubled for which a head may hold others up: it has waited for so long itself."""
        waited, number = now - self._since.get(uid, now), 0
        while self._hold and number < MOST_DOUBLINGS and waited >= self._hold * 2 ** (number + 1):
            number += 1
        return number

    def kept(self, *, now: float) -> Mapping[str, tuple[str, ...]]:
        """The nodes that are kept for heads at this moment, by their UIDs; the same object until any of it changes."""
        if self._kept_now is None or self._kept_now[0] != now:
            holding = self.owed(now=now) | self.impatient(now=now)
            kept = {uid: nodes for uid, nodes in self._kept.items() if uid in holding}
            self._kept_now = now, kept
        return self._kept_now[1]

    def unmoved(self, *, now: float) -> set[str]:
        """For whom nodes are kept at this moment, and were before the last sweep began; to be asked once in a sweep."""
        moved, self._moved = self._moved, set()
        return {uid for uid, nodes in self.kept(now=now).items() if nodes and uid not in moved}

    def keeping(self, uid: str) -> tuple[Candidate, set[Side]] | None:
        """For whom it is, and how far its share reaches so far."""
        return self._keeping.get(uid)

    def keep_for(self, candidate: Candidate, nodes: tuple[str, ...]) -> None:
        """Keep these nodes for a head, as far as its share reaches; anew each time that it loses patience."""
        self.keep(candidate.uid, nodes)
        if nodes:
            _, reach = self._keeping.get(candidate.uid, (candidate, set[Side]()))
            self._keeping[candidate.uid] = candidate, reach

    def pause(self, *, now: float) -> None:
        """Of those whose time is over by now nothing is known any more."""
        impatient = self.impatient(now=now)
        for uid in self._keeping.keys() - impatient:
            del self._keeping[uid]
        for uid in self._looks.keys() - impatient:
            self._not_looked_at(uid)

    def keep(self, uid: str, nodes: tuple[str, ...]) -> None:
        """Keep these nodes for a head, and no others, as long as it is one."""
        if not nodes:
            self._keeping.pop(uid, None)
        if self._kept.get(uid, ()) != nodes:
            self._kept[uid] = nodes
            self._moved.add(uid)
            self._kept_now = None
            # Others may fit where they did not.
            self._forget_refused()

    def taken(self, nodes: Collection[str], *, by: str) -> None:
        """Somebody is let in there: at the next look at the head others are chosen, these are kept till then."""
        if not nodes:
            return
        for uid in [uid for uid, kept in self._kept.items() if uid != by and not set(kept).isdisjoint(nodes)]:
            self._came_to.add(uid)
            self._not_looked_at(uid)

    def choose_anew(self, uid: str) -> bool:
        """Whether somebody else came to the nodes that are kept for it; to be asked when others are chosen."""
        came = uid in self._came_to
        self._came_to.discard(uid)
        return came
