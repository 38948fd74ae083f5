"""How tests are shared out among several processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.sharing import CLUSTER, place_of

ROOT = Path(__file__).parents[3]


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
