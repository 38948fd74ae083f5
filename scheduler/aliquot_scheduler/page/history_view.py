"""How it was: charts for eyes, and the last points as a table for whoever does not see charts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from aliquot_scheduler.page.amounts import NONE, by_cause
from aliquot_scheduler.page.html import Html, tag
from aliquot_scheduler.page.model import Sample
from aliquot_scheduler.page.views import Region, View, row, table

_LAST = 20
_CHARTS = (
    ("utilisation", "Compute and memory, granted and used, in percent of all GPUs"),
    ("waits", "Pods that wait, and how long those waited that were let in"),
    ("evictions", "Evictions"),
)


def history_view(samples: Sequence[Sample]) -> View:
    """The charts' places, and the table."""
    charts = [
        tag(
            "figure",
            tag("figcaption", text, id=f"{name}-caption"),
            tag("div", id=f"chart-{name}", class_="chart", role="img", aria_labelledby=f"{name}-caption"),
        )
        for name, text in _CHARTS
    ]
    heads = (
        "Time",
        "Compute granted",
        "Compute used",
        "Memory granted",
        "Memory used",
        "Waiting",
        "Mean wait",
        "Evicted",
    )
    numbers = frozenset(range(1, 8))
    rows = {str(one.at): _row(one, heads, numbers) for one in reversed(samples[-_LAST:])}
    region = Region(name="samples", element="tbody", children=rows)
    pieces = (*charts, *table("The last points", heads, region, numbers=numbers))
    return View(title="History", section="history", pieces=pieces, script="history.js")


def _row(one: Sample, heads: Sequence[str], numbers: frozenset[int]) -> Html:
    told = (_percent(part) for part in (one.compute_granted, one.compute_used, one.memory_granted, one.memory_used))
    wait = NONE if one.wait is None else f"{one.wait:.1f} s"
    evicted = f"{one.evicted} ({by_cause(one.evicted_for)})" if one.evicted_for else one.evicted
    clock = datetime.fromtimestamp(one.at, tz=UTC).strftime("%H:%M:%S UTC")
    return row(str(one.at), clock, *told, one.waiting, wait, evicted, heads=heads, numbers=numbers)


def _percent(part: float | None) -> str:
    return "unknown" if part is None else f"{100 * part:.0f} %"
