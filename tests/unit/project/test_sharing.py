"""How tests are shared out among several processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.sharing import CLUSTER, LONGEST, Sharing, is_last, niceness, place_of

ROOT = Path(__file__).parents[3]
ALERTS, CENTRE, QUEUES = (
    "tests/cluster/test_alerts.py",
    f"{CLUSTER}centre/test_faults.py",
    f"{CLUSTER}queues/test_waits.py",
)
UP, MPS, PAGE = (f"tests/node/test_{name}.py" for name in ("up", "up_mps", "page"))
CLAIMS, FIT = "tests/unit/core/test_core_claims.py", "tests/unit/centre/test_centre_fit.py"


@pytest.mark.parametrize(
    ("file", "group", "rank"),
    [
        ("tests/cluster/test_slices.py", CLUSTER, 0),
        ("tests/cluster/test_installed.py", "tests/cluster/test_installed.py", 1),
        ("tests/cluster/daemonset/test_installed.py", f"{CLUSTER}daemonset/", 1),
        ("tests/unit/project/test_sharing.py", "tests/unit/project/test_sharing.py", 3),
        ("tests/node/test_up.py", "tests/node/test_up.py", 2),
        ("tests/cluster/queues/test_waits.py", f"{CLUSTER}queues/", 1),
    ],
)
def test_a_file_goes_with_whatever_shares_its_cluster(file: str, group: str, rank: int) -> None:
    """The one cluster that many share comes first, then others, then all else by files: the short ones last."""
    assert place_of(file) == (group, rank)


def test_of_a_kind_what_takes_longest_is_begun_first() -> None:
    """All that takes minutes has a turn of its own; whoever moves such a file, or gives it a cluster, finds it here."""
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/*/**/test_*.py")}
    turns = {place.group: place.turn for place in map(place_of, files)}
    assert [turns.get(group) for group in LONGEST] == list(range(len(LONGEST)))
    assert {turn for group, turn in turns.items() if group not in LONGEST} == {len(LONGEST)}


@pytest.mark.parametrize(
    ("file", "following", "last"),
    [
        (ALERTS, f"{CLUSTER}test_slices.py", False),
        (ALERTS, CENTRE, True),
        (ALERTS, f"{CLUSTER}test_installed.py", True),
        (ALERTS, UP, True),
        (ALERTS, None, True),
        (CENTRE, QUEUES, False),
        (UP, ALERTS, False),
    ],
)
def test_what_many_share_ends_with_the_last_of_them(
    file: str,
    following: str | None,
    last: bool,
) -> None:
    """Whatever follows: another cluster would else be there beside it, to the end of all of them."""
    assert is_last(file, following, of=CLUSTER) is last


class Process:
    """One that runs whatever it is sent."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.sent: list[list[int]] = []

    def send_runtest_some(self, numbers: list[int]) -> None:
        """Begin with it."""
        self.sent.append(numbers)

    def shutdown(self) -> None:
        """There will be no more."""
        self.shutting_down = True


def begun(*files: str, processes: int) -> list[list[str]]:
    """The files that each process began with, and goes on with if it is through before those before it."""
    names = [f"{file}::test_{number}" for file in files for number in range(4)]
    config = SimpleNamespace(getvalue=lambda _: [f"{processes}*popen"], option=SimpleNamespace(loadscopereorder=False))
    sharing, running = Sharing(config), [Process(f"gw{number}") for number in range(processes)]
    for one in running:
        sharing.add_node(one)
    for one in running:
        sharing.add_node_collection(one, names)
    sharing.schedule()
    for one in reversed(running):
        for number in one.sent[0]:
            sharing.mark_test_complete(one, number)
    return [[names[numbers[0]].partition("::")[0] for numbers in one.sent] for one in running]


def test_others_work_while_two_wait_for_clusters() -> None:
    """Helpers take a cluster when nothing else is left; whoever stands furthest back takes last things first."""
    some = ALERTS, CENTRE, QUEUES, UP, CLAIMS
    assert begun(*some, processes=2) == [[ALERTS, UP], [CENTRE, QUEUES]]
    assert begun(*some, processes=3) == [[ALERTS], [CENTRE, QUEUES], [UP, CLAIMS]]
    assert begun(*some, FIT, processes=3) == [[ALERTS, FIT], [CENTRE, QUEUES], [UP, CLAIMS]]
    assert begun(ALERTS, CENTRE, QUEUES, processes=3) == [[ALERTS], [CENTRE], [QUEUES]]
    assert begun(ALERTS, CENTRE, QUEUES, UP, MPS, processes=5) == [[ALERTS], [CENTRE], [UP], [MPS], [QUEUES]]
    several = ALERTS, CENTRE, QUEUES, UP, MPS, PAGE, CLAIMS, FIT
    assert begun(*several, processes=5) == [[ALERTS], [CENTRE], [UP, QUEUES], [MPS, PAGE], [CLAIMS, FIT]]


@pytest.mark.parametrize(
    ("name", "stands_back"), [("", 0), ("gw0", 0), ("gw1", 0), ("gw2", 5), ("gw3", 5), ("gw4", 10), ("gw10", 10)]
)
def test_beyond_two_they_stand_back_and_beyond_four_further(name: str, stands_back: int) -> None:
    """Who runs all tests alone does not."""
    assert niceness(name) == stands_back


def test_processes_take_whole_files() -> None:
    """Said by xdist itself, for it once stopped grouping without a word."""
    files = ["tests/unit/queues/test_queues_shares.py", "tests/unit/queues/test_queues_entry.py"]
    argv = [sys.executable, "-m", "pytest", "-n2", "--no-loadscope-reorder", "-v", "-p", "no:cacheprovider", *files]
    apart = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(argv, cwd=ROOT, env=apart, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout
    ran = set(re.findall(r"^\[(gw\d)\] .*PASSED (\S+?)::", done.stdout, flags=re.MULTILINE))
    assert sorted(file for _, file in ran) == sorted(files)
    assert len({process for process, _ in ran}) == len(files)
