"""Owners come to no GPU that fails while others have borrowed sound ones: these are had back first, if they can be.

An owner that finds room on such a one alone stands in line until it is known whether anybody goes for it
(`reclaim/reclaim.py`), which is looked at each second; then it comes to what is made free, or to what there is. Nobody
waits for that for longer than a few seconds, whoever looks or does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.judging.rules import Refusal, no_room
from aliquot_scheduler.queues.waiting.order import within_guarantee
from aliquot_scheduler.queues.waiting.waiter import Candidate

_LONGEST = 5.0
# What was found holds until the next round, for all who ask the same.
_HOLDS = 2.0
# Whoever is let in is forgotten, and who stands in line for so long is looked at anew.
_FORGOTTEN = 2 * _LONGEST
WHY = "only GPUs that fail have room for it; whether others who have borrowed leave it a sound one is looked at first"


# The queue, the user, and which of the user's candidates: these are let in or refused together.
_Key = tuple[str, str, Any]


class SoundFirst:
    """Who waits for that."""

    def __init__(self, *, picture: Picture) -> None:
        self._picture = picture
        self._since: dict[str, float] = {}
        # For whom nobody goes, until then.
        self._vain: dict[_Key, float] = {}

    def refusal(self, candidate: Candidate, found: Sequence[Promise], *, ledger: Ledger, now: float) -> Refusal | None:
        """Why it is not let in where room was found for it."""
        if not self._any_fails(found) or not within_guarantee(ledger, candidate):
            return None
        # Whoever waits there is shown to an autoscaler, and a node would come for it.
        if ledger.tree.nodes[candidate.first.queue].spec.autoscale:
            return None
        return no_room(WHY) if self.is_to_wait(candidate, now=now) else None

    def is_to_wait(self, candidate: Candidate, *, now: float) -> bool:
        """Whether it is still to be looked at who goes for it, where only what fails has room; not for long."""
        since, is_vain = self._since.setdefault(candidate.uid, now), now < self._vain.get(_key(candidate), now)
        return not is_vain and now - since < _LONGEST

    def awaits_look(self, candidate: Candidate) -> bool:
        """Whether it was found to have room on what fails alone, and nobody has looked since."""
        return candidate.uid in self._since and _key(candidate) not in self._vain

    def looked_at(self, candidate: Candidate, *, now: float) -> None:
        """Nobody goes for it, nor for others that ask the same."""
        self._vain[_key(candidate)] = now + _HOLDS

    def room_is_made(self, candidate: Candidate) -> None:
        """It waits for that: should it be called off, it is looked at anew whether anybody else goes."""
        self._since.pop(candidate.uid, None)

    def tell_time(self, now: float) -> None:
        """Long ago is forgotten."""
        self._since = {uid: since for uid, since in self._since.items() if now - since < _FORGOTTEN}
        self._vain = {key: until for key, until in self._vain.items() if now < until}

    def _any_fails(self, found: Iterable[Promise]) -> bool:
        nodes, failing = self._picture.nodes, self._picture.grid.failing
        there = ((nodes[promise.node], gpu) for promise in found for gpu in promise.plan.claims)
        return any(failing[known.row, known.columns[gpu]] for known, gpu in there)


def _key(candidate: Candidate) -> _Key:
    return (candidate.first.queue, *candidate.first.mark)
