"""`aliquot scheduler`: the composition root of one replica of the centre."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import click

from aliquot_cli.replica_answers import admission_of, keepers_of, page_of, served, tls_of
from aliquot_cli.replica_decides import centre_of, leadership_of, pace_of
from aliquot_cli.replica_settings import Settings, read_settings
from aliquot_cli.running import run_until_stopped, until
from aliquot_cli.ways import ways_of_the_centre
from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock
from aliquot_kube.dated import DatedTransport
from aliquot_kube.fencing import FencedTransport
from aliquot_scheduler.admission.landscape import Landscape
from aliquot_scheduler.admission.onlooker import Onlooker
from aliquot_scheduler.admission.profile import tell_profile

AGENT = "aliquot-scheduler"


@click.command()
@click.option("--config", "file", metavar="FILE", help="Settings file (default: $ALIQUOT_CONFIG).")
@click.option("--kubeconfig", metavar="FILE", help="Where the API server is (default: the pod's service account).")
@click.option("--name", metavar="NAME", help="Who this replica is, for people.")
@click.option("--address", metavar="URL", help="Where the other replicas reach this one when it leads.")
def scheduler(file: str | None, **flags: Any) -> None:
    """Place pods on GPUs: answer kube-scheduler and the API server's webhook calls, one replica leading.

    \b
    Example:
      aliquot scheduler --kubeconfig centre.kubeconfig --address https://10.0.0.5:10943
    """
    settings = read_settings(file=file, flags=flags)
    run_until_stopped(partial(serve_centre, settings=settings))


async def serve_centre(stop: asyncio.Event, *, settings: Settings) -> None:
    """Be a replica until told to stop; whoever led lets the next one lead at once."""
    tell_profile(settings.admission)
    clock, luck = SystemClock(), random.Random().random  # noqa: S311 - spreads retries, guards nothing
    # The election's is its own, so that no burst of bindings delays a renewal.
    transport, election = ways_of_the_centre(settings.centre.kubeconfig, user_agent=AGENT, clock=clock)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(transport.close)
        stack.push_async_callback(election.close)
        # Each replica asks there every few seconds.
        compared = DatedTransport(transport=election, clock=clock)
        leadership = leadership_of(settings, transport=compared, clock=clock, random=luck)
        fenced = FencedTransport(transport=transport, check=leadership.check)
        centre = centre_of(settings, transport=fenced, leadership=leadership, clock=clock, random=luck)
        keepers = keepers_of(settings, client=KubeClient(transport=transport), clock=clock, random=luck)
        for keeper in keepers:
            await keeper.ensure()
        landscape = Landscape(transport=transport, clock=clock, random=luck, names=settings.names)
        tls = tls_of(settings, clock=clock)
        page = page_of(settings, centre=centre, leadership=leadership, transport=transport, tls=tls, clock=clock)
        stack.push_async_callback(page.close)
        forwarder, server = served(
            settings,
            centre=centre,
            leadership=leadership,
            admission=admission_of(settings, centre=centre, landscape=landscape),
            onlooker=Onlooker(transport=transport, clock=clock, names=settings.names),
            page=page,
            tls=tls,
            clock=clock,
            ahead=lambda: compared.ahead,
        )
        stack.push_async_callback(forwarder.close)
        pace = pace_of(settings, client=KubeClient(transport=fenced), centre=centre, leadership=leadership, clock=clock)
        kept: list[Callable[[], Any]] = [partial(keeper.run, changed=tls.look) for keeper in keepers]
        running = [leadership.run, centre.run, server.run, landscape.run, pace.run, page.run, *kept]
        await until(stop, _all(*running), farewell=partial(_all, leadership.resign, server.drain))


async def _all(*parts: Callable[[], Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(part())
