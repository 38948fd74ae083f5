"""`aliquot up`: everything on one machine. So far: one simulated node, and a demonstration on it."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import click

from aliquot_agent.gpus.spec import models_by_node, parse_gpu_spec
from aliquot_cli.running import run_until_stopped, until
from aliquot_core.errors import UserError
from aliquot_core.logs import LogSettings, configure_logging
from aliquot_core.names import Names
from aliquot_kube.clock import SystemClock
from aliquot_standalone.demo import GPUS_NEEDED, Demo
from aliquot_standalone.one_node import OneNode, check_sockets_fit, one_node

NODE = "this-machine"


@click.command()
@click.option("--simulate", "gpus", default="8xA100-80GB", metavar="SPEC", show_default=True, help="GPUs to simulate.")
@click.option("--demo", is_flag=True, help="Submit a few pods and tell what happens.")
@click.option("--stay/--leave", default=None, help="Go on after the demonstration (default: at a terminal).")
def up(gpus: str, demo: bool, stay: bool | None) -> None:  # noqa: FBT001 - click hands flags over
    """Run one simulated node on this machine: API server, kubelet's part, endpoint and agent.

    \b
    Example:
      aliquot up --demo
      aliquot up --simulate 4xL40S
    """
    models, *others = models_by_node(parse_gpu_spec(gpus))
    if others:
        raise UserError("more than one node", where="--simulate", remedy="this version runs one: write 8xA100-80GB")
    if demo and len(models) < GPUS_NEEDED:
        remedy = f"write {GPUS_NEEDED} or more, or leave --demo out"
        raise UserError(f"the demonstration needs {GPUS_NEEDED} GPUs", where="--simulate", remedy=remedy)
    configure_logging(LogSettings(level="error"))
    remain = stay if stay is not None else (not demo or sys.stdin.isatty())
    run_until_stopped(lambda stop: _serve(stop, gpus=gpus, demo=demo, remain=remain))


async def _serve(stop: asyncio.Event, *, gpus: str, demo: bool, remain: bool) -> None:
    # Short, because unix sockets lie in it; the name says whose it is.
    with tempfile.TemporaryDirectory(prefix="aliquot-up-") as folder:
        check_sockets_fit(Path(folder))
        async with one_node(name=NODE, folder=Path(folder), gpus=gpus, clock=SystemClock()) as node:
            await until(stop, _show(node, gpus=gpus, demo=demo))
            if remain and not stop.is_set():
                click.echo(
                    f"API server: kubectl --kubeconfig {folder}/kubeconfig get pods,nodes\nlogs: {folder}/agent.log"
                )
                click.echo("Ctrl-C ends everything.")
                await until(stop, node.watch())


async def _show(node: OneNode, *, gpus: str, demo: bool) -> None:
    names = Names()
    if demo:
        await Demo(node=node, names=names, clock=SystemClock(), say=click.echo, gpus=gpus).tell()
    else:
        await node.until_offered(names)
        click.echo(f"Node {node.name} offers {gpus}.")
