"""`aliquot simulate --time`: waits, completion and use of the GPUs, by policies side by side."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click
import msgspec
import yaml

from aliquot_cli.finite import FiniteRange
from aliquot_cli.handing_out import hand_out
from aliquot_cli.printing import as_data, is_data
from aliquot_cli.simulate_pictures import picture_of
from aliquot_cli.simulate_rules import Heard, warn_of_labels
from aliquot_cli.simulate_text import text_of
from aliquot_cli.trace_files import read_trace, told_to_stop, write_picture
from aliquot_core.problems import Problems
from aliquot_scheduler.queues.said.contradictions import problems_of
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, read_queue
from aliquot_scheduler.simulating.reading import TraceError, read_nodes
from aliquot_scheduler.simulating.timed.altering import bootstrapped, compressed, given_to_teams
from aliquot_scheduler.simulating.timed.contest import TimedPolicy, TimedRun
from aliquot_scheduler.simulating.timed.job import Timetable
from aliquot_scheduler.simulating.timed.reading import NOBODY, read_timetable
from aliquot_scheduler.simulating.timed.told import TimedReport

POLICIES = [str(one) for one in TimedPolicy]
# How often the bar moves.
_STEP = 50

# Years become millennia: more than any queue is asked about, and hours still have their seconds.
_MOST_STRETCHED = 1_000.0

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What may be said of time."""

    after: int
    compress: float
    bootstrap: int | None
    gpus_only: bool
    teams: int
    users: int
    queues: str | None
    slowdown: float
    patience: float | None
    hold: float | None
    grace: float
    moves: int


TIME_NAMES = Asked.__struct_fields__


_OPTIONS = (
    click.option("--time", "in_time", is_flag=True, help="Let pods wait, run and end; below are options for it."),
    click.option(
        "--after", type=click.IntRange(min=0), default=0, help="Only pods that were created at this second or later."
    ),
    click.option(
        "--compress",
        type=FiniteRange(min=0, min_open=True, max=_MOST_STRETCHED),
        default=1.0,
        help="Multiply arrival times: below 1 makes a backlog.",
    ),
    click.option(
        "--bootstrap", type=click.IntRange(min=0), help="Draw as many pods anew, with replacement, from this seed."
    ),
    click.option("--gpus-only", is_flag=True, help="Leave out pods without GPUs."),
    click.option(
        "--teams",
        type=click.IntRange(min=1, max=1000),
        default=8,
        show_default=True,
        help="Where the list has no column queue: so many teams, by a hash with --seed; a quarter submit in bulk.",
    ),
    click.option(
        "--users", type=click.IntRange(min=1, max=1000), default=12, show_default=True, help="So many in each of them."
    ),
    click.option(
        "--queues", metavar="FILE", help="Queues as manifests, in YAML (default: one for each, without quota)."
    ),
    click.option(
        "--slowdown",
        type=FiniteRange(min=0, max=100),
        default=0.0,
        help="Percent by which work takes longer for each other pod on the same GPU.",
    ),
    click.option(
        "--patience",
        type=FiniteRange(min=0),
        help="Seconds, as the setting queues.patience of the centre (its default).",
    ),
    click.option(
        "--hold", type=FiniteRange(min=0), help="Seconds, as the setting queues.hold of the centre (its default)."
    ),
    click.option(
        "--grace",
        type=FiniteRange(min=0),
        default=30.0,
        show_default=True,
        help="Seconds for which pods go on that have to go for others.",
    ),
    click.option(
        "--moves",
        type=click.IntRange(min=0, max=10_000),
        default=0,
        help="So many pods may be moved within an hour, as the setting queues.moves_per_hour of the centre.",
    ),
)


def time_options(command: _Command) -> _Command:
    """The options of a run in time."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def simulate_in_time(
    *,
    nodes: str,
    pods: str,
    seed: int,
    policies: Sequence[str],
    asked: Asked,
    heard: Heard,
    plot: str | None,
    form: str,
) -> None:
    """Run each policy, print what came of it, and leave with the exit code that says if it is partial."""
    rules = heard.rules
    timetable = _timetable(nodes=nodes, pods=pods, seed=seed, asked=asked)
    specs = _specs(asked.queues, timetable)
    times = {name: value for name in ("patience", "hold") if (value := getattr(asked, name)) is not None}
    settings = QueueSettings(moves_per_hour=asked.moves, **times)
    if TimedPolicy.ALIQUOT in policies:
        warn_of_labels(rules, timetable.machines, nodes=nodes)
    reports: list[TimedReport] = []
    with told_to_stop() as stopped:
        for policy in policies:
            run = TimedRun(
                timetable,
                policy=TimedPolicy(policy),
                specs=specs,
                settings=settings,
                rules=rules,
                mix=heard.mix,
                slowdown=asked.slowdown / 100.0,
                grace=asked.grace,
                seed=seed,
            )
            _play(run, label=policy, total=len(timetable.jobs), stopped=stopped)
            reports.append(run.report())
            if stopped():
                break
    hand_out(as_data(reports, form=form) if is_data(form) else text_of(reports, heard=heard))
    if plot:
        write_picture(plot, picture_of(reports))
    if stopped():
        last = reports[-1]
        click.echo(f"aliquot: interrupted: {last.policy} ended {last.ended} of {last.jobs} pods: partial", err=True)
        sys.exit(stopped.code)


def _play(run: TimedRun, *, label: str, total: int, stopped: Callable[[], bool]) -> None:
    shown = 0
    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        for arrived in run.steps():
            if arrived >= shown + _STEP:
                bar.update(arrived - shown)
                shown = arrived
            if stopped():
                return


def _timetable(*, nodes: str, pods: str, seed: int, asked: Asked) -> Timetable:
    machines = read_trace(nodes, lambda lines: read_nodes(lines, name=nodes))

    def read(lines: Iterable[str]) -> Timetable:
        return read_timetable(lines, name=pods, machines=machines, after=asked.after, gpus_only=asked.gpus_only)

    found = read_trace(pods, read)
    if all(job.team == NOBODY for job in found.jobs):
        found = given_to_teams(found, teams=asked.teams, users=asked.users, seed=seed)
    if asked.bootstrap is not None:
        found = bootstrapped(found, seed=asked.bootstrap)
    return compressed(found, factor=asked.compress)


def _specs(path: str | None, timetable: Timetable) -> Mapping[str, QueueSpec]:
    """The queues of a file, which must have one for each team; without one each team has a queue without quota."""
    if path is None:
        return {team: QueueSpec(namespaces=("*",)) for team in timetable.teams}
    problems = Problems()
    specs = {
        name: msgspec.structs.replace(read_queue(spec, name=name, problems=problems), namespaces=("*",))
        for name, spec in read_trace(path, lambda lines: _manifests("".join(lines), path=path)).items()
    }
    for problem in (*problems.found, *(one for one in problems_of(specs) if one.is_refused)):
        raise problem
    parents = {spec.parent for spec in specs.values()}
    if strangers := [team for team in timetable.teams if team not in specs or team in parents]:
        told = f"it has no queue {strangers[0] or 'for pods that name none'} in which pods can wait"
        raise TraceError(told, where=path, remedy=f"teams are: {', '.join(timetable.teams)[:200]}")
    return specs


def _manifests(text: str, *, path: str) -> dict[str, dict[str, Any]]:
    try:
        documents = [one for one in yaml.safe_load_all(text) if one is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}, line {mark.line + 1}, column {mark.column + 1}" if mark else path
        raise TraceError(f"no YAML: {error.problem}", where=where, remedy="write it as for kubectl") from None
    found = {}
    for number, document in enumerate(documents, start=1):
        where = f"{path}, document {number}"
        if not isinstance(document, dict) or document.get("kind") != "Queue":
            raise TraceError("it is no Queue", where=where, remedy="write kind: Queue, metadata.name and spec")
        meta, spec = document.get("metadata"), document.get("spec") or {}
        name = meta.get("name") if isinstance(meta, dict) else None
        if not isinstance(name, str) or not isinstance(spec, dict):
            raise TraceError("it has no metadata.name, or its spec is no object", where=where, remedy="write both")
        found[name] = spec
    return found
