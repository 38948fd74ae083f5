"""`aliquot mps`: the composition root of the process that keeps a node's MPS daemons."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

import click

from aliquot_agent.gpus.compute_modes import NvmlComputeModes
from aliquot_agent.isolation.mps_control import MpsControl, MpsError
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_agent.isolation.mps_keeper import MpsKeeper
from aliquot_agent.isolation.mps_settings import MpsSettings
from aliquot_cli.running import run_until_stopped, start_logging, until
from aliquot_cli.sources import gather
from aliquot_kube.clock import SystemClock


@click.command()
@click.option("--config", "file", metavar="FILE", help="Settings file (default: $ALIQUOT_CONFIG).")
def mps(file: str | None) -> None:
    """Keep an MPS control daemon for each GPU that the node's agent wants shared so.

    It needs root. The agent may come and go beside it; when it is told to stop, the daemons end.

    \b
    Example:
      aliquot mps --config /etc/aliquot/aliquot.toml
    """
    sources = gather(file=file)
    start_logging(sources)
    run_until_stopped(partial(keep, settings=sources.resolve("mps", MpsSettings).value))


async def keep(stop: asyncio.Event, *, settings: MpsSettings) -> None:
    """Keep the daemons until told to stop."""
    folder = MpsFolder(Path(settings.folder))
    held = folder.hold()
    keeper = _keeper(folder, settings=settings)
    try:
        await until(stop, keeper.run())
        await keeper.leave()
    finally:
        os.close(held)


async def end_left(folder: MpsFolder, *, settings: MpsSettings) -> None:
    """End the daemons that a keeper has left which was killed, and open their GPUs; raises where that can't be."""
    held = folder.hold()
    try:
        await _keeper(folder, settings=settings).leave()
    finally:
        os.close(held)
    for gpu in folder.gpus():
        told = folder.seat(gpu).told
        if told is not None and told.problem:
            raise MpsError(told.problem, where=gpu, remedy="end its processes, then call this again")


def _keeper(folder: MpsFolder, *, settings: MpsSettings) -> MpsKeeper:
    clock = SystemClock()

    def control(gpu: str) -> MpsControl:
        return MpsControl(
            program=settings.program,
            gpu=gpu,
            pipe=folder.pipe(gpu),
            log_folder=folder.log(gpu),
            multi_user=settings.multi_user,
            clock=clock,
        )

    return MpsKeeper(
        folder=folder, modes=NvmlComputeModes(), control=control, clock=clock, most_clients=settings.most_clients
    )
