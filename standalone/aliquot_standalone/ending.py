"""Ending an `aliquot up` from outside: the process if one runs, else the containers that outlived a kill."""

from __future__ import annotations

import asyncio
import os
import signal

from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_standalone.apiserver.journal import Journal
from aliquot_standalone.home import Home
from aliquot_standalone.kubelet.containers import LocalProcesses
from aliquot_standalone.kubelet.groups import recorded_groups
from aliquot_standalone.kubelet.leaving import end_containers, left_at
from aliquot_standalone.kubelet.memory import Memories
from aliquot_standalone.kubelet.settings import Folders
from aliquot_standalone.whereabouts import Running

# It has containers to end, each of which may take its grace, and then MPS daemons.
_PATIENCE = 40.0


class StaysError(ClusterError):
    """A process that does not end."""


async def end_running(running: Running) -> None:
    """Ask it to end, and wait until it has."""
    try:
        process = os.pidfd_open(running.pid)
    except ProcessLookupError:
        return
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(process, gone.set)
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        async with asyncio.timeout(_PATIENCE):
            await gone.wait()
    except TimeoutError as error:
        remedy = f"kill -9 {running.pid}, and call this again"
        raise StaysError(f"has not ended within {_PATIENCE:g} s", where=f"pid {running.pid}", remedy=remedy) from error
    finally:
        loop.remove_reader(process)
        os.close(process)


async def end_leftovers(home: Home, *, clock: Clock, grace: float) -> int:
    """End containers whose `aliquot up` was killed; how many processes there were. Raises if one runs."""
    if not home.is_ours:
        return 0
    with home.writing():
        journal = Journal(home.folder)
    try:
        places = [Folders(root=folder) for folder in home.nodes()]
        return sum([await end_node(one, clock=clock, grace=grace) for one in places])
    finally:
        journal.close()


async def end_node(folders: Folders, *, clock: Clock, grace: float) -> int:
    """End what runs of a node that has no kubelet, and take its cgroups away; how many processes there were."""
    groups = recorded_groups(folders.groups_record)
    found = len(left_at(folders.place, groups=groups))
    await end_containers(
        place=folders.place,
        memories=Memories(folders.containers),
        runtime=LocalProcesses(groups=groups),
        clock=clock,
        grace=grace,
        groups=groups,
    )
    return found
