"""`aliquot simulate --record`: a cluster written down, for a replay later and elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from aliquot_cli.cluster import Place, connected
from aliquot_cli.options import make_call
from aliquot_cli.reading import Everything, read_everything
from aliquot_core.counting import counted
from aliquot_core.errors import ClusterError, UserError
from aliquot_core.names import Names
from aliquot_scheduler.simulating.recording import record


class RecordingError(UserError):
    """A file that is not to be written."""


class HiddenError(ClusterError):
    """A cluster that this account may not see whole."""


def record_cluster(files: Mapping[str, Path | None], *, seed: int, file: str | None, kubeconfig: str) -> str:
    """Write the files that are named; says what is in them."""
    places = {what: place for what, place in files.items() if place is not None}
    for place in places.values():
        if place.exists():
            raise RecordingError("it is there already", where=str(place), remedy="name a file that is not")
    call = make_call(file=file, kubeconfig=kubeconfig, context="")
    everything = asyncio.run(_read(call.place, names=call.names))
    told = record(nodes=everything.nodes, pods=everything.pods, names=call.names, seed=seed)
    for what, place in places.items():
        try:
            place.write_text(told.lists[what], encoding="utf-8")
        except OSError as error:
            failed = f"can't be written: {error.strerror or error}"
            raise RecordingError(failed, where=str(place), remedy="choose another place") from None
    left = f"; {told.left_out} pods left out, whose requests no node could meet" if told.left_out else ""
    found = f"{counted(told.machines, 'node')}, {counted(told.arrivals, 'pod')}{left}"
    return f"{found}: {', '.join(map(str, places.values()))}"


async def _read(place: Place, *, names: Names) -> Everything:
    async with connected("simulate", place=place) as connection:
        found = await read_everything(connection.client, names=names)
    if found is None:
        raise HiddenError(
            "this account may not list all nodes, pods and heart-beats", where="cluster", remedy="ask an operator"
        )
    return found
