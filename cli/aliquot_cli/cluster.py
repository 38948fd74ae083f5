"""What the commands for people read of a cluster: as much as they may, over one connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Lease, Namespace, Node, Pod, Queue
from aliquot_kube.client import KubeClient
from aliquot_kube.credentials import Credentials, load_configuration
from aliquot_kube.errors import ForbiddenError, NotFoundError
from aliquot_kube.resources import LEASES, NAMESPACES, NODES, PODS, queues_of
from aliquot_kube.transport import HttpTransport
from aliquot_scheduler.queues.entry import Plan, plan_of
from aliquot_scheduler.queues.status import QueueStatus, read_status


class Everything(msgspec.Struct, frozen=True, kw_only=True):
    """All that a picture is made of."""

    nodes: Sequence[Node]
    leases: Sequence[Lease]
    pods: Sequence[Pod]


@asynccontextmanager
async def client_for(command: str, *, kubeconfig: str) -> AsyncIterator[KubeClient]:
    """Speak to the API server as the person who calls."""
    credentials = Credentials(load=partial(load_configuration, kubeconfig=kubeconfig or _own_kubeconfig()))
    transport = HttpTransport(credentials=credentials, user_agent=f"aliquot-{command}")
    try:
        yield KubeClient(transport=transport)
    finally:
        await transport.close()


async def read_everything(client: KubeClient, *, names: Names) -> Everything | None:
    """Nodes, heart-beats and pods of the whole cluster; None for whoever may not read all of it."""
    try:
        nodes, leases, pods = await asyncio.gather(
            client.list(NODES), client.list(LEASES, namespace=names.namespace), client.list(PODS)
        )
    except ForbiddenError:
        return None
    return Everything(nodes=nodes, leases=leases, pods=pods)


async def read_plan(client: KubeClient, *, names: Names) -> tuple[Plan, dict[str, QueueStatus]]:
    """All queues with their status; where they are not installed there are none."""
    queues, namespaces = await asyncio.gather(_queues(client, names=names), _namespaces(client))
    found = ((queue.metadata.name, read_status(queue.status)) for queue in queues)
    return plan_of(queues, namespaces, names=names), {name: status for name, status in found if status}


async def _queues(client: KubeClient, *, names: Names) -> list[Queue]:
    try:
        return await client.list(queues_of(names))
    except NotFoundError:
        return []


async def _namespaces(client: KubeClient) -> list[Namespace]:
    try:
        return await client.list(NAMESPACES)
    except ForbiddenError:
        # A tenant sees which queue is whose home from its own pods.
        return []


def _own_kubeconfig() -> str:
    """What kubectl would use: these commands are a person's, unlike the processes."""
    usual = Path.home() / ".kube" / "config"
    return "" if os.environ.get("KUBECONFIG") or not usual.exists() else str(usual)
