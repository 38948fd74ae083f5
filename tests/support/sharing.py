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
# Groups that take more than a minute, the longest first: on the last of them one process works when others have ended.
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
    "tests/node/test_up_mps.py",
)
# Whoever tests a real cluster mostly waits: beside two of them there is processor left, and none for a third cluster.
FOREMOST = 2
NICENESS = 5


class Place(NamedTuple):
    """The group of a file's tests, and when it is begun: lower ranks first, and of a rank lower turns."""

    group: str
    rank: int

    @property
    def turn(self) -> int:
        """By how long it takes; those of a minute and less have none before each other."""
        return LONGEST.index(self.group) if self.group in LONGEST else len(LONGEST)


@cache
def place_of(file: str) -> Place:
    """By the path from the project's root; a file with a cluster of its own is a group, as any other is."""
    if not file.startswith(CLUSTER):
        # Files of unit tests are short: when they come last, no process waits long for the others.
        return Place(group=file, rank=3 if file.startswith(UNIT) else 2)
    folder = f"{file.rpartition('/')[0]}/"
    if folder != CLUSTER:
        return Place(group=folder, rank=1)
    alone = "\ndef cluster(" in (ROOT / file).read_text()
    return Place(group=file, rank=1) if alone else Place(group=CLUSTER, rank=0)


def is_last(file: str, following: str | None, *, of: str) -> bool:
    """Whether a group ends with a test, by its file and that of the test that follows."""
    return place_of(file).group == of and (following is None or place_of(following).group != of)


def is_helper(process: str) -> bool:
    """Whether a process is beyond the foremost two, by the name that xdist gives it; the only one has none."""
    return int(process.removeprefix("gw") or 0) >= FOREMOST


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # as above
    """Whole groups to whichever process is free, in the order in which they were collected.

    But helpers begin with what is otherwise begun last: they work while clusters wait.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        if is_helper(node.gateway.id):
            self.workqueue.move_to_end(max(self.workqueue, key=self._rank), last=False)
        super()._assign_work_unit(node)

    def _rank(self, group: str) -> int:
        return place_of(next(iter(self.workqueue[group])).partition("::")[0]).rank

    def _split_scope(self, nodeid: str) -> str:
        return place_of(nodeid.partition("::")[0]).group
