"""`aliquot ps`: who has a slice, and who waits for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import click

from aliquot_cli.cluster import Connection, connected
from aliquot_cli.handing_out import hand_out
from aliquot_cli.options import Call, form_option, make_call, namespace_options, page_option, server_options
from aliquot_cli.pod_rows import PodRow, pod_rows
from aliquot_cli.pod_stages import Stage
from aliquot_cli.pod_table import pod_table
from aliquot_cli.printing import printed
from aliquot_cli.reading import read_everything, read_plan, standing_of
from aliquot_cli.tables import table
from aliquot_cli.usage import read_used
from aliquot_kube.errors import ForbiddenError
from aliquot_kube.resources import PODS

_ELSEWHERE = {False: "; -A shows those of all namespaces", True: ""}
_OVER = frozenset({Stage.DONE, Stage.FAILED})


@click.command()
@click.option("-a", "--all", "ended", is_flag=True, help="Those that have ended too.")
@namespace_options
@form_option()
@page_option
@server_options
def ps(*, ended: bool, namespace: str, everywhere: bool, form: str, page: str, **server: Any) -> None:
    """List the pods that have a slice of a GPU or wait for one: where, how much, since when, and why they wait.

    Whoever waits has the place in brackets, counted over all queues. Use is shown where the centre's page tells it.
    Who may read only a namespace's pods is told what stands on them.

    \b
    Examples:
      aliquot ps
      aliquot ps -A -o wide
      aliquot ps -n team-a -a -o json
    """
    call = make_call(**server)
    rows = asyncio.run(_rows(call, namespace=namespace, everywhere=everywhere, page=page))
    shown = [row for row in rows if ended or row.state not in _OVER]
    text = printed(
        shown,
        form=form,
        text=lambda wide: table(pod_table(shown, wide=wide, everywhere=everywhere, now=time.time())),
        lines=lambda: [f"pod/{row.name}" for row in shown],
    )
    if text:
        hand_out(text)
    if not shown:
        # Beside what is printed, which scripts read.
        click.echo(_nothing(rows, everywhere=everywhere), err=True)


def _nothing(rows: Sequence[PodRow], *, everywhere: bool) -> str:
    """What an empty table leaves open."""
    if rows:
        return "aliquot: all pods here that asked for a slice have ended; -a shows them"
    return f"aliquot: no pods {'at all' if everywhere else 'here'} that ask for a slice{_ELSEWHERE[everywhere]}"


async def _rows(call: Call, *, namespace: str, everywhere: bool, page: str) -> list[PodRow]:
    async with connected("ps", place=call.place) as connection:
        where = "" if everywhere else namespace or connection.namespace
        rows = await _all_rows(call, connection, page=page)
        if rows is None:
            pods = await connection.client.list(PODS, namespace=where)
            return pod_rows(pods, names=call.names)
    return [row for row in rows if where in {"", row.namespace}]


async def _all_rows(call: Call, connection: Connection, *, page: str) -> list[PodRow] | None:
    """Rows by all that is on the cluster; None for who may not read it."""
    names = call.names
    everything, used = await asyncio.gather(
        read_everything(connection.client, names=names), read_used(connection.place, page=page)
    )
    if everything is None:
        return None
    wall = time.time()
    picture = everything.picture(names=names, wall=wall)
    try:
        plan, told = await read_plan(connection.client, names=names)
    except ForbiddenError:
        return pod_rows(everything.pods, names=names, picture=picture, used=used)
    standing = standing_of(everything, picture, plan=plan, told=told, call=call, wall=wall)
    return pod_rows(everything.pods, names=names, picture=picture, standing=standing, used=used)
