"""Pods by name: there or not, and waited for without asking again and again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from aliquot_cli.cluster import Connection
from aliquot_core.errors import UserError
from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified, Synced
from aliquot_kube.clock import SystemClock
from aliquot_kube.errors import NotFoundError
from aliquot_kube.mirror import Mirror
from aliquot_kube.resources import PODS


class NoPodError(UserError):
    """A pod that is not there, or not as it would have to be."""


def no_pod(namespace: str, name: str) -> NoPodError:
    """There is none of that name."""
    remedy = "`aliquot ps -a` lists all; -n says of which namespace"
    return NoPodError("there is no such pod", where=f"{namespace}/{name}", remedy=remedy)


async def check_pod(connection: Connection, *, namespace: str, name: str) -> None:
    """A `NoPodError` if it is not there now."""
    try:
        await connection.client.get(PODS, name=name, namespace=namespace)
    except NotFoundError:
        raise no_pod(namespace, name) from None


async def until_pod(connection: Connection, *, namespace: str, name: str, holds: Callable[[Pod], bool]) -> None:
    """Wait until something holds of a pod; a `NoPodError` if it is not there, or goes before that."""
    news: asyncio.Queue[Change[Pod]] = asyncio.Queue()
    mirror = _mirror(connection, namespace=namespace, name=name)
    mirror.subscribe(news.put_nowait)
    following = asyncio.create_task(mirror.run())
    try:
        while True:
            change = await news.get()
            if isinstance(change, Added | Modified) and holds(change.new):
                return
            if isinstance(change, Deleted) or (isinstance(change, Synced) and not mirror.objects):
                raise no_pod(namespace, name)
    finally:
        await _end(following)


async def until_gone(connection: Connection, *, namespace: str, name: str, uid: str) -> None:
    """Wait until that very pod is there no more."""
    changed = asyncio.Event()
    mirror = _mirror(connection, namespace=namespace, name=name)
    mirror.subscribe(lambda _: changed.set())
    following = asyncio.create_task(mirror.run())
    try:
        await mirror.synced()
        while any(pod.metadata.uid == uid for pod in mirror.objects.values()):
            changed.clear()
            await changed.wait()
    finally:
        await _end(following)


def _mirror(connection: Connection, *, namespace: str, name: str) -> Mirror[Pod]:
    return Mirror[Pod](
        transport=connection.transport,
        clock=SystemClock(),
        random=random.random,
        resource=PODS,
        namespace=namespace,
        field_selector=f"metadata.name={name}",
    )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
