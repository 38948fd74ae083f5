"""Runs of a group: a CronJob gives each of its runs the same group, and each starts as a whole or not at all.

| a run that begins | it is called | who waits goes with it |
|---|---|---|
| with pods of one who makes as many as the group has (`makers.py`) | by its first pod | whom the same one makes |
| with others: of several who make them, or of nobody | nothing | whoever goes with no other |

Of the second nobody can tell which pods belong together, so all of them do. A run's name is written on each of its
pods, so that whoever leads next knows it. Whoever is on the way out holds its cards and is of no run any more: those
who come in the place of all of them start together, too.

Whoever has finished counts as one that is there for those whom the same one makes: a Job makes no other in its place,
so without it a group that lost somebody later could never start again (`finished.py`).

What must always hold: a run is known exactly as long as one of its pods is in and stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec

from aliquot_scheduler.queues.waiting.finished import Finished
from aliquot_scheduler.queues.waiting.makers import maker_of
from aliquot_scheduler.queues.waiting.vacancies import Vacancies
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter

# A group of one user's, with the size and the minimum that is said of it.
Said = tuple[str, str, int, int, str]
# What tells where those who wait go: who makes the pods of each run.
Ways = tuple[tuple[str, frozenset[str]], ...]


class Runs:
    """Who of each run is in, and stays."""

    def __init__(self) -> None:
        # By group and run, who makes each of its pods.
        self._begun: dict[Said, dict[str, dict[str, str]]] = {}
        self.finished = Finished()
        self.vacancies = Vacancies()

    def enter(self, waiter: Waiter) -> None:
        """One of a group is in."""
        if (gang := waiter.gang) and not waiter.is_going:
            runs = self._begun.setdefault(gang[:5], {})
            runs.setdefault(waiter.run, {})[waiter.uid] = maker_of(waiter.pod)

    def leave(self, waiter: Waiter) -> None:
        """It is not any more, or is on the way out."""
        gang = waiter.gang
        if gang is None or waiter.uid not in self.staying(gang):
            return
        runs = self._begun[gang[:5]]
        del runs[waiter.run][waiter.uid]
        if not runs[waiter.run]:
            del runs[waiter.run]
        if not runs:
            del self._begun[gang[:5]]

    def comes_in(self, waiter: Waiter) -> None:
        """One is let in: in the place of another of its run, or to begin that."""
        if (gang := waiter.gang) and not self.staying(gang):
            self.vacancies.begin(gang)
        self.vacancies.taken_by(waiter)

    def has_lost(self, waiter: Waiter) -> None:
        """One that was bound has failed, or is gone before it had ended; to be told before it leaves."""
        if (gang := waiter.gang) and self.staying(gang) - {waiter.uid}:
            self.vacancies.left_by(waiter)

    def follows(self, members: Sequence[Waiter]) -> bool:
        """Whether these come in where others of their run failed, beside those who stay: they take what it held."""
        gang = members[0].gang
        return bool(gang and self.staying(gang)) and self.vacancies.has_for(members)

    def staying(self, gang: GangKey) -> AbstractSet[str]:
        """Who of a run is in and stays (UIDs)."""
        return self._begun.get(gang[:5], {}).get(gang[5], {}).keys()

    def makers(self, gang: GangKey) -> Counter[str]:
        """Of how many who are in and stay of a run each is the maker."""
        return Counter(self._begun.get(gang[:5], {}).get(gang[5], {}).values())

    def staying_in_others(self, gang: GangKey) -> int:
        """How many are in and stay of its group's other runs."""
        return sum(len(pods) for run, pods in self._begun.get(gang[:5], {}).items() if run != gang[5])

    def still_needed(self, waiter: Waiter) -> int:
        """How many must be let in at once for one to run: itself, or what its gang lacks of its minimum."""
        if waiter.group is None or waiter.gang is None:
            return 1
        return max(1, waiter.group.minimum - len(self.staying(waiter.gang)) - self.finished.made_alike(waiter))

    def ways(self, gang: GangKey) -> Ways:
        """As long as this is the same, whoever waits of the group goes with the same run."""
        runs = self._begun.get(gang[:5], {})
        return tuple((run, frozenset(runs[run].values())) for run in sorted(runs))

    def sorted_in(self, waiter: Waiter, *, alone: str = "") -> Waiter:
        """One that waits, with the run that it goes with; `alone` is the one who makes it, who needs nobody else."""
        found = self._run_of(waiter)
        run = alone if found is None else found
        return waiter if run == waiter.run else msgspec.structs.replace(waiter, run=run)

    def begun_by(self, members: Sequence[Waiter]) -> Sequence[Waiter]:
        """These are let in together: if that begins a run of its own, it is named now."""
        first = members[0]
        if first.group is None or first.gang is None or self.staying(first.gang):
            return members
        makers = {maker_of(one.pod) for one in members}
        is_whole = first.run in makers or len(members) + self.finished.made_alike(first) == first.group.size
        if not is_whole or len(makers) > 1 or "" in makers:
            return members
        return [msgspec.structs.replace(one, run=first.uid) for one in members]

    def _run_of(self, waiter: Waiter) -> str | None:
        """Where another of the same maker is; None if that is nowhere."""
        gang = waiter.gang
        if gang is None or gang[:5] not in self._begun or not (maker := maker_of(waiter.pod)):
            return None
        found = [run for run, makers in self._begun[gang[:5]].items() if maker in makers.values()]
        return min(found, key=lambda run: (not run, run), default=None)
