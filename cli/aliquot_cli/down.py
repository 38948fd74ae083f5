"""`aliquot down`: end what `aliquot up` has started, from any terminal."""

from __future__ import annotations

import asyncio
import os

import click

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
    settings = gather(file=file, flags={"up": {"folder": folder}}).resolve("up", UpSettings).value
    home = Home.of(settings.folder, environment=os.environ)
    asyncio.run(_end(home, purge=purge))


async def _end(home: Home, *, purge: bool) -> None:
    if running := home.running():
        await end_running(running)
        hand_out(f"ended `aliquot up` (pid {running.pid})")
    else:
        hand_out(f"no `aliquot up` runs from {home.folder}")
    if left := await end_leftovers(home, clock=SystemClock(), grace=GRACE):
        hand_out(f"ended {left} processes of pods that it had left")
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
