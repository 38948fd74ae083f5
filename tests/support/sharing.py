"""Which tests one process runs in a row when several share them out, and what is begun first.

A file goes to one process, so that what is made once for its tests is made once: on the real cluster a control plane,
an installation. All files that share a cluster go to one, too: those of `tests/cluster` itself, and those of each
folder below it. Told by paths alone, for the process that shares tests out has loaded none of them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]  # nor here

ROOT = Path(__file__).parents[2]
CLUSTER = "tests/cluster/"
UNIT = "tests/unit/"
OTHER, ONLY_COMPUTES = 2, 3  # ranks; those of clusters are lower
# Groups that take most of a minute and more, the longest of a kind first: on the last of them one process works when
# others have ended.
LONGEST = (
    CLUSTER,
    f"{CLUSTER}queues/",
    f"{CLUSTER}centre/",
    f"{CLUSTER}test_installed.py",
    f"{CLUSTER}test_helm.py",
    f"{CLUSTER}test_examples.py",
    f"{CLUSTER}daemonset/",
    "tests/isolation/test_compute.py",
    "tests/node/test_agent_faults.py",
    "tests/simulation/test_a_week.py",
    "tests/node/test_up.py",
    "tests/isolation/test_memory.py",
    "tests/simulation/test_every_step_of_a_turn.py",
    "tests/node/test_up_mps.py",
    "tests/node/test_two_versions.py",
    "tests/node/test_run_command.py",
    "tests/node/test_up_faults.py",
    "tests/simulation/test_seeds.py",
    "tests/simulation/test_seeds_of_towns.py",
    "tests/node/test_examples_on_up.py",
    "tests/simulation/test_every_step.py",
    f"{UNIT}reclaim/test_reclaim_properties.py",
    f"{UNIT}queues/test_queues_remembered.py",
    f"{UNIT}queues/test_queues_heads.py",
    f"{UNIT}daemonset/test_uninstall.py",
    f"{UNIT}daemonset/test_uninstall_meanwhile.py",
)
# Whoever tests a real cluster mostly waits: beside two of them there is processor left, and none for a third cluster.
FOREMOST = 2
# And processes on a node wait, too: what two of them and two clusters leave of the processor is for whom only computes.
WAITING = 4
NICENESS = 5


class Place(NamedTuple):
    """The group of a file's tests, and when it is begun: lower ranks first, and of a rank lower turns."""

    group: str
    rank: int

    @property
    def turn(self) -> int:
        """By how long it takes; the short ones have none before each other."""
        return LONGEST.index(self.group) if self.group in LONGEST else len(LONGEST)

    @property
    def has_cluster(self) -> bool:
        """Whether a real cluster is started for it."""
        return self.rank < OTHER


@cache
def place_of(file: str) -> Place:
    """By the path from the project's root; a file with a cluster of its own is a group, as any other is."""
    if not file.startswith(CLUSTER):
        # Files of unit tests are short: when they come last, no process waits long for the others.
        return Place(group=file, rank=ONLY_COMPUTES if file.startswith(UNIT) else OTHER)
    folder = f"{file.rpartition('/')[0]}/"
    if folder != CLUSTER:
        return Place(group=folder, rank=1)
    alone = "\ndef cluster(" in (ROOT / file).read_text()
    return Place(group=file, rank=1) if alone else Place(group=CLUSTER, rank=0)


def is_last(file: str, following: str | None, *, of: str) -> bool:
    """Whether a group ends with a test, by its file and that of the test that follows."""
    return place_of(file).group == of and (following is None or place_of(following).group != of)


def niceness(process: str) -> int:
    """How far a process, by the name that xdist gives it, stands back: tests of clusters say within how many seconds.

    The only one has no name.
    """
    number = int(process.removeprefix("gw") or 0)
    return NICENESS * ((number >= FOREMOST) + (number >= WAITING))


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # as above
    """Whole groups to whichever process is free, in the order in which they were collected.

    But helpers leave clusters to the foremost, and whoever stands furthest back begins with what only computes: it
    works while all others wait.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        back = niceness(node.gateway.id)
        if back > NICENESS:
            self.workqueue.move_to_end(max(self.workqueue, key=self._rank), last=False)
        elif back:
            self.workqueue.move_to_end(min(self.workqueue, key=self._has_cluster), last=False)
        super()._assign_work_unit(node)

    def _rank(self, group: str) -> int:
        return self._place(group).rank

    def _has_cluster(self, group: str) -> bool:
        return self._place(group).has_cluster

    def _place(self, group: str) -> Place:
        return place_of(next(iter(self.workqueue[group])).partition("::")[0])

    def _split_scope(self, nodeid: str) -> str:
        return place_of(nodeid.partition("::")[0]).group
