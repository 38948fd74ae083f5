"""`aliquot simulate`: a recorded workload placed anew, in seconds."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from aliquot_cli.plots import svg
from aliquot_cli.recording import record_cluster
from aliquot_cli.simulate_time import POLICIES as TIMED
from aliquot_cli.simulate_time import Asked, simulate_in_time, time_options
from aliquot_cli.sources import gather
from aliquot_cli.tables import table
from aliquot_cli.trace_files import INTERRUPTED, place_to_draw, read_trace, told_to_stop, write_picture
from aliquot_scheduler.rules.expressions import RuleSettings
from aliquot_scheduler.rules.installed import rules_in_force
from aliquot_scheduler.rules.judging import Rules
from aliquot_scheduler.simulating.drawing import draw_order
from aliquot_scheduler.simulating.fleet import Fleet
from aliquot_scheduler.simulating.reading import read_line, read_nodes, read_order, read_pods
from aliquot_scheduler.simulating.runs import MixSource, PolicyName, Report, begin, report
from aliquot_scheduler.simulating.valued import mix_of
from aliquot_scheduler.simulating.workload import Longs, Workload
from aliquot_scheduler.worth.given import as_settings

# How often the bar moves.
_STEP = 50
_SHOWN = ("60", "80", "90", "95", "100", "110", "120", "130")

_POLICIES = [str(one) for one in PolicyName]


@click.command()
@click.option("--nodes", "nodes", metavar="FILE", required=True, help="The nodes: sn,cpu_milli,memory_mib,gpu,model.")
@click.option(
    "--pods", "pods", metavar="FILE", required=True, help="The pods: cpu_milli,memory_mib,num_gpu,gpu_milli,…"
)
@click.option("--order", metavar="FILE", help="Who arrives when, a column for each seed (default: drawn from --seed).")
@click.option("--noderank", metavar="FILE", help="The line of equals, a column for each seed (default: drawn freshly).")
@click.option(
    "--seed", type=click.IntRange(min=0), default=42, show_default=True, help="Column, or seed of what is drawn."
)
@click.option(
    "--policy",
    type=click.Choice([*_POLICIES, *(one for one in TIMED if one not in _POLICIES)]),
    help=f"Default: {_POLICIES[0]}; with --time {', '.join(TIMED)}, all side by side.",
)
@click.option(
    "--mix",
    type=click.Choice([str(one) for one in MixSource]),
    default=str(MixSource.GIVEN),
    show_default=True,
    help="Whether the policy knows the pod list's mix beforehand, as FGD does, or learns it as pods arrive.",
)
@click.option(
    "--print-mix",
    is_flag=True,
    help="Print the list's mix as settings for a centre, and replay nothing (see [placement]).",
)
@click.option("--record", is_flag=True, help="Write these files from the cluster, and replay nothing.")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="Settings file, for its rules; with --record, for the cluster (default: $ALIQUOT_CONFIG).",
)
@click.option("--kubeconfig", metavar="FILE", default="", help="With --record: the API server (default: as kubectl).")
@time_options
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True),
    callback=place_to_draw,
    help="Draw the curves into this SVG file.",
)
@click.option("-o", "form", type=click.Choice(["text", "json"]), default="text", help="How to print.")
def simulate(
    *,
    nodes: str,
    pods: str,
    order: str | None,
    noderank: str | None,
    seed: int,
    policy: str | None,
    mix: str,
    print_mix: bool,
    record: bool,
    file: str | None,
    kubeconfig: str,
    plot: str | None,
    form: str,
    in_time: bool,
    **times: Any,
) -> None:
    """Replay a recorded workload: which part of the GPUs a placement policy can give away.

    Pods arrive one by one; each is placed at once where the policy likes it best, or has failed for good. With --time
    they come when they came, wait for room, run for as long as they ran, and end: how long do they wait? Then three
    policies are set side by side: whole-gpu-fifo is what the plain device plugin gives, fifo shares GPUs, aliquot has
    queues and fair shares too.

    Files may be compressed with gzip. Ctrl-C ends the run; what has come of it so far is printed, and said to be
    partial.

    \b
    Example:
      cd benchmarks/placement/openb
      aliquot simulate --nodes openb_node_list_gpu_node.csv --pods openb_pod_list_default.csv \\
        --order order_default.csv --seed 42
      aliquot simulate --time --nodes four_nodes.csv --pods openb_pod_list_default.csv \\
        --after 9964972 --gpus-only --compress 0.4 --plot use.svg
      aliquot simulate --record --nodes nodes.csv --pods pods.csv    # of your own cluster; then without --record
    """
    if record:
        files = {"nodes": Path(nodes), "pods": Path(pods), "order": Path(order) if order else None}
        click.echo(record_cluster(files, seed=seed, file=file, kubeconfig=kubeconfig))
        return
    rules = rules_in_force(gather(file=file).resolve("rules", RuleSettings).value)
    if in_time:
        chosen = TIMED if policy is None else [_one_of(policy, TIMED, what="with --time")]
        asked = Asked(**times)
        simulate_in_time(
            nodes=nodes, pods=pods, seed=seed, policies=chosen, asked=asked, rules=rules, plot=plot, form=form
        )
        return
    policy = _one_of(policy or _POLICIES[0], _POLICIES, what="without --time")
    workload = _workload(nodes=nodes, pods=pods, order=order, seed=seed)
    if print_mix:
        click.echo(as_settings(mix_of(workload, Fleet(workload.machines))))
        return
    size = len(workload.machines)
    line = (
        read_trace(noderank, lambda lines: read_line(lines, name=str(noderank), seed=seed, nodes=size))
        if noderank
        else None
    )
    told = _run(workload, policy=PolicyName(policy), mix=MixSource(mix), seed=seed, line=line, rules=rules)
    click.echo(msgspec.json.format(msgspec.json.encode(told)).decode() if form == "json" else _text(told))
    if plot:
        write_picture(plot, _picture(told))
    if told.partial:
        click.echo(f"aliquot: interrupted after {told.pods} of {len(workload.arrivals)} pods: partial result", err=True)
        sys.exit(INTERRUPTED)


def _one_of(policy: str, known: list[str], *, what: str) -> str:
    if policy not in known:
        raise click.BadParameter(
            f"{policy} is none of {', '.join(known)}, which there are {what}", param_hint="--policy"
        )
    return policy


def _workload(*, nodes: str, pods: str, order: str | None, seed: int) -> Workload:
    machines = read_trace(nodes, lambda lines: read_nodes(lines, name=nodes))
    asked = read_trace(pods, lambda lines: read_pods(lines, name=pods, machines=machines))
    drawn = Workload(machines=machines, needs=asked.needs, pods=asked.pods, arrivals=np.zeros(0, dtype=np.int64))
    if order:
        count = len(asked.pods)
        arrivals = read_trace(order, lambda lines: read_order(lines, name=order, seed=seed, pods=count))
    else:
        random = np.random.default_rng(seed)
        arrivals = draw_order(random, needs=asked.needs, pods=asked.pods, capacity=drawn.capacity)
    return msgspec.structs.replace(drawn, arrivals=arrivals)


def _run(
    workload: Workload, *, policy: PolicyName, mix: MixSource, seed: int, line: Longs | None, rules: Rules
) -> Report:
    start = time.perf_counter()
    replay = begin(workload, policy=policy, mix=mix, seed=seed, line=line, rules=rules)
    total = len(workload.arrivals)
    with told_to_stop() as stopped, click.progressbar(length=total, label=f"{policy}", file=sys.stderr) as bar:
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
        rules=rules,
    )


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
    summary = f"{told.pods} pods: {told.placed} placed, {told.failed} failed"
    return "\n\n".join([heading, table([("ASKED FOR", "ALLOCATED", "FRAGMENTS"), *rows]), summary])


def _shown(curve: dict[str, float]) -> list[str]:
    """The places that people compare; of a run that ended before them its last one too."""
    shown = [x for x in _SHOWN if x in curve]
    last = list(curve)[-1:]
    return shown + [x for x in last if x not in shown]
