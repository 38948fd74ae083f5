"""Where pods wait: in their queue's line, at rest after a turn that led to nothing, or nowhere, with the reason.

Only who stands in a line asks: a queue's guarantee is held back for those, and not for who rests or can never be let
in. A gang asks once so many of it are there that it could start: else one pod of a group that never comes would keep
from others what nobody can use. A pod is in one of the three places at most.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from aliquot_scheduler.queues.books import Books
from aliquot_scheduler.queues.line import Line, Waiter, still_needed


class Hall:
    """All who wait."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self._in_line: dict[str, str] = {}
        self._asking: set[str] = set()
        self._nowhere: dict[str, tuple[Waiter, str]] = {}
        self._resting: dict[str, tuple[Waiter, float]] = {}
        self._alarms: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._in_line) + len(self._nowhere) + len(self._resting)

    def __contains__(self, uid: str) -> bool:
        return uid in self._in_line or uid in self._nowhere or uid in self._resting

    def join(self, waiter: Waiter, *, why_never: str, books: Books) -> None:
        """Stand in line, or be told why not; who stands there already keeps the place if nothing changed."""
        self.leave(waiter.uid, books=books)
        if why_never:
            self._nowhere[waiter.uid] = waiter, why_never
            return
        self.lines.setdefault(waiter.queue, Line()).add(waiter)
        self._in_line[waiter.uid] = waiter.queue
        self._tell(waiter, books=books)

    def rest(self, waiter: Waiter, *, until: float, books: Books) -> None:
        """Wait apart until then."""
        self.leave(waiter.uid, books=books)
        self._resting[waiter.uid] = waiter, until
        heapq.heappush(self._alarms, (until, waiter.uid))

    def rests_until(self, uid: str) -> float | None:
        """How long a pod rests, if it does."""
        resting = self._resting.get(uid)
        return resting[1] if resting else None

    def resting(self, uid: str) -> Waiter | None:
        """Who rests, if that pod does."""
        resting = self._resting.get(uid)
        return resting[0] if resting else None

    def leave(self, uid: str, *, books: Books) -> Waiter | None:
        """Wait no more."""
        for apart in (self._nowhere, self._resting):
            if found := apart.pop(uid, None):
                return found[0]
        queue = self._in_line.pop(uid, None)
        waiter = self.lines[queue].remove(uid) if queue is not None else None
        if waiter and queue is not None:
            self._ask([waiter], wanted=False, books=books)
            if not len(self.lines[queue]):
                del self.lines[queue]
            elif waiter.group:
                self._tell(waiter, books=books)
        return waiter

    def gang_changed(self, waiter: Waiter, *, books: Books) -> None:
        """Another number of its gang is in."""
        if waiter.group and (line := self.lines.get(waiter.queue)):
            line.changed(waiter)
            self._tell(waiter, books=books)

    def _tell(self, waiter: Waiter, *, books: Books) -> None:
        """Let one ask, or its gang as a whole if it could start."""
        mates = self.lines[waiter.queue].mates(waiter) if waiter.group else [waiter]
        enough = not mates or len(mates) >= still_needed(mates[0], let_in=books.let_in)
        # A held queue lets nobody in, so nothing is held back for it.
        stopped = books.ledger.tree.nodes[waiter.queue].stop
        self._ask(mates, wanted=enough and not stopped, books=books)

    def _ask(self, waiters: Iterable[Waiter], *, wanted: bool, books: Books) -> None:
        for waiter in waiters:
            if wanted == (waiter.uid in self._asking):
                continue
            books.ledger.ask(waiter.queue, waiter.amounts if wanted else [-amount for amount in waiter.amounts])
            (self._asking.add if wanted else self._asking.discard)(waiter.uid)

    def rested(self, now: float) -> list[Waiter]:
        """Those whose rest is over; they are to join anew."""
        over = []
        while self._alarms and self._alarms[0][0] <= now:
            until, uid = heapq.heappop(self._alarms)
            if self.rests_until(uid) == until:
                over.append(self._resting[uid][0])
        return over

    def __iter__(self) -> Iterator[Waiter]:
        """All who wait."""
        for line in self.lines.values():
            yield from line
        yield from [waiter for waiter, _ in (*self._nowhere.values(), *self._resting.values())]

    def of_namespace(self, name: str) -> list[Waiter]:
        """All who wait of one namespace."""
        return [waiter for waiter in self if waiter.pod.metadata.namespace == name]

    def stands(self, uid: str) -> bool:
        """Whether a pod stands in a line."""
        return uid in self._in_line

    def why_nowhere(self, uid: str) -> str:
        """Why a pod can't wait in any line; empty if that is not so."""
        found = self._nowhere.get(uid)
        return found[1] if found else ""

    def clear(self) -> list[Waiter]:
        """Send everybody away, to be put down in other books; until when somebody rests is still known."""
        everybody = list(self)
        self.lines.clear()
        self._in_line.clear()
        self._asking.clear()
        self._nowhere.clear()
        return everybody
