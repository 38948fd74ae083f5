"""Runs of a group: a CronJob gives each of its runs the same group, and each starts as a whole or not at all.

| a group of which all pods start together (`group-min` is `group-size`) | a pod of it that waits goes with |
|---|---|
| and were made by one: a run of their own | that run, if the same one makes it, else of none that is in |
| and were made by several, or by nobody | whoever is in of no run of its own |

Of any other group nobody can tell which pods belong together, so all of them do. A run has its name from the first of
its pods that are let in; it is written on each of them, so that whoever leads next knows it.

What must always hold: a run is known exactly as long as one of its pods is in.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from aliquot_core.objects import OwnerReference, Pod
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter

# A group, with the size and the minimum that is said of it.
Said = tuple[str, str, int, int]
# What tells where those who wait go: who makes the pods of each run.
Ways = tuple[tuple[str, frozenset[str]], ...]

# A Deployment's pods say so of the ReplicaSet that makes them.
_HASH = "pod-template-hash"


class Runs:
    """Who of each run is in."""

    def __init__(self) -> None:
        # By group and run, who makes each of its pods.
        self._begun: dict[Said, dict[str, dict[str, str]]] = {}

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
        if not runs:
            del self._begun[gang[:4]]

    def names(self, gang: GangKey) -> Collection[str]:
        """The runs of a group that are in; the one without a name is of those who are in none of their own."""
        return self._begun.get(gang[:4], {}).keys()

    def ways(self, gang: GangKey) -> Ways:
        """As long as this is the same, whoever waits of the group goes with the same run."""
        runs = self._begun.get(gang[:4], {})
        return tuple((run, frozenset(runs[run].values())) for run in sorted(runs))

    def sorted_in(self, waiter: Waiter) -> Waiter:
        """One that waits, with the run that it goes with."""
        run = self._run_of(waiter)
        return waiter if run == waiter.run else msgspec.structs.replace(waiter, run=run)

    def begun_by(self, members: Sequence[Waiter]) -> Sequence[Waiter]:
        """These are let in together: if that begins a run of its own, it is named now."""
        first = members[0]
        if first.group is None or first.gang is None or first.run or "" in self.names(first.gang):
            return members
        makers = {maker_of(one.pod) for one in members}
        is_whole = first.group.minimum == first.group.size == len(members)
        if not is_whole or len(makers) > 1 or "" in makers:
            return members
        return [msgspec.structs.replace(one, run=first.uid) for one in members]

    def _run_of(self, waiter: Waiter) -> str:
        gang = waiter.gang
        if gang is None or gang[:4] not in self._begun or not (maker := maker_of(waiter.pod)):
            return ""
        runs = self._begun[gang[:4]]
        return next((run for run in sorted(runs) if run and maker in runs[run].values()), "")


def controller(pod: Pod) -> OwnerReference | None:
    """Whoever makes another when this one is gone, if anybody does."""
    return next((one for one in pod.metadata.owner_references if one.controller), None)


def maker_of(pod: Pod) -> str:
    """Who makes it; of a Deployment's pods that is the Deployment, whichever of its ReplicaSets made them."""
    if (owner := controller(pod)) is None:
        return ""
    end = f"-{pod.metadata.labels.get(_HASH, '')}"
    return owner.name.removesuffix(end) if owner.kind == "ReplicaSet" and _HASH in pod.metadata.labels else owner.uid
