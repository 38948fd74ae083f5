"""Whose turn it is to be looked at, and when those come again that could not be placed. Pure.

    put ──▶ active ──next──▶ (being tried) ──▶ placed: forgotten
              ▲                 │  │
              │ due             │  └─ erred: backs off 1, 2, 4 … 10 s
              └── backing off ◀─┘     unfit: parked until something changes, at most five minutes
                       ▲────── parked: woken, or changed itself

What must always hold: a pod stands in one place only; `next` gives a pod of the highest priority, among those the one
that has waited longest; nobody is parked for ever.
"""

from __future__ import annotations

import heapq

import msgspec

FIRST_BACK_OFF, LONGEST_BACK_OFF = 1.0, 10.0
# As kube-scheduler does: should a change have been missed that would have helped.
LONGEST_PARKED = 300.0
# What rounding takes away: a wait that never quite ends would spin.
_HAIR = 1e-6


class Ticket(msgspec.Struct, kw_only=True):
    """One pod that waits."""

    uid: str
    priority: int
    order: int
    tries: int = 0
    place: str = ""
    # When it comes again by itself, while it backs off or is parked.
    due: float = 0.0
    # It was changed while it was tried: whatever came of that, look again.
    stale: bool = False


class Queue:
    """All pods that wait for a node."""

    def __init__(self) -> None:
        self._tickets: dict[str, Ticket] = {}
        self._active: list[tuple[int, int, str]] = []
        self._due: list[tuple[float, int, str]] = []
        self._parked: dict[str, Ticket] = {}
        self._arrived = 0

    def put(self, uid: str, *, priority: int, now: float) -> None:
        """Let a pod in, or look again at one that has changed itself."""
        ticket = self._tickets.get(uid)
        if ticket is None:
            self._arrived += 1
            ticket = self._tickets[uid] = Ticket(uid=uid, priority=priority, order=self._arrived)
            self._activate(ticket)
            return
        if ticket.place == "tried":
            ticket.stale = True
        elif ticket.place == "parked":
            self._wake(ticket, now=now)

    def drop(self, uid: str) -> None:
        """Forget a pod: it is gone, or has a node."""
        self._tickets.pop(uid, None)
        self._parked.pop(uid, None)

    def next(self, *, now: float) -> str | None:
        """Give the pod whose turn it is, to be tried until `placed`, `erred` or `unfit` is told of it."""
        while self._due and self._due[0][0] <= now + _HAIR:
            due, order, uid = heapq.heappop(self._due)
            ticket = self._tickets.get(uid)
            if ticket and ticket.order == order and ticket.due == due and ticket.place in {"off", "parked"}:
                self._parked.pop(uid, None)
                self._activate(ticket)
        while self._active:
            _, order, uid = heapq.heappop(self._active)
            ticket = self._tickets.get(uid)
            if ticket and ticket.order == order and ticket.place == "active":
                ticket.place, ticket.stale = "tried", False
                ticket.tries += 1
                return uid
        return None

    def erred(self, uid: str, *, now: float) -> None:
        """It could not be decided, or not be done: it comes again soon."""
        if ticket := self._tickets.get(uid):
            self._schedule(ticket, "off", due=now + _back_off(ticket.tries))

    def unfit(self, uid: str, *, now: float) -> None:
        """It can go nowhere: it comes again when something changes."""
        ticket = self._tickets.get(uid)
        if ticket is None:
            return
        if ticket.stale:
            self.erred(uid, now=now)
            return
        self._schedule(ticket, "parked", due=now + LONGEST_PARKED)
        self._parked[uid] = ticket

    def woken(self, *, now: float) -> None:
        """Something changed by which a pod that fitted nowhere may fit."""
        for ticket in list(self._parked.values()):
            self._wake(ticket, now=now)

    def wake_at(self) -> float | None:
        """When somebody is due; None while only a change can help."""
        return self._due[0][0] if self._due else None

    @property
    def parked(self) -> int:
        """How many fit nowhere."""
        return len(self._parked)

    def _wake(self, ticket: Ticket, *, now: float) -> None:
        self._parked.pop(ticket.uid, None)
        # The rest counts from when it was parked, whenever it is woken.
        rested = ticket.due - LONGEST_PARKED + _back_off(ticket.tries)
        if rested <= now:
            self._activate(ticket)
        else:
            self._schedule(ticket, "off", due=rested)

    def _activate(self, ticket: Ticket) -> None:
        ticket.place = "active"
        heapq.heappush(self._active, (-ticket.priority, ticket.order, ticket.uid))

    def _schedule(self, ticket: Ticket, place: str, *, due: float) -> None:
        ticket.place, ticket.due = place, due
        heapq.heappush(self._due, (due, ticket.order, ticket.uid))


def _back_off(tries: int) -> float:
    return float(min(FIRST_BACK_OFF * 2 ** min(tries - 1, 10), LONGEST_BACK_OFF))
