"""What benchmarks/RESULTS.md says of how many ways past the limit were tried is what the tests try."""

from __future__ import annotations

import re
from pathlib import Path

from support.memory_ways import KEPT, NOTHING, WAYS

ROOT = Path(__file__).parents[3]
_ENTRY = re.compile(r'^    \{"([\w-]+)", take_\w+, give_\w+\},$', re.MULTILINE)
_TRIED = re.compile(r"^\| ways past the memory limit [^|]*\|[^|]*\| 0 of the (\d+) ways to take memory", re.MULTILINE)


def test_the_tests_try_each_way_that_the_tenant_knows() -> None:
    """None is in the tenant's table that no test fills a container by, and none is counted twice."""
    table = (ROOT / "tests/isolation/tenant/ways.c").read_text()
    assert sorted(_ENTRY.findall(table)) == sorted(WAYS + KEPT + NOTHING)


def test_as_many_ways_are_told_of_as_were_tried() -> None:
    """A way more is a line to change in the results."""
    (tried,) = _TRIED.findall((ROOT / "benchmarks/RESULTS.md").read_text())
    assert int(tried) == len(WAYS) + len(KEPT)
