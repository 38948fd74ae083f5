"""What is known from one sweep over the candidates to the next.

| what | until |
|---|---|
| why candidates were passed over (`sayings.py`) | the next sweep has come to them |
| since when heads are passed over (`patience.py`) | they are let in or gone |
| how impatient heads were found (`looks.py`) | they are looked at again, or hold nobody up any more |
| what all are due (`known_dues.py`) | a second is over |
| shapes that no card was found for, here | cards change, or others are kept |
| nodes that are kept for heads, here | they are let in, gone, or owed no more; they count while heads hold others up |
| whose nodes or guarantee somebody has who comes before them (`standing_behind.py`) | that one is in, gone, kept out |

Other queues or hardware end all but patience and the nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from aliquot_scheduler.queues.judging.rules import Refusal
from aliquot_scheduler.queues.letting_in.known_dues import KnownDues
from aliquot_scheduler.queues.letting_in.looks import Looks
from aliquot_scheduler.queues.letting_in.patience import Patience
from aliquot_scheduler.queues.letting_in.sayings import Mark, Sayings
from aliquot_scheduler.queues.letting_in.siblings import Side
from aliquot_scheduler.queues.waiting.waiter import Candidate


class SweepMemory:
    """All of it; here whom no card was found for, and which nodes are kept for whom."""

    def __init__(self, *, patience: float, hold: float, owed: float) -> None:
        """`owed` is after how long a guarantee is owed to who waits for a piece of it."""
        self._owed_after = owed
        self.patience = Patience(patience=patience, hold=hold)
        self.looks, self.sayings, self.dues = Looks(), Sayings(), KnownDues()
        # Shapes that no card was found for, and why no node took them that had one; or none beside the nodes that are
        # kept for others, and what is said of that.
        self.refused: dict[Any, str] = {}
        self.refused_beside: dict[tuple[Any, frozenset[str]], Refusal] = {}
        self._refused_at = -1
        self._broken_off = False
        self._kept: dict[str, tuple[str, ...]] = {}
        # For whom a node is chosen anew, since somebody else came to the one that is kept.
        self._came_to: set[str] = set()
        # Of whom other nodes are kept than at the beginning of the sweep before.
        self._moved: set[str] = set()
        # The same of this instant, until it changes.
        self._kept_now: tuple[float, dict[str, tuple[str, ...]]] | None = None
        # For whom as a candidate, and on which sides its share reaches so far (`keeping.py`).
        self._keeping: dict[str, tuple[Candidate, set[Side]]] = {}
        # The head whose guarantee is free in pieces, none of which it fits.
        self._owed = ""
        # Whose nodes somebody took over who comes in before that one and asks the same; and that one as a candidate.
        self._taken_over: dict[str, str] = {}
        self._givers: dict[str, Candidate] = {}

    def begin(self, *, version: int) -> None:
        """A sweep begins, or goes on."""
        if self._broken_off:
            return
        self.sayings.begin()
        if version != self._refused_at:
            self._forget_refused()

    def end(self, *, version: int, broken_off: bool, complete: bool) -> None:
        """What was refused is so for these cards, unless some of it was for others before."""
        if complete:
            self.sayings.complete()
        self._refused_at = -1 if self._broken_off else version
        self._broken_off = broken_off

    def everything_changed(self, *, now: float) -> None:
        """Nothing that was refused need be so any more; and who is owed a guarantee may be so no more."""
        self.owe_no_more(self._owed, now=now)
        self._keeping.clear()
        self._givers.clear()
        self._kept_now = None
        self.looks.clear()
        self.sayings.clear()
        self.dues.clear()
        self._forget_refused()
        self._broken_off = False

    def refuse(self, candidate: Candidate, *, why: str) -> None:
        """No card was found; or `why` no node takes it that has one."""
        self.refused[candidate.shape] = why

    def _forget_refused(self) -> None:
        self.refused.clear()
        self.refused_beside.clear()

    def why_before(self, queue: str, mark: Mark) -> Refusal | None:
        """Why one was passed over that the last sweep has not come to: in the one before, or when it was looked at."""
        return self.sayings.why_before(queue, mark) or self.looks.why(queue, mark)

    def to_look_at(self, *, now: float) -> set[str]:
        """Of heads that have lost patience those who were not looked at lately, a few at a time, in turns."""
        return self.looks.due(self.patience.impatient(now=now), since=self.patience.since, now=now)

    def head_refused(self, uid: str, *, now: float) -> None:
        """A head of a line is passed over."""
        if self.patience.begin(uid, now=now):
            self._kept_now = None

    # --- whom a guarantee is owed -------------------------------------------------------------------------------------
    def owed(self, *, now: float) -> frozenset[str]:
        """The one for whom nodes are kept, with or without patience; for no longer than heads may hold."""
        since = self.patience.since.get(self._owed)
        lasts = since is not None and now - since < self.patience.hold
        return frozenset((self._owed,)) if lasts else frozenset()

    def may_be_owed(self, uid: str, *, now: float) -> bool:
        """Whether it is the one, or could be: it has waited longer than the one that is."""
        since = self.patience.since
        if not self._owed_after <= now - since[uid] < self.patience.hold:
            return False
        owed = self.owed(now=now)
        return not owed or uid in owed or since[uid] < since[self._owed]

    def owe(self, uid: str, *, now: float) -> None:
        """It is the one from now on."""
        if self._owed != uid:
            self.owe_no_more(self._owed, now=now)
            self._owed = uid
            self._kept_now = None

    def owe_no_more(self, uid: str, *, now: float) -> None:
        """It is not, if it was; who has lost patience has its nodes by that alone."""
        if uid and self._owed == uid:
            self._owe_nobody(but=uid if self.patience.is_impatient(uid, now=now) else "")

    def _owe_nobody(self, *, but: str = "") -> None:
        """No node is kept for who was the one, but where it is kept for another reason."""
        uid, self._owed = self._owed, ""
        self._kept_now = None
        if uid and uid != but:
            self.keep(uid, ())

    def let_in(self, uid: str) -> None:
        """It has come in: how far its share reached is used up, for those as well who hand nodes on to each other."""
        for one in (uid, *self._who_took_over(uid)):
            if keeping := self._keeping.get(one):
                keeping[1].clear()
        if self._owed == uid:
            # The guarantee is met, and no more the other's whose nodes it took over.
            self._owe_nobody(but=uid)
        self.forget(uid)

    def forget(self, uid: str) -> None:
        """It is a head no more; nodes that it took over are the other's again, until that one is looked at."""
        self._hand_back(uid)
        self._givers.pop(uid, None)
        self.patience.forget(uid)

    def _hand_back(self, uid: str) -> None:
        nodes, keeping, head = self._kept.get(uid), self._keeping.get(uid), self._taken_over.pop(uid, "")
        was_owed = self._owed == uid
        self.keep_nothing(uid)
        if not head:
            return
        for first in self._who_took_over(uid):
            self._taken_over[first] = head
        if head not in self.patience.since:
            return
        if was_owed:
            self._owed, self._kept_now = head, None
        if not nodes or self._kept.get(head):
            return
        self.keep(head, nodes)
        if keeping and head in self._givers:
            self._keeping[head] = self._givers[head], keeping[1]
        self._came_to.add(head)
        self.patience.stand_first(head)

    def _who_took_over(self, uid: str) -> list[str]:
        return [first for first, other in self._taken_over.items() if other == uid]

    def keep_nothing(self, uid: str) -> None:
        """Neither a node nor a guarantee is kept for it, as long as nothing else is said."""
        if self._owed == uid:
            self._owe_nobody()
        self.looks.forget(uid)
        self._came_to.discard(uid)
        if uid in self._kept:
            self.keep(uid, ())
            del self._kept[uid]
            self._kept_now = None

    def stand_behind(self, firsts: Mapping[str, Candidate | None]) -> None:
        """Who comes in before each of these heads, and before no others, and asks the same; None if it keeps nothing.

        What is kept for the head is that one's, who has waited as long from now on: nobody else could come in there.
        """
        for uid in sorted(uid for uid in self._with_anything(firsts) if firsts[uid] is None):
            self._hand_back(uid)
        since = self.patience.since
        handing_over = sorted(self._with_anything(firsts), key=lambda uid: (since[uid], uid))
        if self.patience.wait_as_long(firsts):
            self._kept_now = None
        for uid in handing_over:
            if first := firsts[uid]:
                self._hand_over(uid, first)
            self.keep_nothing(uid)
        self.patience.stand_behind(firsts.keys())

    def _with_anything(self, firsts: Mapping[str, Candidate | None]) -> set[str]:
        """Those of these heads for whom anything is kept, or of whom anything else is known: of a thousand only few."""
        known = self._kept.keys() | self._taken_over.keys() | self.looks.heads() | {self._owed}
        return known & firsts.keys()

    def _hand_over(self, uid: str, first: Candidate) -> None:
        if self._owed == uid:
            # Whichever node that one has.
            self._owed, self._kept_now = first.uid, None
            self._taken_over.setdefault(first.uid, uid)
        if not (nodes := self._kept.get(uid)) or self._kept.get(first.uid):
            return
        self.keep(first.uid, nodes)
        self._taken_over[first.uid] = uid
        if keeping := self._keeping.get(uid):
            self._givers[uid] = keeping[0]
            self._keeping[first.uid] = first, keeping[1]
        if uid in self._came_to:
            self._came_to.add(first.uid)

    def stand_still(self, uids: AbstractSet[str], *, now: float) -> None:
        """These heads may not come in: else a node stood idle for them. Then they wait on, as if no time had passed."""
        for uid in uids & self.patience.impatient(now=now):
            self.keep_nothing(uid)
        self.patience.stand_still(uids, now=now)

    # --- what is kept for heads ---------------------------------------------------------------------------------------
    def kept(self, *, now: float) -> Mapping[str, tuple[str, ...]]:
        """The nodes that are kept for heads at this moment, by their UIDs; the same object until any of it changes."""
        if self._kept_now is None or self._kept_now[0] != now:
            holding = self.owed(now=now) | self.patience.impatient(now=now)
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
        impatient = self.patience.impatient(now=now)
        for uid in self._keeping.keys() - impatient:
            del self._keeping[uid]
        self.looks.keep(impatient)

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
            self.looks.forget(uid)

    def choose_anew(self, uid: str) -> bool:
        """Whether somebody else came to the nodes that are kept for it; to be asked when others are chosen."""
        came = uid in self._came_to
        self._came_to.discard(uid)
        return came
