"""The picture of runs in time: two panels that tell what they are of, and means that lose nothing."""

from __future__ import annotations

import re

import pytest

from aliquot_cli.simulate_pictures import picture_of
from aliquot_scheduler.simulating.timed.contest import TimedPolicy, TimedRun
from aliquot_scheduler.simulating.timed.told import TimedReport
from support.timetables import HALF, WHOLE, Row, play, timetable


def report(*rows: Row, policy: TimedPolicy = TimedPolicy.FIFO) -> TimedReport:
    """Of a run on two GPUs."""
    return play(timetable(*rows), policy).report()


def heights(picture: str) -> list[list[float]]:
    """How high each line lies at each of its corners, of its panel."""
    lines = re.findall(r'polyline points="([^"]*)"', picture)
    return [[(370.0 - float(corner.split(",")[1])) / 330.0 for corner in line.split()] for line in lines]


def test_it_says_what_each_panel_is_of() -> None:
    """GPUs given away and pods that wait, with the width of the means, and a line for each policy in both."""
    asked = [Row(0, 864_000, HALF), Row(0, 864_000, WHOLE)]
    picture = picture_of([report(*asked, policy=policy) for policy in TimedPolicy])
    told = re.findall(r">([^<]+)</text>", picture)
    assert told.index("GPUs given away") < told.index("Pods that wait")
    assert "GPUs, % of all; mean of each 1 h" in told
    assert "pods; mean of each 1 h" in told
    assert all(told.count(policy) == 2 for policy in TimedPolicy)
    assert len(heights(picture)) == 2 * len(TimedPolicy)


def test_what_happens_between_two_means_counts() -> None:
    """A GPU of two is given away for a quarter of a span of six minutes, and nothing else for a day."""
    found = report(Row(0, 90, WHOLE), Row(86_310, 90, WHOLE))
    picture = picture_of([found])
    given, waiting = heights(picture)
    assert "GPUs, % of all; mean of each 6 min" in picture
    assert max(map(float, re.findall(r'text-anchor="end">([^<]*)<', picture))) == 12.5
    assert (max(given), min(given)) == pytest.approx((1.0, 0.0))
    assert set(waiting) == {0.0}


def test_lines_that_lie_on_each_other_are_all_seen() -> None:
    """Whoever comes first is drawn wider."""
    picture = picture_of([report(Row(0, 3_600, WHOLE), policy=policy) for policy in TimedPolicy])
    widths = [float(width) for width in re.findall(r'polyline[^>]*stroke-width="([^"]*)"', picture)]
    assert widths == sorted(widths[:3], reverse=True) * 2
    assert len(set(widths)) == 3


def test_a_run_that_was_broken_off_at_once_is_a_picture() -> None:
    """Of no time at all."""
    told = TimedRun(timetable(Row(0, 10, HALF)), policy=TimedPolicy.FIFO, specs={}).report()
    assert "Pods that wait" in picture_of([told])
