"""`aliquot simulate` without time: which part of the GPUs a policy can give away."""

from __future__ import annotations

import sys
import time

import click
import msgspec
import numpy as np

from aliquot_cli.handing_out import hand_out
from aliquot_cli.plots import svg
from aliquot_cli.printing import as_data, is_data
from aliquot_cli.simulate_rules import Heard, failures_text, warn_of_labels
from aliquot_cli.tables import table
from aliquot_cli.trace_files import Stop, read_trace, told_to_stop, write_picture
from aliquot_scheduler.simulating.drawing import draw_order
from aliquot_scheduler.simulating.fleet import Fleet
from aliquot_scheduler.simulating.reading import read_line, read_nodes, read_order, read_pods
from aliquot_scheduler.simulating.runs import MixSource, PolicyName, Report, begin, report
from aliquot_scheduler.simulating.valued import mix_of
from aliquot_scheduler.simulating.workload import Longs, Workload
from aliquot_scheduler.worth.given import as_settings, as_variable

POLICIES = [str(one) for one in PolicyName]
# How often the bar moves.
_STEP = 50
_SHOWN = ("60", "80", "90", "95", "100", "110", "120", "130")


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Where a workload is written down; what is not is drawn from the seed."""

    nodes: str
    pods: str
    order: str | None = None
    noderank: str | None = None
    seed: int = 42

    def workload(self) -> Workload:
        """Read it."""
        machines = read_trace(self.nodes, lambda lines: read_nodes(lines, name=self.nodes))
        asked = read_trace(self.pods, lambda lines: read_pods(lines, name=self.pods, machines=machines))
        drawn = Workload(machines=machines, needs=asked.needs, pods=asked.pods, arrivals=np.zeros(0, dtype=np.int64))
        if (order := self.order) is not None:
            count = len(asked.pods)
            arrivals = read_trace(order, lambda lines: read_order(lines, name=order, seed=self.seed, pods=count))
        else:
            random = np.random.default_rng(self.seed)
            arrivals = draw_order(random, needs=asked.needs, pods=asked.pods, capacity=drawn.capacity)
        return msgspec.structs.replace(drawn, arrivals=arrivals)

    def line(self, *, nodes: int) -> Longs | None:
        """The line of equals, if one is given."""
        if (noderank := self.noderank) is None:
            return None
        return read_trace(noderank, lambda lines: read_line(lines, name=noderank, seed=self.seed, nodes=nodes))


def print_mix(files: Files, *, form: str) -> None:
    """As settings give it to a centre: in a file, or in the variable, which is JSON, and so YAML too."""
    workload = files.workload()
    mix = mix_of(workload, Fleet(workload.machines))
    hand_out(as_variable(mix) if is_data(form) else as_settings(mix))


def simulate_places(
    files: Files, *, policy: PolicyName, mix: MixSource | None, heard: Heard, plot: str | None, form: str
) -> None:
    """Replay, print what came of it, and leave with the exit code that says if it is partial."""
    source = _source(mix, heard)
    workload = files.workload()
    if policy is PolicyName.ALIQUOT:
        warn_of_labels(heard.rules, workload.machines, nodes=files.nodes)
    line = files.line(nodes=len(workload.machines))
    with told_to_stop() as stopped:
        told = _run(workload, policy=policy, mix=source, seed=files.seed, line=line, heard=heard, stopped=stopped)
    hand_out(as_data(told, form=form) if is_data(form) else _text(told))
    if plot:
        write_picture(plot, _picture(told))
    if told.partial:
        click.echo(f"aliquot: interrupted after {told.pods} of {len(workload.arrivals)} pods: partial result", err=True)
        sys.exit(stopped.code)


def _source(mix: MixSource | None, heard: Heard) -> MixSource:
    """What is asked for; else the mix of the settings, if they have one."""
    if mix is MixSource.SETTINGS and heard.mix is None:
        told = "the settings have no [[placement.mix]]; name the file with --config"
        raise click.BadParameter(told, param_hint="--mix")
    return mix or (MixSource.GIVEN if heard.mix is None else MixSource.SETTINGS)


def _run(
    workload: Workload,
    *,
    policy: PolicyName,
    mix: MixSource,
    seed: int,
    line: Longs | None,
    heard: Heard,
    stopped: Stop,
) -> Report:
    start = time.perf_counter()
    replay = begin(workload, policy=policy, mix=mix, seed=seed, line=line, rules=heard.rules, settings=heard.mix)
    total = len(workload.arrivals)
    with click.progressbar(length=total, label=f"{policy}", file=sys.stderr) as bar:
        for done in replay.steps():
            if done % _STEP == 0:
                bar.update(_STEP)
            if stopped():
                break
    return report(
        replay.outcome(),
        workload=workload,
        policy=policy,
        mix=mix,
        seed=seed,
        line=line is not None,
        seconds=time.perf_counter() - start,
        rules=heard.rules,
    )


# --- what is told ----------------------------------------------------------------------------------------------------


def _picture(told: Report) -> str:
    curves = {
        "allocated": {float(x): y for x, y in told.allocated_pct_at.items()},
        "fragments": {float(x): y for x, y in told.frag_pct_at.items()},
    }
    return svg(curves, title=f"{told.policy}, seed {told.seed}", across="GPUs asked for, % of all", up="GPUs, % of all")


def _text(told: Report) -> str:
    rules = f", rules {', '.join(told.rules)}" if told.rules else ""
    heading = f"{told.policy} (mix {told.mix}, ties {told.ties}{rules}), seed {told.seed}, {told.seconds:.1f} s"
    rows = [
        (f"{x} %", f"{told.allocated_pct_at[x]:.2f} %", f"{told.frag_pct_at[x]:.2f} %")
        for x in _shown(told.allocated_pct_at)
    ]
    summary = f"{told.pods} pods: {told.placed} placed, {told.failed} failed{failures_text(told.rule_failures)}"
    return "\n\n".join([heading, table([("ASKED FOR", "ALLOCATED", "FRAGMENTS"), *rows]), summary])


def _shown(curve: dict[str, float]) -> list[str]:
    """The places that people compare; of a run that ended before them its last one too."""
    shown = [x for x in _SHOWN if x in curve]
    last = list(curve)[-1:]
    return shown + [x for x in last if x not in shown]
