"""`aliquot explain`: why a pod is where it is, or why it waits."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from pathlib import Path

import click
import msgspec

from aliquot_cli.sources import gather
from aliquot_cli.tables import table
from aliquot_core.errors import UserError
from aliquot_core.names import Names
from aliquot_kube.client import KubeClient
from aliquot_kube.credentials import Credentials, load_configuration
from aliquot_kube.errors import NotFoundError
from aliquot_kube.resources import LEASES, NODES, PODS
from aliquot_kube.transport import HttpTransport
from aliquot_scheduler.explaining import Explanation, HeldSlice
from aliquot_scheduler.explaining import explain as explain_pod


class NoPodError(UserError):
    """A pod that is not there."""


@click.command()
@click.argument("pod")
@click.option("-n", "--namespace", default="default", show_default=True, help="The pod's namespace.")
@click.option("--config", "file", metavar="FILE", help="Settings file (default: $ALIQUOT_CONFIG).")
@click.option("--kubeconfig", metavar="FILE", default="", help="Where the API server is (default: as kubectl).")
@click.option("-o", "form", type=click.Choice(["text", "json"]), default="text", help="How to print.")
def explain(pod: str, namespace: str, file: str | None, kubeconfig: str, form: str) -> None:
    """Say why a pod is where it is, or why it waits, with numbers.

    \b
    Example:
      aliquot explain -n team-a trainer-0
    """
    sources = gather(file=file)
    names = sources.resolve("names", Names).value
    told = asyncio.run(_explained(pod, namespace=namespace, kubeconfig=kubeconfig, names=names))
    click.echo(msgspec.json.format(msgspec.json.encode(told)).decode() if form == "json" else _text(told))


async def _explained(pod: str, *, namespace: str, kubeconfig: str, names: Names) -> Explanation:
    credentials = Credentials(load=partial(load_configuration, kubeconfig=kubeconfig or _own_kubeconfig()))
    transport = HttpTransport(credentials=credentials, user_agent="aliquot-explain")
    client = KubeClient(transport=transport)
    try:
        wanted = await client.get(PODS, name=pod, namespace=namespace)
        nodes, leases, pods = await asyncio.gather(
            client.list(NODES), client.list(LEASES, namespace=names.namespace), client.list(PODS)
        )
    except NotFoundError:
        raise NoPodError(
            "there is no such pod", where=f"{namespace}/{pod}", remedy="check the name, and -n for its namespace"
        ) from None
    finally:
        await transport.close()
    return explain_pod(wanted, nodes=nodes, leases=leases, pods=pods, names=names, wall=time.time())


def _own_kubeconfig() -> str:
    """What kubectl would use: this command is a person's, unlike the processes."""
    usual = Path.home() / ".kube" / "config"
    return "" if os.environ.get("KUBECONFIG") or not usual.exists() else str(usual)


def _text(told: Explanation) -> str:
    parts = [f"{told.pod}: {told.state}\n  {told.summary}"]
    if told.asked:
        parts.append("\n".join(("asked", *(f"  {line}" for line in told.asked))))
    if told.slices:
        heading = ("CONTAINER", "GPU", "MODEL", "COMPUTE", "MEMORY", "ISOLATION", "OTHER PODS")
        parts.append(table([heading, *(_row(one) for one in told.slices)]))
    if told.nodes:
        answers = ((one.node, "yes" if one.fits else "no", one.why) for one in told.nodes)
        parts.append(table([("NODE", "ROOM", "WHY"), *answers]))
    return "\n\n".join(parts)


def _row(one: HeldSlice) -> tuple[str, ...]:
    compute = f"{one.compute} %" + (f" (to {one.limit} %)" if one.limit > one.compute else "")
    return one.container, one.gpu, one.model, compute, f"{one.memory} MiB", one.isolation or "-", str(one.others)
