"""Runs of a group: a CronJob gives each of its runs the same group, and each starts as a whole or not at all.

| a pod that waits | goes with |
|---|---|
| is made by the same as one of a run that is in | that run: it comes in a lost one's place, or is to spare |
| is made by nobody | a run of which fewer are in, or done, than its group says |
| any other, and where all runs are whole | a run that has not begun, and needs its own minimum |

A run has its name from the first of its pods that are let in. It is written on each of them, so that whoever leads next
knows it; who has none written is of the run without a name, which is the one that has not begun as well.

What must always hold: a run is known exactly as long as one of its pods is in.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from aliquot_core.objects import Pod
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter

# A group, with the size and the minimum that is said of it.
Said = tuple[str, str, int, int]
# What tells where those who wait go: of each run who makes its pods, and whether it lacks some.
Ways = tuple[tuple[str, frozenset[str], bool], ...]


class Runs:
    """Who of each run is in, and who has run to its end."""

    def __init__(self) -> None:
        # By group and run, who makes each of its pods.
        self._begun: dict[Said, dict[str, dict[str, str]]] = {}
        self._done: dict[GangKey, set[str]] = {}

    def enter(self, waiter: Waiter) -> None:
        """One of a group is in."""
        if gang := waiter.gang:
            runs = self._begun.setdefault(gang[:4], {})
            runs.setdefault(waiter.run, {})[waiter.uid] = maker_of(waiter.pod)

    def leave(self, waiter: Waiter) -> None:
        """It is not any more."""
        if (gang := waiter.gang) is None:
            return
        runs = self._begun[gang[:4]]
        del runs[waiter.run][waiter.uid]
        if not runs[waiter.run]:
            del runs[waiter.run]
            self._done.pop(gang, None)
        if not runs:
            del self._begun[gang[:4]]

    def done(self, waiter: Waiter) -> None:
        """One has run to its end: it counts as one that is there."""
        if gang := waiter.gang:
            self._done.setdefault(gang, set()).add(waiter.uid)

    def done_of(self, gang: GangKey) -> Collection[str]:
        """Who of a run has run to its end (UIDs)."""
        return self._done.get(gang, ())

    def forget_ended(self) -> None:
        """All that was in is known: of what else has run to its end nobody is left."""
        for gang in [gang for gang in self._done if gang[4] not in self._begun.get(gang[:4], ())]:
            del self._done[gang]

    def names(self, gang: GangKey) -> Collection[str]:
        """The runs of a group that have begun."""
        return self._begun.get(gang[:4], {}).keys()

    def ways(self, gang: GangKey) -> Ways:
        """As long as this is the same, whoever waits of the group goes with the same run."""
        said, runs = gang[:4], self._begun.get(gang[:4], {})
        return tuple((run, frozenset(runs[run].values()), self._lacks(said, run)) for run in sorted(runs))

    def sorted_in(self, waiter: Waiter) -> Waiter:
        """One that waits, with the run that it goes with."""
        run = self._run_of(waiter)
        return waiter if run == waiter.run else msgspec.structs.replace(waiter, run=run)

    def begun_by(self, members: Sequence[Waiter]) -> Sequence[Waiter]:
        """These are let in together: if that begins a run, it is named now."""
        first = members[0]
        if first.gang is None or first.run or "" in self.names(first.gang):
            return members
        return [msgspec.structs.replace(one, run=first.uid) for one in members]

    def _run_of(self, waiter: Waiter) -> str:
        gang = waiter.gang
        if gang is None or gang[:4] not in self._begun:
            return ""
        runs, maker = self._begun[gang[:4]], maker_of(waiter.pod)
        if maker:
            return next((run for run in sorted(runs) if maker in runs[run].values()), "")
        return next((run for run in sorted(runs) if self._lacks(gang[:4], run)), "")

    def _lacks(self, said: Said, run: str) -> bool:
        return len(self._begun[said][run]) + len(self._done.get((*said, run), ())) < said[2]


def maker_of(pod: Pod) -> str:
    """Who makes it; of a Deployment's pods that is the Deployment, whichever of its ReplicaSets made them."""
    owner = next((one for one in pod.metadata.owner_references if one.controller), None)
    if owner is None:
        return ""
    return owner.name.rpartition("-")[0] if owner.kind == "ReplicaSet" else owner.uid
