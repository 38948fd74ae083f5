"""`aliquot down`: end what `aliquot up` has started, from any terminal."""

from __future__ import annotations

import asyncio
import os
import shutil

import click

from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_agent.isolation.mps_settings import MpsSettings
from aliquot_cli.handing_out import hand_out
from aliquot_cli.sources import gather
from aliquot_kube.clock import SystemClock
from aliquot_standalone.composition import GRACE
from aliquot_standalone.ending import end_leftovers, end_running
from aliquot_standalone.home import Home
from aliquot_standalone.settings import UpSettings


@click.command()
@click.option("--config", "file", metavar="FILE", help="Settings file (default: $ALIQUOT_CONFIG).")
@click.option("--folder", metavar="FOLDER", help="Where all state lies (default: $ALIQUOT_HOME).")
@click.option("--purge", is_flag=True, help="Remove the folder of state too: pods, queues, logs.")
def down(file: str | None, *, folder: str | None, purge: bool) -> None:
    """End the `aliquot up` of this folder and all its pods' processes; `aliquot up` goes on where it was.

    \b
    Examples:
      aliquot down
      aliquot down --purge     # and forget everything
    """
    sources = gather(file=file, flags={"up": {"folder": folder}})
    home = Home.of(sources.resolve("up", UpSettings).value.folder, environment=os.environ)
    asyncio.run(_end(home, mps=sources.resolve("mps", MpsSettings).value, purge=purge))


async def _end(home: Home, *, mps: MpsSettings, purge: bool) -> None:
    if running := home.running():
        await end_running(running)
        hand_out(f"ended `aliquot up` (pid {running.pid})")
    else:
        hand_out(f"no `aliquot up` runs from {home.folder}")
    if left := await end_leftovers(home, clock=SystemClock(), grace=GRACE):
        hand_out(f"ended {left} processes of pods that it had left")
    if (daemons := MpsFolder(home.mps)).gpus():
        from aliquot_cli.mps import end_left  # NVML's binding, which few need

        await end_left(daemons, settings=mps)
        shutil.rmtree(home.mps)
        hand_out("ended what it had left of MPS: its GPUs take everybody again")
    if purge:
        _purge(home)


def _purge(home: Home) -> None:
    was_there = home.folder.is_dir()
    strangers = home.purge()
    if not was_there:
        hand_out(f"there is no {home.folder}: nothing to remove")
        return
    hand_out(f"removed {home.folder}" if not strangers else f"emptied {home.folder}")
    for path in strangers:
        hand_out(f"left alone, for it is not ours: {path}")
