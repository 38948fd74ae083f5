"""`aliquot stop`: end pods, and wait until they have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from aliquot_cli.cluster import Connection, connected
from aliquot_cli.handing_out import hand_out
from aliquot_cli.names_of import complete_pods
from aliquot_cli.options import ObjectName, form_option, make_call, namespace_option, server_options
from aliquot_cli.pods_found import no_pod, until_gone
from aliquot_cli.printing import printed
from aliquot_cli.tables import table
from aliquot_kube.errors import NotFoundError
from aliquot_kube.resources import PODS


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that was told to end."""

    namespace: str
    name: str
    gone: bool


@click.command()
@click.argument("pods", nargs=-1, required=True, type=ObjectName(), shell_complete=complete_pods)
@click.option("--now", is_flag=True, help="Kill it: no time to end by itself.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it is gone.")
@namespace_option
@form_option()
@server_options
def stop(*, pods: Sequence[str], now: bool, no_wait: bool, namespace: str, form: str, **server: Any) -> None:
    """End pods and delete them: they are asked to, and killed after their grace (30 s unless they say otherwise).

    A pod that a Job or another workload owns is made anew by that: stop the workload instead. Exits 3 if there is no
    such pod; those that are there are stopped all the same.

    \b
    Examples:
      aliquot stop trainer-x7k2p
      aliquot stop --now -n team-a trainer-x7k2p notebook-anna
    """
    call = make_call(**server)

    async def stop_all() -> tuple[str, list[Stopped]]:
        async with connected("stop", place=call.place) as connection:
            where = namespace or connection.namespace
            return where, await _stop_all(connection, pods, namespace=where, now=now, wait=not no_wait)

    where, done = asyncio.run(stop_all())
    missing = sorted(set(pods) - {one.name for one in done})
    if done:
        hand_out(
            printed(
                done,
                form=form,
                text=lambda _: table([("POD", "STATE"), *((one.name, _state(one)) for one in done)]),
                lines=lambda: [f"pod/{one.name}" for one in done],
            )
        )
    if missing:
        raise no_pod(where, ", ".join(missing))


def _state(pod: Stopped) -> str:
    return "gone" if pod.gone else "stopping"


async def _stop_all(
    connection: Connection, names: Sequence[str], *, namespace: str, now: bool, wait: bool
) -> list[Stopped]:
    uids: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            pod = await connection.client.get(PODS, name=name, namespace=namespace)
            uid = uids[name] = pod.metadata.uid
            grace = 0 if now else None
            await connection.client.delete(PODS, name=name, namespace=namespace, uid=uid, grace_seconds=grace)
        except NotFoundError:
            # It may have gone by itself between the two.
            continue
    if wait:
        waiting = (until_gone(connection, namespace=namespace, name=name, uid=uid) for name, uid in uids.items())
        await asyncio.gather(*waiting)
    return [Stopped(namespace=namespace, name=name, gone=wait) for name in uids]
