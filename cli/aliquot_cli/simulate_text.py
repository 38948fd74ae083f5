"""What `aliquot simulate --time` tells people."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_cli.simulate_rules import Heard, failures_text
from aliquot_cli.tables import table
from aliquot_scheduler.simulating.timed.contest import TimedPolicy
from aliquot_scheduler.simulating.timed.told import Spread, TimedReport

_HOUR = 3600.0
_HEADING = (
    "POLICY",
    "WAIT",
    "P50",
    "P90",
    "P99",
    "COMPLETION",
    "BACKLOG",
    "ALLOCATED",
    "OF BOUND",
    "SINGLE",
    "MAKESPAN",
    "JAIN",
)
_LEGEND = """backlog, allocated, of bound, by then: while all who were there asked for all GPUs or more
single: allocated while one waited that wants one GPU or less"""


def text_of(reports: Sequence[TimedReport], *, heard: Heard) -> str:
    """A table with a row for each policy, and what a table can't say."""
    first = reports[0]
    left = f", {first.left_out} left out (no end, or no node could take them)" if first.left_out else ""
    ours = any(one.policy == TimedPolicy.ALIQUOT for one in reports)
    told = f", rules {', '.join(heard.rules.names)}" if heard.rules and ours else ""
    told += ", mix of the settings" if heard.mix and ours else ""
    never = f"{_never(reports)}{failures_text(heard.rules.failures)}"
    violations = ", ".join(f"{one.policy} {one.quota_violations}" for one in reports)
    return "\n\n".join(
        [
            f"{first.jobs} pods with GPUs{left}; seed {first.seed}{told}",
            table([_HEADING, *map(_row, reports)]),
            f"quota violations: {violations}{_by_then(reports)}{_sent_away(reports)}{never}\n{_LEGEND}",
        ]
    )


def _by_then(reports: Sequence[TimedReport]) -> str:
    found = [f"{one.policy} {_percent(one.by_then.mean_pct)}" for one in reports if one.by_then]
    return f"\nGPU time given by then, of what anybody could have given: {', '.join(found)}" if found else ""


def _sent_away(reports: Sequence[TimedReport]) -> str:
    found = [
        f"{one.policy} {one.evictions}, nobody more than {one.most_evicted} times, {one.lost_hours:.1f} GPU hours lost"
        for one in reports
        if one.evictions
    ]
    return f"\nsent away for others or moved: {'; '.join(found)}" if found else ""


def _never(reports: Sequence[TimedReport]) -> str:
    """Of those that were not broken off, by which policies some never started."""
    found = [f"{one.policy} {one.jobs - one.started}" for one in reports if one.started < one.jobs and not one.partial]
    return f"\nnever started, whatever ended: {', '.join(found)}" if found else ""


def _row(told: TimedReport) -> tuple[str, ...]:
    backlog, single = told.full_backlog, told.single_backlog
    return (
        told.policy,
        _span(told.wait.mean),
        *(_span(_of(told.wait, percent)) for percent in (50, 90, 99)),
        _span(told.completion.mean),
        f"{backlog.hours:.0f} h",
        _percent(backlog.allocated_pct),
        _percent(backlog.of_bound_pct),
        _percent(single.allocated_pct),
        _span(told.makespan),
        "-" if told.jain_served is None else f"{told.jain_served:.3f}",
    )


def _of(spread: Spread, percent: int) -> float:
    return spread.percentiles.get(str(percent), 0.0)


def _span(seconds: float) -> str:
    return f"{seconds / _HOUR:.2f} h" if seconds >= _HOUR else f"{seconds / 60.0:.1f} min"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"
