"""What runs in time look like: GPUs given away and pods that wait, by policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aliquot_cli.plots import Curve, Panel, sheet
from aliquot_scheduler.simulating.timed.told import TimedReport

# So many that each is wider than a line.
_SPANS = 240
_PERCENT, _WAITING = 1, 2


def picture_of(reports: Sequence[TimedReport]) -> str:
    """Both over the same time, as means of equal spans: at each of thousands of instants nothing could be seen."""
    end = max((one.curve[-1][0] for one in reports if one.curve), default=0.0)
    each = f"mean of each {60.0 * end / _SPANS:.2g} min" if end < _SPANS else f"mean of each {end / _SPANS:.2g} h"
    panels = ((_PERCENT, "GPUs given away", "GPUs, % of all"), (_WAITING, "Pods that wait", "pods"))
    return sheet(
        [
            Panel(
                curves={one.policy: _means(one, column, end=end) for one in reports},
                title=title,
                across="hours",
                up=f"{up}; {each}",
                stepped=True,
            )
            for column, title, up in panels
        ]
    )


def _means(report: TimedReport, column: int, *, end: float) -> Curve:
    """By the beginning of each span; what a run says last holds for nothing."""
    if not report.curve or not end:
        return {}
    instants = np.array([point[0] for point in report.curve])
    values = np.array([point[column] for point in report.curve], dtype=np.float64)
    until = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(instants))])
    edges = np.linspace(0.0, end, _SPANS + 1)
    means = np.diff(np.interp(edges, instants, until)) / np.diff(edges)
    return {**dict(zip(edges[:-1].tolist(), means.tolist(), strict=True)), end: float(means[-1])}
