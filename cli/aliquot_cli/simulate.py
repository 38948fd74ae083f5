"""`aliquot simulate`: a recorded workload placed anew, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aliquot_cli.handing_out import hand_out
from aliquot_cli.options import DATA, form_option
from aliquot_cli.recording import record_cluster
from aliquot_cli.simulate_modes import Mode, mode_of
from aliquot_cli.simulate_places import POLICIES, Files, print_mix, simulate_places
from aliquot_cli.simulate_rules import heard_from
from aliquot_cli.simulate_time import POLICIES as TIMED
from aliquot_cli.simulate_time import TIME_NAMES, Asked, simulate_in_time, time_options
from aliquot_cli.trace_files import place_to_draw
from aliquot_scheduler.simulating.runs import MixSource, PolicyName


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
    type=click.Choice([*POLICIES, *(one for one in TIMED if one not in POLICIES)]),
    help=f"Default: {POLICIES[0]}; with --time {', '.join(TIMED)}, all side by side.",
)
@click.option(
    "--mix",
    type=click.Choice([str(one) for one in MixSource]),
    help="What the policy knows of the mix: the pod list's beforehand (given, as FGD does), what it learns as pods "
    "arrive, or that of the settings (default: that if they have one, else given).",
)
@click.option(
    "--print-mix",
    is_flag=True,
    help="Print the list's mix as settings for a centre ([placement]; with -o json for ALIQUOT_PLACEMENT_MIX), and "
    "replay nothing.",
)
@click.option("--record", is_flag=True, help="Write these files from the cluster, and replay nothing.")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="Settings file, for its rules and its mix; with --record, for the cluster (default: $ALIQUOT_CONFIG).",
)
@click.option("--kubeconfig", metavar="FILE", default="", help="With --record: the API server (default: as kubectl).")
@time_options
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True),
    callback=place_to_draw,
    help="Draw the curves into this SVG file.",
)
@form_option(usual="text", forms=DATA)
@click.pass_context
def simulate(context: click.Context, /, **asked: Any) -> None:
    """Replay a recorded workload: which part of the GPUs a placement policy can give away.

    Pods arrive one by one; each is placed at once where the policy likes it best, or has failed for good. With --time
    they come when they came, wait for room, run for as long as they ran, and end: how long do they wait? Then three
    policies are set side by side: whole-gpu-fifo is what the plain device plugin gives, fifo shares GPUs, aliquot has
    queues and fair shares too.

    Files may be compressed with gzip. Ctrl-C ends the run, and so does SIGTERM; what has come of it so far is printed,
    and said to be partial.

    \b
    Example:
      cd benchmarks/placement/openb
      aliquot simulate --nodes openb_node_list_gpu_node.csv --pods openb_pod_list_default.csv \\
        --order order_default.csv --seed 42
      aliquot simulate --time --nodes four_nodes.csv --pods openb_pod_list_default.csv \\
        --after 9964972 --gpus-only --compress 0.4 --plot use.svg
      aliquot simulate --record --nodes nodes.csv --pods pods.csv    # of your own cluster; then without --record
    """
    match mode_of(context):
        case Mode.RECORD:
            _record(asked)
        case Mode.MIX:
            print_mix(Files(nodes=asked["nodes"], pods=asked["pods"]), form=asked["form"])
        case Mode.TIME:
            _in_time(asked)
        case Mode.PLACES:
            _places(asked)


def _record(asked: dict[str, Any]) -> None:
    files = {what: Path(asked[what]) if asked[what] else None for what in ("nodes", "pods", "order")}
    hand_out(record_cluster(files, seed=asked["seed"], file=asked["file"], kubeconfig=asked["kubeconfig"]))


def _in_time(asked: dict[str, Any]) -> None:
    policy = asked["policy"]
    simulate_in_time(
        nodes=asked["nodes"],
        pods=asked["pods"],
        seed=asked["seed"],
        policies=TIMED if policy is None else [_one_of(policy, TIMED, what="with --time")],
        asked=Asked(**{name: asked[name] for name in TIME_NAMES}),
        heard=heard_from(asked["file"]),
        plot=asked["plot"],
        form=asked["form"],
    )


def _places(asked: dict[str, Any]) -> None:
    policy = _one_of(asked["policy"] or POLICIES[0], POLICIES, what="without --time")
    simulate_places(
        Files(**{name: asked[name] for name in Files.__struct_fields__}),
        policy=PolicyName(policy),
        mix=MixSource(asked["mix"]) if asked["mix"] else None,
        heard=heard_from(asked["file"]),
        plot=asked["plot"],
        form=asked["form"],
    )


def _one_of(policy: str, known: list[str], *, what: str) -> str:
    if policy not in known:
        raise click.BadParameter(
            f"{policy} is none of {', '.join(known)}, which there are {what}", param_hint="--policy"
        )
    return policy
