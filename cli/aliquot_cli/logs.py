"""`aliquot logs`: what a pod has printed."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from aliquot_cli.cluster import Connection, connected
from aliquot_cli.handing_out import standard_output
from aliquot_cli.names_of import complete_pods
from aliquot_cli.options import ObjectName, make_call, namespace_option, no_form_option, server_options
from aliquot_cli.pod_output import Log, print_all, writer_to
from aliquot_cli.pod_stages import has_started
from aliquot_cli.pods_found import NoPodError, check_pod, until_pod
from aliquot_core.objects import Pod
from aliquot_kube.clock import SystemClock


@click.command()
@click.argument("pod", type=ObjectName(), shell_complete=complete_pods)
@click.option("-f", "--follow", is_flag=True, help="Wait for it to start, and go on until it ends.")
@click.option("-c", "--container", default="", metavar="NAME", help="Which of its containers.")
@click.option("--tail", type=click.IntRange(min=0), help="So many lines from the end.")
@click.option("-p", "--previous", is_flag=True, help="Of the container before its last restart.")
@no_form_option("a log is printed byte for byte, in no form of ours; `aliquot ps -o json` tells of its pod")
@namespace_option
@server_options
def logs(*, pod: str, namespace: str, **asked: Any) -> None:
    """Print what a pod has printed, as it was printed.

    \b
    Examples:
      aliquot logs trainer-x7k2p
      aliquot logs -f --tail 20 -n team-a trainer-x7k2p
    """
    call = make_call(**{name: asked.pop(name) for name in ("file", "kubeconfig", "context")})

    async def print_log() -> None:
        async with connected("logs", place=call.place) as connection:
            await _print(connection, Log(pod=pod, namespace=namespace or connection.namespace, **asked))

    asyncio.run(print_log())


async def _print(connection: Connection, log: Log) -> None:
    write = writer_to(standard_output())
    if log.follow:
        await until_pod(connection, namespace=log.namespace, name=log.pod, holds=_can_be_read)
    else:
        await check_pod(connection, namespace=log.namespace, name=log.pod)
    why = await print_all(connection.transport, log, write=write, clock=SystemClock(), there=lambda: True)
    if why:
        raise NoPodError(why, where=f"{log.namespace}/{log.pod}")


def _can_be_read(pod: Pod) -> bool:
    return pod.ended or has_started(pod)
