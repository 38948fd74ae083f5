"""`aliquot endpoint`: the composition root of the process that the kubelet speaks to."""

from __future__ import annotations

import random

import click

from aliquot_cli.running import run_until_stopped, start_logging
from aliquot_cli.sources import gather
from aliquot_core.names import Names
from aliquot_deviceplugin.endpoint.process import run_endpoint
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from aliquot_kube.clock import SystemClock


@click.command()
@click.option("--config", "file", metavar="FILE", help="Settings file (default: $ALIQUOT_CONFIG).")
def endpoint(file: str | None) -> None:
    """Serve the device plugin sockets; everything else is the agent's.

    It knows no GPU and no API server, so it is hardly ever replaced: while it is away, pods that arrive fail.

    \b
    Example:
      aliquot endpoint --config /etc/aliquot/aliquot.toml
    """
    sources = gather(file=file)
    start_logging(sources)
    settings = sources.resolve("endpoint", EndpointSettings).value
    names = sources.resolve("names", Names).value
    luck = random.Random()  # noqa: S311 - spreads retries, guards nothing
    run_until_stopped(
        lambda stop: run_endpoint(settings, clock=SystemClock(), stop=stop, chance=luck.random, names=names)
    )
