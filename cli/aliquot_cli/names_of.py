"""Names that a shell completes: of pods, queues and contexts, as they are at this moment.

A shell waits for the answer while somebody types, so whatever goes wrong means no names, and little time is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import click

from aliquot_cli.cluster import Connection, connected
from aliquot_cli.options import make_call
from aliquot_core.errors import AliquotError
from aliquot_core.names import Names

_PATIENCE = 2.0
_Find = Callable[[Connection, Names, str], Awaitable[list[str]]]


def complete_pods(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Pods of the namespace that was named before."""
    return _found(ctx, incomplete, _pods)


def complete_queues(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """All queues."""
    return _found(ctx, incomplete, _queues)


async def _pods(connection: Connection, _: Names, namespace: str) -> list[str]:
    from aliquot_kube.resources import PODS  # only a shell asks, and commands import this module

    found = await connection.client.list(PODS, namespace=namespace or connection.namespace)
    return [pod.metadata.name for pod in found]


async def _queues(connection: Connection, names: Names, _: str) -> list[str]:
    from aliquot_kube.resources import queues_of

    return [queue.metadata.name for queue in await connection.client.list(queues_of(names))]


def _found(ctx: click.Context, incomplete: str, find: _Find) -> list[str]:
    said = {name: str(ctx.params.get(name) or "") for name in ("kubeconfig", "context", "namespace")}

    async def ask() -> list[str]:
        call = make_call(file=ctx.params.get("file"), kubeconfig=said["kubeconfig"], context=said["context"])
        async with asyncio.timeout(_PATIENCE), connected("completion", place=call.place) as connection:
            return await find(connection, call.names, said["namespace"])

    try:
        names = asyncio.run(ask())
    except (AliquotError, TimeoutError):
        return []
    return sorted(name for name in names if name.startswith(incomplete))
